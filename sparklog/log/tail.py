"""The end of a log: its active segment, and what its indexes get when batches are appended to it.

Nothing here does I/O. A writer holds a `Tail`, asks what a run of batches makes of it, and does that to the files.

Source: apache/kafka 4, LogSegment.java (append, onBecomeInactiveSegment).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from sparklog.log.config import LogConfig
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY
from sparklog.log.policy import ActiveSegment, NextBatch, needs_index_entry, should_roll
from sparklog.record.headers import BatchHeaders

Int64s = np.ndarray[Any, np.dtype[np.int64]]

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Consecutive batches.

    Attributes
    ----------
    batch_bytes, last_offsets, max_timestamps : int64 array, shape (n_batches,)
        Offsets are those of the log; a max timestamp is -1 where a batch has none.
    """

    batch_bytes: Int64s
    last_offsets: Int64s
    max_timestamps: Int64s

    @classmethod
    def from_headers(cls, headers: BatchHeaders) -> Self:
        return cls(headers.column("batch_bytes"), headers.column("last_offset"), headers.column("max_timestamp"))

    def __len__(self) -> int:
        return len(self.batch_bytes)

    def __getitem__(self, rows: slice) -> BatchRun:
        return BatchRun(self.batch_bytes[rows], self.last_offsets[rows], self.max_timestamps[rows])

    @property
    def size_bytes(self) -> int:
        return int(self.batch_bytes.sum())


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log.

    Attributes
    ----------
    segment : ActiveSegment
        Where the next batch goes, unless it makes the log roll.
    end_offset : int
        Log end offset.
    bytes_since_entry : int
        Bytes in the segment since the batch that got the last offset index entry, that one included.
    max_timestamp, max_timestamp_offset : int
        The latest of the segment so far, ms, and the last offset of the first batch that has it; -1 none.
    last_time_entry : int
        The timestamp of the last time index entry; -1 none.
    """

    segment: ActiveSegment
    end_offset: int
    bytes_since_entry: int = 0
    max_timestamp: int = _NONE
    max_timestamp_offset: int = _NONE
    last_time_entry: int = _NONE

    @property
    def offset_index_bytes(self) -> int:
        return self.segment.offset_index_entries * OFFSET_ENTRY.itemsize

    @property
    def time_index_bytes(self) -> int:
        return self.segment.time_index_entries * TIME_ENTRY.itemsize


def new_segment(base_offset: int, now_ms: int, roll_jitter_ms: int = 0) -> Tail:
    """Return the end of a log whose active segment has just been made."""
    return Tail(ActiveSegment(base_offset, 0, now_ms, _NONE, 0, 0, roll_jitter_ms), base_offset)


def grown(tail: Tail, run: BatchRun, config: LogConfig) -> tuple[Tail, bytes, bytes]:
    """Append a run of batches to the active segment.

    Returns
    -------
    (Tail, bytes, bytes)
        The end of the log then, and the entries that its offset index and its time index get.
    """
    if not len(run):
        return tail, b"", b""
    base_offset, position = tail.segment.base_offset, tail.segment.size_bytes
    offset_entries: list[tuple[int, int]] = []
    time_entries: list[tuple[int, int]] = []
    since, latest, latest_offset, last_time = (
        tail.bytes_since_entry,
        tail.max_timestamp,
        tail.max_timestamp_offset,
        tail.last_time_entry,
    )
    columns = (run.batch_bytes.tolist(), run.last_offsets.tolist(), run.max_timestamps.tolist())
    for batch_bytes, last_offset, max_timestamp in zip(*columns, strict=True):
        if max_timestamp > latest:
            latest, latest_offset = max_timestamp, last_offset
        if needs_index_entry(since, config.index_interval_bytes):
            offset_entries.append((last_offset - base_offset, position))
            if latest > last_time:
                time_entries.append((latest, latest_offset - base_offset))
                last_time = latest
            since = 0
        position, since = position + batch_bytes, since + batch_bytes
    segment = replace(
        tail.segment,
        size_bytes=position,
        first_timestamp=tail.segment.first_timestamp if tail.segment.size_bytes else columns[2][0],
        offset_index_entries=tail.segment.offset_index_entries + len(offset_entries),
        time_index_entries=tail.segment.time_index_entries + len(time_entries),
    )
    after = Tail(segment, columns[1][-1] + 1, since, latest, latest_offset, last_time)
    return after, np.array(offset_entries, OFFSET_ENTRY).tobytes(), np.array(time_entries, TIME_ENTRY).tobytes()


def sealed(tail: Tail) -> tuple[Tail, bytes]:
    """Give the active segment the last time index entry that it gets when it is rolled, closed or recovered.

    Returns
    -------
    (Tail, bytes)
        The end of the log then, and the entry; nothing where it has it.
    """
    if tail.max_timestamp <= tail.last_time_entry:
        return tail, b""
    entry = (tail.max_timestamp, tail.max_timestamp_offset - tail.segment.base_offset)
    segment = replace(tail.segment, time_index_entries=tail.segment.time_index_entries + 1)
    return replace(tail, segment=segment, last_time_entry=tail.max_timestamp), np.array([entry], TIME_ENTRY).tobytes()


def fits(tail: Tail, run: BatchRun, config: LogConfig, now_ms: int) -> bool:
    """Tell whether all of a run certainly goes to the active segment before it is to be rolled.

    It is asked of the run as of one batch, and as if each of its batches got index entries, so that the answer may be
    no where batch by batch it would be yes.
    """
    segment = tail.segment
    as_if = replace(
        segment,
        # Of an empty segment, too, the time that its first batch waited counts for the others.
        size_bytes=segment.size_bytes or 1,
        first_timestamp=segment.first_timestamp if segment.size_bytes else int(run.max_timestamps[0]),
        offset_index_entries=segment.offset_index_entries + len(run),
        time_index_entries=segment.time_index_entries + len(run),
    )
    whole = NextBatch(run.size_bytes, int(run.last_offsets[-1]), int(run.max_timestamps.max()))
    return not should_roll(as_if, whole, config, now_ms)


def rows_before_roll(tail: Tail, run: BatchRun, config: LogConfig, now_ms: int) -> int:
    """Return how many batches of a run, from its first on, go to the active segment before it is to be rolled.

    It is at least 1 where the active segment is empty and a new one would have the same base offset.
    """
    if fits(tail, run, config, now_ms):
        return len(run)
    for row in range(len(run)):
        one = run[row : row + 1]
        is_same = not tail.segment.size_bytes and tail.segment.base_offset == tail.end_offset
        batch = NextBatch(one.size_bytes, int(one.last_offsets[0]), int(one.max_timestamps[0]))
        if not is_same and should_roll(tail.segment, batch, config, now_ms):
            return row
        tail, _, _ = grown(tail, one, config)
    return len(run)
