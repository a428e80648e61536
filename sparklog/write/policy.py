"""Decides when the single writer of a log rolls a segment, syncs, and adds an index entry.

Nothing here reads a clock, a file or a random number: times and random numbers are parameters. The rules match Kafka's
to the byte, so that a log looks the same with either writer.

Source: apache/kafka, LogSegment.java (shouldRoll, timeWaitedForRoll, append), LogConfig.java (randomSegmentJitter,
maxSegmentMs), AbstractIndex.java, TimeIndex.java, UnifiedLog.java, LogManager.java.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.log.config import LogConfig
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY
from sparklog.log.segment import RELATIVE_OFFSET_MAX


@dataclass(frozen=True, slots=True)
class ActiveSegment:
    """The segment that batches are appended to.

    Attributes
    ----------
    base_offset, size_bytes : int
        The base offset of its ``.log`` file, and the size.
    created_ms : int
        The time when the segment was made, or opened after a restart, ms since the epoch.
    first_timestamp : int
        The max timestamp of its first batch; -1 if it has no batch, or that batch no timestamp.
    offset_index_entries, time_index_entries : int
        How many entries its indexes have.
    roll_jitter_ms : int
        The result of `roll_jitter_ms`, drawn once for the segment.
    """

    base_offset: int
    size_bytes: int
    created_ms: int
    first_timestamp: int
    offset_index_entries: int
    time_index_entries: int
    roll_jitter_ms: int = 0


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch, or the run of batches, to append next; ``max_timestamp`` is -1 if it has none."""

    batch_bytes: int
    last_offset: int
    max_timestamp: int


def should_roll(segment: ActiveSegment, batch: NextBatch, config: LogConfig, now_ms: int) -> bool:
    """Return whether ``batch`` belongs in a new segment.

    Notes ----- The answer can be True for an empty segment, whose index is too small or whose base offset is too far
    from the batch. If the new segment would have the same base offset, the empty segment already is that segment.
    """
    relative_offset = batch.last_offset - segment.base_offset
    return (
        segment.size_bytes > config.segment_bytes - batch.batch_bytes
        or (segment.size_bytes > 0 and _reached_roll_time(segment, batch, config, now_ms))
        or segment.offset_index_entries >= config.segment_index_bytes // OFFSET_ENTRY.itemsize
        # The last slot is reserved for the entry that a segment gets when it is rolled or closed.
        or segment.time_index_entries >= config.segment_index_bytes // TIME_ENTRY.itemsize - 1
        or not 0 <= relative_offset <= RELATIVE_OFFSET_MAX
    )


def _reached_roll_time(segment: ActiveSegment, batch: NextBatch, config: LogConfig, now_ms: int) -> bool:
    if segment.first_timestamp >= 0:
        waited_ms = batch.max_timestamp - segment.first_timestamp
    else:
        waited_ms = now_ms - segment.created_ms
    return waited_ms > roll_after_ms(config) - segment.roll_jitter_ms


def roll_after_ms(config: LogConfig) -> int:
    """Return the longest time for which a segment takes batches. A compacted log's must be cleaned in time."""
    if "compact" in config.cleanup_policy:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


def roll_jitter_ms(config: LogConfig, random_number: int) -> int:
    """Return how much earlier a segment rolls by time, from a random number that is 0 or more."""
    longest_ms = min(config.segment_jitter_ms, config.segment_ms)
    return random_number % longest_ms if longest_ms else 0


def should_flush(unflushed_records: int, flushed_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether to sync the log after an append.

    Parameters
    ----------
    unflushed_records : int
        How many offsets were appended since the last sync.
    flushed_ms : int
        The time of the last sync, ms since the epoch.
    """
    return unflushed_records > 0 and (
        unflushed_records >= config.flush_messages or now_ms - flushed_ms >= config.flush_ms
    )


def index_entry_rows(
    batch_bytes: npt.NDArray[np.int64], bytes_since_entry: int, interval_bytes: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Return which batches get an entry in the offset index; with each, the time index gets an entry as well.

    Parameters
    ----------
    batch_bytes : int64 array, shape (n_batches,)
        The sizes of consecutive batches.
    bytes_since_entry : int
        Bytes from the batch with the last entry up to these batches. So the first batch of a segment never gets one.
    interval_bytes : int
        ``index.interval.bytes``: a batch gets an entry if more bytes than that were appended since the last entry.

    Returns
    -------
    (int64 array, shape (n_entries,), int)
        The rows of the batches with an entry, and ``bytes_since_entry`` after all batches.
    """
    ends = np.concatenate(([0], np.cumsum(batch_bytes)))
    row = int(np.searchsorted(ends, interval_bytes - bytes_since_entry, side="right"))
    if row < len(batch_bytes) and (batch_bytes[row:-1] > interval_bytes).all():
        # Batches are longer than the interval, as most are, and each has an entry.
        return np.arange(row, len(batch_bytes)), int(batch_bytes[-1])
    next_rows = np.searchsorted(ends, ends[:-1] + interval_bytes, side="right").tolist()
    rows: list[int] = []
    while row < len(batch_bytes):
        rows.append(row)
        row = next_rows[row]
    since = int(ends[-1] - ends[rows[-1]]) if rows else bytes_since_entry + int(ends[-1])
    return np.array(rows, dtype=np.int64), since
