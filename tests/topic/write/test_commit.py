"""One commit over many partitions: all of it or nothing, whatever happens."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.errors import (
    BrokerRunningError,
    CommitError,
    CorruptBatchError,
    InvalidOptionError,
    LockedError,
    OffsetOutOfRangeError,
    PathNotFoundError,
)
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.write.accumulator import RecordAccumulator, TaskAttempt
from sparklog.topic.write.commit import ORPHAN_AGE_MS, CommitRequest, abort, commit, sweep
from sparklog.topic.write.target import find_target
from sparklog.topic.write.txn_versions import TxnVersion, read_txn_versions
from sparklog.write.locking import hold
from sparklog.write.partition import LogWriter
from sparklog.write.staged_files import StagedRun
from tests.places import directory_at, folder_at, location_of, moved
from tests.storage.crash import EVERY_LOSS, CrashingStorage, crashes
from tests.topic.staged import CONFIG, NOW_MS, findings, rows, stage, values, write

STORAGE = LocalWritableStorage()
OLD = [rows(["old 0", "old 1", "old 2", "old 3"], partition=[0, 0, 0, 1])]
NEW = [
    rows([f"first {n}" for n in range(30)], partition=[n % 2 for n in range(30)]),
    rows([f"second {n}" for n in range(8)], partition=[1] * 8),
]
OLD_VALUES = {"events-0": ["old 0", "old 1", "old 2"], "events-1": ["old 3"]}
NEW_VALUES = {
    "events-0": [f"first {n}" for n in range(0, 30, 2)],
    "events-1": [f"first {n}" for n in range(1, 30, 2)] + [f"second {n}" for n in range(8)],
}
BOTH = {name: OLD_VALUES[name] + NEW_VALUES[name] for name in OLD_VALUES}


def staged_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*.staged"))


def test_rows_follow_what_was_there_in_the_order_of_tasks(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    summary = write(tmp_path, NEW)
    assert values(tmp_path) == BOTH
    assert [(each["topic"], each["partition"]) for each in summary["partitions"]] == [("events", 0), ("events", 1)]
    assert [(each["first_offset"], each["last_offset"]) for each in summary["partitions"]] == [(3, 17), (1, 23)]
    assert staged_files(tmp_path) == []
    assert findings(tmp_path) == []


def test_large_file_becomes_a_segment_and_a_small_one_is_appended(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", segment_bytes=1 << 20, batch_size=4000)
    large, small = (rows(["x" * 1000] * count, partition=[0] * count) for count in (200, 20))
    for batch in (small, large, small):
        write(tmp_path, [batch], config=config, partitions=1)
    assert [segment.base_offset for segment in read_layout(folder_at(tmp_path / "events-0")).segments] == [0, 20]
    assert len(values(tmp_path)["events-0"]) == 240
    assert findings(tmp_path) == []


@pytest.mark.parametrize(
    ("segment_bytes", "alone"),
    [(1 << 30, set()), (61_440, {("events-0", 0), ("events-1", 0)}), (6_000, None)],
    ids=["shared files", "files of both kinds", "files that become segments"],
)
def test_commit_that_stops_anywhere_is_seen_whole_or_not_at_all(
    tmp_path: Path, segment_bytes: int, alone: set[tuple[str, int]] | None
) -> None:
    """Every call, and every loss: what readers see, and what the next commit makes of it."""
    config = replace(CONFIG, segment_bytes=segment_bytes)

    def prepare(folder: Path) -> None:
        write(folder, OLD)
        job, staged = stage(folder, NEW, config=config)
        every = {(each.folder, each.task) for each in staged}
        assert {(each.folder, each.task) for each in staged if each.is_alone} == (every if alone is None else alone)
        prepared.append((job, staged))
        (folder / ".kafka_cleanshutdown").write_text("{}")
        with LogWriter.open(folder / "events-0", CONFIG):
            pass

    def run(storage: CrashingStorage, folder: Path) -> None:
        job, staged = prepared[0]
        commit(moved(job, storage, folder), staged, NOW_MS)

    prepared: list[tuple[CommitRequest, list[StagedRun]]] = []
    outcomes = set()
    for crash in crashes(prepare, run, tmp_path, EVERY_LOSS):
        seen = values(crash.folder)
        assert seen in (OLD_VALUES, BOTH), str(crash)
        was_decided = (crash.folder / files.JOURNAL).exists()
        write(crash.folder, [rows(["next"], partition=[1])])
        after = values(crash.folder)
        before = BOTH if was_decided or seen == BOTH else OLD_VALUES
        assert after == {**before, "events-1": [*before["events-1"], "next"]}, str(crash)
        assert findings(crash.folder) == [], str(crash)
        outcomes.add((seen == BOTH, was_decided))
    assert outcomes >= {(False, False), (False, True), (True, False)}


def test_commit_stops_at_the_last_offset_that_there_can_be(tmp_path: Path) -> None:
    base = OFFSET_MAX - 10
    (tmp_path / "events-0").mkdir()
    (tmp_path / "events-0" / f"{base:020d}.log").touch()
    with pytest.raises(OffsetOutOfRangeError, match=f"events-0 cannot have 30 more offsets from {base} on"):
        write(tmp_path, [rows(["v"] * 30, partition=[0] * 30)], partitions=1)
    write(tmp_path, [rows([str(n) for n in range(10)], partition=[0] * 10)], partitions=1)
    assert values(tmp_path)["events-0"] == [str(n) for n in range(10)]
    assert findings(tmp_path) == []


def test_no_log_is_touched_before_the_commit_is_decided(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    storage = CrashingStorage(tmp_path)
    job, staged = stage(tmp_path, NEW)
    commit(moved(job, storage), staged, NOW_MS)
    decided = storage.calls.index(f"rename {files.JOURNAL}.tmp")
    touched = [n for n, call in enumerate(storage.calls) if ".log" in call and not call.endswith(".staged")]
    assert min(touched) > decided


def test_batches_that_begin_an_empty_log_are_not_written_again(tmp_path: Path) -> None:
    small = LogConfig(compression_type="uncompressed", batch_size=200, segment_bytes=1500)
    of_task_0, of_task_1 = (rows([f"{task}: {n}" for n in range(200)], partition=[0] * 200) for task in range(2))
    for directory, is_first in ((tmp_path / "new", True), (tmp_path / "again", False)):
        directory.mkdir()
        if not is_first:
            write(directory, [rows(["old"], partition=[0])], partitions=1)
        storage = CrashingStorage(directory)
        job, staged = stage(directory, [of_task_0, of_task_1], config=small, partitions=1)
        commit(moved(job, storage), staged, NOW_MS)
        stamped = {name for name in (each.log_name for each in staged) if f"write_at {name}" in storage.calls}
        assert len([each for each in staged if each.task == 0]) > 2
        assert stamped == {each.log_name for each in staged if each.task or not is_first}
        assert findings(directory) == []


def test_job_that_dies_anywhere_in_a_task_is_written_once_by_the_next(tmp_path: Path) -> None:
    """The task's attempt that died is no part of what the next attempt of the same job commits."""

    def prepare(folder: Path) -> None:
        write(folder, OLD)

    def run(storage: CrashingStorage, folder: Path) -> None:
        stage(folder, NEW, storage=storage, job_id=job_id)

    job_id = f"{NOW_MS:012x}ab"
    for crash in crashes(prepare, run, tmp_path, ("kept", "torn")):
        assert values(crash.folder) == OLD_VALUES, str(crash)
        job, staged = stage(crash.folder, NEW, attempt=1, job_id=job_id)
        commit(job, staged, NOW_MS)
        assert values(crash.folder) == BOTH, str(crash)
        assert staged_files(crash.folder) == [], str(crash)


