"""Compacts one log: round by round, until its dirty section is clean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from sparklog.cleaner.compaction import Compaction, CompactionRound, LastBatch, last_batches
from sparklog.cleaner.dirty import DirtySection, dirty_section, legacy_tombstones_end_ms
from sparklog.cleaner.latest_offsets import MapFiller
from sparklog.cleaner.opened import OpenedLog
from sparklog.cleaner.partition import PassDone
from sparklog.cleaner.retention import RetainedSegment
from sparklog.cleaner.rewriting import Rewriter, Rewritten
from sparklog.cleaner.segment_groups import grouped_segments
from sparklog.cleaner.transactions import AbortedTransactions
from sparklog.errors import InvalidOptionError
from sparklog.log import files
from sparklog.log.directory_view import DirectoryView
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.segment import Segment
from sparklog.log.transactions import last_stable_offset
from sparklog.record.rewrite.offset_map import DEDUPE_BUFFER_BYTES, LOAD_FACTOR, OffsetMap

_COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of compacting a log; in a dry run, the result that it would have.

    Attributes
    ----------
    section : DirtySection
        The dirty section before the compaction.
    is_due : bool
        Whether the log needed cleaning; if not, nothing was done.
    groups : tuple of Rewritten
        The rewritten groups of all rounds.
    rounds : int
        How many rounds it took: more than one if the offset map was full before the end of the section.
    removed_records : int
        How many records were removed.
    clean_offset : int
        The offset to write for the log in ``cleaner-offset-checkpoint``.
    """

    section: DirtySection
    is_due: bool
    groups: tuple[Rewritten, ...]
    rounds: int
    removed_records: int
    clean_offset: int


@dataclass(frozen=True, slots=True)
class CompactionPass:
    """Compacts logs whose ``cleanup.policy`` has compact, if they are dirty enough.

    Attributes
    ----------
    dedupe_buffer_bytes : int
        Kafka's ``log.cleaner.dedupe.buffer.size``: the memory of the offset map.
    load_factor : float
        Kafka's ``log.cleaner.io.buffer.load.factor``.
    """

    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    load_factor: float = LOAD_FACTOR
    name: str = field(default="compaction", init=False)
    needs_active: bool = field(default=False, init=False)

    def run(self, log: OpenedLog, rewriter: Rewriter) -> PassDone:
        """Compact a log. The caller writes its ``cleaner-offset-checkpoint``.

        If that fails, the next compaction reads the clean part again, and changes nothing in it.
        """
        if _COMPACT not in log.config.cleanup_policy:
            rewriter.report(_log_bytes(log))
            return PassDone()
        checkpoint = DirectoryView(log.folder.directory).offsets(files.CLEANER_CHECKPOINT).get(log.topic_partition)
        done = compact(log, rewriter, OffsetMap(self.dedupe_buffer_bytes, self.load_factor), checkpoint)
        # Segments that are not rewritten are read once only.
        rewriter.report(max(_log_bytes(log) - sum(each.old_bytes for each in done.groups), 0))
        return PassDone(done.groups, done.removed_records, done.clean_offset if done.is_due else None)


def _log_bytes(log: OpenedLog) -> int:
    return sum(each.size_bytes for each in log.layout.segments)


def compact(log: OpenedLog, rewriter: Rewriter, offset_map: OffsetMap, checkpoint: int | None) -> Compacted:
    """Compact a log, if it is due.

    Parameters
    ----------
    rewriter : Rewriter
        The rewriter of the log; in a dry run it counts what the first round would do.
    offset_map : OffsetMap
        Its entries are discarded first.
    checkpoint : int or None
        The line of the log in ``cleaner-offset-checkpoint``.

    Raises
    ------
    CorruptLogError
        A segment is damaged. Groups before it may have been rewritten, which does no harm.
    InvalidOptionError
        The map has not room for the keys of one batch.
    """
    stable_offset = last_stable_offset(log.layout)
    segments = _described(log)
    section = found = _section(log, segments, stable_offset, checkpoint)
    if not section.is_due(log.config):
        return Compacted(section, False, (), 0, 0, section.start_offset)
    last = last_batches(producers_at_end(log.layout, log.now_ms))
    # The markers that a round keeps still decide every transaction that has batches left.
    aborted = AbortedTransactions(partial(_segments_now, log))
    groups: list[Rewritten] = []
    rounds = removed_records = 0
    while section.start_offset < section.end_offset and not (rewriter.dry_run and rounds):
        _fill(offset_map, log, rewriter, section, aborted)
        editor = _editor(log, segments, section, offset_map, aborted, last)
        groups += _rewrite(log, rewriter, offset_map.latest_offset + 1, editor)
        rounds, removed_records = rounds + 1, removed_records + editor.removed_records
        log = log.relisted()
        segments = _described(log)
        section = _section(log, segments, stable_offset, offset_map.latest_offset + 1)
    return Compacted(found, True, tuple(groups), rounds, removed_records, section.start_offset)


def _segments_now(log: OpenedLog) -> Sequence[Segment]:
    return log.relisted().layout.segments


def _described(log: OpenedLog) -> list[RetainedSegment]:
    """Describe the segments of a log. Segments wholly before its start are left out: they are deleted, not cleaned."""
    first_offset = min((each.base_offset for each in log.layout.segments), default=0)
    return [each for each in log.describe().segments if each.base_offset >= first_offset]


def _section(
    log: OpenedLog, segments: list[RetainedSegment], stable_offset: int, checkpoint: int | None
) -> DirtySection:
    layout = log.layout
    return dirty_section(
        segments, layout.start_offset, layout.end_offset, stable_offset, checkpoint, log.config, log.now_ms
    )


def _fill(
    offset_map: OffsetMap, log: OpenedLog, rewriter: Rewriter, section: DirtySection, aborted: AbortedTransactions
) -> None:
    offset_map.clear()
    filler = MapFiller(offset_map, aborted, section.start_offset, section.end_offset, log.limits, rewriter.throttle)
    filler.fill(log.layout.segments)
    if offset_map.latest_offset < section.start_offset:
        raise InvalidOptionError(
            f"{log.folder.location}: the batch at offset {section.start_offset} has more keys than the offset map has "
            f"room for, {offset_map.size_max}; give a larger log.cleaner.dedupe.buffer.size"
        )


def _editor(
    log: OpenedLog,
    segments: list[RetainedSegment],
    section: DirtySection,
    offset_map: OffsetMap,
    aborted: AbortedTransactions,
    last: Mapping[int, LastBatch],
) -> Compaction:
    legacy_end_ms = legacy_tombstones_end_ms(segments, section, log.config.delete_retention_ms)
    of_round = CompactionRound(offset_map, aborted, last, log.layout.end_offset, legacy_end_ms, log.now_ms, log.config)
    return Compaction(of_round, log.limits)


def _rewrite(log: OpenedLog, rewriter: Rewriter, end_offset: int, editor: Compaction) -> list[Rewritten]:
    sources = list(takewhile(lambda each: each.base_offset < end_offset, log.sealed))
    return [rewriter.rewrite(group, editor) for group in grouped_segments(sources, log.config)]
