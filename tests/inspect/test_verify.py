"""Verifying logs: what brokers wrote is clean, and every kind of damage is found, where it is and nowhere else."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from sparklog.errors import PathNotFoundError, StorageError
from sparklog.inspect import verify_log
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.jobs.run.job import Amount, Unwatched
from sparklog.log.reader import open_log
from sparklog.storage.base import Entry, Storage
from sparklog.storage.local import LocalFile, LocalStorage
from tests import build
from tests.build import ProducerEntry, Record, control_batch, v2_batch, write_partition
from tests.golden import DATA, EXAMPLES, GoldenSet, golden_sets
from tests.jobs.verifying import findings_in
from tests.places import LOCAL, folder_at

BATCHES, RECORDS_A_BATCH, FIRST = 60, 4, f"{0:020d}"
START_MS = 1_700_000_000_000


def batch(number: int, **fields: object) -> bytes:
    """Make the batch of a number: four records, a second apart."""
    records = [
        Record(delta, START_MS + 1000 * (RECORDS_A_BATCH * number + delta), b"key", b"value %02d" % number * 20)
        for delta in range(RECORDS_A_BATCH)
    ]
    return v2_batch(records, base_offset=RECORDS_A_BATCH * number, **fields)  # type: ignore[arg-type]


class Tally(Unwatched):
    """Counts the bytes that a job says it has done."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def advanced(self, name: str, more: Amount) -> None:  # noqa: ARG002
        self.size_bytes += more.size_bytes


def findings(folder: Path, storage: Storage = LOCAL) -> list[Finding]:
    return [event for event in verify_partition(folder_at(folder, storage)) if isinstance(event, Finding)]


def problems(folder: Path, storage: Storage = LOCAL) -> list[tuple[str, str, str]]:
    """Return what is found, notes left out: severity, code, and name of the file."""
    return [
        (found.severity.value, found.code, Path(found.path).name)
        for found in findings(folder, storage)
        if found.severity is not Severity.NOTE
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Make a partition of three segments, of 20 batches each, whose indexes have several entries."""
    folder = tmp_path / "events-0"
    size = 20 * len(batch(0))
    write_partition(folder, [batch(n) for n in range(BATCHES)], index_interval_bytes=1000, segment_bytes=size)
    assert len(list(folder.glob("*.log"))) == 3
    return folder


@pytest.fixture
def small_log(tmp_path: Path) -> Path:
    """Make a partition of three segments, of 3 batches each, so that verifying it many times takes little."""
    folder = tmp_path / "events-0"
    size = 3 * len(batch(0))
    write_partition(folder, [batch(n) for n in range(9)], index_interval_bytes=1, segment_bytes=size)
    assert len(list(folder.glob("*.log"))) == 3
    return folder


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def each_bit_flipped(path: Path, positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Flip one bit of a file after another, and give the byte and the bit while it is flipped."""
    sound = path.read_bytes()
    for position in positions:
        for bit in range(8):
            flip(path, position, bit)
            yield position, bit
            path.write_bytes(sound)


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda golden: golden.name)
def test_what_a_broker_wrote_is_clean(golden: GoldenSet) -> None:
    assert [each for each in findings_in(golden.log_dir) if each.severity is not Severity.NOTE] == []


def test_example_directory_is_clean_and_every_byte_is_counted() -> None:
    watch = Tally()
    assert all(each.severity is Severity.NOTE for each in findings_in(EXAMPLES, watch=watch))
    assert watch.size_bytes == sum(path.stat().st_size for path in EXAMPLES.glob("*/*.log"))


def test_deleted_directory_of_a_broker_is_clean_by_itself() -> None:
    deleted = list(DATA.glob("v2-lifecycle/logs/*-delete"))
    assert deleted
    for folder in deleted:
        assert problems(folder) == []


def test_sound_log_is_clean(log: Path) -> None:
    assert findings(log) == []


def test_every_flipped_bit_of_a_log_is_found(small_log: Path) -> None:
    middle = files(small_log, ".log")[1]
    batch_bytes = len(batch(0))
    # The header of a batch, and the beginning of its records.
    bits = each_bit_flipped(middle, range(batch_bytes, batch_bytes + 70))
    missed = {
        position - batch_bytes
        for position, _ in bits
        if not any(code != "index-missing" for _, code, _ in problems(small_log))
    }
    # Nothing in a log tells which leader epoch is right where there is no checkpoint, if it only rises.
    assert missed <= set(range(12, 16))


def test_flipped_leader_epoch_is_found_where_there_is_a_checkpoint(log: Path) -> None:
    (log / "leader-epoch-checkpoint").write_text(build.leader_epoch_checkpoint([(0, 0)]))
    assert findings(log) == []
    flip(files(log, ".log")[1], 15)
    assert problems(log) == [("error", "leader-epoch", "leader-epoch-checkpoint")]


