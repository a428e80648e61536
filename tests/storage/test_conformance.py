"""Every storage does what the contract says, and a log is written to each and read from each; faults in memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.errors import StorageError
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory
from sparklog.log.reader import LogReader
from sparklog.write.partition import LogWriter
from sparklog.write.small_files import write_atomically
from tests.places import folder_at
from tests.storage.conformance import STORAGES, Conformance
from tests.storage.memory import MemoryStorage, stopped_at


class TestStorages(Conformance):
    """The tests over all storages."""


def values(storage: MemoryStorage, path: str) -> list[bytes]:
    with LogReader(read_layout(folder_at(path, storage))) as log:
        found: list[bytes] = log.read(columns=["value"])["value"].to_pylist()
    return found


@pytest.mark.parametrize("make", STORAGES, ids=lambda make: make.__name__)
def test_log_is_written_and_read_again(tmp_path: Path, make: object) -> None:
    with make(tmp_path) as place:  # type: ignore[operator]
        for n in range(2):
            with LogWriter.open(place.path("events-0"), storage=place.storage) as log:
                log.append(pa.table({"value": [b"%d" % n, b"x"]}))
        assert values(place.storage, place.path("events-0")) == [b"0", b"x", b"1", b"x"]


def test_log_in_memory_that_is_stopped_at_any_change_has_what_was_synced() -> None:
    number, seen = 0, set()
    while True:
        number += 1
        storage = MemoryStorage()
        with LogWriter.open("/logs/events-0", storage=storage) as log:
            log.append(pa.table({"value": [b"old"]}))
        storage.sync_folder("/")
        before = len(storage.changes)
        with stopped_at(storage, number):
            log = LogWriter.open("/logs/events-0", storage=storage)
            log.append(pa.table({"value": [b"new"]}))
            log.close()
        is_done = len(storage.changes) - before < number - 1
        storage.lose_unsynced()
        with LogWriter.open("/logs/events-0", storage=storage):
            pass
        found = values(storage, "/logs/events-0")
        assert found in ([b"old"], [b"old", b"new"]), storage.changes[-1]
        seen.add(len(found))
        if is_done:
            break
    assert found == [b"old", b"new"]
    assert seen == {1, 2}


def test_full_disk_in_memory_leaves_a_log_as_it_was() -> None:
    storage = MemoryStorage()
    with LogWriter.open("/logs/events-0", storage=storage) as log:
        log.append(pa.table({"value": [b"old"]}))
        storage.full_at = len(storage.changes) + 1
        with pytest.raises(StorageError, match="the disk is full"):
            log.append(pa.table({"value": [b"new"]}))
        storage.full_at = None
    assert values(storage, "/logs/events-0") == [b"old"]


def test_small_file_is_the_old_or_the_new_one_wherever_it_is_stopped() -> None:
    seen = set()
    for number in range(1, 10):
        storage = MemoryStorage()
        directory = LogDirectory(storage, "/logs")
        storage.make_folder("/logs")
        storage.sync_folder("/")
        write_atomically(directory, "f", b"old")
        with stopped_at(storage, number):
            write_atomically(directory, "f", b"new")
        storage.lose_unsynced()
        seen.add(storage.read_small("/logs/f"))
    assert seen == {b"old", b"new"}
