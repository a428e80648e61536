"""Cleans one partition, by its topic's configuration and by passes that a caller adds.

The caller has locked the log directory. The directory's own files are not changed here. The new log start offset and
the cleaner's progress are returned. The caller writes them down, and only then removes the
segments before the start (`sparklog.cleaner.swap`). So other processes can do the work of many partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sparklog.cleaner.opened import OpenedLog
from sparklog.cleaner.retention import RetainedSegment, RetentionPolicy, dropped_by
from sparklog.cleaner.rewriting import Rewriter, Rewritten, Throttle

_NONE = -1


@dataclass(frozen=True, slots=True)
class PassDone:
    """The result of one pass over a log.

    Attributes
    ----------
    rewritten : tuple of Rewritten
        The result for each group of segments.
    removed_records : int
        How many records were removed.
    clean_offset : int or None
        The end of the compacted part, for ``cleaner-offset-checkpoint``; None if it has not moved.
    erased : tuple of (int, int)
        The offsets of the records that were erased, or whose values were, as ranges with both ends included.
    lost : str
        The losses of a conversion to an older format, in words; empty if there are none.
    """

    rewritten: tuple[Rewritten, ...] = ()
    removed_records: int = 0
    clean_offset: int | None = None
    erased: tuple[tuple[int, int], ...] = ()
    lost: str = ""


class CleanPass(Protocol):
    """One pass of a cleaning over the segments of a log, such as a compaction: a small frozen value that pickles."""

    @property
    def name(self) -> str:
        """The noun for it, such as "compaction"."""

    @property
    def needs_active(self) -> bool:
        """Whether the active segment is rolled first, so that all of the log can be rewritten."""

    def run(self, log: OpenedLog, rewriter: Rewriter) -> PassDone:
        """Rewrite segments of a log, by an editor that is made for it; in a dry run the rewriter only counts."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of cleaning a partition; in a dry run, the result that it would have.

    Attributes
    ----------
    start_offset, end_offset : int
        The log start offset and the log end offset after it.
    dropped_segments, dropped_bytes, dropped_offsets : int
        Segments, bytes and offsets that retention drops. If nothing was removed before, offsets count records and
        markers of transactions.
    first_timestamp, last_timestamp : int
        The time span that retention drops, ms since the epoch; -1 if it drops nothing, or records have no timestamps.
    old_segments, new_segments, old_bytes, new_bytes : int
        The rewritten segments and their bytes, before and after.
    removed_records : int
        How many records rewriting has removed.
    clean_offset : int or None
        The end of the compacted part of the log; None if no compaction was requested.
    erased : tuple of (int, int)
        The offsets of the records that were erased, or whose values were, as ranges with both ends included.
    lost : str
        The losses of a conversion to an older format, in words; empty if there are none.
    reasons : tuple of str
        What has changed the log, in the order of work: ``retention``, and the names of passes such as ``compaction``.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    dropped_segments: int = 0
    dropped_bytes: int = 0
    dropped_offsets: int = 0
    first_timestamp: int = _NONE
    last_timestamp: int = _NONE
    old_segments: int = 0
    new_segments: int = 0
    old_bytes: int = 0
    new_bytes: int = 0
    removed_records: int = 0
    clean_offset: int | None = None
    erased: tuple[tuple[int, int], ...] = ()
    lost: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def erased_records(self) -> int:
        """How many records were erased, or lost their values."""
        return sum(last - first + 1 for first, last in self.erased)

    @property
    def freed_bytes(self) -> int:
        """How much smaller the log is."""
        return self.dropped_bytes + self.old_bytes - self.new_bytes

    @property
    def is_changed(self) -> bool:
        """Whether anything was done to the log."""
        return bool(self.dropped_segments or self.old_segments)


@dataclass(frozen=True)
class Cleaning:
    """How to clean partitions.

    Attributes
    ----------
    policy : RetentionPolicy
        Decides which segments a log loses.
    passes : sequence of CleanPass
        Passes over the remaining segments, in this order.
    throttle : Throttle or None
        Limits how fast logs are read and written.
    report : callable
        Told how many bytes more were read.
    before_swap : callable
        Raises where somebody else has the log by now.
    """

    policy: RetentionPolicy
    passes: Sequence[CleanPass] = ()
    throttle: Throttle | None = None
    report: Callable[[int], None] = field(default=lambda _: None)
    before_swap: Callable[[], None] = field(default=lambda: None)

    def clean(self, log: OpenedLog) -> Cleaned:
        """Clean a log, or in a dry run return what would be done.

        Raises
        ------
        CorruptLogError
            The log is damaged. The damaged segment stays as it was.
        """
        described = log.describe()
        dropped = dropped_by(self.policy, described)
        start_offset = max(described.start_offset, dropped[-1].end_offset if dropped else 0)
        if dropped and dropped[-1].is_active:
            log = log.roll()
        log = log.from_offset(start_offset)
        done = [self._run(each, log) for each in self.passes]
        rewritten = [each for one in done for each in one.rewritten if each.is_changed]
        at = log.topic_partition
        return Cleaned(
            topic=at.topic,
            partition=at.partition,
            start_offset=start_offset,
            end_offset=described.end_offset,
            dropped_segments=len(dropped),
            dropped_bytes=sum(each.size_bytes for each in dropped),
            dropped_offsets=max(start_offset - described.start_offset, 0),
            first_timestamp=dropped[0].first_timestamp if dropped else _NONE,
            last_timestamp=_latest(dropped),
            old_segments=sum(each.old_segments for each in rewritten),
            new_segments=sum(each.new_segments for each in rewritten),
            old_bytes=sum(each.old_bytes for each in rewritten),
            new_bytes=sum(each.new_bytes for each in rewritten),
            removed_records=sum(each.removed_records for each in done),
            clean_offset=next((each.clean_offset for each in done if each.clean_offset is not None), None),
            erased=tuple(span for each in done for span in each.erased),
            lost=", ".join(each.lost for each in done if each.lost),
            reasons=(
                *(["retention"] if dropped else []),
                *(
                    each.name
                    for each, one in zip(self.passes, done, strict=True)
                    if any(rewritten.is_changed for rewritten in one.rewritten)
                ),
            ),
        )

    def _run(self, each: CleanPass, log: OpenedLog) -> PassDone:
        # An earlier pass may have swapped segments.
        current = log.relisted()
        current = current.roll() if each.needs_active else current
        rewriter = Rewriter(
            current.folder,
            current.config,
            current.now_ms,
            throttle=self.throttle,
            report=self.report,
            before_swap=self.before_swap,
            dry_run=current.recovered is None,
        )
        return each.run(current, rewriter)


def _latest(dropped: Sequence[RetainedSegment]) -> int:
    return max((each.largest_timestamp for each in dropped), default=_NONE)
