"""The harness's own rules: they hold for sound logs, excuse what they say, and a reader that lies is found out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.errors import CorruptBatchError
from sparklog.write.partition import LogWriter
from tests.fuzz import opening
from tests.fuzz import run as harness
from tests.fuzz.cases import Case, Finding, Workbench, drawn
from tests.fuzz.logs import SoundLog, Span, catalog
from tests.fuzz.model import (
    ROW_COLUMNS,
    UNSEEN,
    directory_proves_loss,
    index_proves_loss,
    may_be_torn,
    model_of,
    whole_batch_behind,
)
from tests.fuzz.mutations import KINDS, Edit, Mutation, applied
from tests.fuzz.queries import Answer, Query, ask
from tests.fuzz.rules import table_rows

LOGS = list(catalog().values())
KILLED = catalog()["made/v2-none+killed"]
CLEAN = catalog()["made/v2-none+clean"]
EVERYTHING = Query("batches")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def verdict(bench: Workbench, log: SoundLog, *edits: Edit, query: Query = EVERYTHING) -> tuple[str, str | None]:
    (found,) = bench.verdicts(Case(log, Mutation("made", edits), (query,)))
    return found.outcome, found.finding


def flipped(log: SoundLog, span: Span, at: int, by: int = 1) -> Edit:
    position = span.start + at
    return Edit(span.file, position, 1, bytes([log.files[span.file][position] ^ by]))


# Sound logs


@pytest.mark.parametrize("log", [log for log in LOGS if log.is_clean], ids=lambda log: log.name)
def test_sound_log_is_to_the_model_what_it_is_to_the_reader(log: SoundLog, tmp_path: Path) -> None:
    folder = str(log.write(tmp_path))
    model = model_of(log.files, log)
    assert not model.faults
    assert model.unseen <= {"torn tail"}
    assert index_proves_loss(log.files, log, model) is None
    if model.torn_at is None:
        assert directory_proves_loss(log, model) is None
    stable, end, *reads = ask(
        folder, [Query("stable"), Query("end"), *(Query("batches", level, ROW_COLUMNS) for level in (False, True))]
    )
    assert (stable.offset, end.offset) == (max(model.last_stable_offset, log.start_offset), model.end_offset)
    for committed, answer in zip((False, True), reads, strict=True):
        assert answer.table is not None
        assert table_rows(answer.table) == model.rows(committed=committed, start=log.start_offset)


def test_logs_are_of_every_magic_and_codec() -> None:
    seen = set()
    for log in LOGS:
        seen |= {(batch.magic, batch.codec) for batch in model_of(log.files).batches}
    assert seen == {(magic, codec) for magic in (0, 1, 2) for codec in ("none", "gzip", "snappy", "lz4")} | {
        (2, "zstd")
    }
    assert {log.family for log in LOGS} == {"v2", "legacy", "wrapped", "transactions", "compacted"}
    assert any(len(log.segments) > 1 for log in LOGS)


def test_the_same_seed_and_number_make_the_same_damage() -> None:
    assert [drawn(5, number) for number in range(50)] == [drawn(5, number) for number in range(50)]
    assert len({drawn(5, number).mutation.edits for number in range(50)}) > 45


def test_every_kind_of_damage_damages() -> None:
    for kind in KINDS:
        cases = [drawn(1, number, (f"{kind}/*",)) for number in range(40)]
        assert {case.mutation.kind for case in cases} == {kind}
        changed = [applied(case.log.files, case.mutation.edits) != case.log.files for case in cases]
        assert sum(changed) > 30, kind


# What is excused, and what is not


def test_torn_tail_is_excused_above_the_recovery_point_of_a_killed_writer_only(bench: Workbench) -> None:
    span = KILLED.spans[-1]
    torn = Edit(span.file, span.end - 5, 5, b"")
    assert verdict(bench, KILLED, torn) == ("unseen: torn tail", None)
    for log in (CLEAN, catalog()["made/v2-none+killed"]):
        files = applied(log.files, [torn])
        model = model_of(files, log)
        assert (directory_proves_loss(log, model) is None) == (log is not CLEAN)
    before = KILLED.spans[0]
    wide = model_of({before.file: KILLED.files[before.file][: before.end - 5]}, KILLED)
    assert directory_proves_loss(KILLED, wide) == "a torn tail below the recovery point"


def test_what_may_be_torn() -> None:
    batch = KILLED.batch(KILLED.spans[0])
    other = KILLED.batch(KILLED.spans[1])
    longer = batch[:10] + b"\x01" + batch[11:]
    assert may_be_torn(batch + bytes(300), len(batch), 0)
    assert all(may_be_torn(batch + other[:end], len(batch), 0) for end in range(1, len(other)))
    assert not may_be_torn(longer, 0, 0), "whole but for its size"
    assert not may_be_torn(longer[:-1] + b"?" + other, 0, 0), "a whole batch is behind it"
    assert not may_be_torn(longer[:-1] + b"?" + other, 0, 100), "a whole batch of a lower offset ends the data"
    assert not may_be_torn(longer[:-1] + b"?" + other + batch + b"?", 0, 100), "two of lower offsets are behind it"
    assert may_be_torn(longer[:-1] + b"?" + other + b"?", 0, 100), "it may be in a value"
    assert not may_be_torn(batch[:-1] + b"?", 0, 0), "all there, and its checksum differs"
    assert not may_be_torn(b"\xff" * 100, 0, 0)
    assert whole_batch_behind(b"x" * 7 + batch, 1, 0)


def test_base_offset_and_leader_epoch_are_excused_and_nothing_beside_them(bench: Workbench) -> None:
    log = catalog()["made/compacted+killed"]
    span = log.spans[3]  # offset 150, between gaps
    assert verdict(bench, log, flipped(log, span, 7)) == ("unseen: unchecked header", None)
    assert verdict(bench, log, flipped(log, span, 15)) == ("unseen: unchecked header", None)
    for at in range(8, span.end - span.start):
        if not 12 <= at < 16:
            outcome, finding = verdict(bench, log, flipped(log, span, at), query=Query("batches", columns=ROW_COLUMNS))
            assert finding is not None or outcome.startswith("refused"), at
            assert not outcome.startswith("unseen"), at


def test_batch_that_is_missing_is_excused_and_one_that_stands_twice_is_not(bench: Workbench) -> None:
    first, second = KILLED.spans_in(KILLED.segments[-1])[:2]
    assert verdict(bench, KILLED, Edit(first.file, first.start, first.end - first.start, b"")) == (
        "unseen: other batches",
        None,
    )
    assert verdict(bench, KILLED, Edit(first.file, first.end, 0, KILLED.batch(first)))[0].startswith("refused")
    doubled = model_of(applied(KILLED.files, [Edit(first.file, first.end, 0, KILLED.batch(first))]))
    swapped = model_of(
        applied(
            KILLED.files,
            [Edit(first.file, first.start, second.end - first.start, KILLED.batch(second) + KILLED.batch(first))],
        )
    )
    for model in (doubled, swapped):
        assert ["are not in" in fault.what for fault in model.faults] == [True]


def test_wrapper_that_contradicts_its_messages_is_a_fault() -> None:
    for name in ("made/v0-gzip+killed", "made/v0-snappy+killed"):
        log = catalog()[name]
        model = model_of(applied(log.files, [flipped(log, log.spans[-1], 7, 64)]))
        assert ["the wrapper's offset is not" in fault.what for fault in model.faults] == [True]


def test_index_of_a_sealed_segment_proves_that_batches_are_gone() -> None:
    first = CLEAN.spans_in(CLEAN.segments[0])
    cut = Edit(first[-1].file, first[-1].start, first[-1].end - first[-1].start, b"")
    files = applied(CLEAN.files, [cut])
    assert index_proves_loss(files, CLEAN, model_of(files, CLEAN)) == "its time index"
    no_index = applied(files, [Edit(first[0].file.replace(".log", ".timeindex"), 0, 0, None)])
    assert index_proves_loss(no_index, CLEAN, model_of(no_index, CLEAN)) in (None, "its offset index")


def test_reasons_are_those_that_are_named() -> None:
    found = set[str]()
    for number in range(300):
        case = drawn(9, number)
        found |= model_of(applied(case.log.files, case.mutation.edits), case.log).unseen
    assert found == set(UNSEEN)


# Readers that lie


def _loses_the_last_row(folder: str, queries: Sequence[Query]) -> list[Answer]:
    answers = ask(folder, queries)
    for answer in answers:
        if answer.table is not None and answer.error is None:
            answer.table = answer.table.slice(0, max(answer.table.num_rows - 1, 0))
    return answers


def _hides_errors(folder: str, queries: Sequence[Query]) -> list[Answer]:
    answers = ask(folder, queries)
    for query, answer in zip(queries, answers, strict=True):
        if answer.error is not None:
            answer.error = None
            if query.is_read and answer.table is None:
                answer.table = ask(folder, [Query("batches", columns=ROW_COLUMNS)])[0].table
    return answers


def _doubles_rows(folder: str, queries: Sequence[Query]) -> list[Answer]:
    answers = ask(folder, queries)
    for answer in answers:
        if answer.table is not None:
            answer.table = pa.concat_tables([answer.table, answer.table])
    return answers


def _raises_what_is_not_ours(folder: str, queries: Sequence[Query]) -> list[Answer]:
    answers = ask(folder, queries)
    for answer in answers:
        if answer.error is not None:
            answer.error = ValueError("not ours")
    return answers


def _lies_before_an_error(folder: str, queries: Sequence[Query]) -> list[Answer]:
    answers = _doubles_rows(folder, queries)
    for answer in answers:
        answer.error = CorruptBatchError("at last")
    return answers


def _is_one_off(folder: str, queries: Sequence[Query]) -> list[Answer]:
    answers = ask(folder, queries)
    for answer in answers:
        if answer.offset is not None:
            answer.offset += 1
    return answers


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (_loses_the_last_row, "silent"),
        (_hides_errors, "silent, ends early"),
        (_doubles_rows, "twice or out of order"),
        (_raises_what_is_not_ours, "untyped error ValueError"),
        (_lies_before_an_error, "wrong rows before an error"),
        (_is_one_off, "silent, wrong"),
    ],
)
def test_reader_that_lies_is_found_out(
    tmp_path: Path, lie: Callable[[str, Sequence[Query]], list[Answer]], words: str
) -> None:
    tally = harness.run(Workbench(tmp_path, lie), 3, range(25), ("flip/v2", "cut/v2"))
    assert any(words in kind for kind in tally.kinds), list(tally.kinds)


def test_no_lie_is_excused_by_what_is_unseen(tmp_path: Path) -> None:
    """A rule that excuses whatever follows a flip of a base offset would excuse this."""
    log = catalog()["made/compacted+killed"]
    case = Case(log, Mutation("made", (flipped(log, log.spans[3], 7),)), (EVERYTHING,))
    for lie in (_loses_the_last_row, _doubles_rows):
        (found,) = Workbench(tmp_path / lie.__name__, lie).verdicts(case)
        assert found.finding is not None


def test_finding_is_made_small_and_can_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Workbench(tmp_path / "bench", _hides_errors)
    span = KILLED.spans[1]
    edits = (flipped(KILLED, KILLED.spans[0], 15), flipped(KILLED, span, 70), flipped(KILLED, KILLED.spans[3], 14))
    ((what, smaller),) = bench.findings(Case(KILLED, Mutation("flip", edits), (EVERYTHING,)))
    assert smaller.mutation.edits == edits[1:2]
    path = Finding(what, smaller, 0, 0).save(tmp_path / "saved")
    assert harness.main(["--replay", str(path)]) == 0
    said = capsys.readouterr().out
    assert "made/v2-none+killed" in said
    assert "refused" in said


# Writers that lie


class _CutsTooMuch(LogWriter):
    """A writer that cuts the last batch of a log, whatever it is."""

    @classmethod
    def open(cls, path: Path, **options: object) -> _CutsTooMuch:  # type: ignore[override]
        log = max(path.glob("*.log"))
        log.write_bytes(log.read_bytes()[:-1])
        return super().open(path, **options)  # type: ignore[arg-type]


class _RaisesKeyErrors(LogWriter):
    @classmethod
    def open(cls, path: Path, **options: object) -> _RaisesKeyErrors:  # type: ignore[override]  # noqa: ARG003
        raise KeyError(path)


@pytest.mark.parametrize(
    ("log", "lie", "words"),
    [
        (KILLED, _CutsTooMuch, "a whole batch is cut off"),
        (CLEAN, _CutsTooMuch, "opening refuses a log, and has changed it"),
        (KILLED, _RaisesKeyErrors, "untyped error KeyError"),
    ],
)
def test_writer_that_lies_is_found_out(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, log: SoundLog, lie: type, words: str
) -> None:
    monkeypatch.setattr(opening, "LogWriter", lie)
    (found,) = bench.verdicts(Case(log, Mutation("none", ())))
    assert found.finding is not None
    assert words in found.finding


def test_sound_log_is_opened_and_closed_and_not_a_byte_is_gone(bench: Workbench) -> None:
    for log in LOGS[::3]:
        (found,) = bench.verdicts(Case(log, Mutation("none", ())))
        assert (found.outcome, found.finding) == ("equal", None), log.name


# Processes that are watched


def _hangs_at_three(share: harness.Share, at: object, results: object) -> None:
    for number in range(share.start, share.stop):
        at.value = number  # type: ignore[attr-defined]
        if number == 3:
            time.sleep(600)
    results.put(harness.Tally(cases=share.stop - share.start))  # type: ignore[attr-defined]


def _dies_at_three(share: harness.Share, at: object, results: object) -> None:
    for number in range(share.start, share.stop):
        at.value = number  # type: ignore[attr-defined]
        if number == 3:
            raise SystemExit(9)
    results.put(harness.Tally(cases=share.stop - share.start))  # type: ignore[attr-defined]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "HANG_SECONDS", 2.0)


@pytest.mark.parametrize(("work", "words"), [(_hangs_at_three, "a hang"), (_dies_at_three, "the process died with 9")])
def test_case_that_hangs_or_kills_is_a_finding_and_the_rest_goes_on(
    tmp_path: Path, patience: None, work: Callable[..., None], words: str
) -> None:
    share = harness.Share(1, 0, 6, 1, ("*",), writing=False, questions=3, saved=tmp_path)
    worker = harness.Worker(share, piece=100, work=work)
    while worker.poll():
        time.sleep(0.1)
    assert worker.tally.cases == 6
    ((kind, count),) = worker.tally.kinds.items()
    assert (kind.startswith(words), count) == (True, 1)
    assert worker.tally.smallest[kind].number == 3