def test_flipped_bit_in_a_record_is_placed_and_hides_nothing_behind_it(log: Path) -> None:
    batch_bytes = len(batch(0))
    first, second, _ = files(log, ".log")
    for path, number in ((first, 3), (first, 9), (second, 5)):
        flip(path, number * batch_bytes + 80)
    found = [each for each in findings(log) if each.code == "corrupt-batch"]
    assert [(Path(each.path), each.position, each.offset) for each in found] == [
        (first, 3 * batch_bytes, 12),
        (first, 9 * batch_bytes, 36),
        (second, 5 * batch_bytes, 100),
    ]
    assert len(problems(log)) == 3


def test_size_that_is_too_large_is_told_from_the_batches_it_covers(log: Path) -> None:
    first, batch_bytes = files(log, ".log")[0], len(batch(0))
    flip(first, 4 * batch_bytes + 9, 0)
    found = findings(log)
    assert ("not-a-batch", 4 * batch_bytes) in [(each.code, each.position) for each in found]
    assert any(f"position {5 * batch_bytes}" in each.message for each in found)
    assert {Path(each.path).name for each in found} == {first.name}


def test_bytes_that_are_no_batch_are_skipped_to_the_next_whole_one(log: Path) -> None:
    first, batch_bytes = files(log, ".log")[0], len(batch(0))
    data = bytearray(first.read_bytes())
    data[2 * batch_bytes : 4 * batch_bytes] = b"\xff" * (2 * batch_bytes)
    first.write_bytes(data)
    found = findings(log)
    assert [(each.code, each.position, each.offset) for each in found] == [("not-a-batch", 2 * batch_bytes, 8)]
    assert f"next whole batch begins at position {4 * batch_bytes}" in found[0].message


def test_log_cut_short_in_the_last_segment_is_a_torn_tail(log: Path) -> None:
    last = files(log, ".log")[2]
    size = last.stat().st_size
    for cut in (1, 30, len(batch(0)) - 20):
        with last.open("r+b") as file:
            file.truncate(size - cut)
        found = [each for each in findings(log) if each.path == str(last)]
        assert [(each.severity, each.code, each.offset) for each in found] == [(Severity.NOTE, "torn-tail", 236)]
        assert all(severity == "warning" for severity, _, _ in problems(log))


@pytest.mark.parametrize("base_offset", [-(1 << 62), 5, 1 << 62])
def test_torn_batch_with_a_whole_one_of_any_offset_at_the_end_is_no_torn_tail(log: Path, base_offset: int) -> None:
    """No checksum covers a size and an offset: both were flipped, and the log does not end before them."""
    last = files(log, ".log")[2]
    position = last.stat().st_size
    torn = batch(60)
    torn = torn[:8] + (1 << 20).to_bytes(4, "big") + torn[12:]
    last.write_bytes(last.read_bytes() + torn + v2_batch([Record(0, START_MS)], base_offset=base_offset))
    found = [each for each in findings(log) if each.position == position]
    assert [(each.severity, each.code, each.offset) for each in found] == [(Severity.ERROR, "not-a-batch", 240)]
    assert f"the whole batch at position {position + len(torn)} do not fit" in found[0].message
    with open_log(str(log), on_damage="skip") as damaged:
        assert [(row["position"], row["first_offset"]) for row in damaged.damage().to_pylist()] == [(position, 240)]


def test_log_cut_short_in_an_earlier_segment_is_an_error(log: Path) -> None:
    first = files(log, ".log")[0]
    first.write_bytes(first.read_bytes()[:-10])
    assert ("error", "not-a-batch", first.name) in problems(log)


def test_last_log_cut_between_batches_is_told_by_its_indexes(log: Path) -> None:
    last = files(log, ".log")[2]
    last.write_bytes(last.read_bytes()[: 3 * len(batch(0))])
    assert {name for _, _, name in problems(log)} == {f"{160:020d}.index", f"{160:020d}.timeindex"}


@pytest.mark.parametrize("kept", [".timeindex", ".index"])
def test_sealed_segment_cut_between_batches_is_proven_by_its_index(log: Path, kept: str) -> None:
    second, batch_bytes = files(log, ".log")[1], len(batch(0))
    second.write_bytes(second.read_bytes()[: 18 * batch_bytes if kept == ".timeindex" else 3 * batch_bytes])
    for suffix in {".index", ".timeindex"} - {kept}:
        second.with_suffix(suffix).write_bytes(b"")
    told = [each for each in findings(log) if each.severity is Severity.ERROR]
    ends_at = 152 if kept == ".timeindex" else 92
    assert [(each.code, each.path, each.offset) for each in told] == [("ends-early", str(second), ends_at)]
    assert told[0].position == second.stat().st_size
    assert "the next segment begins at 160" in told[0].message