@pytest.mark.parametrize("segment_bytes", [1 << 30, 6_000], ids=["shared files", "files that become segments"])
def test_new_topic_of_a_commit_that_stops_anywhere_has_all_its_partitions_or_is_not_there(
    tmp_path: Path, segment_bytes: int
) -> None:
    """Were some of its folders there, the same write again would be refused, and another go to those alone."""
    config = replace(CONFIG, segment_bytes=segment_bytes)
    new = {f"more-{number}": NEW_VALUES.get(f"events-{number}", []) for number in range(3)}

    def prepare(folder: Path) -> None:
        write(folder, OLD)
        prepared.append(stage(folder, NEW, topic="more", partitions=3, config=config))

    def run(storage: CrashingStorage, folder: Path) -> None:
        job, staged = prepared[0]
        commit(moved(job, storage, folder), staged, NOW_MS)

    prepared: list[tuple[CommitRequest, list[StagedRun]]] = []
    seen = set()
    for crash in crashes(prepare, run, tmp_path, EVERY_LOSS):
        found = {name for name in values(crash.folder) if name.startswith("more")}
        is_decided = (crash.folder / files.JOURNAL).exists()
        assert found == set(new) or is_decided or not found, str(crash)
        write(crash.folder, NEW, topic="more", partitions=3, config=config)
        is_twice = bool(found) or is_decided
        expected = {name: of_log * (1 + is_twice) for name, of_log in new.items()}
        after = values(crash.folder)
        assert {name: sorted(of_log) for name, of_log in after.items()} == {
            **OLD_VALUES,
            **{name: sorted(of_log) for name, of_log in expected.items()},
        }, str(crash)
        assert findings(crash.folder) == [], str(crash)
        seen.add((len(found), is_decided))
    assert seen >= {(0, False), (0, True), (3, True), (3, False)}


