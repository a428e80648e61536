"""Decides which of its oldest segments a log loses, by Kafka's rules or by a user's own policy.

Nothing here does I/O. Kafka drops, always from the oldest on and up to the first segment that it keeps:

1. segments wholly before the log start offset;
2. under ``cleanup.policy`` delete, segments without which the log is still as large as ``retention.bytes``;
3. and segments whose largest timestamp is more than ``retention.ms`` ago (one in the future is not). If no
   record has a timestamp, the modification time of the file counts.

The last segment can be dropped as well if it is not empty; an empty one is begun first. A broker keeps a segment
until the high watermark has passed it. Here the whole log counts as replicated.

Source: apache/kafka, UnifiedLog.java (deletableSegments, deleteRetentionSizeBreachedSegments,
deleteRetentionMsBreachedSegments, deleteLogStartOffsetBreachedSegments), LogSegment.java (largestTimestamp).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class RetainedSegment:
    """A segment, as a retention policy sees it.

    Attributes
    ----------
    base_offset, end_offset : int
        Its offsets, the end exclusive: the base offset of the next segment, or the log end offset.
    size_bytes : int
        The size of its ``.log`` file.
    first_timestamp, largest_timestamp : int
        The timestamp of its first batch and the largest of its records, ms since the epoch; -1 if there are none.
    modified_ms : int
        When its log was last written to, ms since the epoch.
    is_active : bool
        Whether it is the last one, which is written to.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp: int
    largest_timestamp: int
    modified_ms: int
    is_active: bool = False

    @property
    def time_ms(self) -> int:
        """The time that counts for ``retention.ms``."""
        return self.largest_timestamp if self.largest_timestamp >= 0 else self.modified_ms


@dataclass(frozen=True, slots=True)
class LogDescription:
    """A log, as a retention policy sees it.

    Attributes
    ----------
    topic, partition
        The name of the topic and the number of the partition, None if the folder's name has none.
    start_offset, end_offset : int
        The log start offset, and the log end offset, exclusive.
    segments : tuple of RetainedSegment
        The oldest first.
    config : LogConfig
        The topic's configuration.
    now_ms : int
        Wall-clock time, ms since the epoch.
    """

    topic: str
    partition: int | None
    start_offset: int
    end_offset: int
    segments: tuple[RetainedSegment, ...]
    config: LogConfig
    now_ms: int


class RetentionPolicy(Protocol):
    """Decides which segments a log loses. A user's own class is called without arguments to make one."""

    def drop(self, log: LogDescription) -> Iterable[RetainedSegment]:
        """Return the segments to drop: the oldest ones, without a gap."""


class KafkaRetention:
    """Drops what a broker would."""

    def drop(self, log: LogDescription) -> Sequence[RetainedSegment]:
        left = _droppable(log)
        count = _count(each.end_offset <= log.start_offset and not each.is_active for each in left)
        if "delete" in log.config.cleanup_policy:
            count += _too_large(left[count:], sum(each.size_bytes for each in log.segments[count:]), log.config)
            count += _too_old(left[count:], log.config, log.now_ms)
        return left[:count]


def _droppable(log: LogDescription) -> Sequence[RetainedSegment]:
    """Return all segments except an empty last one."""
    segments = log.segments
    return segments[:-1] if segments and segments[-1].is_active and not segments[-1].size_bytes else segments


def _too_large(segments: Sequence[RetainedSegment], log_bytes: int, config: LogConfig) -> int:
    excess_bytes, count = log_bytes - config.retention_bytes, 0
    if config.retention_bytes < 0:
        return 0
    for segment in segments:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            break
        count += 1
    return count


def _too_old(segments: Sequence[RetainedSegment], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    return _count(now_ms - each.time_ms > config.retention_ms for each in segments)


def _count(answers: Iterable[bool]) -> int:
    """Count the answers up to the first that is no."""
    count = 0
    for answer in answers:
        if not answer:
            break
        count += 1
    return count


def dropped_by(policy: RetentionPolicy, log: LogDescription) -> tuple[RetainedSegment, ...]:
    """Ask a policy which segments a log loses.

    Raises
    ------
    InvalidOptionError
        The policy would leave a gap, or drop something that is no segment of the log.
    """
    chosen = set(policy.drop(log))
    dropped = tuple(each for each in log.segments if each in chosen)
    if len(dropped) != len(chosen) or dropped != log.segments[: len(dropped)]:
        raise InvalidOptionError(
            f"the retention policy {type(policy).__name__} would drop segments of {log.topic} at "
            f"{sorted(each.base_offset for each in chosen)}, but a log can lose only its oldest; its segments begin at "
            f"{[each.base_offset for each in log.segments]}"
        )
    droppable = _droppable(log)
    return dropped[: len(droppable)]
