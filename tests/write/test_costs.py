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
from sparklog.write.partition import PartitionLog
from tests.storage.counting import CountingMemory

NOW_MS = 1_700_000_000_000
FOLDER = "/logs/events-0"
SIZES = (4, 16, 64)
VALUE = b"v" * 600
ONE_BATCH_A_SEGMENT = LogConfig(segment_bytes=1000, compression_type="uncompressed")


def opened(storage: CountingMemory, config: LogConfig = ONE_BATCH_A_SEGMENT) -> PartitionLog:
    return PartitionLog.open(FOLDER, config, storage=storage, clock=lambda: NOW_MS, rng=lambda: 0)


def one(value: bytes = VALUE) -> pa.Table:
    return pa.table({"value": pa.array([value], pa.binary())})


def written(segments: int, producers: int = 1) -> CountingMemory:
    """Return a storage with a log of so many segments, a batch each, written by so many producers in turn."""
    storage = CountingMemory()
    with opened(storage) as log:
        for n in range(segments):
            log.append(one(), producer_id=n % producers, producer_epoch=0, base_sequence=n // producers)
    names = [entry.name for entry in storage.names(FOLDER)]
    assert sum(name.endswith(files.LOG) for name in names) == segments
    storage.calls.clear()
    return storage


def without_snapshots(storage: CountingMemory, last: int) -> None:
    """Remove the last snapshots of the log."""
    names = [entry.name for entry in storage.names(FOLDER) if entry.name.endswith(files.SNAPSHOT)]
    for name in names[-last:]:
        storage.remove(f"{FOLDER}/{name}")
    storage.calls.clear()


def calls_of_ends(storage: CountingMemory) -> Counter[str]:
    log = LogReader(read_layout(PartitionFolder.at(storage, FOLDER)))
    assert log.end_offset == log.last_stable_offset > 0
    return Counter(storage.calls)


def test_append_makes_one_call_whatever_the_log_has() -> None:
    for size in SIZES:
        storage = written(segments=size, producers=size)
        with opened(storage, LogConfig()) as log:
            log.append(one())
            storage.calls.clear()
            log.append(one())
            assert storage.calls == {"change": 1}


def test_append_of_an_idempotent_producer_makes_one_call_whatever_the_log_has() -> None:
    for size in SIZES:
        storage = written(segments=size, producers=size)
        with opened(storage, LogConfig()) as log:
            storage.calls.clear()
            log.append(one(), producer_id=0, producer_epoch=1, base_sequence=0)
            assert storage.calls == {"change": 1}


def test_opening_to_write_makes_as_many_calls_whatever_the_number_of_segments() -> None:
    counts = []
    for size in SIZES:
        storage = written(segments=size)
        opened(storage).close()
        counts.append(storage.calls)
    assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize("unseen", [0, 2])
def test_ends_of_a_log_cost_what_follows_the_last_snapshot(unseen: int) -> None:
    counts = []
    for size in SIZES:
        storage = written(segments=size)
        if unseen:
            without_snapshots(storage, unseen)
        counts.append(calls_of_ends(storage))
    assert counts[0] == counts[1] == counts[2]
    assert counts[0].total() < 40 + 10 * unseen


def test_without_snapshots_all_segments_are_looked_at() -> None:
    """Else the tests above would count nothing that matters."""
    storage = written(segments=SIZES[-1])
    without_snapshots(storage, SIZES[-1] + 1)
    assert calls_of_ends(storage)["open"] > SIZES[-1]