def test_sealed_segment_cut_behind_what_its_indexes_know_is_a_note(log: Path) -> None:
    second = files(log, ".log")[1]
    second.write_bytes(second.read_bytes()[: 19 * len(batch(0))])
    second.with_suffix(".timeindex").write_bytes(second.with_suffix(".timeindex").read_bytes()[:-12])
    assert problems(log) == []
    assert [(each.code, each.path, each.offset) for each in findings(log)] == [("ends-early", str(second), 156)]


@pytest.mark.parametrize("sign", ["gap", "fewer-records", "checkpoint"])
def test_segment_that_ends_early_in_a_compacted_log_is_sound(tmp_path: Path, sign: str) -> None:
    folder = tmp_path / "events-0"
    kept = [n for n in range(12) if n not in ({4, 5, 8} if sign == "gap" else {5})]
    made = [batch(n) for n in kept]
    if sign == "fewer-records":
        made[2] = v2_batch([Record(0, START_MS)], base_offset=8, last_offset_delta=3)
    write_partition(folder, made[:5] if sign != "gap" else made[:4])
    later = made[5:] if sign != "gap" else made[4:]
    write_partition(folder, later, base_offset=24)
    if sign == "checkpoint":
        (tmp_path / "cleaner-offset-checkpoint").write_text(build.offset_checkpoint({("events", 0): 20}))
    assert findings(folder) == []
    if sign == "checkpoint":
        (tmp_path / "cleaner-offset-checkpoint").unlink()
        assert [each.code for each in findings(folder)] == ["ends-early"]


def test_zeros_behind_the_last_batch_are_a_note(log: Path) -> None:
    last = files(log, ".log")[2]
    last.write_bytes(last.read_bytes() + bytes(10_000))
    assert [(each.severity, each.code) for each in findings(log)] == [(Severity.NOTE, "zero-tail")]


def test_zeros_in_an_earlier_segment_are_an_error(log: Path) -> None:
    first = files(log, ".log")[0]
    first.write_bytes(first.read_bytes() + bytes(1000))
    assert problems(log) == [("error", "not-a-batch", first.name)]


def test_torn_batch_with_whole_ones_behind_it_is_an_error(log: Path) -> None:
    last, batch_bytes = files(log, ".log")[2], len(batch(0))
    data = last.read_bytes()
    last.write_bytes(data[: 5 * batch_bytes + 70] + data[6 * batch_bytes :])
    assert ("error", "not-a-batch", last.name) in problems(log)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_flipped_bit_of_an_index_is_found(small_log: Path, suffix: str) -> None:
    index = files(small_log, suffix)[1]
    assert index.stat().st_size > 1
    missed = {
        (position % 12, bit)
        for position, bit in each_bit_flipped(index, range(index.stat().st_size))
        if ("error", index.name) not in {(severity, name) for severity, _, name in problems(small_log)}
    }
    # An entry of a time index may name any offset of the batch that has the timestamp, which has four of them.
    assert missed <= ({(11, 0), (11, 1)} if suffix == ".timeindex" else set())


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_cut_within_an_entry_is_found(log: Path, suffix: str) -> None:
    index = files(log, suffix)[0]
    index.write_bytes(index.read_bytes()[:-3])
    assert ("error", "index-size", index.name) in problems(log)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_index_is_a_warning(log: Path, suffix: str) -> None:
    index = files(log, suffix)[0]
    index.unlink()
    assert problems(log) == [("warning", "index-missing", index.name)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_that_a_killed_cleaner_did_not_put_in_place_is_a_note(log: Path, suffix: str) -> None:
    index = files(log, suffix)[0]
    index.rename(f"{index}.swap")
    assert problems(log) == []
    assert (Severity.NOTE, "index-missing", str(index)) in [
        (each.severity, each.code, each.path) for each in findings(log)
    ]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_index_of_the_last_segment_is_a_note(log: Path, suffix: str) -> None:
    index = files(log, suffix)[2]
    index.unlink()
    assert [(each.severity, each.code, each.path) for each in findings(log)] == [
        (Severity.NOTE, "index-missing", str(index))
    ]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_behind_an_index_are_fine_in_the_last_segment_only(log: Path, suffix: str) -> None:
    for index in files(log, suffix):
        index.write_bytes(index.read_bytes() + bytes(240))
    names = [index.name for index in files(log, suffix)]
    assert problems(log) == [("warning", "index-padded", name) for name in names[:2]]


def test_time_index_of_another_segment_is_found(log: Path) -> None:
    first, second, _ = files(log, ".timeindex")
    second.write_bytes(first.read_bytes())
    assert problems(log) == [("error", "index-entry", second.name), ("warning", "index-short", second.name)]


def test_offset_index_of_another_log_is_found(log: Path, tmp_path: Path) -> None:
    write_partition(tmp_path / "other-0", [batch(n, codec="gzip") for n in range(20)], index_interval_bytes=500)
    index = files(log, ".index")[1]
    index.write_bytes((tmp_path / "other-0" / f"{FIRST}.index").read_bytes().rstrip(b"\0"))
    assert problems(log) == [("error", "index-entry", index.name)]


def test_stale_time_index_is_a_warning(log: Path) -> None:
    index = files(log, ".timeindex")[0]
    index.write_bytes(index.read_bytes()[:12])
    assert problems(log) == [("warning", "index-short", index.name)]


def test_entry_of_an_append_of_several_batches_is_accepted(tmp_path: Path) -> None:
    folder, batch_bytes = tmp_path / "events-0", len(batch(0))
    write_partition(folder, [batch(n) for n in range(6)])
    (folder / f"{FIRST}.index").write_bytes(build.offset_index([(15, 2 * batch_bytes)]))
    assert problems(folder) == []
    (folder / f"{FIRST}.index").write_bytes(build.offset_index([(7, 2 * batch_bytes)]))
    assert problems(folder) == [("error", "index-entry", f"{FIRST}.index")]


def test_entry_of_the_last_record_that_the_cleaner_kept_is_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    cleaned = v2_batch([Record(0, START_MS), Record(1, START_MS)], base_offset=4, last_offset_delta=3)
    write_partition(folder, [batch(0), cleaned, batch(2)])
    index = folder / f"{FIRST}.index"
    index.write_bytes(build.offset_index([(5, len(batch(0)))]))
    assert problems(folder) == []
    index.write_bytes(build.offset_index([(10, len(batch(0)))]))
    assert problems(folder) == [("error", "index-entry", index.name)]


def test_swapped_logs_are_out_of_their_range(log: Path) -> None:
    first, second, _ = files(log, ".log")
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    found = {(code, name) for severity, code, name in problems(log) if severity == "error"}
    assert {("offset-range", first.name), ("offset-order", second.name)} <= found


def test_batch_written_twice_is_out_of_order(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0), batch(1), batch(1), batch(2)])
    found = findings(folder)
    assert [(each.code, each.position, each.offset) for each in found] == [("offset-order", 2 * len(batch(0)), 8)]


