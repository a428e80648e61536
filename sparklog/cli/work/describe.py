"""``describe``: describes targets, and makes rows of topics, partitions or segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

from sparklog.cli.output import render, tables
from sparklog.cli.output.columns import SPANS, with_bars, with_counts
from sparklog.cli.output.progress import job_progress, progress
from sparklog.cli.output.text import printable
from sparklog.errors import SeglogError
from sparklog.inspect.describe import BatchStats, DirectoryDescription, PartitionDescription, describe_directory
from sparklog.inspect.histogram import TimeHistogram
from sparklog.jobs.description import DescribeJob
from sparklog.jobs.named_logs import NamedLogs
from sparklog.jobs.run.job import found_by
from sparklog.jobs.run.local import runner_of
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.record.codecs.table import codec_name
from sparklog.topic.write.configs import StoredConfigs, stored_configs

SPANS_SHOWN_MAX: Final = 24


@dataclass(frozen=True)
class Depth:
    """How much of each log is read, and which statistics are computed."""

    is_full: bool
    is_decompressed: bool
    has_histogram: bool

    @classmethod
    def of(cls, *, full: bool, ratio: bool, histogram: bool) -> Depth:
        return cls(full or ratio or histogram, ratio, histogram)


@dataclass(frozen=True)
class DescribedLogs:
    """The partitions of some targets, their log directories, and the topic properties stored there."""

    partitions: Sequence[tuple[PartitionFolder, PartitionDescription]]
    directories: Mapping[LogDirectory, DirectoryDescription]
    configs: Mapping[LogDirectory, StoredConfigs | SeglogError]

    def configs_of(self, topic: str, directories: Iterable[LogDirectory]) -> dict[str, str]:
        """Return the properties that directories store for a topic."""
        found: dict[str, str] = {}
        for directory in directories:
            stored = self.configs[directory]
            found |= {} if isinstance(stored, SeglogError) else stored.get(topic, {})
        return found

    def errors(self) -> Iterator[str]:
        """Yield the errors of partitions, and of stored topic properties."""
        yield from (str(stored) for stored in self.configs.values() if isinstance(stored, SeglogError))
        for folder, description in self.partitions:
            if description.error:
                yield f"{folder.name}: {description.error}"


def described_logs(targets: Sequence[NamedLogs], depth: Depth, processes: int | None) -> DescribedLogs:
    """Describe the partitions of targets."""
    folders = list(dict.fromkeys(folder for target in targets for folder in target.folders))
    runner = runner_of(processes, None)
    job = DescribeJob(tuple(folders), depth.is_full, depth.is_decompressed, runner.workers)
    found = []
    with (
        job_progress("scanning", has_records=False) if depth.is_full else nullcontext() as watch,
        progress(len(folders), "partitions", is_hidden=depth.is_full) as advance,
    ):
        for folder, description in zip(folders, found_by(job, runner, watch), strict=True):
            found.append((folder, description))
            advance(folder.name, 1)
    directories = dict.fromkeys(folder.directory for folder in folders)
    return DescribedLogs(
        found,
        {directory: describe_directory(directory) for directory in directories},
        {directory: _stored(directory) for directory in directories},
    )


def _stored(directory: LogDirectory) -> StoredConfigs | SeglogError:
    try:
        return stored_configs(directory)
    except SeglogError as error:
        return error


def print_tables(
    found: DescribedLogs, rows: Sequence[dict[str, Any]], columns: Sequence[tables.Column], depth: Depth
) -> None:
    """Print rows as a table, then their histograms, and the ids of the log directories."""
    if depth.is_full:
        columns = with_counts(columns, has_ratio=depth.is_decompressed)
    tables.table(columns, rows)
    for row in rows if depth.has_histogram else ():
        render.say()
        tables.table(SPANS, with_bars(row["histogram"]), heading=_always(columns[0].text(row)))
    for row in rows:
        if row.get("configs"):
            said = [f"{name}={value}" for name, value in row["configs"].items()]
            render.note(f"{printable(row['topic'])}: {printable(', '.join(said))}")
    for each in found.directories.values():
        known = {"cluster": each.cluster_id, "node": each.node_id, "directory": each.directory_id}
        said = [f"{name} {value}" for name, value in known.items() if value is not None]
        if said:
            render.note(f"{each.path}: {', '.join(said)}")


def _always(heading: str) -> tables.Heading:
    return lambda _: heading


def topic_rows(found: DescribedLogs, depth: Depth) -> Iterator[dict[str, Any]]:
    """Fold the partitions of each topic into one row."""
    ordered = sorted(found.partitions, key=lambda each: each[0].topic)
    for topic, group in groupby(ordered, key=lambda each: each[0].topic):
        folders, descriptions = zip(*group, strict=True)
        directories = dict.fromkeys(folder.directory for folder in folders)
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
            **_stats_row(stats, depth),
            "configs": found.configs_of(topic, directories),
            "damaged_partitions": sum(each.error is not None for each in descriptions),
            "directories": [{"path": each.path, **_ids(found.directories[each])} for each in directories],
        }


def partition_rows(found: DescribedLogs, depth: Depth) -> Iterator[dict[str, Any]]:
    """Make a row for each partition."""
    for folder, description in found.partitions:
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
            **_stats_row(description.stats, depth),
            **_ids(found.directories[folder.directory]),
            "error": description.error,
        }


def segment_rows(found: DescribedLogs, depth: Depth) -> Iterator[dict[str, Any]]:
    """Make a row for each segment."""
    for folder, description in found.partitions:
        for segment in description.segments:
            yield {
                "topic": folder.topic,
                "partition": folder.partition,
                "path": description.path,
                "base_offset": segment.base_offset,
                "end_offset": segment.end_offset,
                "log_bytes": segment.log_bytes,
                **_stats_row(segment.stats, depth),
                "error": segment.error,
            }


def _ids(directory: DirectoryDescription) -> dict[str, Any]:
    return {name: getattr(directory, name) for name in ("cluster_id", "node_id", "directory_id")}


def _stats_row(stats: BatchStats, depth: Depth) -> dict[str, Any]:
    row: dict[str, Any] = {
        "first_timestamp": stats.first_timestamp,
        "max_timestamp": stats.max_timestamp,
        "codecs": [codec_name(codec_id) for codec_id in sorted(stats.codec_batches)],
        "magics": sorted(stats.magic_batches),
    }
    if depth.is_full:
        row |= {
            "batches": stats.batches,
            "records": stats.records,
            "control_batches": stats.control_batches,
            "transactional_batches": stats.transactional_batches,
            "codec_batches": _by_name(stats.codec_batches),
            "codec_bytes": _by_name(stats.codec_bytes),
        }
    if depth.is_decompressed:
        uncompressed = stats.uncompressed_bytes or Counter()
        packed = stats.codec_bytes.total()
        row |= {
            "uncompressed_bytes": _by_name(uncompressed),
            "compression_ratio": round(uncompressed.total() / packed, 3) if packed else None,
        }
    if depth.has_histogram:
        row["histogram"] = _spans(stats.times)
    return row


def _by_name(counts: Counter[int]) -> dict[str, int]:
    return {codec_name(codec_id): count for codec_id, count in sorted(counts.items())}


def _spans(times: TimeHistogram) -> list[dict[str, Any]]:
    return [{"timestamp": start, **asdict(span)} for start, span in times.rows(SPANS_SHOWN_MAX)]
