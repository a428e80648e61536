"""Gathers a producer's records by topic, bounded in bytes, until its thread takes them.

The records of a topic are taken together when they suffice for one batch per partition, when the first of them has
waited for ``linger_ms``, or when a caller waits for one. While the thread is busy they keep gathering, so the busier
the thread, the more it takes at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from sparklog.clients.futures import Delivery, FutureRecordMetadata, FutureTableMetadata
from sparklog.errors import KafkaTimeoutError, SeglogError

_CELLS: Final = 3


class SentRecords:
    """Records sent one by one, in the order of the sends.

    The fields that every record has are in one flat list. Tuples would be as many objects for Python's garbage
    collector to count and visit, which took a third of the time of a send.

    Attributes
    ----------
    cells : list
        Value, key and timestamp of the first record, then of the second, and so on.
    headers, partitions : dict of int to list and to int
        Headers and partitions of the few records that have them, by record number.
    """

    __slots__ = ("cells", "headers", "partitions")

    def __init__(self) -> None:
        self.cells: list[Any] = []
        self.headers: dict[int, list[tuple[str, bytes | None]]] = {}
        self.partitions: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.cells) // _CELLS

    @property
    def values(self) -> list[bytes | None]:
        return self.cells[0::_CELLS]

    @property
    def keys(self) -> list[bytes | None]:
        return self.cells[1::_CELLS]

    @property
    def timestamps(self) -> list[int]:
        return self.cells[2::_CELLS]


class Pending(Delivery):
    """Records of a topic waiting to be written: rows sent one by one, or a table."""

    __slots__ = ("begun_seconds", "rows", "size_bytes", "table")

    def __init__(self, topic: str, hasten: Callable[[], None], table: pa.RecordBatch | None = None) -> None:
        super().__init__(topic, hasten)
        self.rows = SentRecords()
        self.table, self.size_bytes, self.begun_seconds = table, 0, time.monotonic()

    @property
    def records(self) -> int:
        return 1 if self.table is not None else len(self.rows)


class Accumulator:
    """Records waiting to be written. Any thread adds to it, and one takes from it.

    Parameters
    ----------
    linger_seconds : float
        How long records wait for more records.
    bytes_max : int
        The most bytes that may wait; a single larger record or table may wait alone.
    block_seconds : float
        How long a thread waits for room.
    """

    def __init__(self, linger_seconds: float, bytes_max: int, block_seconds: float) -> None:
        self._linger_seconds, self._bytes_max, self._block_seconds = linger_seconds, bytes_max, block_seconds
        # A signal handler may send in the middle of a send of the same thread.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[str, deque[Pending]] = {}
        # For each topic, the last waiting delivery if it takes more records: a send looks at nothing else.
        self._open: dict[str, Pending] = {}
        self._taken: list[Pending] = []
        self._buffered_bytes = 0
        self._is_hastened = self._is_closed = False
        self._refusal: SeglogError | None = None

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        partition: int | None,
        timestamp_ms: int,
        size_bytes: int,
        full_bytes: int,
    ) -> FutureRecordMetadata:
        """Add a record.

        Parameters
        ----------
        topic, value, key, headers, partition, timestamp_ms
            The checked arguments of `sparklog.Producer.send`.
        size_bytes : int
            The approximate size of the record.
        full_bytes : int
            With this many waiting bytes, the topic's records wait no longer.

        Raises
        ------
        KafkaTimeoutError
            The buffer stayed full for too long.
        IllegalStateError
            The producer is closed.
        """
        lock = self._lock
        # Not by `with`, which takes a tenth of a send; a signal must not end the send with the lock held either.
        try:
            lock.acquire()
            if self._is_closed or self._buffered_bytes + size_bytes > self._bytes_max:
                self._wait_for_room(size_bytes)
            pending = self._open.get(topic) or self._opened(topic)
            rows = pending.rows
            number = len(rows.cells) // _CELLS
            if headers:
                rows.headers[number] = headers
            if partition is not None:
                rows.partitions[number] = partition
            # Signals are handled after calls: with one call, and this the last, a record is added wholly or not at all.
            rows.cells.extend((value, key, timestamp_ms))
            self._buffered_bytes += size_bytes
            before = pending.size_bytes
            pending.size_bytes = before + size_bytes
            if before < full_bytes <= pending.size_bytes:
                self._changed.notify_all()
        except BaseException:
            # If the signal came before the lock was taken, there is none to release.
            with suppress(RuntimeError):
                lock.release()
            raise
        lock.release()
        return FutureRecordMetadata((pending, number))

    def append_table(self, topic: str, table: pa.RecordBatch, size_bytes: int) -> FutureTableMetadata:
        """Add a table after the waiting records; for errors see `append`."""
        with self._changed:
            if self._is_closed or self._buffered_bytes + size_bytes > self._bytes_max:
                self._wait_for_room(size_bytes)
            self._open.pop(topic, None)
            pending = self._begun(topic, Pending(topic, self.hasten, table))
            pending.size_bytes = size_bytes
            self._buffered_bytes += size_bytes
            self._is_hastened = True
            return FutureTableMetadata((pending, 0))

    def _opened(self, topic: str) -> Pending:
        """Begin a delivery for the topic's next records."""
        pending = self._open[topic] = self._begun(topic, Pending(topic, self.hasten))
        return pending

    def _begun(self, topic: str, pending: Pending) -> Pending:
        self._waiting.setdefault(topic, deque()).append(pending)
        self._changed.notify_all()
        return pending

    def _wait_for_room(self, size_bytes: int) -> None:
        deadline = time.monotonic() + self._block_seconds
        while not self._is_closed and self._buffered_bytes and self._buffered_bytes + size_bytes > self._bytes_max:
            self.hasten()
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0 or not self._changed.wait(left_seconds):
                raise KafkaTimeoutError(
                    f"no room for a record of {size_bytes} bytes within max_block_ms, {self._block_seconds * 1000:g}: "
                    f"{self._buffered_bytes} of buffer_memory={self._bytes_max} bytes wait to be written"
                )
        if self._refusal is not None:
            raise self._refusal

    def hasten(self) -> None:
        """Let all records that wait now be written at once."""
        with self._changed:
            if not self._is_hastened:
                self._is_hastened = True
                self._changed.notify_all()

    def take(self, full_bytes: Callable[[str], int], idle_seconds: float) -> Sequence[Pending] | None:
        """Wait for records that are due, and take them.

        Parameters
        ----------
        full_bytes : callable
            Returns how many bytes of a topic are enough to be written.
        idle_seconds : float
            How long to wait.

        Returns
        -------
        sequence of Pending
            In the order of the sends within each topic; empty if nothing came in time. None if the
            accumulator is closed and empty.
        """
        deadline = time.monotonic() + idle_seconds
        with self._changed:
            while True:
                now = time.monotonic()
                ready, next_seconds = self._ready(full_bytes, now)
                if ready:
                    for topic in ready:
                        self._open.pop(topic, None)
                    self._taken = [pending for topic in ready for pending in self._waiting.pop(topic)]
                    self._is_hastened = self._is_hastened and bool(self._waiting)
                    return self._taken
                if not self._waiting:
                    self._is_hastened = False
                    if self._is_closed:
                        return None
                    if now >= deadline:
                        return ()
                    next_seconds = deadline
                self._changed.wait(max(0.0, next_seconds - now))

    def _ready(self, full_bytes: Callable[[str], int], now: float) -> tuple[list[str], float]:
        """Return the topics whose records are due, and the time when the next topic's are."""
        if self._is_hastened or self._is_closed:
            return list(self._waiting), now
        ready, next_seconds = [], now + self._linger_seconds
        for topic, queue in self._waiting.items():
            due = queue[0].begun_seconds + self._linger_seconds
            if due <= now or queue[0].size_bytes >= full_bytes(topic):
                ready.append(topic)
            next_seconds = min(next_seconds, due)
        return ready, next_seconds

    def written(self, pending: Pending) -> None:
        """Free the room of a delivery that was taken."""
        with self._changed:
            self._taken = [each for each in self._taken if each is not pending]
            self._buffered_bytes -= pending.size_bytes
            self._changed.notify_all()

    def unwritten(self) -> list[Pending]:
        """Return the deliveries that are not yet written."""
        with self._changed:
            return [*self._taken, *(pending for queue in self._waiting.values() for pending in queue)]

    def close(self, refusal: SeglogError) -> None:
        """Refuse new records; waiting ones are still taken."""
        with self._changed:
            self._is_closed, self._refusal = True, refusal
            self._changed.notify_all()

    def abandon(self) -> list[Pending]:
        """Return the waiting deliveries, and forget them."""
        with self._changed:
            left = [pending for queue in self._waiting.values() for pending in queue]
            self._waiting.clear()
            self._open.clear()
            self._changed.notify_all()
            return left