def test_record_later_than_its_batch_says_is_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0, max_timestamp=START_MS)])
    assert problems(folder) == [("warning", "batch-timestamp", f"{FIRST}.log")]


@pytest.mark.parametrize(
    "damaged",
    [
        batch(1, record_count=3),
        batch(1, record_count=5),
        batch(1, codec="zstd", compressed_records=b"\x28\xb5\x2f\xfd nothing"),
        batch(1, attributes=7),
    ],
    ids=["count-below", "count-above", "bad-stream", "unknown-codec"],
)
def test_batch_whose_checksum_is_right_and_content_wrong(tmp_path: Path, damaged: bytes) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0), damaged, batch(2)])
    found = [each for each in findings(folder) if each.severity is Severity.ERROR]
    assert [(each.code, each.position, each.offset) for each in found] == [("corrupt-batch", len(batch(0)), 4)]


def test_record_above_the_last_offset_of_its_batch_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0), batch(1, last_offset_delta=2), batch(2)])
    assert problems(folder) == [("warning", "batch-offset", f"{FIRST}.log")]


# Transactions


def transactions(folder: Path, entries: list[tuple[int, int, int, int]] | None) -> None:
    """Write a transaction of producer 7 that is aborted, and one of producer 8 that is committed."""
    data = [
        batch(0, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0),
        batch(1, transactional=True, producer_id=8, producer_epoch=0, base_sequence=0),
        control_batch("abort", 8, 7),
        control_batch("commit", 9, 8),
    ]
    write_partition(folder, data)
    if entries is not None:
        (folder / f"{FIRST}.txnindex").write_bytes(build.txn_index(entries))


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([(7, 0, 8, 4)], None),
        (None, "index-entry-missing"),
        ([], "index-entry-missing"),
        ([(7, 2, 8, 4)], "index-entry"),
        ([(7, 0, 8, 4), (8, 4, 9, 4)], "index-entry"),
        ([(7, 0, 8, 4), (7, 0, 8, 4)], "index-order"),
    ],
    ids=["right", "no-file", "no-entry", "begins-late", "of-a-commit", "twice"],
)
def test_transaction_index(tmp_path: Path, entries: list[tuple[int, int, int, int]] | None, code: str | None) -> None:
    folder = tmp_path / "events-0"
    transactions(folder, entries)
    assert problems(folder) == ([("error", code, f"{FIRST}.txnindex")] if code else [])


def test_transaction_index_of_an_unknown_version_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    transactions(folder, None)
    (folder / f"{FIRST}.txnindex").write_bytes(build.txn_index([(7, 0, 8, 4)], version=1))
    assert problems(folder) == [("error", "index-entry", f"{FIRST}.txnindex")]


# The other files of a partition


