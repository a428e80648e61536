"""Decides which consecutive segments become one new segment.

Source: apache/kafka, Cleaner.java (groupSegmentsBySize).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.errors import PathNotFoundError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.segment import RELATIVE_OFFSET_MAX, Segment


@dataclass(frozen=True, slots=True)
class SourceSizes:
    """The sizes of a segment's files, bytes, and the offsets that it may hold, the end exclusive."""

    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    base_offset: int
    upper_offset: int


def sizes_of(segment: Segment) -> SourceSizes:
    """Look up the sizes of a sealed segment's files; a missing index counts as 0."""
    return SourceSizes(
        segment.size_bytes,
        _file_bytes(segment, files.OFFSET_INDEX),
        _file_bytes(segment, files.TIME_INDEX),
        segment.base_offset,
        segment.upper_offset,
    )


def _file_bytes(segment: Segment, suffix: str) -> int:
    try:
        with segment.file(suffix) as file:
            return file.size_bytes()
    except PathNotFoundError:
        return 0


def group_sizes(sources: Sequence[SourceSizes], config: LogConfig) -> list[int]:
    """Divide consecutive segments into groups, as a broker does, and return the length of each group.

    A group takes the next segment while the sizes of its logs and of each kind of index fit one segment, and the
    offsets are in reach of its base offset. An empty segment is always in reach: else empty ones would pile up.
    """
    counts: list[int] = []
    start = 0
    while start < len(sources):
        end = start + 1
        while end < len(sources) and _fits(sources[start:end], sources[end], config):
            end += 1
        counts.append(end - start)
        start = end
    return counts


def _fits(group: Sequence[SourceSizes], following: SourceSizes, config: LogConfig) -> bool:
    together = [*group, following]
    return (
        sum(each.log_bytes for each in together) <= config.segment_bytes
        and sum(each.offset_index_bytes for each in together) <= config.segment_index_bytes
        and sum(each.time_index_bytes for each in together) <= config.segment_index_bytes
        and (not following.log_bytes or following.upper_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
    )


def grouped_segments(segments: Sequence[Segment], config: LogConfig) -> list[tuple[Segment, ...]]:
    """Divide consecutive sealed segments into groups; each group becomes one new segment."""
    groups: list[tuple[Segment, ...]] = []
    start = 0
    for count in group_sizes([sizes_of(segment) for segment in segments], config):
        groups.append(tuple(segments[start : start + count]))
        start += count
    return groups
