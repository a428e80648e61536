"""Decides which part of a log must be read, from a filter and the offset index, without reading the log.

A filter leaves a range of offsets and, in it, batches that may hold passing records. Boundaries of batches come from
the offset index of a segment, a hint that is not compared with the log: a reader that starts at an offset searches for
the batch that holds it. Without an index, or an entry as early, the start of the segment is its only known boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparklog.errors import CorruptBatchError, DiskError, PathNotFoundError, SeglogError
from sparklog.log import files
from sparklog.log.index import OffsetEntry, floor_offset, floor_position
from sparklog.log.layout import PartitionLayout
from sparklog.log.scans.listed import refuse_replaced
from sparklog.log.scans.losses import refuse_cut_after_times
from sparklog.log.segment import OffsetPosition, OpenSegment, Segment
from sparklog.record.decode.where import INT64_MIN, Where
from sparklog.record.format.headers import BatchHeaders
from sparklog.storage.base import ReadableFile

Ends = type[SeglogError] | tuple[type[SeglogError], ...]
_DAMAGE: Final = (PathNotFoundError, CorruptBatchError, DiskError)


def pruned_range(
    layout: PartitionLayout, where: Where, start_offset: int, end_offset: int, *, skips_damage: bool = False
) -> tuple[int, int]:
    """Return the part of a range of offsets that holds all records that pass a filter.

    The filter's offsets limit its end, and offsets and times its beginning: no batch before it is as late as
    the filter demands, by time indexes and headers of batches, as for a read that begins at a time; nothing is
    decoded.

    Parameters
    ----------
    where : Where
        The filter for this partition (`Where.of_partition`).
    skips_damage : bool
        Whether a damaged header only ends the search for the first batch that is late enough.

    Returns
    -------
    (start_offset, end_offset)
        The same offset twice if no record can pass.

    Raises
    ------
    CorruptBatchError
        A header that was read is damaged.
    """
    bounds = where.bounds()
    if bounds is None:
        return start_offset, start_offset
    lowest, highest = bounds.offsets
    end = max(min(end_offset, highest + 1), start_offset)
    start = min(max(start_offset, lowest), end)
    earliest, _ = bounds.timestamps
    if earliest == INT64_MIN:
        return start, end
    return _first_as_late(layout, earliest, start, end, _DAMAGE if skips_damage else PathNotFoundError), end


def _first_as_late(layout: PartitionLayout, time_ms: int, start_offset: int, end_offset: int, ends_search: Ends) -> int:
    """Return an offset before which no batch of a range is as late as a time; the range's end if none is."""
    # Each replica may lack segments: only the batches of a merged log tell.
    if start_offset >= end_offset or not layout.segments or layout.copies:
        return start_offset
    for segment in layout.segments[layout.segment_of(start_offset) :]:
        if segment.base_offset >= end_offset:
            break
        if segment.ends_before(time_ms):
            continue
        try:
            with segment.open() as log:
                refuse_replaced(log, layout)
                header = _first_batch_at(log, time_ms, start_offset)
                if header is not None:
                    # A compressed wrapper does not say where it begins.
                    column = "base_offset" if header.column("record_count")[0] >= 0 else "lowest_offset"
                    return min(max(start_offset, int(header.column(column)[0])), end_offset)
                refuse_cut_after_times(log)
        except ends_search:
            # A broker has removed it: a scan lists the segments again, and begins where this search stopped.
            return max(start_offset, min(segment.base_offset, end_offset))
    return end_offset


def _first_batch_at(log: OpenSegment, time_ms: int, start_offset: int) -> BatchHeaders | None:
    """Find the first batch from an offset on that is as late as a time, usually the batch with the offset."""
    first = log.first_batch_from(start_offset)
    if first is None or first.column("max_timestamp")[0] >= time_ms:
        return first
    return log.first_batch_at(time_ms, start_offset)


def floor_boundary(segment: Segment, offset: int) -> int:
    """Return the offset of a batch boundary at or before the given offset."""
    entry = _floor_entry(segment, floor_offset, offset - 1)
    return segment.base_offset if entry is None else entry.offset + 1


def position_before(segment: Segment, offset: int) -> int:
    """Return a position in the segment at or before the batch with an offset."""
    entry = _floor_entry(segment, floor_offset, offset)
    return 0 if entry is None else _inside(segment, entry.position)


def boundary_near(segment: Segment, position: int) -> OffsetPosition:
    """Return a batch boundary near a position: an exact offset and its approximate position."""
    entry = _floor_entry(segment, floor_position, position)
    if entry is None:
        return OffsetPosition(0, segment.base_offset)
    return OffsetPosition(_inside(segment, entry.position), entry.offset + 1)


def _inside(segment: Segment, position: int) -> int:
    """Return the nearest position inside the segment, since a damaged index may lead out of it."""
    return min(max(position, 0), segment.size_bytes)


def _floor_entry(
    segment: Segment, find: Callable[[ReadableFile, int, int], OffsetEntry | None], target: int
) -> OffsetEntry | None:
    try:
        with segment.storage.open(segment.path(files.OFFSET_INDEX)) as index:
            return find(index, segment.base_offset, target)
    except PathNotFoundError:
        return None
