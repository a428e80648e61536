"""Computes what a cut of a log by hand would remove. Nothing is changed or locked here.

Source: apache/kafka, UnifiedLog.java (maybeIncrementLogStartOffset, truncateTo).
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.errors import OffsetOutOfRangeError
from sparklog.log.clock import Time
from sparklog.log.layout import PartitionLayout
from sparklog.log.reader import LogReader
from sparklog.log.segment import OffsetPosition


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a log, the end exclusive."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The offsets, segments and bytes that a cut removes from a log.

    Attributes
    ----------
    before, after : Extent
        The offsets of the log before and after the cut.
    segments : int
        How many segments are removed whole.
    size_bytes : int
        How many bytes the ``.log`` files lose together.
    """

    before: Extent
    after: Extent
    segments: int
    size_bytes: int

    @property
    def offsets(self) -> int:
        """How many offsets the log loses."""
        return (self.before.end_offset - self.before.start_offset) - (self.after.end_offset - self.after.start_offset)


def extent_of(layout: PartitionLayout) -> Extent:
    """Return the offsets of a log."""
    return Extent(layout.start_offset, layout.end_offset)


def first_to_keep(layout: PartitionLayout, before_offset: int | None, before_time: Time | None) -> int:
    """Return the log start offset after records before an offset, or else before a time, are deleted.

    Raises
    ------
    OffsetOutOfRangeError
        The offset is past the end of the log.
    """
    if before_offset is None:
        found = None if before_time is None else LogReader(layout).offset_for_time(before_time)
        start = layout.end_offset if found is None else found
    else:
        start = layout.end_offset if before_offset == -1 else before_offset
    if not 0 <= start <= layout.end_offset:
        raise OffsetOutOfRangeError(
            f"records before offset {start} of {layout.path} cannot be deleted: it has offsets up to "
            f"{layout.end_offset}"
        )
    return max(start, layout.start_offset)


def refuse_before_start(layout: PartitionLayout, offset: int) -> None:
    """Raise `OffsetOutOfRangeError` if an offset is before the start of a log, which then cannot end there."""
    if offset < layout.start_offset:
        raise OffsetOutOfRangeError(
            f"{layout.path} cannot be cut at offset {offset}: it begins at offset {layout.start_offset}"
        )


def deletion(layout: PartitionLayout, start_offset: int) -> Cut:
    """Return what raising the log start offset removes: the segments wholly before it, and no other bytes."""
    # If every record is deleted, the last segment is rolled, and removed as well.
    is_all = start_offset == layout.end_offset
    gone = [each for each in layout.segments if is_all or each.upper_offset <= start_offset]
    after = Extent(start_offset, layout.end_offset)
    whole = [each for each in gone if each.size_bytes]
    return Cut(extent_of(layout), after, len(whole), sum(each.size_bytes for each in whole))


def truncation(layout: PartitionLayout, offset: int) -> Cut:
    """Return what cutting the log at an offset removes: whole segments, and the end of the segment with the offset."""
    before = extent_of(layout)
    if offset >= layout.end_offset:
        return Cut(before, before, 0, 0)
    gone = to_set_aside(layout, offset)
    size_bytes = sum(each.size_bytes for each in layout.segments if each.base_offset in set(gone))
    if len(gone) == len(layout.segments):
        return Cut(before, Extent(layout.start_offset, layout.start_offset), len(gone), size_bytes)
    segment = layout.segments[layout.segment_of(offset)]
    with segment.open() as opened:
        header = opened.first_batch_from(offset)
        end = opened.end() if header is None else OffsetPosition(int(header.column("position")[0]), offset)
        last = opened.last_batch_before(end)
    end_offset = segment.base_offset if last is None else int(last.column("last_offset")[0]) + 1
    after = Extent(layout.start_offset, max(layout.start_offset, end_offset))
    return Cut(before, after, len(gone), size_bytes + segment.size_bytes - end.position)


def to_set_aside(layout: PartitionLayout, offset: int) -> list[int]:
    """Return the base offsets of the segments that a truncation removes whole, in the order in which it removes them.

    The last one is removed first. If nothing is left from the log start on, all are, and the log begins anew there:
    batches wholly before the start would make a log that ends before it starts. Segments with only such batches go
    before all others.
    """
    bases = [each.base_offset for each in layout.segments]
    row = -1
    first = None
    while first is None and row + 1 < len(layout.segments):
        row += 1
        with layout.segments[row].open() as opened:
            first = opened.first_batch_from(layout.start_offset)
    if first is not None and int(first.column("last_offset")[0]) < offset:
        return bases[: layout.segment_of(offset) : -1]
    return [*bases[:row], *reversed(bases[row:])]
