"""What a job costs grows with its work, and not with the square of it: counted in calls of the storage, not in time."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.log import files
from sparklog.log.checkpoints import encode_offset_checkpoint
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.journal import Append, parse_journal
from sparklog.log.layout import read_layout
from sparklog.log.places import PartitionFolder
from sparklog.record.encode.end_markers import MarkerBatch, encode_end_markers
from sparklog.topic.transactions.writer import TransactionalWriter
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.write.running_jobs import begin, job_of_stream
from sparklog.write.staging import TaskStage
from tests.growth import assert_does_not_grow, counted_work, make_partitions, settle
from tests.places import directory_at, moved
from tests.storage.counting import counting_storage
from tests.topic.staged import NOW_MS, findings, rows, stage, values

SIZES = (6, 24, 96)
OWN_FILES = {files.LOCK, files.WRITERS_LOCK, files.LAST_COMMIT}
AT_MOST_OF_EACH = {
    # To recover it, and for what an earlier version may have staged in it.
    "entries": 1,
    "names": 1,
    # Its log and its two indexes, each of which is looked at and read once.
    "open": 3,
    "read": 4,
    # And what the commit appends to them. Its snapshot is renamed.
    "size_bytes": 8,
    "stamp": 6,
    "identity": 1,
    "open_for_append": 2,
    "rename": 1,
    # Its snapshot, and its checkpoint of epochs.
    "read_small": 2,
}
"""How often a commit may ask for each partition."""
AT_MOST_OF_EACH_NEW = {**AT_MOST_OF_EACH, "open_for_append": AT_MOST_OF_EACH["open_for_append"] + 4}
"""The same where it begins the log, which gets indexes, a snapshot, a checkpoint of epochs, and the file of its id."""


def counted_commit(directory: Path, partitions: int, tasks: int = 1, **fields: Any) -> Counter[str]:
    """Commit a row of each task to each partition, and return what was asked of the storage."""
    each = rows([f"{n}" for n in range(partitions)], partition=range(partitions))
    job, staged = stage(directory, [each] * tasks, partitions=partitions, **fields)
    storage, counts = counting_storage()
    commit(moved(job, storage), staged, NOW_MS)
    return counts


def of_each(counts: list[Counter[str]]) -> dict[str, float]:
    """Return how often each partition more was asked for."""
    fewest, most = counts[0], counts[-1]
    return {name: (most[name] - fewest[name]) / (SIZES[-1] - SIZES[0]) for name in most}


def refuse_square(counts: list[Counter[str]]) -> None:
    """Fail where a count grew faster than the sizes, each of which is four times the one before."""
    small, middle, large = counts
    for name in large:
        linear = 4 * (middle[name] - small[name])
        # The digits of larger numbers take some more bytes.
        assert large[name] - middle[name] <= linear * 1.15, (name, [each[name] for each in counts])


@pytest.mark.parametrize("fields", [{}, {"is_overwrite": True, "overwritten_topics": ("events",)}], ids=str)
def test_commit_over_many_partitions_asks_for_each_a_bounded_number_of_times(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    """Into new logs, and into logs of which the directory's checkpoints know."""
    first, later = list[Counter[str]](), list[Counter[str]]()
    for partitions in SIZES:
        directory = tmp_path / str(partitions)
        first.append(counted_commit(directory, partitions, **fields))
        checkpoint = encode_offset_checkpoint({TopicPartition("events", n): 0 for n in range(partitions)})
        for name in (files.RECOVERY_POINT_CHECKPOINT, files.HIGH_WATERMARK_CHECKPOINT, files.CLEANER_CHECKPOINT):
            (directory / name).write_bytes(checkpoint)
        later.append(counted_commit(directory, partitions, **fields))
    refuse_square(first)
    refuse_square(later)
    assert max(later[-1]["make_folder"], later[-1]["sync_folder"]) < SIZES[0]
    for counts, at_most in ((first, AT_MOST_OF_EACH_NEW), (later, AT_MOST_OF_EACH)):
        assert {name: each for name, each in of_each(counts).items() if each > at_most.get(name, each)} == {}


def test_commit_of_few_partitions_does_not_ask_for_the_others(tmp_path: Path) -> None:
    counts = []
    for partitions in SIZES:
        directory = tmp_path / str(partitions)
        counted_commit(directory, partitions)
        # The second of them reads the account of the first, and not that of the large one.
        for _ in range(2):
            job, staged = stage(directory, [rows(["a", "b"], partition=[0, 1])], partitions=partitions)
            storage, found = counting_storage()
            commit(moved(job, storage), staged, NOW_MS)
        counts.append(Counter({name: count for name, count in found.items() if name != "names listed"}))
    assert counts[0] == counts[1] == counts[2]


