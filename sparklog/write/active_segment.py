"""Computes how the active segment of a log and its indexes change when batches are appended.

Nothing here does I/O. A writer holds an `ActiveSegmentState`, computes the state after a run of batches, and changes
the files accordingly.

Source: apache/kafka 4, LogSegment.java (append, onBecomeInactiveSegment).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from sparklog.errors import OffsetOutOfRangeError
from sparklog.log.config import LogConfig
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.streams import Int64s
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import WritableFile
from sparklog.write.policy import ActiveSegment, NextBatch, index_entry_rows, should_roll

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Consecutive batches, as the numbers that decide their places in the log.

    Attributes
    ----------
    batch_bytes, last_offsets, max_timestamps : int64 array, shape (n_batches,)
        Sizes, last offsets in the log, and max timestamps, -1 for a batch without one.
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

    def batch(self, row: int) -> NextBatch:
        """Return one batch of the run."""
        return NextBatch(int(self.batch_bytes[row]), int(self.last_offsets[row]), int(self.max_timestamps[row]))

    @property
    def size_bytes(self) -> int:
        return int(self.batch_bytes.sum())


@dataclass(frozen=True, slots=True)
class ActiveSegmentState:
    """The state of the active segment, which is the end of the log.

    Attributes
    ----------
    segment : ActiveSegment
        The segment that the next batch goes to, unless the batch makes the log roll.
    end_offset : int
        The log end offset.
    bytes_since_entry : int
        Bytes in the segment from the batch on that got the last entry of the offset index.
    max_timestamp, max_timestamp_offset : int
        The latest timestamp of the segment so far, ms, and the last offset of the first batch with it; -1 none.
    last_time_entry : int
        The timestamp of the last entry of the time index; -1 none.
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

    @property
    def file_bytes(self) -> tuple[int, int, int]:
        """The sizes of the log file, the offset index and the time index."""
        return self.segment.size_bytes, self.offset_index_bytes, self.time_index_bytes


def new_segment(base_offset: int, now_ms: int, roll_jitter_ms: int = 0) -> ActiveSegmentState:
    """Return the state of an active segment that has just been made."""
    return ActiveSegmentState(ActiveSegment(base_offset, 0, now_ms, _NONE, 0, 0, roll_jitter_ms), base_offset)


def refuse_past_last_offset(name: str, first_offset: int, count: int) -> None:
    """Raise `OffsetOutOfRangeError` if a log has no room for ``count`` more offsets from ``first_offset`` on."""
    if first_offset + count > OFFSET_MAX:
        raise OffsetOutOfRangeError(
            f"{name} cannot have {count} more offsets from {first_offset} on: no offset is above {OFFSET_MAX - 1}"
        )


def append_run(state: ActiveSegmentState, run: BatchRun, config: LogConfig) -> tuple[ActiveSegmentState, bytes, bytes]:
    """Append a run of batches to the active segment.

    Returns
    -------
    (ActiveSegmentState, bytes, bytes)
        The state after the run, and the bytes to append to the offset index and to the time index.
    """
    if not len(run):
        return state, b"", b""
    if len(run) == 1:
        return _append_batch(state, run.batch(0), config)
    rows, since = index_entry_rows(run.batch_bytes, state.bytes_since_entry, config.index_interval_bytes)
    ends = np.cumsum(run.batch_bytes)
    latest = np.maximum.accumulate(np.concatenate(([state.max_timestamp], run.max_timestamps)))
    # The row of the first batch that has the latest timestamp so far, -1 where one before the run has it.
    holders = np.maximum.accumulate(np.where(latest[1:] > latest[:-1], np.arange(len(run)), -1))
    latest_offsets = np.where(holders < 0, state.max_timestamp_offset, run.last_offsets[holders])
    offset_entries = np.empty(len(rows), OFFSET_ENTRY)
    offset_entries["relative_offset"] = run.last_offsets[rows] - state.segment.base_offset
    offset_entries["position"] = state.segment.size_bytes + ends[rows] - run.batch_bytes[rows]
    indexed = np.maximum.accumulate(np.concatenate(([state.last_time_entry], latest[rows + 1])))
    timed = rows[indexed[1:] > indexed[:-1]]
    time_entries = np.empty(len(timed), TIME_ENTRY)
    time_entries["timestamp"] = latest[timed + 1]
    time_entries["relative_offset"] = latest_offsets[timed] - state.segment.base_offset
    segment = replace(
        state.segment,
        size_bytes=state.segment.size_bytes + int(ends[-1]),
        first_timestamp=state.segment.first_timestamp if state.segment.size_bytes else int(run.max_timestamps[0]),
        offset_index_entries=state.segment.offset_index_entries + len(rows),
        time_index_entries=state.segment.time_index_entries + len(timed),
    )
    after = ActiveSegmentState(
        segment, int(run.last_offsets[-1]) + 1, since, int(latest[-1]), int(latest_offsets[-1]), int(indexed[-1])
    )
    return after, offset_entries.tobytes(), time_entries.tobytes()