def test_every_flipped_bit_of_a_snapshot_is_found(small_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_log, "_PAUSE_S", 0)
    path = small_log / build.producer_snapshot_name(12)
    path.write_bytes(build.producer_snapshot([ProducerEntry(7, last_offset=11)]))
    assert findings(small_log) == []
    for flipped in each_bit_flipped(path, range(path.stat().st_size)):
        assert problems(small_log) == [("error", "corrupt-file", path.name)], flipped


def test_snapshot_of_later_batches_than_its_name_is_found(log: Path) -> None:
    path = log / build.producer_snapshot_name(80)
    path.write_bytes(build.producer_snapshot([ProducerEntry(7, last_offset=80)]))
    assert problems(log) == [("error", "snapshot", path.name)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0\n1\n3 0\n", "leader-epoch"),
        ("0\n2\n0 0\n0 80\n", "leader-epoch"),
        ("0\n2\n0 0\n", "corrupt-file"),
        ("1\n0\n", "corrupt-file"),
    ],
    ids=["other-epoch", "not-ascending", "cut-short", "unknown-version"],
)
def test_leader_epochs_that_are_not_the_logs_are_found(log: Path, text: str, code: str) -> None:
    (log / "leader-epoch-checkpoint").write_text(text)
    assert problems(log) == [("error", code, "leader-epoch-checkpoint")]


def test_epochs_before_the_first_of_the_checkpoint_are_the_logs_of_deleted_records(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(n, leader_epoch=n // 3) for n in range(9)])
    # DeleteRecords up to offset 18, in the middle of the batch of offsets 16 to 19.
    (folder / "leader-epoch-checkpoint").write_text(build.leader_epoch_checkpoint([(1, 18), (2, 24)]))
    assert [(each.severity, each.code, each.offset) for each in findings(folder)] == [
        (Severity.NOTE, "leader-epoch", 18)
    ]
    (tmp_path / "log-start-offset-checkpoint").write_text(build.offset_checkpoint({("events", 0): 18}))
    assert findings(folder) == []
    for lines in ([(2, 18), (3, 24)], [(1, 18), (2, 28)], [(1, 18), (2, 20)]):
        (folder / "leader-epoch-checkpoint").write_text(build.leader_epoch_checkpoint(lines))
        assert problems(folder) == [("error", "leader-epoch", "leader-epoch-checkpoint")]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_leader_epoch_that_falls_is_told_of_the_segment(tmp_path: Path, has_checkpoint: bool) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0, leader_epoch=3), batch(1, leader_epoch=2), batch(2, leader_epoch=3)])
    if has_checkpoint:
        (folder / "leader-epoch-checkpoint").write_text(build.leader_epoch_checkpoint([(3, 0)]))
    told = [(each.code, Path(each.path).name, each.position, each.offset) for each in findings(folder)]
    assert told == [("leader-epoch", f"{FIRST}.log", len(batch(0)), 4)]


