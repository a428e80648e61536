"""Describes a partition's log: its offsets, times, sizes and formats.

By default only names, indexes, and the headers at the two ends of each segment are read, however long the log is;
codecs, formats and times then describe only those batches. A scan of every header (`describe_partition` with
``is_full``) makes them exact. No header tells how much compression saves: that takes the decompression of every batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import javaproperties
import numpy as np

from sparklog.errors import CorruptLogError, PathNotFoundError, SeglogError, StorageError
from sparklog.inspect.histogram import TimeHistogram
from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.log.index import TimeEntry, floor_time
from sparklog.log.layout import PartitionLayout, read_layout, topic_id_of
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.producer_snapshots import snapshot_before
from sparklog.log.segment import OpenSegment, Segment
from sparklog.log.segment_listing import list_segments
from sparklog.log.transactions import last_stable_offset
from sparklog.log.windows import Window
from sparklog.record.batches.wrappers import wrapped
from sparklog.record.codecs.table import DECOMPRESSED_BYTES_MAX, decompressor
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import Entry

STABLE_OFFSET_BYTES_MAX: Final = 1 << 22
"""The most bytes of a log to scan for its last stable offset, unless all of it is scanned anyway."""


@dataclass
class BatchStats:
    """Counts and times of the batches whose headers were read: all batches of a log, or some.

    Attributes
    ----------
    batches, control_batches, transactional_batches : int
    records : int or None
        The number of records without markers; None if any batch is a compressed wrapper, whose header does not tell it.
    first_timestamp, max_timestamp : int or None
        The timestamp of the first batch that has one, and the largest timestamp, ms; None if no batch has one.
    codec_batches, magic_batches : Counter
        The number of batches by codec id, and by magic.
    codec_bytes : Counter
        The size of the batches by codec id, without markers.
    uncompressed_bytes : Counter or None
        Their size without compression, by codec id; None if they were not decompressed.
    times : TimeHistogram
        The batches without markers, by time.
    """

    batches: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    records: int | None = 0
    first_timestamp: int | None = None
    max_timestamp: int | None = None
    codec_batches: Counter[int] = field(default_factory=Counter)
    magic_batches: Counter[int] = field(default_factory=Counter)
    codec_bytes: Counter[int] = field(default_factory=Counter)
    uncompressed_bytes: Counter[int] | None = None
    times: TimeHistogram = field(default_factory=TimeHistogram)

    def count(self, headers: BatchHeaders, uncompressed_bytes: Counter[int] | None = None) -> None:
        """Add the next batches of the log, and the size of their data without compression."""
        if not len(headers):
            return
        data = headers.where(~headers.is_control)
        counts = data.column("record_count")
        base_timestamps, max_timestamps = headers.column("base_timestamp"), headers.column("max_timestamp")
        # A delete horizon replaces the first record's timestamp; a batch without records has neither.
        is_hidden = (headers.column("attributes") & v2.DELETE_HORIZON != 0) | (base_timestamps < 0)
        timestamps = np.where(is_hidden, max_timestamps, base_timestamps)
        codecs, which = np.unique(data.codec_ids, return_inverse=True)
        codec_bytes = np.zeros(len(codecs), np.int64)
        np.add.at(codec_bytes, which, data.column("batch_bytes"))
        times = TimeHistogram()
        times.count(data.column("max_timestamp"), counts, data.column("batch_bytes"))
        self.add(
            BatchStats(
                batches=len(headers),
                control_batches=len(headers) - len(data),
                transactional_batches=int(data.is_transactional.sum()),
                records=None if (counts < 0).any() else int(counts.sum()),
                first_timestamp=int(timestamps[np.argmax(timestamps >= 0)]) if (timestamps >= 0).any() else None,
                max_timestamp=int(max_timestamps.max()) if (max_timestamps >= 0).any() else None,
                codec_batches=Counter(data.codec_ids.tolist()),
                magic_batches=Counter(headers.column("magic").tolist()),
                codec_bytes=Counter(dict(zip(codecs.tolist(), codec_bytes.tolist(), strict=True))),
                uncompressed_bytes=uncompressed_bytes,
                times=times,
            )
        )

    def add(self, other: BatchStats) -> None:
        """Add the batches of a later part of the log."""
        self.batches += other.batches
        self.control_batches += other.control_batches
        self.transactional_batches += other.transactional_batches
        self.records = None if self.records is None or other.records is None else self.records + other.records
        if self.first_timestamp is None:
            self.first_timestamp = other.first_timestamp
        times = [time for time in (self.max_timestamp, other.max_timestamp) if time is not None]
        self.max_timestamp = max(times, default=None)
        self.codec_batches += other.codec_batches
        self.magic_batches += other.magic_batches
        self.codec_bytes += other.codec_bytes
        if other.uncompressed_bytes is not None:
            self.uncompressed_bytes = (self.uncompressed_bytes or Counter()) + other.uncompressed_bytes
        self.times.add(other.times)


@dataclass(frozen=True)
class SegmentDescription:
    """One segment. ``end_offset`` is exclusive, and None if damage hides it, which ``error`` then describes."""

    base_offset: int
    end_offset: int | None
    log_bytes: int
    stats: BatchStats
    error: str | None = None


@dataclass(frozen=True)
class PartitionDescription:
    """The description of one partition.

    Attributes
    ----------
    topic_id : str or None
        The id in ``partition.metadata``; None if that is missing or cannot be read.
    start_offset, end_offset : int or None
        The offsets of the log, the end exclusive; None if damage hides them, which ``error`` then describes.
    last_stable_offset : int or None
        None also if more than `STABLE_OFFSET_BYTES_MAX` of the log would have to be scanned for it, unless all of the
        log was scanned anyway.
    total_bytes : int
        The size of all files in the folder.
    stats : BatchStats
        The counts of the whole log.
    """

    path: str
    topic_partition: TopicPartition | None
    topic_id: str | None
    start_offset: int | None
    end_offset: int | None
    last_stable_offset: int | None
    total_bytes: int
    segments: tuple[SegmentDescription, ...]
    stats: BatchStats
    error: str | None = None


@dataclass(frozen=True)
class Scanned:
    """The number of bytes of a file that a full scan has read since its last report."""

    path: str
    bytes: int


def describe_partition(folder: PartitionFolder, *, is_full: bool = False) -> PartitionDescription:
    """Describe a partition; see `describe_step_by_step`."""
    *_, description = describe_step_by_step(folder, is_full=is_full)
    assert isinstance(description, PartitionDescription)
    return description


def describe_step_by_step(
    folder: PartitionFolder, *, is_full: bool = False, is_decompressed: bool = False
) -> Iterator[Scanned | PartitionDescription]:
    """Describe the log in a partition's folder, and report the progress of a full scan meanwhile.

    Parameters
    ----------
    folder : PartitionFolder
    is_full : bool
        Whether to scan all headers, so that everything is counted.
    is_decompressed : bool
        Whether to scan them and decompress every batch, to measure how much compression saves.

    Yields
    ------
    Scanned or PartitionDescription
        The description comes last. Damage, or a folder that cannot be listed, raises no error: the log is described up
        to it, and ``error`` describes it.

    Raises
    ------
    PathNotFoundError
        There is no such folder.
    """
    is_full = is_full or is_decompressed
    layout, error, entries = None, None, list[Entry]()
    # If they cannot be listed, reading the layout below fails with the reason.
    with suppress(StorageError):
        entries = folder.storage.entries(folder.location)
    try:
        layout = read_layout(folder)
        segments = layout.segments
    except SeglogError as damage:
        error = str(damage)
        segments = _listed(folder)
    described: list[SegmentDescription] = []
    for segment in segments:
        # A comprehension cannot yield progress.
        described.append((yield from _describe_segment(segment, is_full, is_decompressed)))  # noqa: PERF401
    error = error or next((segment.error for segment in described if segment.error), None)
    stats = BatchStats()
    for each in described:
        stats.add(each.stats)
    yield PartitionDescription(
        path=folder.location,
        topic_partition=folder.topic_partition,
        topic_id=_topic_id(folder),
        start_offset=layout.start_offset if layout else None,
        end_offset=layout.end_offset if layout else None,
        last_stable_offset=_stable_offset(layout, is_full) if layout else None,
        total_bytes=sum(entry.size_bytes for entry in entries),
        segments=tuple(described),
        stats=stats,
        error=error,
    )


def _listed(folder: PartitionFolder) -> tuple[Segment, ...]:
    try:
        return list_segments(folder)
    except SeglogError:
        return ()


def _describe_segment(
    segment: Segment, is_full: bool, is_decompressed: bool
) -> Generator[Scanned, None, SegmentDescription]:
    stats, end_offset = BatchStats(), segment.base_offset
    try:
        with segment.open() as log:
            if is_full:
                end_offset = yield from _scan(log, stats, is_decompressed)
            for headers in () if is_full else _headers_at_the_ends(log):
                stats.count(headers)
                end_offset = max(end_offset, int(headers.column("last_offset")[-1]) + 1)
    except SeglogError as error:
        return SegmentDescription(segment.base_offset, None, segment.size_bytes, stats, str(error))
    return SegmentDescription(segment.base_offset, end_offset, segment.size_bytes, stats)


def _scan(log: OpenSegment, stats: BatchStats, is_decompressed: bool) -> Generator[Scanned, None, int]:
    """Count every batch, and return the offset after the last one."""
    end_offset = log.segment.base_offset
    for window in log.windows(log.start):
        headers = window.headers
        data = headers.where(~headers.is_control)
        stats.count(headers, uncompressed_bytes(window, data) if is_decompressed else None)
        end_offset = int(headers.column("last_offset")[-1]) + 1
        yield Scanned(log.segment.path(), int(headers.column("batch_bytes").sum()))
    return end_offset


def _headers_at_the_ends(log: OpenSegment) -> Iterator[BatchHeaders]:
    """Yield the first batch, then the one with the largest timestamp if the time index has a later one, then the last.

    The last batches come at the end, so that the offset after them is the segment's end. Damage among them raises an
    error after the readable ones.
    """
    first, damage = list(islice(log.single_headers(log.start), 1)), None
    yield from first
    last: list[BatchHeaders] = []
    try:
        last.extend(log.single_headers(log.seek(log.segment.upper_offset)))
    except CorruptLogError as error:
        damage = error
    latest = _latest(log.segment)
    if latest is not None and all(latest.timestamp > int(each.column("max_timestamp").max()) for each in first + last):
        batch = log.first_batch_from(latest.offset)
        if batch is not None:
            yield batch
    if last:
        # Without an index they are the whole segment, and are counted together.
        yield replace(last[0], table=np.concatenate([each.table for each in last]))
    if damage is not None:
        raise damage


def _latest(segment: Segment) -> TimeEntry | None:
    """Return the last entry of the time index, which has the largest timestamp."""
    try:
        with segment.storage.open(segment.path(files.TIME_INDEX)) as index:
            return floor_time(index, segment.base_offset, OFFSET_MAX)
    except PathNotFoundError:
        return None


def _stable_offset(layout: PartitionLayout, is_full: bool) -> int | None:
    """Return the last stable offset, unless finding it costs much and not all of the log is scanned anyway."""
    try:
        _, offset = snapshot_before(layout)
        if not is_full and _bytes_from(layout, offset) > STABLE_OFFSET_BYTES_MAX:
            return None
        return last_stable_offset(layout)
    except SeglogError:
        return None


def _bytes_from(layout: PartitionLayout, offset: int) -> int:
    """Return how many bytes of the log are at or after an offset."""
    if not layout.segments or offset >= layout.end_offset:
        return 0
    first, *later = layout.segments[layout.segment_of(offset) :]
    position = 0
    if offset > first.base_offset:
        with first.open() as log:
            position = log.seek(offset).position
    return first.size_bytes - position + sum(segment.size_bytes for segment in later)


def _topic_id(folder: PartitionFolder) -> str | None:
    try:
        return topic_id_of(folder)
    except SeglogError:
        return None


@dataclass(frozen=True)
class DirectoryDescription:
    """The identity of a log directory.

    Attributes
    ----------
    cluster_id, directory_id : str or None
    node_id : int or None
        The number of the broker. Each of the three is None if the file is missing or does not name it.
    error : str or None
        Why the file cannot be read.
    """

    path: str
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    error: str | None = None


def describe_directory(directory: LogDirectory) -> DirectoryDescription:
    """Describe a log directory; if its file cannot be read, the description holds the error.

    Source: apache/kafka, MetaProperties.java: version 0 has ``broker.id``, version 1 ``node.id``.
    """
    path = directory.file(files.META_PROPERTIES)
    try:
        said = javaproperties.loads(directory.storage.read_small(path) or b"")
        node_id = said.get("node.id", said.get("broker.id"))
        return DirectoryDescription(
            directory.path,
            said.get("cluster.id"),
            None if node_id is None else int(node_id),
            said.get("directory.id"),
        )
    except (SeglogError, ValueError) as error:
        return DirectoryDescription(directory.path, error=f"{path}: {error}")


def uncompressed_bytes(window: Window, headers: BatchHeaders) -> Counter[int]:
    """Return the size without compression of some batches of a window, by codec id.

    A batch that cannot be decompressed counts with its size as stored: `sparklog.inspect.verify` reports its damage.
    """
    found: Counter[int] = Counter()
    rows = zip(
        headers.column("position").tolist(),
        headers.column("batch_bytes").tolist(),
        headers.column("magic").tolist(),
        headers.codec_ids.tolist(),
        strict=True,
    )
    for position, size_bytes, magic, codec_id in rows:
        start = position - headers.origin
        batch = window.buffer[start : start + size_bytes]
        found[codec_id] += size_bytes + (_saved_bytes(batch, magic, codec_id) if codec_id else 0)
    return found


def _saved_bytes(batch: memoryview, magic: int, codec_id: int) -> int:
    try:
        data = batch[v2.HEADER_BYTES :] if magic == 2 else wrapped(batch)
        return len(decompressor(codec_id, magic)(data, DECOMPRESSED_BYTES_MAX)) - len(data)
    except Exception:
        # Each library raises errors of its own.
        return 0
