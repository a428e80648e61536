"""Jobs over damaged logs: what can be read is moved, and what is lost is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import CorruptLogError, InvalidOptionError
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.copy.arguments import copy
from sparklog.jobs.export.arguments import export
from sparklog.jobs.ledger import Moved
from sparklog.log.damage_rows import DamagedStretch
from sparklog.topic.quarantine import DAMAGE_FILE
from tests.build import write_partition
from tests.jobs.dead_disk import BATCHES, make_dead_disk, overwrite
from tests.jobs.tables import moved_to, rows
from tests.log.logs import batches, only_log


def offsets_in(path: Path) -> list[tuple[str, int]]:
    return sorted((row["topic"], row["offset"]) for row in rows(path))


def damage_of(logs: Path) -> set[DamagedStretch]:
    with sparklog.open_topic(logs, on_damage="skip") as topic:
        return {DamagedStretch(**row) for row in topic.damage().to_pylist()}


@pytest.mark.parametrize("task_bytes", [1 << 28, 1000])
def test_export_gives_every_record_of_a_dead_disk_and_says_once_what_is_lost(tmp_path: Path, task_bytes: int) -> None:
    logs, table, kept = tmp_path / "logs", tmp_path / "table", tmp_path / "q"
    sound = make_dead_disk(logs)
    given: dict[str, Any] = {"source": logs, "on_damage": "skip", "partition_by": (), "quarantine": kept}
    summary = moved_to(table, task_bytes=task_bytes, **given)
    assert offsets_in(table) == sorted(sound)
    assert {each.topic for each in summary.lost} == {"flipped", "zeros", "noise", "torn", "segment", "nothing"}
    assert len(set(summary.lost)) == len(summary.lost)
    assert set(summary.lost) == damage_of(logs)

    lines = [json.loads(line) for line in (kept / DAMAGE_FILE).read_bytes().splitlines()]
    assert {(line["file"], line["position"]) for line in lines} == {(each.file, each.position) for each in summary.lost}
    for line in lines:
        if line["length_bytes"]:
            raw = Path(line["file"]).read_bytes()[line["position"] :][: line["length_bytes"]]
            assert (kept / line["kept"]).read_bytes() == raw

    findings = list(verify_ledger(table))
    assert [each.kind for each in findings] == ["lost"] * len(summary.lost)
    assert not any(each.is_damage for each in findings)

    again = moved_to(table, task_bytes=task_bytes, **given)
    assert (again.rows, again.lost) == (0, ())
    assert offsets_in(table) == sorted(sound)


def test_export_without_the_option_moves_the_other_partitions_and_names_the_damaged_ones(tmp_path: Path) -> None:
    make_dead_disk(tmp_path / "logs")
    with pytest.raises(CorruptLogError):
        moved_to(tmp_path / "table", source=tmp_path / "logs", partition_by=())
    assert {topic for topic, _ in offsets_in(tmp_path / "table")} >= {"clean", "indexes"}


@pytest.mark.parametrize("keep_offsets", [True, False])
@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("task_bytes", [1 << 28, 1000])
def test_copy_takes_every_sound_batch_of_a_dead_disk_and_records_the_rest(
    tmp_path: Path, keep_offsets: bool, isolation_level: str, task_bytes: int
) -> None:
    logs, target = tmp_path / "logs", tmp_path / "target"
    sound = make_dead_disk(logs)
    given: dict[str, Any] = {
        "on_damage": "skip", "keep_offsets": keep_offsets, "isolation_level": isolation_level, "processes": 1,
        "task_bytes": task_bytes, "quarantine": tmp_path / "q",
    }  # fmt: skip
    summary = copy(logs, target, **given)
    with sparklog.open_topic(target) as topic:
        found = topic.read(columns=["topic", "offset", "value"]).to_pylist()
    assert sorted((row["topic"], int(row["value"].removeprefix(b"value of "))) for row in found) == sorted(sound)
    if keep_offsets:
        assert {(row["topic"], row["offset"]) for row in found} == sound
    assert set(summary.lost) == damage_of(logs)
    assert len(set(summary.lost)) == len(summary.lost)
    assert not [each for each in sparklog.verify(target) if each.severity == "error"]
    again = copy(logs, target, **given)
    assert (again.rows, again.lost) == (0, ())


def test_damage_at_the_end_is_told_once_though_the_log_goes_on_behind_it(tmp_path: Path) -> None:
    folder, made = tmp_path / "logs" / "events-0", batches(6)
    write_partition(folder, made[:4])
    overwrite(only_log(folder), sum(map(len, made[:3])) + 80, b"\xee\xee")
    given: dict[str, Any] = {"source": tmp_path / "logs", "on_damage": "skip", "partition_by": ()}
    first = moved_to(tmp_path / "table", **given)
    assert (first.rows, [each.first_offset for each in first.lost]) == (30, [30])
    with only_log(folder).open("ab") as file:
        file.write(made[4] + made[5])
    second = moved_to(tmp_path / "table", **given)
    assert (second.rows, second.lost) == (20, ())
    assert [offset for _, offset in offsets_in(tmp_path / "table")] == [*range(30), *range(40, 60)]


def test_many_stretches_are_recorded_in_a_line_of_bounded_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.topic.found_damage.STRETCHES_MAX", 3)
    folder, made = tmp_path / "logs" / "events-0", batches(BATCHES)
    write_partition(folder, made)
    for n in range(0, BATCHES, 2):
        overwrite(only_log(folder), sum(map(len, made[:n])) + 80, b"\xee\xee")
    summary = moved_to(tmp_path / "table", source=tmp_path / "logs", on_damage="skip")
    *first, rest = summary.lost
    assert [each.first_offset for each in first] == [0, 20, 40]
    assert (rest.first_offset, rest.end_offset) == (60, 390)
    assert rest.length_bytes == sum(len(made[n]) for n in range(6, BATCHES, 2))
    assert "17 damaged stretches" in rest.reason


def test_damaged_small_files_keep_nothing_from_being_moved(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "events-0"
    write_partition(folder, batches(3))
    (folder / "leader-epoch-checkpoint").write_bytes(b"\xff\xfe noise")
    (folder / "partition.metadata").write_bytes(b"\0" * 50)
    assert moved_to(tmp_path / "table", source=tmp_path / "logs", on_damage="skip").rows == 30


def test_entry_of_a_ledger_keeps_what_was_lost() -> None:
    stretch = DamagedStretch("events", 0, "/logs/events-0/00000000000000000000.log", 5, 7, 1, 3, "noise")
    entry = Moved("events", 0, 0, 10, 8, 100, lost=(stretch,))
    assert Moved.from_json(json.loads(json.dumps(entry.to_json()))) == entry
    assert "lost" not in Moved("events", 0, 0, 10, 8, 100).to_json()


@pytest.mark.parametrize(
    ("job", "given", "message"),
    [
        (export, {"quarantine": "q"}, "set on_damage to skip"),
        (export, {"unknown": "keep"}, "set on_damage to skip"),
        (export, {"on_damage": "skp"}, "fail, skip, best_effort"),
        (export, {"on_damage": "skip", "quarantine": "logs/q"}, "is in the log directory"),
        (copy, {"on_damage": "best_effort"}, "fail or skip"),
        (copy, {"on_damage": "skip", "quarantine": "logs/q"}, "is in the log directory"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(
    tmp_path: Path, job: Any, given: dict[str, str], message: str
) -> None:
    write_partition(tmp_path / "logs" / "events-0", batches(3))
    if "quarantine" in given:
        given = given | {"quarantine": str(tmp_path / given["quarantine"])}
    with pytest.raises(InvalidOptionError, match=message):
        job(tmp_path / "logs", tmp_path / "table", **given)
    assert not (tmp_path / "table").exists()


def test_best_effort_also_exports_the_records_that_decode_of_a_damaged_batch_and_marks_them(tmp_path: Path) -> None:
    folder, made = tmp_path / "logs" / "events-0", batches(3)
    write_partition(folder, made)
    overwrite(only_log(folder), len(made[0]) + len(made[1]) - 3, b"\xee")
    summary = moved_to(tmp_path / "table", source=tmp_path / "logs", on_damage="best_effort")
    marked = {row["offset"]: row["damaged"] for row in rows(tmp_path / "table")}
    assert {offset for offset, is_damaged in marked.items() if not is_damaged} == {*range(10), *range(20, 30)}
    assert {offset for offset, is_damaged in marked.items() if is_damaged} >= set(range(10, 18))
    assert [each.first_offset for each in summary.lost] == [10]
    with sparklog.open_topic(tmp_path / "logs", on_damage="best_effort") as topic:
        assert topic.read().schema.names[-1] == "damaged"
        assert dict(zip(*topic.read(columns=["offset", "damaged"]).to_pydict().values(), strict=True)) == marked
