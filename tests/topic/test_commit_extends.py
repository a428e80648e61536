"""A commit extends files of the log directory, together with what becomes visible in the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparklog
from sparklog.errors import CommitError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.txn_versions import TxnVersion
from sparklog.write.journal import apply_journal
from sparklog.write.locking import hold
from sparklog.write.staged_files import StagedRun
from tests.places import directory_at, moved
from tests.storage.crash import CrashingStorage, crashes
from tests.topic.staged import NOW_MS, findings, rows, stage, values, write

NAME = "seglog.ledger.jsonl"
OLD = [rows(["old 0", "old 1"], partition=[0, 1])]
NEW = [rows(["new 0", "new 1", "new 2"], partition=[0, 1, 1])]
OLD_VALUES = {"events-0": ["old 0"], "events-1": ["old 1"]}
BOTH = {"events-0": ["old 0", "new 0"], "events-1": ["old 1", "new 1", "new 2"]}


def content_of(directory: Path) -> bytes:
    path = directory / NAME
    return path.read_bytes() if path.exists() else b""


def test_files_are_made_and_extended(tmp_path: Path) -> None:
    write(tmp_path, OLD, appended={NAME: b"first\n", "seglog.other": b"x"})
    write(tmp_path, NEW, appended={NAME: b"second\n", "seglog.other": b""})
    assert content_of(tmp_path) == b"first\nsecond\n"
    assert (tmp_path / "seglog.other").read_bytes() == b"x"
    assert values(tmp_path) == BOTH
    assert findings(tmp_path) == []


def snapshots(directory: Path, number: int = 0) -> dict[int, int]:
    """Return the inodes of a log's snapshots by offset."""
    return {int(each.stem): each.stat().st_ino for each in (directory / f"events-{number}").glob("*.snapshot")}


def test_snapshot_of_a_log_without_producers_moves_on_with_the_end_of_the_log(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    first = snapshots(tmp_path)
    assert list(first) == [1]
    for end in (2, 3):
        write(tmp_path, NEW)
        assert snapshots(tmp_path) == {end: first[1]}
        assert findings(tmp_path) == []


def test_snapshot_at_the_beginning_of_a_segment_and_one_with_producers_stay(tmp_path: Path) -> None:
    small = LogConfig(segment_bytes=200)
    write(tmp_path, [rows(["x" * 150], partition=[0])], config=small)
    write(tmp_path, [rows(["y" * 150], partition=[0])], config=small)
    bases = {int(each.stem) for each in (tmp_path / "events-0").glob("*.log")}
    assert bases == {0, 1}
    before = snapshots(tmp_path)
    assert sorted(before) == [1, 2]
    write(tmp_path, [rows(["z"], partition=[0])])
    assert snapshots(tmp_path) == {1: before[1], 3: before[2]}
    with sparklog.PartitionLog.open(tmp_path / "events-0") as log:
        log.append({"value": [b"p"]}, producer_id=7, producer_epoch=0, base_sequence=0)
    of_producer = snapshots(tmp_path)
    write(tmp_path, [rows(["z"], partition=[0])])
    assert snapshots(tmp_path)[5] not in of_producer.values()
    with sparklog.PartitionLog.open(tmp_path / "events-0") as log:
        assert log.append({"value": [b"p"]}, producer_id=7, producer_epoch=0, base_sequence=0) == (3, 3)
    assert findings(tmp_path) == []


def test_commit_of_no_records_extends_a_file(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    job, _ = stage(tmp_path, [], appended={NAME: b"line\n"})
    assert commit(job, [], NOW_MS)["partitions"] == []
    assert content_of(tmp_path) == b"line\n"
    assert values(tmp_path) == OLD_VALUES


def test_what_lies_behind_the_position_is_cut(tmp_path: Path) -> None:
    write(tmp_path, OLD, appended={NAME: b"first\ntorn li"})
    write(tmp_path, NEW, appended={NAME: b"second\n"}, append_positions={NAME: 6})
    assert content_of(tmp_path) == b"first\nsecond\n"


def test_position_behind_the_end_fails_the_commit(tmp_path: Path) -> None:
    write(tmp_path, OLD, appended={NAME: b"first\n"})
    with pytest.raises(CommitError, match=r"ledger\.jsonl has 6 bytes, and the commit is to extend it from 7 on"):
        write(tmp_path, NEW, appended={NAME: b"second\n"}, append_positions={NAME: 7})
    assert values(tmp_path) == OLD_VALUES
    assert content_of(tmp_path) == b"first\n"


def test_job_that_was_committed_before_extends_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path, OLD, appended={NAME: b"first\n"}, transaction=TxnVersion("loader", 1))
    assert content_of(tmp_path) == b"first\n"


@pytest.mark.parametrize(("before", "position"), [(b"", None), (b"first\n", None), (b"first\ntorn li", 6)])
def test_commit_that_stops_anywhere_extends_the_file_with_the_logs_or_not_at_all(
    tmp_path: Path, before: bytes, position: int | None
) -> None:
    def prepare(folder: Path) -> None:
        write(folder, OLD, appended={NAME: before} if before else {})
        positions = {} if position is None else {NAME: position}
        prepared.append(stage(folder, NEW, appended={NAME: b"second\n"}, append_positions=positions))

    def run(storage: CrashingStorage, folder: Path) -> None:
        job, staged = prepared[0]
        commit(moved(job, storage, folder), staged, NOW_MS)

    prepared: list[tuple[CommitRequest, list[StagedRun]]] = []
    kept, outcomes = before[:position], set()
    for crash in crashes(prepare, run, tmp_path):
        was_decided = (crash.folder / files.JOURNAL).exists()
        with hold(directory_at(crash.folder), 5.0):
            apply_journal(directory_at(crash.folder))
        seen, content = values(crash.folder), content_of(crash.folder)
        assert (seen, content) in ((OLD_VALUES, before), (OLD_VALUES, kept), (BOTH, kept + b"second\n")), str(crash)
        assert seen == BOTH or not was_decided, str(crash)
        assert findings(crash.folder) == [], str(crash)
        outcomes.add((seen == BOTH, was_decided))
    assert outcomes == {(False, False), (True, True), (True, False)}
