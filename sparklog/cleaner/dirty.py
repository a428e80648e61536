"""Decides which part of a log compaction cleans, and whether cleaning pays.

Nothing here reads a clock or a file. The rules are the same as in Kafka's cleaner.

Source: apache/kafka, LogCleanerManager.java (cleanableOffsets, maxCompactionDelay, calculateCleanableBytes),
LogToClean.java.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.cleaner.retention import RetainedSegment
from sparklog.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class DirtySection:
    """The part of a log that compaction reads keys from.

    Attributes
    ----------
    start_offset : int
        The first offset that has not been cleaned.
    end_offset : int
        The base offset of the first segment that must not be cleaned yet; nothing from it on is touched.
    clean_bytes, dirty_bytes : int
        Sizes of the segments before the section and in it. As in Kafka, a segment that the section begins inside counts
        for both.
    is_overdue : bool
        Whether a record has been dirty for longer than ``max.compaction.lag.ms``.
    """

    start_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of the log's bytes, 0 to 1."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Tell whether a broker would clean the log now."""
        if not self.dirty_bytes or self.end_offset <= self.start_offset:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def dirty_section(
    segments: Sequence[RetainedSegment],
    start_offset: int,
    end_offset: int,
    stable_offset: int,
    checkpoint: int | None,
    config: LogConfig,
    now_ms: int,
) -> DirtySection:
    """Find the dirty section of a log.

    Parameters
    ----------
    segments : sequence of RetainedSegment
        All of the log, the active one last.
    start_offset, end_offset, stable_offset : int
        The log start offset, the log end offset and the last stable offset.
    checkpoint : int or None
        The offset of the log in ``cleaner-offset-checkpoint``; an offset that is not in the log is ignored.
    """
    first_dirty = start_offset if checkpoint is None or not start_offset <= checkpoint <= end_offset else checkpoint
    bases = [each.base_offset for each in segments]
    sealed = segments[max(bisect_right(bases, first_dirty) - 1, 0) : -1]
    bounds = [stable_offset, bases[-1] if bases else start_offset]
    if config.min_compaction_lag_ms > 0:
        latest_ms = now_ms - config.min_compaction_lag_ms
        bounds += [each.base_offset for each in sealed if each.time_ms > latest_ms][:1]
    # Only whole segments are cleaned.
    row = bisect_right(bases, max(first_dirty, min(bounds))) - 1
    last_offset = bases[row] if row >= 0 else start_offset
    firsts = [each.first_timestamp for each in sealed if each.first_timestamp > 0]
    first_row = max(bisect_right(bases, min(first_dirty, last_offset)) - 1, 0)
    return DirtySection(
        first_dirty,
        last_offset,
        sum(each.size_bytes for each in segments if each.base_offset < first_dirty),
        sum(each.size_bytes for each in segments[first_row:] if each.base_offset < last_offset),
        bool(firsts) and min(firsts) < now_ms - config.max_compaction_lag_ms,
    )


def legacy_tombstones_end_ms(
    segments: Sequence[RetainedSegment], section: DirtySection, delete_retention_ms: int
) -> int:
    """Return the file time up to which segments lose the tombstones of magic 0 and 1, ms since the epoch.

    Such batches have no delete horizon. Their tombstones are dropped once their file is older than the last
    cleaned one by ``delete.retention.ms``.
    """
    cleaned = [each.modified_ms for each in segments if each.base_offset < section.start_offset]
    return cleaned[-1] - delete_retention_ms if cleaned else 0
