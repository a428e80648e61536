"""Compacts one log: round by round, until its dirty section is clean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from sparklog.clean.compaction import Compaction, CompactionRound, LastBatch, last_batches
from sparklog.clean.dirty import DirtySection, SegmentAge, dirty_section, legacy_tombstones_end_ms
from sparklog.clean.groups import grouped
from sparklog.clean.latest_offsets import MapFiller
from sparklog.clean.rewriting import Rewriter, Rewritten
from sparklog.clean.transactions import AbortedTransactions
from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.log import files
from sparklog.log.index import floor_time
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.producer_state import producers_at_end
from sparklog.log.properties import LONG_MAX
from sparklog.log.segment import Segment
from sparklog.log.transactions import last_stable_offset
from sparklog.record.decode import DecodeLimits
from sparklog.record.offset_map import OffsetMap

_NONE = -1


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to a log, or in a dry run would do.

    Attributes
    ----------
    section : DirtySection
        What was dirty before.
    is_due : bool
        Whether the log was to be cleaned at all; else nothing was done.
    groups : tuple of Rewritten
        Of all rounds.
    rounds : int
        How many it took: several where the offset map was full before the end of the section.
    records, kept_records : int
        How many records of data batches the rounds met, and how many of them stay.
    clean_offset : int
        What the line of the log in ``cleaner-offset-checkpoint`` is to be.
    """

    section: DirtySection
    is_due: bool
    groups: tuple[Rewritten, ...]
    rounds: int
    records: int
    kept_records: int
    clean_offset: int


def compact(rewriter: Rewriter, offset_map: OffsetMap, checkpoint: int | None, *, is_forced: bool = False) -> Compacted:
    """Compact a log whose directory is locked, and whose recovery is done.

    Parameters
    ----------
    rewriter : Rewriter
        Of the log; its dry run counts what the first round would do.
    offset_map : OffsetMap
        What it has is forgotten.
    checkpoint : int or None
        The line of the log in ``cleaner-offset-checkpoint``. The caller writes the new one, once the compaction is
        done: where it does not come to that, the next compaction reads again what is clean, and changes nothing.
    is_forced : bool
        Whether to clean what is dirty even where ``min.cleanable.dirty.ratio`` is not reached.

    Raises
    ------
    CorruptLogError
        A segment is damaged. Groups before it may have been rewritten; that is no harm to it.
    InvalidOptionError
        The map has not room for the keys of one batch.
    """
    layout = read_layout(rewriter.folder)
    stable_offset = last_stable_offset(layout)
    section = found = _section(rewriter, layout, stable_offset, checkpoint)
    is_due = found.is_due(rewriter.config) or (is_forced and found.dirty_bytes > 0)
    if not is_due or found.end_offset <= found.start_offset:
        return Compacted(found, False, (), 0, 0, 0, found.start_offset)
    last = last_batches(producers_at_end(layout, rewriter.now_ms))
    segments = layout.segments
    # What a round leaves of them says the same of the aborted transactions of which anything is left.
    aborted = AbortedTransactions(lambda: segments)
    groups: list[Rewritten] = []
    rounds = records = kept_records = 0
    while section.start_offset < section.end_offset:
        _fill(offset_map, rewriter, layout, section, aborted)
        editor = _editor(rewriter, layout, section, offset_map, aborted, last)
        groups += _rewrite(rewriter, layout, offset_map.latest_offset + 1, editor)
        rounds += 1
        records, kept_records = records + editor.records, kept_records + editor.kept_records
        layout = read_layout(rewriter.folder)
        section = _section(rewriter, layout, stable_offset, offset_map.latest_offset + 1)
        if rewriter.dry_run:
            break
    return Compacted(found, True, tuple(groups), rounds, records, kept_records, section.start_offset)


def _section(rewriter: Rewriter, layout: PartitionLayout, stable_offset: int, checkpoint: int | None) -> DirtySection:
    ages = [_age(segment) for segment in layout.segments]
    return dirty_section(
        ages, layout.start_offset, layout.end_offset, stable_offset, checkpoint, rewriter.config, rewriter.now_ms
    )


def _fill(
    offset_map: OffsetMap,
    rewriter: Rewriter,
    layout: PartitionLayout,
    section: DirtySection,
    aborted: AbortedTransactions,
) -> None:
    offset_map.clear()
    limits = DecodeLimits(decompressed_bytes_max=rewriter.config.max_decompressed_message_bytes)
    filler = MapFiller(
        offset_map, aborted, section.start_offset, section.end_offset, limits, rewriter.throttle, rewriter.report
    )
    filler.fill(layout.segments)
    if offset_map.latest_offset < section.start_offset:
        raise InvalidOptionError(
            f"{layout.path}: a batch near offset {section.start_offset} has more keys than the offset map has room "
            f"for, {offset_map.size_max}; give a larger log.cleaner.dedupe.buffer.size"
        )


def _editor(
    rewriter: Rewriter,
    layout: PartitionLayout,
    section: DirtySection,
    offset_map: OffsetMap,
    aborted: AbortedTransactions,
    last: dict[int, LastBatch],
) -> Compaction:
    bases = [segment.base_offset for segment in layout.segments]
    modified_ms = [_modified_ms(segment) for segment in layout.segments]
    legacy_end_ms = legacy_tombstones_end_ms(bases, modified_ms, section, rewriter.config.delete_retention_ms)
    return Compaction(
        CompactionRound(offset_map, aborted, last, layout.end_offset, legacy_end_ms, rewriter.now_ms, rewriter.config)
    )


def _rewrite(rewriter: Rewriter, layout: PartitionLayout, end_offset: int, editor: Compaction) -> list[Rewritten]:
    sources: Sequence[Segment] = list(takewhile(lambda each: each.base_offset < end_offset, layout.segments))
    return [rewriter.rewrite(group, editor) for group in grouped(sources, rewriter.config)]


def _age(segment: Segment) -> SegmentAge:
    """Look up what decides about a segment: its first header, and the last entry of its time index."""
    with segment.open() as log:
        first = next(iter(log.single_headers(log.start)), None)
    first_timestamp = _NONE if first is None else int(first.column("max_timestamp")[0])
    largest_timestamp = _indexed_timestamp(segment)
    if largest_timestamp < 0:
        largest_timestamp = _modified_ms(segment)
    return SegmentAge(segment.base_offset, segment.size_bytes, first_timestamp, largest_timestamp)


def _indexed_timestamp(segment: Segment) -> int:
    """Return the timestamp of the last entry of a segment's time index, ms; -1 where it has none."""
    try:
        with segment.file(files.TIME_INDEX) as index:
            entry = floor_time(index, segment.base_offset, LONG_MAX)
    except PathNotFoundError:
        return _NONE
    return _NONE if entry is None else entry.timestamp


def _modified_ms(segment: Segment) -> int:
    with segment.file() as log:
        return log.modified_ns() // 1_000_000
