"""Commits of a stream: a batch that is run again, as Spark does where it does not know, is written once."""

from __future__ import annotations

from pathlib import Path

from sparklog.log.config import LogConfig
from sparklog.log.journal import pending
from sparklog.log.layout import read_layout
from sparklog.topic.write.commit import CommitRequest, abort, commit
from sparklog.topic.write.txn_versions import TxnVersion, read_txn_versions
from sparklog.write.running_jobs import is_same_work, job_of_stream, new_job
from sparklog.write.staged_files import StagedRun
from tests.places import directory_at, folder_at, moved
from tests.storage.crash import CrashingStorage, crashes
from tests.topic.staged import NOW_MS, findings, rows, stage, values, write
from tests.topic.write.test_commit import staged_files

QUERY = "6bf44e96-2512-42aa-8c74-942a8af13f78"


def stage_batch(folder: Path, number: int, *values: str, at_ms: int = NOW_MS) -> tuple[CommitRequest, list[StagedRun]]:
    """Stage what two tasks of a batch write, as if each had begun a job of its own."""
    staged: list[StagedRun] = []
    for task, value in enumerate(values):
        job, runs = stage(
            folder, [rows([value], partition=[task % 2])], job_id=job_of_stream(QUERY, at_ms + task), attempt=task
        )
        staged += runs
    return CommitRequest(
        job_of_stream(QUERY, at_ms + 10),
        directory_at(folder),
        job.config,
        job.new_topics,
        transaction=TxnVersion(QUERY, number, first_version=0),
        lock_timeout_seconds=5.0,
    ), staged


def test_batch_that_stops_anywhere_is_written_once_by_the_next_start(tmp_path: Path) -> None:
    """At every call: the query starts again, and Spark runs the batch again."""

    def prepare(folder: Path) -> None:
        job, staged = stage_batch(folder, 0, "a", "b")
        commit(job, staged, NOW_MS)
        prepared.append(stage_batch(folder, 1, "c", "d"))

    def run(storage: CrashingStorage, folder: Path) -> None:
        job, staged = prepared[0]
        commit(moved(job, storage, folder), staged, NOW_MS)

    prepared: list[tuple[CommitRequest, list[StagedRun]]] = []
    old, both = {"events-0": ["a"], "events-1": ["b"]}, {"events-0": ["a", "c"], "events-1": ["b", "d"]}
    outcomes = set()
    for crash in crashes(prepare, run, tmp_path):
        seen = values(crash.folder)
        assert seen in (old, both), str(crash)
        job, staged = stage_batch(crash.folder, 1, "c", "d", at_ms=NOW_MS + 1000)
        summary = commit(moved(job, directory_at(crash.folder).writable, crash.folder), staged, NOW_MS + 1000)
        assert values(crash.folder) == both, str(crash)
        assert read_txn_versions(directory_at(crash.folder)).applications == {QUERY: 1}, str(crash)
        assert findings(crash.folder) == [], str(crash)
        # Also what the attempts that nobody committed have staged.
        assert staged_files(crash.folder) == [], str(crash)
        outcomes.add((seen == both, summary["is_skipped"]))
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_abort_after_the_commit_was_decided_changes_nothing(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        write(folder, [rows(["old"], partition=[0])])
        prepared.append(stage_batch(folder, 0, "a", "b"))

    def run(storage: CrashingStorage, folder: Path) -> None:
        job, staged = prepared[0]
        commit(moved(job, storage, folder), staged, NOW_MS)

    prepared: list[tuple[CommitRequest, list[StagedRun]]] = []
    decided = 0
    for crash in crashes(prepare, run, tmp_path):
        was_pending = pending(directory_at(crash.folder)) is not None
        job = moved(prepared[0][0], directory_at(crash.folder).writable, crash.folder)
        # Spark calls it in another process, where another name is made.
        abort(CommitRequest(job_of_stream(QUERY, NOW_MS + 99), job.directory, job.config, {}), NOW_MS)
        write(crash.folder, [rows(["next"], partition=[1])])
        seen = values(crash.folder)
        if was_pending:
            decided += 1
            assert seen == {"events-0": ["old", "a"], "events-1": ["b", "next"]}, str(crash)
        assert findings(crash.folder) == [], str(crash)
    assert decided


def test_many_small_batches_leave_as_many_segments_as_a_large_one(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", segment_bytes=50_000)
    for name, batches, size in (("small", 100, 10), ("large", 1, 1000)):
        for number in range(batches):
            batch = rows([f"{n:0100}" for n in range(size)], partition=[0] * size)
            job, staged = stage(
                tmp_path / name,
                [batch],
                job_id=job_of_stream(QUERY, NOW_MS + number),
                config=config,
                partitions=1,
                transaction=TxnVersion(QUERY, number, first_version=0),
            )
            commit(job, staged, NOW_MS + number)
        assert staged_files(tmp_path / name) == []
    small, large = (len(read_layout(folder_at(tmp_path / name / "events-0")).segments) for name in ("small", "large"))
    assert 1 < large <= small <= large + 2
    kinds = {path.suffix for path in (tmp_path / "small").rglob("*") if path.is_file()}
    assert ".staged" not in kinds


def test_work_of_a_stream_is_told_from_that_of_others() -> None:
    first, later = job_of_stream(QUERY, NOW_MS), job_of_stream(QUERY, NOW_MS + 5)
    assert first != later
    assert is_same_work(first, later)
    assert not is_same_work(first, job_of_stream("another", NOW_MS))
    assert not is_same_work(new_job(NOW_MS), new_job(NOW_MS))
