"""Rows of ``describe``: a topic, a partition or a segment each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from sparklog.inspect.describe import BatchStats, PartitionDescription
from sparklog.log.places import PartitionFolder
from sparklog.record.compression import codec_name

RowDict = dict[str, Any]
Described = tuple[PartitionFolder, PartitionDescription]


def topic_rows(described: Iterable[Described], *, is_full: bool) -> Iterator[RowDict]:
    """Fold the partitions of each topic into one row."""
    for topic, group in groupby(sorted(described, key=lambda each: each[0].topic), key=lambda each: each[0].topic):
        descriptions = [description for _, description in group]
        stats = BatchStats()
        for description in descriptions:
            stats.add(description.stats)
        firsts = [each.stats.first_timestamp for each in descriptions if each.stats.first_timestamp is not None]
        stats.first_timestamp = min(firsts, default=None)
        lengths = [None if s.end_offset is None else s.end_offset - (s.start_offset or 0) for s in descriptions]
        yield {
            "topic": topic,
            "topic_id": next((each.topic_id for each in descriptions if each.topic_id), None),
            "partitions": len(descriptions),
            "segments": sum(len(each.segments) for each in descriptions),
            "log_bytes": sum(segment.log_bytes for each in descriptions for segment in each.segments),
            "total_bytes": sum(each.total_bytes for each in descriptions),
            "offsets": sum(length for length in lengths if length is not None),
            **_stats_row(stats, is_full),
            "damaged_partitions": sum(each.error is not None for each in descriptions),
        }


def partition_rows(described: Iterable[Described], *, is_full: bool) -> Iterator[RowDict]:
    """Make a row of each partition."""
    for folder, description in described:
        yield {
            "topic": folder.topic,
            "partition": folder.partition,
            "path": description.path,
            "topic_id": description.topic_id,
            "segments": len(description.segments),
            "log_bytes": sum(segment.log_bytes for segment in description.segments),
            "total_bytes": description.total_bytes,
            "start_offset": description.start_offset,
            "end_offset": description.end_offset,
            "last_stable_offset": description.last_stable_offset,
            **_stats_row(description.stats, is_full),
            "error": description.error,
        }


def segment_rows(described: Iterable[Described], *, is_full: bool) -> Iterator[RowDict]:
    """Make a row of each segment."""
    for folder, description in described:
        for segment in description.segments:
            yield {
                "topic": folder.topic,
                "partition": folder.partition,
                "path": description.path,
                "base_offset": segment.base_offset,
                "end_offset": segment.end_offset,
                "log_bytes": segment.log_bytes,
                **_stats_row(segment.stats, is_full),
                "error": segment.error,
            }


def _stats_row(stats: BatchStats, is_full: bool) -> RowDict:
    row: RowDict = {
        "first_timestamp": stats.first_timestamp,
        "max_timestamp": stats.max_timestamp,
        "codecs": [codec_name(codec_id) for codec_id in sorted(stats.codec_batches)],
        "magics": sorted(stats.magic_batches),
    }
    if is_full:
        row |= {
            "batches": stats.batches,
            "records": stats.records,
            "control_batches": stats.control_batches,
            "transactional_batches": stats.transactional_batches,
            "codec_batches": {codec_name(codec_id): count for codec_id, count in sorted(stats.codec_batches.items())},
        }
    return row