def test_file_that_is_named_as_a_new_log_fails_the_commit_before_it_is_decided(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    job, staged = stage(tmp_path, NEW, topic="more", partitions=3)
    (tmp_path / "more-1").write_text("")
    with pytest.raises(CommitError, match=r"more-1 is no folder.*remove it.*Nothing of this write is visible"):
        commit(job, staged, NOW_MS)
    assert values(tmp_path) == OLD_VALUES


def test_commit_that_fails_leaves_no_folder_of_a_new_log(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    job, staged = stage(tmp_path, NEW, topic="more", partitions=3)
    (tmp_path / staged[-1].log_name).unlink()
    with pytest.raises(PathNotFoundError, match="Nothing of this write is visible"):
        commit(job, staged, NOW_MS)
    assert values(tmp_path) == OLD_VALUES


def test_partition_that_lies_apart_too_often_goes_on_in_a_file_of_its_own(tmp_path: Path) -> None:
    """Its batches are many times between those of others; the order of its records is kept."""
    job, _ = stage(tmp_path, [], partitions=3)
    target = find_target(location_of(tmp_path), "events", 3, has_topic_column=False)
    taking = RecordAccumulator(TaskAttempt(target, CONFIG, "default", job.job_id, 0, 0, NOW_MS), buffered_bytes_max=1)
    for n in range(40):
        taking.append(rows([f"a{n}", f"b{n}"], partition=[0, 1 + n % 2]))
    staged = taking.finish()
    runs = {folder: [each.is_alone for each in staged if each.folder == folder] for folder in ("events-0", "events-1")}
    assert runs["events-0"] == [False] * 16 + [True]
    assert runs["events-1"] == [False] * 16 + [True]
    commit(job, staged, NOW_MS)
    assert values(tmp_path)["events-0"] == [f"a{n}" for n in range(40)]
    assert values(tmp_path)["events-1"] == [f"b{n}" for n in range(0, 40, 2)]
    assert findings(tmp_path) == []


@pytest.mark.parametrize("what", ["log", "batches"])
def test_staged_file_that_was_cut_fails_the_commit(tmp_path: Path, what: str) -> None:
    for segment_bytes in (1 << 30, 6_000):
        directory = tmp_path / str(segment_bytes)
        job, staged = stage(directory, NEW, config=replace(CONFIG, segment_bytes=segment_bytes))
        path = directory / (staged[-1].log_name if what == "log" else staged[-1].batches_name)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(CommitError, match="Nothing of this write is visible"):
            commit(job, staged, NOW_MS)


def test_repeated_transaction_writes_nothing(tmp_path: Path) -> None:
    batch = TxnVersion("loader", 7)
    write(tmp_path, OLD, transaction=batch)
    shuffled = [rows(["old 3", "old 1"], partition=[1, 0]), rows(["old 2", "old 0"], partition=[0, 0])]
    assert write(tmp_path, shuffled, transaction=batch)["is_skipped"]
    assert write(tmp_path, NEW, transaction=replace(batch, skips_replays=True))["is_skipped"]
    for again in (batch, TxnVersion("loader", 6)):
        job, staged = stage(tmp_path, NEW, transaction=again)
        with pytest.raises(CommitError, match=r"has been written before.*Nothing of this write is visible"):
            commit(job, staged, NOW_MS)
        abort(job, NOW_MS)
    assert values(tmp_path) == OLD_VALUES
    assert staged_files(tmp_path) == []
    write(tmp_path, NEW, transaction=TxnVersion("loader", 8))
    write(tmp_path, [rows(["other"], partition=[0])], transaction=TxnVersion("another", 1))
    assert values(tmp_path)["events-0"] == [*BOTH["events-0"], "other"]
    assert read_txn_versions(directory_at(tmp_path)).applications == {"loader": 8, "another": 1}


def test_overwrite_raises_the_log_start_and_uses_no_offset_twice(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    write(tmp_path, [rows(["new"], partition=[0])], is_overwrite=True, overwritten_topics=("events",))
    assert values(tmp_path) == {"events-0": ["new"], "events-1": []}
    layout = read_layout(folder_at(tmp_path / "events-0"))
    assert (layout.start_offset, layout.end_offset) == (3, 4)
    assert findings(tmp_path) == []


def test_overwrite_that_is_not_done_shows_what_was_before(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        write(folder, OLD)

    def run(storage: CrashingStorage, folder: Path) -> None:
        job, staged = stage(folder, NEW, is_overwrite=True, overwritten_topics=("events",))
        commit(moved(job, storage), staged, NOW_MS)

    for crash in crashes(prepare, run, tmp_path, ("kept", "lost")):
        assert values(crash.folder) in (OLD_VALUES, NEW_VALUES), str(crash)


def test_files_of_dead_attempts_and_dead_jobs_are_swept(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    job, staged = stage(tmp_path, NEW)
    stage(tmp_path, NEW[:1], attempt=1, job_id=job.job_id)
    old = f"{NOW_MS - ORPHAN_AGE_MS:012x}00"
    young = f"{NOW_MS - ORPHAN_AGE_MS + 1:012x}00"
    for name in (old, young):
        # Earlier versions staged files in the partitions' folders.
        for folder in (tmp_path, tmp_path / "events-0"):
            (folder / f"seglog-{name}-0-0-0.log.staged").write_bytes(b"")
    commit(job, staged, NOW_MS)
    assert staged_files(tmp_path) == [f"seglog-{young}-0-0-0.log.staged"] * 2
    assert values(tmp_path) == BOTH


def test_abort_leaves_nothing_of_the_job(tmp_path: Path) -> None:
    job, _ = stage(tmp_path, NEW)
    abort(job, NOW_MS)
    assert [path.name for path in tmp_path.rglob("*")] == []


def task_of(job: CommitRequest, attempt: int) -> TaskAttempt:
    target = find_target(location_of(job.directory.path), "events", 2, has_topic_column=False)
    return TaskAttempt(target, CONFIG, "default", job.job_id, 0, attempt, NOW_MS)


def test_task_that_outlives_its_job_leaves_nothing(tmp_path: Path) -> None:
    """It has staged some when the job is aborted, and then goes on."""
    write(tmp_path, OLD)
    job, _ = stage(tmp_path, [])

    def run() -> None:
        with RecordAccumulator(task_of(job, 0), buffered_bytes_max=1) as taking:
            taking.append(NEW[0])
            assert len(staged_files(tmp_path)) == 2
            abort(job, NOW_MS)
            assert staged_files(tmp_path) == []
            taking.append(NEW[0])

    with pytest.raises(CommitError, match="has ended"):
        run()
    assert staged_files(tmp_path) == []
    assert values(tmp_path) == OLD_VALUES


def test_task_that_begins_after_its_job_leaves_nothing(tmp_path: Path) -> None:
    job, _ = stage(tmp_path, [])
    abort(job, NOW_MS)

    def run() -> None:
        with RecordAccumulator(task_of(job, 0)) as taking:
            taking.append(NEW[0])
            taking.finish()

    with pytest.raises(CommitError, match="has ended"):
        run()
    assert [path.name for path in tmp_path.rglob("*")] == []


def test_task_that_fails_leaves_nothing_and_its_next_attempt_is_committed(tmp_path: Path) -> None:
    job, staged = stage(tmp_path, NEW)
    before = staged_files(tmp_path)

    def run() -> None:
        with RecordAccumulator(task_of(job, 7), buffered_bytes_max=1) as taking:
            taking.append(NEW[0])
            assert len(staged_files(tmp_path)) > len(before)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert staged_files(tmp_path) == before
    commit(job, staged, NOW_MS)
    assert values(tmp_path) == NEW_VALUES
    assert staged_files(tmp_path) == []


def test_abort_after_the_commit_removes_nothing_of_it(tmp_path: Path) -> None:
    job, staged = stage(tmp_path, NEW)
    commit(job, staged, NOW_MS)
    abort(job, NOW_MS)
    assert values(tmp_path) == NEW_VALUES


def test_sweep_says_what_it_would_remove(tmp_path: Path) -> None:
    stage(tmp_path, NEW)
    found = sweep(directory_at(tmp_path), NOW_MS, orphan_age_ms=0, dry_run=True)
    assert len(found) == len(staged_files(tmp_path)) == 5
    assert sweep(directory_at(tmp_path), NOW_MS, orphan_age_ms=0) == found
    assert staged_files(tmp_path) == []


def test_directory_of_a_running_broker_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "meta.properties").touch()
    holding = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True)"
    command = [sys.executable, "-c", f"{holding}; time.sleep(60)", str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(BrokerRunningError, match="a broker runs on"), hold(directory_at(tmp_path), 1.0):
            pass
        broker.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "meta.properties"]


def test_writers_wait_for_each_other_up_to_a_timeout(tmp_path: Path) -> None:
    job, staged = stage(tmp_path, OLD)
    with hold(directory_at(tmp_path), 1.0):
        waiting = threading.Thread(target=commit, args=(job, staged, NOW_MS))
        waiting.start()
        with pytest.raises(LockedError, match=r"did not finish in 0\.1 s"), hold(directory_at(tmp_path), 0.1):
            pass
    waiting.join()
    assert values(tmp_path) == OLD_VALUES


@pytest.mark.parametrize("spelling", ["logs", "logs/../logs", "link", "logs/events-0/.."])
def test_commit_and_open_log_keep_each_other_out_by_whatever_path(tmp_path: Path, spelling: str) -> None:
    """In one process, where the kernel's locks tell nothing."""
    logs = tmp_path / "logs"
    write(logs, OLD)
    (tmp_path / "link").symlink_to(logs)
    job, staged = stage(tmp_path / spelling, NEW)
    job = replace(job, lock_timeout_seconds=0.2)
    with LogWriter.open(logs / "events-0") as log:
        with pytest.raises(LockedError, match="another writer holds"):
            commit(job, staged, NOW_MS)
        log.append(rows(["old 4"]))
    commit(job, staged, NOW_MS)
    with hold(directory_at(tmp_path / spelling), 1), pytest.raises(LockedError):
        LogWriter.open(logs / "events-0", lock_timeout_seconds=0.1)
    expected = {**BOTH, "events-0": [*OLD_VALUES["events-0"], "old 4", *NEW_VALUES["events-0"]]}
    assert values(logs) == expected


def test_commit_does_not_write_through_a_link(tmp_path: Path) -> None:
    """Its target's own directory has a lock of its own, which a writer may hold."""
    logs, disk = tmp_path / "logs", tmp_path / "disk"
    write(logs, OLD)
    disk.mkdir()
    job, staged = stage(logs, NEW)
    (logs / "events-0").rename(disk / "events-0")
    (logs / "events-0").symlink_to(disk / "events-0")
    with LogWriter.open(disk / "events-0") as log:
        with pytest.raises(InvalidOptionError, match=r"logs/events-0 is a link to .*disk/events-0"):
            commit(job, staged, NOW_MS)
        log.append(rows(["old 4"]))
    assert values(disk) == {"events-0": [*OLD_VALUES["events-0"], "old 4"]}
    assert not (logs / files.JOURNAL).exists()


def test_staged_file_that_is_gone_fails_the_commit_and_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    job, staged = stage(tmp_path, NEW)
    (tmp_path / staged[-1].batches_name).unlink()
    with pytest.raises(CommitError, match="Nothing of this write is visible"):
        commit(job, staged, NOW_MS)
    assert values(tmp_path) == OLD_VALUES
    assert not (tmp_path / files.JOURNAL).exists()


def test_damaged_log_is_not_written_to(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    write(tmp_path, NEW)
    log = tmp_path / "events-1" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[-200] ^= 1
    log.write_bytes(content)
    (tmp_path / "events-1" / "00000000000000000024.snapshot").unlink()
    before = log.read_bytes()
    with pytest.raises(CorruptBatchError, match="CRC-32C"):
        write(tmp_path, OLD)
    assert log.read_bytes() == before


def test_topic_id_of_another_topic_is_refused(tmp_path: Path) -> None:
    write(tmp_path, OLD, topic_id="Q2TYVrXaSDWPZ5lUZtm3Jg")
    assert (tmp_path / "events-1" / "partition.metadata").read_text() == "version: 0\ntopic_id: Q2TYVrXaSDWPZ5lUZtm3Jg"
    with pytest.raises(InvalidOptionError, match="topicId is"):
        write(tmp_path, OLD, topic_id="Q2TYVrXaSDWPZ5lUZtm3Jh")
    assert values(tmp_path) == OLD_VALUES
