"""Cuts partitions into ranges of offsets, from which Spark's planner and the planner of jobs make tasks.

It reads names, sizes and offset indexes, but no batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from sparklog.log.files import TopicPartition
from sparklog.log.filters.pruning import boundary_near, position_before
from sparklog.log.layout import PartitionLayout
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.topic.places.discovery import named

OffsetsByGroup = Mapping[str, Mapping[TopicPartition, int]]
"""Committed offsets by group and partition."""


@dataclass(frozen=True)
class ReadRange:
    """A range of offsets of one partition, the end exclusive. Ranges of different tasks do not overlap.

    Attributes
    ----------
    folder : PartitionFolder
        The folder of the log, with its storage, so that a task need not look that up.
    stable_offset : int or None
        The end of the log at planning time, for a reader of this isolation level; None if the task finds that, in the
        same version of the log.
    """

    folder: PartitionFolder
    start_offset: int
    end_offset: int
    stable_offset: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        return named(self.folder)

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.folder.name} [{self.start_offset}, {self.end_offset})"

    def within(self, start_offset: int, end_offset: int) -> ReadRange:
        """Return a part of the range."""
        return replace(self, start_offset=start_offset, end_offset=end_offset)


def log_bytes(piece: ReadRange, layout: PartitionLayout) -> int:
    """Estimate the bytes of log in a range from the sizes of its segments, without reading anything."""
    estimate = 0
    for segment in _segments_of(piece, layout):
        base, upper = segment.base_offset, min(segment.upper_offset, layout.end_offset)
        inside = min(upper, piece.end_offset) - max(base, piece.start_offset)
        estimate += segment.size_bytes * max(inside, 0) // max(upper - base, 1)
    return estimate


def cut_by_bytes(whole: ReadRange, layout: PartitionLayout, bytes_max: int) -> list[tuple[ReadRange, int]]:
    """Cut a range into pieces of about equal bytes of log, each at most about ``bytes_max``.

    Cuts are at the beginnings of batches, by the offset indexes; a segment without an index is not cut.

    Returns
    -------
    list of (ReadRange, int)
        The pieces in order, none empty, and the approximate bytes of log of each.
    """
    if whole.size <= 0:
        return []
    if sum(segment.size_bytes for segment in _segments_of(whole, layout)) <= bytes_max:
        return [(whole, log_bytes(whole, layout))]
    spans = list(_spans(whole, layout))
    total_bytes = sum(end - start for _, start, end in spans)
    parts = max(-(-total_bytes // bytes_max), 1)
    wanted = [total_bytes * part // parts for part in range(1, parts)]
    cuts = [(whole.start_offset, 0), *_boundaries(whole, spans, wanted), (whole.end_offset, total_bytes)]
    return [(whole.within(start, end), last - first) for (start, first), (end, last) in pairwise(cuts)]


def _segments_of(piece: ReadRange, layout: PartitionLayout) -> tuple[Segment, ...]:
    first, last = layout.segment_of(piece.start_offset), layout.segment_of(piece.end_offset - 1)
    return layout.segments[first : last + 1]


def _spans(whole: ReadRange, layout: PartitionLayout) -> Iterator[tuple[Segment, int, int]]:
    """Yield the segments of a range, each with the start and end positions to read."""
    for segment in _segments_of(whole, layout):
        is_first, is_last = segment.base_offset < whole.start_offset, segment.upper_offset > whole.end_offset
        start = position_before(segment, whole.start_offset) if is_first else 0
        end = position_before(segment, whole.end_offset) if is_last and whole.end_offset < layout.end_offset else None
        yield segment, start, segment.size_bytes if end is None else max(end, start)


def _boundaries(
    whole: ReadRange, spans: list[tuple[Segment, int, int]], wanted: list[int]
) -> Iterator[tuple[int, int]]:
    """Yield the cuts nearest to the wanted numbers of bytes, ascending, as offsets and the bytes before them."""
    before, row, last_cut = 0, 0, whole.start_offset
    for segment, start, end in spans:
        while row < len(wanted) and wanted[row] < before + end - start:
            found = boundary_near(segment, start + wanted[row] - before)
            if last_cut < found.offset < whole.end_offset:
                last_cut = found.offset
                yield found.offset, before + max(found.position - start, 0)
            row += 1
        before += end - start
