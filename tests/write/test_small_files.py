"""The name of a new log directory outlives a power cut, as what is in it does."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from sparklog.jobs.run.exclusive import exclusive
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.topic.log_manager import LogManager
from sparklog.topic.transactions.commit import begin_transactional_id
from sparklog.topic.transactions.writer import TransactionalWriter
from sparklog.write.partition import LogWriter
from sparklog.write.running_jobs import begin
from sparklog.write.small_files import make_directory
from tests.storage.memory import MemoryStorage, stopped_at

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
