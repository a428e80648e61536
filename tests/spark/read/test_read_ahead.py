"""Batches that a thread makes while the last one is taken."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from sparklog.errors import CorruptLogError
from sparklog.spark.read import plan as planning
from sparklog.spark.read.batches import read_ahead
from sparklog.spark.source import SeglogDataSource
from tests.log.logs import write

WAIT_SECONDS = 30.0


def batch(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [number]})


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [each["n"][0].as_py() for each in batches]


class Source:
    """A generator of batches that keeps count of itself.

    Attributes
    ----------
    made : int
        How many batches it has made.
    made_one : threading.Semaphore
        Released once a batch.
    is_closed : bool
        Whether it has come to its end or was closed.
    threads : list of str
        The names of the threads that it ran in.
    """

    def __init__(self, count: int = 1 << 30, error: Exception | None = None) -> None:
        self.made = 0
        self.made_one = threading.Semaphore(0)
        self.is_closed = False
        self.threads: list[str] = []
        self._count, self._error = count, error

    def batches(self) -> Generator[pa.RecordBatch]:
        try:
            while self.made < self._count:
                self.threads.append(threading.current_thread().name)
                self.made += 1
                self.made_one.release()
                yield batch(self.made)
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True

    def wait_for(self, made: int) -> None:
        while self.made < made:
            assert self.made_one.acquire(timeout=WAIT_SECONDS)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    gc.collect()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_batches_come_in_order_and_all_of_them(count: int) -> None:
    source = Source(count)
    assert numbers(read_ahead(source.batches())) == list(range(1, count + 1))
    assert source.is_closed


def test_next_batch_is_made_while_the_last_is_used_and_not_the_one_after() -> None:
    source = Source()
    ahead = read_ahead(source.batches())
    for taken in range(1, 20):
        next(ahead)
        # Of those that are not taken, at most one is made: memory is bounded by it.
        source.wait_for(taken + (taken > 1))
        assert source.made == taken + (taken > 1)
    ahead.close()  # type: ignore[attr-defined]
    assert source.is_closed
    assert {"MainThread"} == set(source.threads[:1])
    assert "MainThread" not in source.threads[1:]


def test_first_batch_starts_no_thread() -> None:
    source, threads = Source(), threading.active_count()
    ahead = read_ahead(source.batches())
    assert next(ahead) == batch(1)
    assert (source.made, threading.active_count()) == (1, threads)
    del ahead
    assert source.is_closed


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_error_comes_after_the_batches_before_it(count: int) -> None:
    error = CorruptLogError("a batch is damaged")
    source = Source(count, error)
    ahead = read_ahead(source.batches())
    assert numbers(islice(ahead, count)) == list(range(1, count + 1))
    with pytest.raises(CorruptLogError) as raised:
        next(ahead)
    assert raised.value is error
    assert source.is_closed


def test_close_waits_for_the_batch_in_the_making_and_leaves_nothing_running() -> None:
    is_making, may_go_on = threading.Event(), threading.Event()
    closed = []

    def batches() -> Generator[pa.RecordBatch]:
        try:
            yield batch(1)
            yield batch(2)
            is_making.set()
            assert may_go_on.wait(WAIT_SECONDS)
            yield batch(3)
        finally:
            closed.append(True)

    ahead = read_ahead(batches())
    assert numbers(islice(ahead, 2)) == [1, 2]
    assert is_making.wait(WAIT_SECONDS)
    threading.Timer(0.05, may_go_on.set).start()
    ahead.close()  # type: ignore[attr-defined]
    assert may_go_on.is_set()
    assert closed == [True]


def test_batches_that_were_taken_are_let_go() -> None:
    ahead = read_ahead(Source(20).batches())
    taken = [weakref.ref(each) for each in islice(ahead, 10)]
    # The last is still in the hands of whoever yields it.
    assert [each() for each in taken[:-1]] == [None] * 9
    ahead.close()  # type: ignore[attr-defined]


# Of logs


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write forty partitions of 120 offsets each, which one task reads; return their directory."""
    monkeypatch.setattr(planning, "usable_cores", lambda: 1)
    for partition in range(40):
        write(tmp_path / f"events-{partition}")
    return tmp_path


def reader_of(log_dir: Path) -> Iterator[pa.RecordBatch]:
    source = SeglogDataSource(CaseInsensitiveDict({"path": str(log_dir)}))
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    return reader.read(task)


def open_files(log_dir: Path) -> list[str]:
    return [each.path for each in psutil.Process().open_files() if str(log_dir) in each.path]


def test_early_close_of_a_read_closes_its_files(log_dir: Path) -> None:
    batches = reader_of(log_dir)
    # Of partitions of 120 records each, 1, 1, 2, 4 and 8 to a batch.
    assert sum(each.num_rows for each in islice(batches, 5)) == 16 * 120
    batches.close()  # type: ignore[attr-defined]
    assert open_files(log_dir) == []


def test_error_of_a_read_closes_its_files(log_dir: Path) -> None:
    batches = reader_of(log_dir)
    next(batches)
    damaged = next((log_dir / "events-13").glob("*.log"))
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(CorruptLogError, match=str(damaged)):
        list(batches)
    assert open_files(log_dir) == []
