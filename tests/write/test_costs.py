"""How the calls of the storage grow with a log: counted, and not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.places import PartitionFolder
from sparklog.log.reader import LogReader
from sparklog.storage.base import WritableStorage
from sparklog.write.partition import LogWriter
from sparklog.write.small_files import keep_offsets
from tests.growth import assert_does_not_grow, counted_work, make_partitions, settle
from tests.places import directory_at
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


def open_and_close(path: Path) -> None:
    LogWriter.open(path / "topic-00003-1").close()


def append(path: Path) -> None:
    with LogWriter.open(path / "topic-00003-1") as log:
        log.append(one())


def append_to_a_directory_of_a_stopped_broker(path: Path) -> None:
    marker = path / files.CLEAN_SHUTDOWN
    marker.write_text('{"version":0,"brokerEpoch":1}')
    append(path)
    assert marker.exists()


@pytest.mark.parametrize("act", [open_and_close, append, append_to_a_directory_of_a_stopped_broker])
def test_other_logs_of_the_directory_cost_a_writer_nothing(tmp_path: Path, act: Callable[[Path], None]) -> None:
    assert_does_not_grow(tmp_path, act)


def test_writers_of_all_logs_of_a_directory_read_its_checkpoints_once(tmp_path: Path) -> None:
    make_partitions(tmp_path, 50)
    open_and_close(tmp_path)
    settle(tmp_path)
    checkpoints = sum(path.stat().st_size for path in tmp_path.glob("*-checkpoint"))
    with counted_work() as work:
        for folder in sorted(path for path in tmp_path.iterdir() if path.is_dir()):
            LogWriter.open(folder).close()
    assert 0 < work.read_bytes < 2 * checkpoints


def test_checkpoint_without_a_line_of_the_topic_is_not_read_again_to_forget_it(tmp_path: Path) -> None:
    def forget(path: Path) -> None:
        keep_offsets(directory_at(path), files.LOG_START_CHECKPOINT, "missing", lambda _: False)

    assert_does_not_grow(tmp_path, forget)