def _append_batch(
    state: ActiveSegmentState, batch: NextBatch, config: LogConfig
) -> tuple[ActiveSegmentState, bytes, bytes]:
    """Append one batch, like `append_run`, without arrays, which would be most of the cost of a small append."""
    segment, last_time_entry = state.segment, state.last_time_entry
    latest, latest_offset = state.max_timestamp, state.max_timestamp_offset
    if batch.max_timestamp > latest:
        latest, latest_offset = batch.max_timestamp, batch.last_offset
    is_due = state.bytes_since_entry > config.index_interval_bytes
    offset_entry = time_entry = b""
    if is_due:
        offset_entry = np.array([(batch.last_offset - segment.base_offset, segment.size_bytes)], OFFSET_ENTRY).tobytes()
        if latest > last_time_entry:
            time_entry = np.array([(latest, latest_offset - segment.base_offset)], TIME_ENTRY).tobytes()
            last_time_entry = latest
    after = ActiveSegment(
        segment.base_offset,
        segment.size_bytes + batch.batch_bytes,
        segment.created_ms,
        segment.first_timestamp if segment.size_bytes else batch.max_timestamp,
        segment.offset_index_entries + bool(offset_entry),
        segment.time_index_entries + bool(time_entry),
        segment.roll_jitter_ms,
    )
    since = batch.batch_bytes if is_due else state.bytes_since_entry + batch.batch_bytes
    return (
        ActiveSegmentState(after, batch.last_offset + 1, since, latest, latest_offset, last_time_entry),
        offset_entry,
        time_entry,
    )


def seal(state: ActiveSegmentState) -> tuple[ActiveSegmentState, bytes]:
    """Add the last time index entry, which a segment gets when it is rolled, closed or recovered.

    Returns
    -------
    (ActiveSegmentState, bytes)
        The state after that, and the bytes to append to the time index; empty if the entry exists.
    """
    if state.max_timestamp <= state.last_time_entry:
        return state, b""
    entry = (state.max_timestamp, state.max_timestamp_offset - state.segment.base_offset)
    segment = replace(state.segment, time_index_entries=state.segment.time_index_entries + 1)
    return replace(state, segment=segment, last_time_entry=state.max_timestamp), np.array([entry], TIME_ENTRY).tobytes()


def fits(state: ActiveSegmentState, run: BatchRun, config: LogConfig, now_ms: int) -> bool:
    """Return whether a whole run certainly fits into the active segment before it must be rolled.

    The run counts as one batch, with an index entry for each of its batches. So the answer may be False where
    batch by batch all would fit.
    """
    segment = state.segment
    as_if = replace(
        segment,
        # In an empty segment the roll time counts from the first batch of the run.
        size_bytes=segment.size_bytes or 1,
        first_timestamp=segment.first_timestamp if segment.size_bytes else int(run.max_timestamps[0]),
        offset_index_entries=segment.offset_index_entries + len(run),
        time_index_entries=segment.time_index_entries + len(run),
    )
    whole = NextBatch(run.size_bytes, int(run.last_offsets[-1]), int(run.max_timestamps.max()))
    return not should_roll(as_if, whole, config, now_ms)


def rows_before_roll(state: ActiveSegmentState, run: BatchRun, config: LogConfig, now_ms: int) -> int:
    """Return how many batches at the beginning of a run go to the active segment before it must be rolled.

    The count is at least 1 if the active segment is empty and a new one would have the same base offset.
    """
    sure = 0
    if len(run) > 1:
        if fits(state, run, config, now_ms):
            return len(run)
        sure = bisect_left(range(1, len(run)), True, key=lambda rows: not fits(state, run[:rows], config, now_ms))
        state, _, _ = append_run(state, run[:sure], config)
    for row in range(sure, len(run)):
        if row > sure:
            state, _, _ = _append_batch(state, run.batch(row - 1), config)
        is_same = not state.segment.size_bytes and state.segment.base_offset == state.end_offset
        if not is_same and should_roll(state.segment, run.batch(row), config, now_ms):
            return row
    return len(run)


@dataclass
class ActiveFiles:
    """The files of the active segment, until they are closed."""

    log: WritableFile
    offset_index: WritableFile
    time_index: WritableFile
    are_open: bool = field(default=True, init=False)

    def all(self) -> tuple[WritableFile, ...]:
        return self.log, self.offset_index, self.time_index

    def cut(self, tail: ActiveSegmentState) -> None:
        """Cut the files to the sizes in the segment's state."""
        for file, size_bytes in zip(self.all(), tail.file_bytes, strict=True):
            file.truncate(size_bytes)

    def sync(self) -> None:
        for file in self.all():
            file.sync()

    def close(self) -> None:
        self.are_open = False
        for file in self.all():
            file.close()