def test_append_times_of_magic_0_are_in_the_time_index_only(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    messages = [build.legacy_message(n, b"k", b"v", magic=0) for n in range(6)]
    wrapper = build.legacy_wrapper([Record(n) for n in range(3)], magic=0, base_offset=6)
    write_partition(folder, [*messages, wrapper])
    index = folder / f"{FIRST}.timeindex"
    index.write_bytes(build.time_index([(START_MS, 2), (START_MS + 5, 4), (START_MS + 9, 8)]))
    assert findings(folder) == []
    # That there is such a message can still be told.
    index.write_bytes(build.time_index([(START_MS, 2), (START_MS + 9, 9)]))
    assert problems(folder) == [("error", "index-entry", index.name)]


@pytest.mark.parametrize(
    "text", ["version: 1\ntopic_id: KVWSeREGR6epFvAH9VCwBA\nmore: 1\n", "version: 0\ntopic_id:  KVWSeREGR6epFvAH9VCwBA"]
)
def test_partition_metadata_of_a_later_version_is_sound(log: Path, text: str) -> None:
    (log / "partition.metadata").write_text(text)
    assert findings(log) == []


@pytest.mark.parametrize(
    "text", ["version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "version: 0\ntopic_id: short", "version: 0\n", "\x00\xff"]
)
def test_partition_metadata_without_a_topic_id_is_found(log: Path, text: str) -> None:
    (log / "partition.metadata").write_text(text)
    assert [(severity, name) for severity, _, name in problems(log)] == [("error", "partition.metadata")]


@pytest.mark.parametrize(
    ("name", "severity", "code"),
    [
        ("copy.log", "error", "foreign-name"),
        ("old.timeindex", "error", "foreign-name"),
        ("0.log", "error", "foreign-name"),
        ("5.log", "error", "foreign-name"),
        ("5.snapshot", "error", "foreign-name"),
        (f"{240:021d}.log", "error", "foreign-name"),
        (f"{999:020d}.foo", "note", "foreign-name"),
        ("notes.txt", "note", "foreign-name"),
        (f"{999:020d}.index", "warning", "orphan"),
        (f"{0:020d}.timeindex.deleted", "note", "unfinished"),
        (f"{0:020d}.log.deleted", "note", "unfinished"),
    ],
)
def test_names_that_do_not_belong_in_a_partition(log: Path, name: str, severity: str, code: str) -> None:
    (log / name).write_bytes(b"")
    told = [(each.severity.value, each.code) for each in findings(log) if Path(each.path).name == name]
    assert (severity, code) in told


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
def test_folder_in_the_place_of_a_file_is_found_and_hides_nothing(log: Path, suffix: str) -> None:
    path = log / f"{FIRST}{suffix}"
    path.unlink(missing_ok=True)
    path.mkdir()
    flip(files(log, ".log")[2], 100)
    found = {(severity, name) for severity, _, name in problems(log)}
    assert {("error", path.name), ("error", f"{160:020d}.log")} <= found


@pytest.mark.parametrize("kind", ["FIFO", "socket", "leads nowhere", "leads in a circle"])
@pytest.mark.parametrize(
    ("name", "severity"),
    [
        (f"{240:020d}.log", "error"),
        (f"{80:020d}.txnindex", "error"),
        (f"{80:020d}.snapshot", "error"),
        ("partition.metadata", "error"),
        ("leader-epoch-checkpoint", "error"),
        ("notes", "note"),
    ],
)
def test_what_is_no_regular_file_is_listed_and_not_opened(log: Path, kind: str, name: str, severity: str) -> None:
    make_special(log / name, kind)
    found = [event for event in verify_partition(folder_at(log)) if isinstance(event, Finding)]
    told = [(each.severity.value, each.code, Path(each.path).name) for each in found]
    assert told == [(severity, "foreign-name", name)]


def make_special(path: Path, kind: str) -> None:
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        # A socket's path has room for no more than 107 bytes.
        with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    else:
        path.symlink_to(path.name if kind == "leads in a circle" else "nowhere")


def test_link_to_a_regular_file_is_read(log: Path, tmp_path: Path) -> None:
    path = files(log, ".log")[1]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert [(each.severity.value, each.code, each.path) for each in findings(log)] == [("warning", "link", str(path))]


def test_links_in_a_log_directory_are_findings(log: Path, tmp_path: Path) -> None:
    directory, disk = tmp_path / "logs", tmp_path / "disk"
    for folder in (directory, disk):
        folder.mkdir()
    shutil.copytree(log, disk / "events-0")
    (disk / "file").touch()
    (directory / "events-0").symlink_to(disk / "events-0")
    for name in ("replication-offset-checkpoint.tmp", "notes"):
        (directory / name).symlink_to(disk / "file")
    found = [each for each in findings_in(directory) if each.code == "link"]
    assert {Path(each.path).name for each in found} == {"events-0", "notes", "replication-offset-checkpoint.tmp"}
    assert {each.severity.value for each in found} == {"warning"}


# A directory that a broker writes to, between the listing of a folder and the reading of what is in it


class Meddling(LocalStorage):
    """The files of this machine, of which a broker changes some when a file is opened, once."""

    def __init__(self, path: Path, change: Callable[[], object]) -> None:
        self._path, self._change, self._is_done = path, change, False

    def open(self, path: str) -> LocalFile:
        if path == str(self._path) and not self._is_done:
            self._is_done = True
            self._change()
        return super().open(path)


def found_meanwhile(folder: Path, opened: Path, change: Callable[[], object]) -> list[Finding]:
    """Verify a folder that is changed when a file of it is opened for the first time."""
    meddling = Meddling(opened, change)
    found = findings(folder, meddling)
    assert meddling._is_done
    return found


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("at", [0, 1])
def test_segments_that_retention_removes_meanwhile_are_no_finding(log: Path, suffix: str, at: int) -> None:
    def remove() -> None:
        for path in log.glob("*"):
            if int(path.stem) <= 80 * at:
                path.rename(f"{path}.deleted")

    opened = files(log, suffix)[at]
    assert found_meanwhile(log, opened, remove) == []


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("at", [0, 1])
def test_segments_that_the_cleaner_merges_meanwhile_are_no_finding(log: Path, suffix: str, at: int) -> None:
    def clean() -> None:
        for path in list(log.iterdir()):
            if int(path.stem) < 160:
                path.unlink()
        write_partition(log, [batch(n) for n in range(0, 39, 5)], index_interval_bytes=100)

    opened = files(log, suffix)[at]
    assert found_meanwhile(log, opened, clean) == []


def test_abort_that_is_appended_meanwhile_is_no_finding(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    transactions(folder, [])

    def index() -> None:
        (folder / f"{FIRST}.txnindex").write_bytes(build.txn_index([(7, 0, 8, 4)]))

    assert found_meanwhile(folder, folder / f"{FIRST}.log", index) == []


def test_leader_epoch_that_begins_meanwhile_is_no_finding(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0), batch(1)])
    checkpoint = folder / "leader-epoch-checkpoint"
    checkpoint.write_text(build.leader_epoch_checkpoint([(0, 0)]))

    def lead() -> None:
        write_partition(folder, [batch(0), batch(1), batch(2, leader_epoch=1)])
        checkpoint.write_text(build.leader_epoch_checkpoint([(0, 0), (1, 8)]))

    assert found_meanwhile(folder, folder / f"{FIRST}.log", lead) == []


def test_damage_in_the_last_segment_is_told_of_a_log_that_grows(log: Path) -> None:
    last = files(log, ".log")[2]
    flip(last, 100)

    def grow() -> None:
        last.write_bytes(last.read_bytes() + batch(BATCHES))

    found = found_meanwhile(log, last, grow)
    assert [(each.code, each.position) for each in found] == [("corrupt-batch", 0)]


def test_segments_that_are_always_replaced_are_given_up(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_log, "_PAUSE_S", 0.0)
    first = files(log, ".log")[0]
    flip(first, 100)
    meddling = Meddling(first, lambda: None)

    def grow(path: str) -> LocalFile:
        if path == str(first):
            first.write_bytes(first.read_bytes() + b"x")
        return LocalFile(path)

    monkeypatch.setattr(meddling, "open", grow)
    assert problems(log, meddling) == [("warning", "unreadable", log.name)]


def test_snapshot_that_a_broker_did_not_come_to_write_is_a_warning(log: Path) -> None:
    (log / build.producer_snapshot_name(80)).write_bytes(b"")
    assert problems(log) == [("warning", "corrupt-file", build.producer_snapshot_name(80))]


# A log directory


@pytest.fixture
def directory(log: Path) -> Path:
    """Make the log directory around the partition, with the checkpoints that a broker keeps."""
    folder = log.parent
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (folder / name).write_text(build.offset_checkpoint({("events", 0): 240}))
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        (folder / name).write_text(build.offset_checkpoint({}))
    (folder / "meta.properties").write_text("version=1\n")
    return folder


def found_in(directory: Path, storage: Storage = LOCAL) -> list[tuple[str, str, str]]:
    return [
        (event.severity.value, event.code, Path(event.path).name)
        for event in findings_in(directory, storage)
        if event.code != "topic-id"
    ]


def test_sound_directory_is_clean(directory: Path) -> None:
    assert found_in(directory) == []


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("recovery-point-offset-checkpoint", "error"),
        ("replication-offset-checkpoint", "error"),
        ("cleaner-offset-checkpoint", "warning"),
        ("log-start-offset-checkpoint", "error"),
    ],
)
def test_checkpoint_past_the_end_of_its_log_is_found(directory: Path, name: str, severity: str) -> None:
    (directory / name).write_text(build.offset_checkpoint({("events", 0): 241}))
    assert found_in(directory) == [(severity, "checkpoint", name)]


