"""How the calls of the storage grow with a log: counted, and not timed."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.places import PartitionFolder
from sparklog.log.reader import LogReader
from sparklog.storage.base import WritableStorage
from sparklog.write.partition import LogWriter
from tests.storage.counting import counting_storage
from tests.storage.memory import MemoryStorage

NOW_MS = 1_700_000_000_000
FOLDER = "/logs/events-0"
SIZES = (4, 16, 64)
VALUE = b"v" * 600
ONE_BATCH_A_SEGMENT = LogConfig(segment_bytes=1000, compression_type="uncompressed")


def opened(storage: WritableStorage, config: LogConfig = ONE_BATCH_A_SEGMENT) -> LogWriter:
    return LogWriter.open(FOLDER, config, storage=storage, clock=lambda: NOW_MS, rng=lambda: 0)


def one(value: bytes = VALUE) -> pa.Table:
    return pa.table({"value": pa.array([value], pa.binary())})


def written(segments: int, producers: int = 1) -> tuple[WritableStorage, Counter[str]]:
    """Return a storage with a log of so many segments, a batch each, written by so many producers in turn."""
    storage, calls = counting_storage(MemoryStorage())
    with opened(storage) as log:
        for n in range(segments):
            log.append(one(), producer_id=n % producers, producer_epoch=0, base_sequence=n // producers)
    names = [entry.name for entry in storage.names(FOLDER)]
    assert sum(name.endswith(files.LOG) for name in names) == segments
    calls.clear()
    return storage, calls


def without_snapshots(storage: WritableStorage, last: int) -> None:
    """Remove the last snapshots of the log."""
    names = [entry.name for entry in storage.names(FOLDER) if entry.name.endswith(files.SNAPSHOT)]
    for name in names[-last:]:
        storage.remove(f"{FOLDER}/{name}")


def calls_of_ends(storage: WritableStorage, calls: Counter[str]) -> Counter[str]:
    calls.clear()
    log = LogReader(read_layout(PartitionFolder.at(storage, FOLDER)))
    assert log.end_offset == log.last_stable_offset > 0
    return only_calls(calls)


def only_calls(counts: Counter[str]) -> Counter[str]:
    """Leave out how much a call listed, read or synced."""
    return Counter({name: count for name, count in counts.items() if " " not in name})


def test_append_makes_one_call_whatever_the_log_has() -> None:
    for size in SIZES:
        storage, calls = written(segments=size, producers=size)
        with opened(storage, LogConfig()) as log:
            log.append(one())
            calls.clear()
            log.append(one())
            assert calls == {"append": 1}


def test_append_of_an_idempotent_producer_makes_one_call_whatever_the_log_has() -> None:
    for size in SIZES:
        storage, calls = written(segments=size, producers=size)
        with opened(storage, LogConfig()) as log:
            calls.clear()
            log.append(one(), producer_id=0, producer_epoch=1, base_sequence=0)
            assert calls == {"append": 1}


def test_opening_to_write_makes_as_many_calls_whatever_the_number_of_segments() -> None:
    counts = []
    for size in SIZES:
        storage, calls = written(segments=size)
        opened(storage).close()
        counts.append(only_calls(calls))
    assert counts[0] == counts[1] == counts[2]


def test_opening_to_write_lists_the_folder_once_and_opens_and_reads_each_file_of_the_last_segment_once() -> None:
    """Its log and its two indexes, however much is asked of them; and the account of the directory's last commit."""
    storage, calls = written(segments=SIZES[0])
    opened(storage).close()
    assert (calls["entries"], calls["open"], calls["size_bytes"], calls["read"]) == (1, 4, 3, 3)


@pytest.mark.parametrize("unseen", [0, 2])
def test_ends_of_a_log_cost_what_follows_the_last_snapshot(unseen: int) -> None:
    counts = []
    for size in SIZES:
        storage, calls = written(segments=size)
        if unseen:
            without_snapshots(storage, unseen)
        counts.append(calls_of_ends(storage, calls))
    assert counts[0] == counts[1] == counts[2]
    assert counts[0].total() < 60 + 20 * unseen


def test_without_snapshots_all_segments_are_looked_at() -> None:
    """Else the tests above would count nothing that matters."""
    storage, calls = written(segments=SIZES[-1])
    without_snapshots(storage, SIZES[-1] + 1)
    assert calls_of_ends(storage, calls)["open"] > SIZES[-1]
