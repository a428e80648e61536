"""Describes the segments of a log for retention, from their indexes and their ends alone."""

from __future__ import annotations

from sparklog.cleaner.retention import LogDescription, RetainedSegment
from sparklog.errors import PathNotFoundError
from sparklog.log import files
from sparklog.log.clock import NS_PER_MS
from sparklog.log.config import LogConfig
from sparklog.log.index import TIME_ENTRY, read_entries
from sparklog.log.layout import PartitionLayout
from sparklog.log.segment import OffsetPosition, OpenSegment, Segment
from sparklog.log.segment_listing import list_segments
from sparklog.record.format import v2

_NONE = -1


def describe_log(layout: PartitionLayout, config: LogConfig, now_ms: int) -> LogDescription:
    """Describe a log and its segments, including segments wholly before the log start offset.

    Raises
    ------
    CorruptBatchError
        A segment has no time index that can be trusted, and its batches are damaged.
    """
    first_offset = layout.segments[0].base_offset if layout.segments else layout.start_offset
    before = [each for each in list_segments(layout.folder) if each.upper_offset <= first_offset]
    return LogDescription(
        topic=layout.folder.topic,
        partition=layout.folder.partition,
        start_offset=layout.start_offset,
        end_offset=layout.end_offset,
        segments=tuple(_described(layout, segment) for segment in (*before, *layout.segments)),
        config=config,
        now_ms=now_ms,
    )


def _described(layout: PartitionLayout, segment: Segment) -> RetainedSegment:
    end_position = layout.end.position if segment.is_last else segment.size_bytes
    with segment.open() as log:
        first_timestamp = _first_timestamp(log) if end_position else _NONE
        largest_timestamp = _largest_timestamp(log, end_position) if end_position else _NONE
    with segment.file() as file:
        modified_ms = file.modified_ns() // NS_PER_MS
    return RetainedSegment(
        base_offset=segment.base_offset,
        end_offset=layout.end_offset if segment.is_last else segment.upper_offset,
        size_bytes=end_position,
        first_timestamp=first_timestamp,
        largest_timestamp=largest_timestamp,
        modified_ms=modified_ms,
        is_active=segment.is_last,
    )


def _first_timestamp(log: OpenSegment) -> int:
    for headers in log.single_headers(log.start):
        batch = headers.table[0]
        # A batch that was cleaned may have a delete horizon in place of its base timestamp.
        return int(batch["max_timestamp" if batch["attributes"] & v2.DELETE_HORIZON else "base_timestamp"])
    return _NONE


def _largest_timestamp(log: OpenSegment, end_position: int) -> int:
    """Return the largest timestamp of a segment, -1 where it has none.

    A time index that agrees with the log gives it, except for batches at the end of the log that have no entry yet.
    Without such an index all headers are scanned.
    """
    segment = log.segment
    known = _indexed_timestamp(log)
    start = log.start if known is None else log.seek(segment.upper_offset)
    found = _NONE if known is None else known
    for headers in log.single_headers(OffsetPosition(start.position, segment.base_offset)):
        inside = headers.where(headers.column("position") < end_position)
        if len(inside):
            found = max(found, int(inside.column("max_timestamp").max()))
        if len(inside) < len(headers) or headers.origin + headers.valid_bytes >= end_position:
            break
    return found


def _indexed_timestamp(log: OpenSegment) -> int | None:
    """Return the timestamp of the time index's last entry; None if the log does not agree with it."""
    segment = log.segment
    try:
        with segment.file(files.TIME_INDEX) as index:
            entries = read_entries(index, TIME_ENTRY)
    except PathNotFoundError:
        return None
    if not len(entries):
        return None
    timestamp, offset = int(entries[-1]["timestamp"]), segment.base_offset + int(entries[-1]["relative_offset"])
    header = log.first_batch_from(offset) if segment.base_offset <= offset < segment.upper_offset else None
    return timestamp if header is not None and int(header.column("max_timestamp")[0]) == timestamp else None
