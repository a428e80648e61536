"""Rows of ``describe``: a topic, a partition or a segment each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from sparklog.inspect.describe import BatchStats, PartitionSummary
from sparklog.log.places import PartitionFolder
from sparklog.record.compression import codec_name

RowDict = dict[str, Any]
Described = tuple[PartitionFolder, PartitionSummary]


def topic_rows(described: Iterable[Described], *, is_full: bool) -> Iterator[RowDict]:
    """Fold the partitions of each topic into one row."""
    for topic, group in groupby(sorted(described, key=lambda each: each[0].topic), key=lambda each: each[0].topic):
        summaries = [summary for _, summary in group]
        seen = BatchStats()
        for summary in summaries:
            seen.add(summary.seen)
        firsts = [each.seen.first_timestamp for each in summaries if each.seen.first_timestamp is not None]
        seen.first_timestamp = min(firsts, default=None)
        lengths = [None if s.end_offset is None else s.end_offset - (s.start_offset or 0) for s in summaries]
        yield {
            "topic": topic,
            "topic_id": next((each.topic_id for each in summaries if each.topic_id), None),
            "partitions": len(summaries),
            "segments": sum(len(each.segments) for each in summaries),
            "log_bytes": sum(segment.log_bytes for each in summaries for segment in each.segments),
            "total_bytes": sum(each.total_bytes for each in summaries),
            "offsets": sum(length for length in lengths if length is not None),
            **_seen(seen, is_full),
            "damaged_partitions": sum(each.error is not None for each in summaries),
        }


def partition_rows(described: Iterable[Described], *, is_full: bool) -> Iterator[RowDict]:
    """Make a row of each partition."""
    for folder, summary in described:
        yield {
            "topic": folder.topic,
            "partition": folder.partition,
            "path": summary.path,
            "topic_id": summary.topic_id,
            "segments": len(summary.segments),
            "log_bytes": sum(segment.log_bytes for segment in summary.segments),
            "total_bytes": summary.total_bytes,
            "start_offset": summary.start_offset,
            "end_offset": summary.end_offset,
            "last_stable_offset": summary.last_stable_offset,
            **_seen(summary.seen, is_full),
            "error": summary.error,
        }


def segment_rows(described: Iterable[Described], *, is_full: bool) -> Iterator[RowDict]:
    """Make a row of each segment."""
    for folder, summary in described:
        for segment in summary.segments:
            yield {
                "topic": folder.topic,
                "partition": folder.partition,
                "path": summary.path,
                "base_offset": segment.base_offset,
                "end_offset": segment.end_offset,
                "log_bytes": segment.log_bytes,
                **_seen(segment.seen, is_full),
                "error": segment.error,
            }


def _seen(seen: BatchStats, is_full: bool) -> RowDict:
    row: RowDict = {
        "first_timestamp": seen.first_timestamp,
        "max_timestamp": seen.max_timestamp,
        "codecs": [codec_name(codec_id) for codec_id in sorted(seen.codec_batches)],
        "magics": sorted(seen.magic_batches),
    }
    if is_full:
        row |= {
            "batches": seen.batches,
            "records": seen.records,
            "control_batches": seen.control_batches,
            "transactional_batches": seen.transactional_batches,
            "codec_batches": {codec_name(codec_id): count for codec_id, count in sorted(seen.codec_batches.items())},
        }
    return row