@pytest.mark.parametrize("text", ["7\n0\n", "0\n2\nevents 0 1\n", "0\n1\nevents 0\n", "0\n1\nevents x 1\n"])
def test_damaged_checkpoint_is_found(directory: Path, text: str) -> None:
    (directory / "log-start-offset-checkpoint").write_text(text)
    assert found_in(directory) == [("error", "corrupt-file", "log-start-offset-checkpoint")]


def test_partition_that_a_checkpoint_names_and_is_not_there_is_a_note(directory: Path) -> None:
    text = build.offset_checkpoint({("events", 0): 240, ("gone", 3): 7})
    (directory / "recovery-point-offset-checkpoint").write_text(text)
    assert found_in(directory) == [("note", "checkpoint", "recovery-point-offset-checkpoint")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lost+found", [("error", "foreign-name", "lost+found")]),
        ("remote-log-index-cache", []),
        ("events-1.0123456789abcdef0123456789abcdef-stray", []),
        (
            "events-1.0123456789abcdef0123456789abcdef-delete",
            [("note", "set-aside", "events-1.0123456789abcdef0123456789abcdef-delete")],
        ),
    ],
)
def test_folders_that_are_no_partitions(directory: Path, name: str, expected: list[tuple[str, str, str]]) -> None:
    (directory / name).mkdir()
    assert found_in(directory) == expected


def test_stray_folder_is_verified_too(directory: Path, log: Path) -> None:
    stray = directory / "events-1.0123456789abcdef0123456789abcdef-stray"
    shutil.copytree(log, stray)
    flip(files(stray, ".log")[0], 100)
    assert found_in(directory) == [("error", "corrupt-batch", f"{FIRST}.log")]


