"""The name of a new log directory outlives a power cut; lines of checkpoints are changed as they are on the disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.errors import CorruptCheckpointError
from sparklog.jobs.run.exclusive import exclusive
from sparklog.log import files
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.files import TopicPartition
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.topic.log_manager import LogManager
from sparklog.topic.places.topic_folders import TopicFolders
from sparklog.topic.transactions.commit import begin_transactional_id
from sparklog.topic.transactions.writer import TransactionalWriter
from sparklog.write.partition import LogWriter
from sparklog.write.running_jobs import begin
from sparklog.write.small_files import keep_offsets, lower_offset, make_directory, set_checkpoint_offsets
from tests.build import offset_checkpoint
from tests.growth import settle
from tests.places import directory_at
from tests.storage.memory import MemoryStorage, stopped_at
from tests.write.test_sharing import in_child

PATH = "/disk/new/logs"
TABLE = pa.table({"value": [b"kept"]})


def append(storage: MemoryStorage) -> None:
    with LogWriter.open(f"{PATH}/events-0", storage=storage) as log:
        log.append(TABLE)


def commit_transaction(storage: MemoryStorage) -> None:
    with TransactionalWriter.open(PATH, "billing", storage=storage) as writer:
        writer.begin()
        writer.append("events", 0, TABLE)
        writer.commit()


def create_topic(storage: MemoryStorage) -> None:
    manager = LogManager("/nowhere")
    manager.directories = (LogDirectory(storage, PATH),)
    manager.folders = TopicFolders(manager.directories)
    manager.create_topic("events")


def run_job(storage: MemoryStorage) -> None:
    with exclusive(LogDirectory(storage, PATH), "0123456789abc-0", 1.0):
        pass


DOORS: list[Callable[[MemoryStorage], object]] = [
    append,
    commit_transaction,
    create_topic,
    run_job,
    lambda storage: begin(LogDirectory(storage, PATH), "0123456789abc-0"),
    lambda storage: begin_transactional_id(LogDirectory(storage, PATH), "billing", 0),
]


@pytest.mark.parametrize("door", DOORS, ids=["append", "transaction", "topic", "job", "staging", "transactional id"])
def test_new_log_directory_is_there_after_a_power_cut(door: Callable[[MemoryStorage], object]) -> None:
    storage = MemoryStorage()
    door(storage)
    storage.lose_unsynced()
    assert storage.is_folder(PATH)


def test_records_of_a_new_log_directory_are_there_after_a_power_cut() -> None:
    storage = MemoryStorage()
    append(storage)
    storage.lose_unsynced()
    with LogWriter.open(f"{PATH}/events-0", storage=storage) as log:
        assert (log.start_offset, log.end_offset) == (0, 1)


def test_directory_of_a_writer_that_died_before_its_name_was_on_the_disk_is_there_after_a_power_cut() -> None:
    storage = MemoryStorage()
    storage.make_folder("/disk/new")
    storage.sync_folders(["/", "/disk"])
    with stopped_at(storage, 2):
        make_directory(LogDirectory(storage, PATH))
    assert storage.is_folder(PATH)
    append(storage)
    storage.lose_unsynced()
    assert storage.is_folder(PartitionFolder.at(storage, f"{PATH}/events-0").location)


def test_directory_that_is_in_use_is_not_synced_again() -> None:
    storage = MemoryStorage()
    append(storage)
    storage.changes.clear()
    make_directory(LogDirectory(storage, PATH))
    assert storage.changes == []


AT, OTHER = TopicPartition("events", 0), TopicPartition("other", 1)
NAME = files.RECOVERY_POINT_CHECKPOINT


def offsets(path: Path) -> dict[TopicPartition, int]:
    return parse_offset_checkpoint((path / NAME).read_bytes(), "")


def test_line_is_lowered_from_what_was_set_before(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    set_checkpoint_offsets(directory, NAME, {AT: 9, OTHER: 4})
    lower_offset(directory, NAME, AT, 10)
    assert offsets(tmp_path) == {AT: 9, OTHER: 4}
    lower_offset(directory, NAME, AT, 5)
    assert offsets(tmp_path) == {AT: 5, OTHER: 4}
    keep_offsets(directory, NAME, "events", lambda _: False)
    lower_offset(directory, NAME, AT, 3)
    assert offsets(tmp_path) == {OTHER: 4}


@pytest.mark.parametrize("is_settled", [False, True])
def test_lines_that_a_broker_has_written_since_stay(tmp_path: Path, is_settled: bool) -> None:
    directory = directory_at(tmp_path)
    set_checkpoint_offsets(directory, NAME, {AT: 9})
    lower_offset(directory, NAME, AT, 9)
    for offset in (20, 30):
        (tmp_path / "new").write_text(offset_checkpoint({("events", 0): offset, ("other", 1): offset}))
        (tmp_path / "new").replace(tmp_path / NAME)
        if is_settled:
            settle(tmp_path)
        lower_offset(directory, NAME, AT, offset - 1)
        assert offsets(tmp_path) == {AT: offset - 1, OTHER: offset}


def test_two_processes_change_lines_in_turn(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    for turn in range(3):
        set_checkpoint_offsets(directory, NAME, {AT: turn})
        assert not in_child(partial(set_checkpoint_offsets, directory, NAME, {OTHER: turn}))
    lower_offset(directory, NAME, AT, 1)
    assert offsets(tmp_path) == {AT: 1, OTHER: 2}


def test_damaged_checkpoint_is_not_replaced_by_the_lines_that_it_had(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    set_checkpoint_offsets(directory, NAME, {AT: 9})
    (tmp_path / NAME).write_bytes(b"0\n2\nevents 0 9\n")
    for _ in range(2):
        with pytest.raises(CorruptCheckpointError, match="says 2 lines and has 1"):
            lower_offset(directory, NAME, AT, 3)
    assert (tmp_path / NAME).read_bytes() == b"0\n2\nevents 0 9\n"


def test_start_offset_that_a_broker_has_raised_between_two_openings_is_obeyed(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    for start_offset in range(3):
        with LogWriter.open(folder) as log:
            assert log.start_offset == start_offset
            log.append(TABLE)
        (tmp_path / files.LOG_START_CHECKPOINT).write_text(offset_checkpoint({("events", 0): start_offset + 1}))
        settle(tmp_path)
