"""Where batches begin in a segment, as its offset index has it: for planners, who cut logs without reading them.

All of it is a hint that is not compared with the log: whoever reads from an offset looks for the batch that holds it.
Where there is no index, or no entry of it is as early, a segment begins with its only known boundary.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.errors import PathNotFoundError
from sparklog.log import files
from sparklog.log.index import OffsetEntry, floor_offset, floor_position
from sparklog.log.segment import OffsetPosition, Segment
from sparklog.storage.base import ReadableFile


def floor_boundary(segment: Segment, offset: int) -> int:
    """Return an offset at or before the given one at which a batch begins."""
    entry = _floor_entry(segment, floor_offset, offset - 1)
    return segment.base_offset if entry is None else entry.offset + 1


def position_before(segment: Segment, offset: int) -> int:
    """Return a position in the segment that is at most that of the batch with an offset."""
    entry = _floor_entry(segment, floor_offset, offset)
    return 0 if entry is None else _inside(segment, entry.position)


def boundary_near(segment: Segment, position: int) -> OffsetPosition:
    """Return a boundary near a position: its offset is one, and its position is about where that is."""
    entry = _floor_entry(segment, floor_position, position)
    if entry is None:
        return OffsetPosition(0, segment.base_offset)
    return OffsetPosition(_inside(segment, entry.position), entry.offset + 1)


def _inside(segment: Segment, position: int) -> int:
    """Return the position of the segment that is nearest to one that a damaged index may have."""
    return min(max(position, 0), segment.size_bytes)


def _floor_entry(
    segment: Segment, find: Callable[[ReadableFile, int, int], OffsetEntry | None], target: int
) -> OffsetEntry | None:
    try:
        with segment.storage.open(segment.path(files.OFFSET_INDEX)) as index:
            return find(index, segment.base_offset, target)
    except PathNotFoundError:
        return None