def test_partitions_of_a_topic_with_two_topic_ids_are_found(directory: Path, log: Path) -> None:
    other = directory / "events-1"
    shutil.copytree(log, other)
    (log / "partition.metadata").write_text("version: 0\ntopic_id: KVWSeREGR6epFvAH9VCwBA")
    (other / "partition.metadata").write_text("version: 0\ntopic_id: bcwne3TeRzeTCc8YAOE7Ow")
    assert [(each.severity, each.code) for each in findings_in(directory)] == [(Severity.ERROR, "topic-id")]


def test_partition_that_cannot_be_listed_hides_no_other(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, error in (("aaa-0", StorageError("no permission")), ("gone-0", PathNotFoundError("no such folder"))):
        shutil.copytree(directory / "events-0", directory / name)
        monkeypatch.setattr(
            LocalStorage, "entries", refusing(LocalStorage.entries, str(directory / name), error), raising=True
        )
    assert found_in(directory) == [("error", "unreadable", "aaa-0"), ("note", "gone", "gone-0")]


def refusing(entries: Callable[..., list[Entry]], folder: str, error: Exception) -> Callable[..., list[Entry]]:
    def refuse(self: LocalStorage, path: str, *wanted: Callable[[str], bool]) -> list[Entry]:
        if path == folder:
            raise error
        return entries(self, path, *wanted)

    return refuse


def test_links_and_pipes_in_a_directory_are_listed(directory: Path) -> None:
    make_special(directory / "notes", "FIFO")
    make_special(directory / "events-1", "leads nowhere")
    (directory / "cleaner-offset-checkpoint").unlink()
    make_special(directory / "cleaner-offset-checkpoint", "FIFO")
    assert found_in(directory) == [
        ("error", "foreign-name", "cleaner-offset-checkpoint"),
        ("error", "foreign-name", "events-1"),
        ("note", "foreign-name", "notes"),
    ]


def test_checkpoint_of_a_topic_made_anew_meanwhile_is_read_again(directory: Path) -> None:
    path = directory / "replication-offset-checkpoint"
    path.write_text(build.offset_checkpoint({("events", 0): 999}))

    def anew() -> None:
        path.write_text(build.offset_checkpoint({("events", 0): 1}))

    meddling = Meddling(directory / "events-0" / f"{FIRST}.log", anew)
    assert found_in(directory, meddling) == []


def test_hostile_bytes_that_look_like_headers_end(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    # Headers of 61 bytes, each of a batch that would reach to the end of the file.
    count, header = 2000, build.V2_HEADER
    data = b"".join(header.pack(n, 61 * (count - n) - 12, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1) for n in range(count))
    (folder / f"{FIRST}.log").write_bytes(struct.pack(">qi", 0, 3) + data)
    assert any(each.severity is Severity.ERROR for each in findings(folder))


def test_old_formats_are_verified(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    data = [
        build.legacy_message(0, b"k", b"v", magic=0),
        build.legacy_message(1, b"k", b"v", magic=1, timestamp=START_MS),
        build.legacy_wrapper([Record(0, START_MS, b"k", b"v"), Record(1, START_MS + 1, b"k", b"v")], base_offset=2),
    ]
    write_partition(folder, data)
    assert problems(folder) == []
    damage: Callable[[int], None] = lambda position: flip(folder / f"{FIRST}.log", position)  # noqa: E731
    damage(20)
    damage(len(data[0]) + len(data[1]) + 50)
    assert [each.offset for each in findings(folder) if each.code == "corrupt-batch"] == [0, 2]


@pytest.mark.parametrize("end", ["torn", "zeros"])
@pytest.mark.parametrize("proof", ["clean shutdown", "recovery point"])
def test_end_that_no_crash_tears_is_an_error(log: Path, end: str, proof: str) -> None:
    last = files(log, ".log")[-1]
    content = last.read_bytes()
    last.write_bytes(content[:-3] if end == "torn" else content + bytes(50))
    code = "torn-tail" if end == "torn" else "zero-tail"
    assert ("error", code, last.name) not in problems(log)
    if proof == "clean shutdown":
        (log.parent / ".kafka_cleanshutdown").write_text("{}")
    else:
        (log.parent / "recovery-point-offset-checkpoint").write_text(build.offset_checkpoint({("events", 0): 241}))
    assert ("error", code, last.name) in problems(log)


def test_wrong_size_of_the_last_batch_is_no_torn_end(log: Path) -> None:
    last = files(log, ".log")[-1]
    content, starts = bytearray(last.read_bytes()), [0]
    while (end := starts[-1] + int.from_bytes(content[starts[-1] + 8 : starts[-1] + 12], "big") + 12) < len(content):
        starts.append(end)
    content[starts[-1] + 9] ^= 1
    last.write_bytes(content)
    assert ("error", "not-a-batch", last.name) in problems(log)


def test_what_was_cut_is_a_note(log: Path) -> None:
    cut = log / f"{0:020d}.120.cut"
    cut.write_bytes(b"x")
    assert [(each.severity, each.code, each.path) for each in findings(log)] == [(Severity.NOTE, "cut", str(cut))]
