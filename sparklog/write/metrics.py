"""Counts the appends to an open log, and its flushes.

Source: apache/kafka, LogFlushStats (LogFlushRateAndTimeMs), BrokerTopicMetrics (BytesInPerSec, MessagesInPerSec).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class LogMetrics:
    """The appends to a log, and its flushes, since it was opened.

    Attributes
    ----------
    open_seconds : float
        How long the log has been open.
    appends, records, batches, bytes : int
        How many appends there were, and how much they added; ``bytes`` are sizes of batches on disk.
    flushes : int
        How often the files of the log were synced by `flush`, ``flush.ms`` or ``flush.messages``.
    flush_seconds, flush_seconds_max : float
        The time that flushes took, in total and at most.
    """

    open_seconds: float
    appends: int
    records: int
    batches: int
    bytes: int
    flushes: int
    flush_seconds: float
    flush_seconds_max: float


class LogCounters:
    """The counters of one open log, which keeps other threads out."""

    def __init__(self) -> None:
        self._opened_seconds = time.monotonic()
        self._appends = self._records = self._batches = self._bytes = self._flushes = 0
        self._flush_seconds = self._flush_seconds_max = 0.0

    def count_append(self, records: int, batches: int, size_bytes: int) -> None:
        """Count an append."""
        self._appends += 1
        self._records += records
        self._batches += batches
        self._bytes += size_bytes

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Count a flush, and time it."""
        begun_seconds = time.monotonic()
        yield
        taken_seconds = time.monotonic() - begun_seconds
        self._flushes += 1
        self._flush_seconds += taken_seconds
        self._flush_seconds_max = max(self._flush_seconds_max, taken_seconds)

    def metrics(self) -> LogMetrics:
        """Return the counts as a value."""
        return LogMetrics(
            time.monotonic() - self._opened_seconds,
            self._appends,
            self._records,
            self._batches,
            self._bytes,
            self._flushes,
            self._flush_seconds,
            self._flush_seconds_max,
        )
