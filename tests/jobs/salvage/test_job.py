"""The job around the copies: stopped anywhere it begins again, and no folder is half there; what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.output.fields import ROWS
from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.salvage.arguments import salvage
from sparklog.jobs.salvage.record import read_record
from sparklog.log.files import SALVAGE_RECORD
from sparklog.storage.base import Storage
from sparklog.topic.quarantine import DAMAGE_FILE, Quarantine
from tests import terminal
from tests.build import control_batch, leader_epoch_checkpoint, offset_checkpoint, write_partition
from tests.cli.output.test_fields import disagreements
from tests.jobs.copies import records, refuse_wrong_state
from tests.jobs.salvage.damaged import batches_of, run, salvage_job
from tests.log.logs import batch, batches
from tests.places import LOCAL, directory_at, location_of
from tests.storage.crash import CrashingStorage, Loss, crashes
from tests.storage.full_disk import FullDisk
from tests.topic.staged import findings

NAMES = ("events-0", "events-1", "other-0")
SMALL_TASKS = LogJobOptions(lock_timeout_seconds=5.0, task_bytes=1)


def write_damaged(logs: Path) -> None:
    """Three partitions: one damaged in the midst, one at its start, one with a transaction and no damage."""
    for name in NAMES[:2]:
        write_partition(logs / name, batches(6), segment_bytes=1000, index_interval_bytes=100)
        (logs / name / "leader-epoch-checkpoint").write_text(leader_epoch_checkpoint([(0, 0)]))
    marker = control_batch("abort", 10, 7)
    write_partition(logs / NAMES[2], [batch(0, producer_id=7, producer_epoch=0, transactional=True), marker])
    (logs / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 1): 15}))
    for name, position in (("events-0", 100), ("events-1", 3)):
        path = min((logs / name).glob("*.log"))
        data = bytearray(path.read_bytes())
        data[position : position + 30] = bytes(30)
        path.write_bytes(data)


def state_of(target: Path) -> dict[str, object]:
    """Return what must be the same however often a salvage was stopped."""
    record = read_record(directory_at(target))
    assert record is not None
    assert record.is_finished
    logs = {str(at): (log.records, log.damage, log.start_offset, log.end_offset) for at, log in record.logs.items()}
    checkpoints = {path.name: sorted(path.read_text().splitlines()) for path in target.glob("*-checkpoint")}
    contents = {str(path.relative_to(target)): path.read_bytes() for path in target.glob("*/*")}
    return {**logs, **checkpoints, **contents}


@pytest.mark.parametrize("losses", [("torn", "lost"), ("kept", "zeros")], ids=str)
def test_salvage_that_stops_anywhere_shows_whole_partitions_only_and_is_finished_by_a_rerun(
    tmp_path: Path, losses: tuple[Loss, ...]
) -> None:
    logs = tmp_path / "logs"
    write_damaged(logs)
    run(salvage_job(tmp_path / "whole", logs, options=SMALL_TASKS))
    wanted = state_of(tmp_path / "whole")
    assert findings(tmp_path / "whole") == []
    shown = {name: records(tmp_path / "whole" / name) for name in NAMES}

    def execute(storage: CrashingStorage, folder: Path) -> None:
        run(salvage_job(folder, logs, storage=storage, options=SMALL_TASKS))

    outcomes = set()
    (tmp_path / "crashes").mkdir()
    for crash in crashes(lambda _: None, execute, tmp_path / "crashes", losses):
        seen = {path.name: records(path) for path in crash.folder.iterdir() if path.name in NAMES}
        assert all(seen[name] == shown[name] for name in seen), str(crash)
        record = read_record(directory_at(crash.folder))
        if record is None or not record.is_finished:
            run(salvage_job(crash.folder, logs, options=SMALL_TASKS))
        assert state_of(crash.folder) == wanted, str(crash)
        assert sorted(path.name for path in crash.folder.iterdir() if path.is_dir()) == sorted(NAMES), str(crash)
        outcomes.add(len(seen))
    assert outcomes >= {0, 1, 3}


def quarantined(folder: Path) -> dict[str, object]:
    """Return the files of a quarantine, and its table without an order."""
    kept: dict[str, object] = {path.name: path.read_bytes() for path in folder.glob("*/*")}
    return kept | {"rows": sorted((folder / DAMAGE_FILE).read_text().splitlines())}


def test_damage_is_kept_in_the_quarantine_wherever_a_salvage_stops(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_damaged(logs)

    def execute(storage: Storage, folder: Path) -> None:
        kept = Quarantine(location_of(folder / "q", storage))
        run(salvage_job(folder / "out", logs, storage=storage, options=SMALL_TASKS, quarantine=kept))

    execute(LOCAL, tmp_path / "whole")
    wanted, state = quarantined(tmp_path / "whole" / "q"), state_of(tmp_path / "whole" / "out")
    record = read_record(directory_at(tmp_path / "whole" / "out"))
    assert record is not None
    lost = [each for log in record.logs.values() for each in log.damage]
    assert len(wanted) == len(lost) + 1 == 2
    for each in lost:
        piece = Path(each.file).read_bytes()[each.position :][: each.length_bytes]
        assert piece in wanted.values()
    (tmp_path / "crashes").mkdir()
    seen = set()
    for crash in crashes(lambda _: None, execute, tmp_path / "crashes", ("torn", "lost")):
        record = read_record(directory_at(crash.folder / "out"))
        if record is not None and any(log.damage for log in record.logs.values()):
            assert quarantined(crash.folder / "q") == wanted, str(crash)
        seen.add((crash.folder / "q" / DAMAGE_FILE).exists())
        if record is None or not record.is_finished:
            execute(LOCAL, crash.folder)
        assert quarantined(crash.folder / "q") == wanted, str(crash)
        assert state_of(crash.folder / "out") == state, str(crash)
    assert seen == {False, True}


@pytest.mark.parametrize("place", ["logs/q", "out/q", "logs/events-0"])
def test_quarantine_in_the_source_or_the_target_is_refused_before_anything_is_made(tmp_path: Path, place: str) -> None:
    write_damaged(tmp_path / "logs")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidOptionError, match="is in the log directory"):
        salvage(tmp_path / "logs", tmp_path / "out", quarantine=tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_full_disk_at_any_change_is_an_error_and_a_rerun_finishes(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_damaged(logs)
    run(salvage_job(tmp_path / "whole", logs))
    wanted, full_at, is_done = state_of(tmp_path / "whole"), 0, False
    while not is_done:
        full_at += 1
        target = tmp_path / str(full_at)
        target.mkdir()
        disk = FullDisk(target, full_at, stays_full=True)
        try:
            run_job(salvage_job(target, logs, storage=disk), LocalRunner(1))
            is_done = True
        except SeglogError:
            disk.make_room()
            run(salvage_job(target, logs))
        assert state_of(target) == wanted, full_at
    assert full_at > 20


def test_unfinished_salvage_keeps_the_partitions_of_its_record(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_damaged(logs)
    run(salvage_job(target, logs))
    record = target / SALVAGE_RECORD
    lines = record.read_bytes().splitlines(keepends=True)
    first = next(row for row, line in enumerate(lines) if b'"kind":"partition"' in line)
    record.write_bytes(b"".join(lines[: first + 1]) + lines[first + 1][:20])
    kept = target / "events-0" / "kept-by-a-test"
    kept.touch()
    (target / "events-1" / "not-kept").touch()
    run(salvage_job(target, logs))
    assert kept.exists()
    assert not (target / "events-1" / "not-kept").exists()
    assert record.read_bytes() == b"".join(lines)
    for name in NAMES:
        refuse_wrong_state(target / name)


def test_target_with_anything_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_damaged(logs)
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    with pytest.raises(SeglogError, match=r"is not empty, it has mine\.txt"):
        salvage(logs, target)
    assert [path.name for path in target.iterdir()] == ["mine.txt"]
    (target / "mine.txt").unlink()
    salvage(logs, target)
    with pytest.raises(SeglogError, match="holds a finished salvage"):
        salvage(logs, target)
    with pytest.raises(SeglogError, match="whose logs are read"):
        salvage(logs, logs / "within")
    record = target / SALVAGE_RECORD
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(SeglogError, match=r"holds an unfinished salvage of .*/logs, and not of .*/events-0"):
        salvage(logs / "events-0", target)


def test_forged_record_leads_nowhere(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_damaged(logs)
    salvage(logs, target)
    record = target / SALVAGE_RECORD
    text = record.read_bytes()
    for forged in (text[:50] + b"x" + text[51:], b"[]\n" + text, text.replace(b'"records"', b'"recordz"')):
        record.write_bytes(forged)
        with pytest.raises(SeglogError, match=r"line [1-4] of the record"):
            salvage(logs, target)


def test_partitions_are_chosen_and_internal_topics_come_along(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_damaged(logs)
    write_partition(logs / "__consumer_offsets-3", batches(1))
    assert len(salvage(logs, tmp_path / "all").logs) == 4
    choices: list[dict[str, Any]] = [
        {"topics": "other"}, {"partitions": [("other", 0)]}, {"topic_pattern": "ot.*"},
    ]  # fmt: skip
    for number, chosen in enumerate(choices):
        assert [log.topic for log in salvage(logs, tmp_path / str(number), **chosen).logs] == ["other"]
    assert [log.partition for log in salvage(logs / "events", tmp_path / "topic").logs] == [0, 1]
    assert [log.partition for log in salvage(logs / "events-1", tmp_path / "folder").logs] == [1]
    planned = salvage(logs, tmp_path / "none", dry_run=True).planned
    assert [each.name for each in planned] == ["__consumer_offsets-3", *NAMES]
    assert not (tmp_path / "none").exists()


def test_links_that_were_planted_in_the_target_are_not_followed(tmp_path: Path) -> None:
    logs, target, outside = tmp_path / "logs", tmp_path / "salvaged", tmp_path / "outside"
    write_damaged(logs)
    outside.mkdir()
    (outside / "a.log").write_text("mine")
    run(salvage_job(target, logs))
    record = target / SALVAGE_RECORD
    record.write_bytes(record.read_bytes().splitlines(keepends=True)[0])
    for path in (target / "events-0").iterdir():
        path.unlink()
    (target / "events-0").rmdir()
    (target / "events-0").symlink_to(outside)
    with pytest.raises(SeglogError):
        run(salvage_job(target, logs))
    assert (outside / "a.log").read_text() == "mine"


def test_sound_directory_is_copied_byte_by_byte(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_partition(logs / "events-0", batches(30), segment_bytes=2000)
    done = salvage(logs, target)
    assert done.damage.num_rows == 0
    for path in (logs / "events-0").iterdir():
        assert (target / "events-0" / path.name).read_bytes() == path.read_bytes(), path.name
    assert batches_of(target / "events-0") == batches(30)


def test_files_of_the_directory_come_along_and_the_metadata_log_does_not(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_damaged(logs)
    write_partition(logs / "__cluster_metadata-0", batches(2))
    (logs / "meta.properties").write_text("version=1\ncluster.id=x\n")
    (logs / "topics.properties").write_text("events/retention.ms=-1\n")
    salvage(logs, target)
    for name in ("meta.properties", "topics.properties"):
        assert (target / name).read_bytes() == (logs / name).read_bytes()
    assert sorted(path.name for path in target.iterdir() if path.is_dir()) == sorted(NAMES)


def test_at_the_terminal_amounts_and_damage_are_printed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_damaged(logs)
    shown = terminal.run("salvage", logs, tmp_path / "out", "--processes", "1")
    assert shown.exit_code == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:4]] == [
        ["events-0", "50"], ["events-1", "50"], ["other-0", "11"],
    ]  # fmt: skip
    assert "111 records of 3 partitions kept; lost in 1 place:" in shown.stdout
    rows = terminal.lines("salvage", logs, tmp_path / "json", "--processes", "1", "--json")
    assert [len(row["damage"]) for row in rows] == [1, 0, 0]
    assert [disagreements(row, ROWS["salvage"]["a partition"]) for row in rows] == [[], [], []]
    planned = terminal.lines("salvage", logs, tmp_path / "none", "--dry-run", "--json")
    assert [(row["topic"], row["partition"]) for row in planned] == [("events", 0), ("events", 1), ("other", 0)]
    kept = terminal.run("salvage", logs, tmp_path / "more", "--processes", "2", "--quarantine", tmp_path / "q")
    assert (kept.exit_code, len(quarantined(tmp_path / "q"))) == (0, 2)
    refused = terminal.run("salvage", logs, tmp_path / "out")
    assert refused.exit_code == 2
    assert "holds a finished salvage" in refused.stderr
