"""Tells whether a segment is still the one that was listed: a cleaner replaces and removes segments."""

from __future__ import annotations

from sparklog.errors import PathNotFoundError
from sparklog.log.layout import PartitionLayout
from sparklog.log.segment import OpenSegment, Segment


def refuse_replaced(log: OpenSegment, layout: PartitionLayout) -> None:
    """Raise `PathNotFoundError` if the file with a segment's name is not the one that was listed.

    The bounds of the segment do not hold for a cleaner's replacement: it may hold the offsets of several segments, or
    fewer offsets.
    """
    segment = log.segment
    is_same = log.size_bytes >= layout.end.position if segment.is_last else log.size_bytes == segment.size_bytes
    if not is_same:
        raise PathNotFoundError(f"{segment.path()} is another file than when its folder was listed")


def is_as_listed(segment: Segment, listed: PartitionLayout) -> bool:
    """Return whether a segment of an earlier layout is also in a later one, so that no cleaner has replaced it."""
    found = next((each for each in listed.segments if each.base_offset == segment.base_offset), None)
    if found is None or segment.is_last != found.is_last or segment.swap != found.swap:
        return False
    if segment.is_last:
        return found.size_bytes >= segment.size_bytes
    return (found.size_bytes, found.upper_offset) == (segment.size_bytes, segment.upper_offset)