def test_partitions_are_read_without_the_whole_account_of_a_large_commit_for_each(tmp_path: Path) -> None:
    counts = []
    for partitions in SIZES:
        directory = tmp_path / str(partitions)
        counted_commit(directory, partitions)
        for n in range(partitions):
            # A folder that was changed just now is listed twice.
            os.utime(directory / f"events-{n}", (NOW_MS / 1000, NOW_MS / 1000))
        storage, found = counting_storage()
        for n in range(partitions):
            assert read_layout(PartitionFolder.at(storage, str(directory / f"events-{n}"))).end_offset == 1
        counts.append(found)
    refuse_square(counts)


def test_task_leaves_as_many_files_whatever_the_number_of_its_partitions(tmp_path: Path) -> None:
    for partitions in SIZES:
        directory = tmp_path / str(partitions)
        each = rows([f"{n}" for n in range(partitions)], partition=range(partitions))
        job, staged = stage(directory, [each] * 3, partitions=partitions)
        found = [path.name for path in directory.rglob("*.staged") if "running" not in path.name]
        assert len(found) == 2 * 3
        commit(job, staged, NOW_MS)
        assert values(directory) == {f"events-{n}": [f"{n}"] * 3 for n in range(partitions)}
        assert findings(directory) == []


def test_one_move_appends_what_all_tasks_have_for_a_partition(tmp_path: Path) -> None:
    for tasks in (1, 4, 16):
        directory = tmp_path / str(tasks)
        counted_commit(directory, SIZES[0], tasks)
        path = directory / files.LAST_COMMIT
        moves = parse_journal(path.read_bytes(), str(path)).moves
        appended = [move.target for move in moves if isinstance(move, Append) and move.target.endswith(files.LOG)]
        assert len(appended) == SIZES[0]


def test_many_tasks_are_read_file_by_file(tmp_path: Path) -> None:
    opened = [counted_commit(tmp_path / str(tasks), SIZES[0], tasks) for tasks in (1, 4, 16)]
    refuse_square(opened)
    assert opened[2]["open"] - opened[1]["open"] == 16 - 4


def commit_to_three(path: Path) -> None:
    """Commit a batch to each of three logs, as the end of a transaction does."""
    directory, config, job = directory_at(path), LogConfig(), job_of_stream("growth", NOW_MS)
    folders = [f"topic-00003-{n}" for n in range(3)]
    begin(directory, job)
    stage = TaskStage(directory, job, 0, 0, config)
    stage.append(encode_end_markers([MarkerBatch(7, 0, False, 0)] * 3, NOW_MS), folders, [1, 2, 3], NOW_MS)
    commit(CommitRequest(job, directory, config, {}, has_tasks=False), stage.finish(), NOW_MS)


def test_commit_to_a_few_logs_does_not_care_how_many_others_there_are(tmp_path: Path) -> None:
    assert_does_not_grow(tmp_path, commit_to_three)


def test_commit_without_tasks_leaves_no_file_of_its_own(tmp_path: Path) -> None:
    make_partitions(tmp_path, 40)
    before = {path.name for path in tmp_path.iterdir()}
    for _ in range(2):
        commit_to_three(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} - before == OWN_FILES


def test_files_that_a_dead_transaction_staged_are_removed_by_the_next_process(tmp_path: Path) -> None:
    make_partitions(tmp_path, 40)
    dead = tmp_path / f"seglog-{job_of_stream('growth', NOW_MS - 1)}-7-0-0.log.staged"
    dead.touch()
    commit_to_three(tmp_path)
    assert not dead.exists()


def test_transaction_lists_its_directory_as_often_for_many_logs_as_for_few(tmp_path: Path) -> None:
    """Each log is added to the transaction by a change of the directory, which must not list it."""
    make_partitions(tmp_path, 60)
    (tmp_path / files.TOPICS_PROPERTIES).unlink()
    listed = []
    with TransactionalWriter.open(tmp_path, "billing") as writer:
        for count in (2, 4, 40):
            settle(tmp_path)
            with counted_work() as work:
                writer.begin()
                for n in range(count):
                    writer.append(f"topic-{n // 10:05d}", n % 10, pa.table({"value": [b"x"]}))
                writer.commit()
            listed.append(work.names / count)
    assert listed[-1] <= 1.3 * listed[1]
