"""What a partition's folder holds: its segments, and the first and last offset of its log.

The folder may be one that a broker writes to, or that it left in the middle of something; what is seen is what the
broker would load. Only names, checkpoints, and the headers at the end of the last segment are read.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sparklog.errors import CommitError, CorruptCheckpointError, PathNotFoundError
from sparklog.log import files
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.files import OffsetFile, TopicPartition
from sparklog.log.journal import LogExtent, bound_of, commit_version
from sparklog.log.segment import OffsetPosition, Segment
from sparklog.storage.base import Entry, Storage
from sparklog.storage.registry import locate

_log = logging.getLogger("sparklog")

_SWAPPED_LOG: Final = files.LOG + files.SWAP
_LISTINGS_MAX: Final = 5


@dataclass(frozen=True)
class PartitionLayout:
    """The segments of a partition, ascending, and where its log starts and ends.

    Attributes
    ----------
    path : str
        The partition's folder.
    topic_partition : TopicPartition or None
        What its name says; None where the folder is named otherwise.
    segments : tuple of Segment
        Those that hold an offset at or after the start offset, or may come to.
    start_offset : int
        Log start offset: what is before it has been deleted, also where its bytes are still there.
    end : OffsetPosition
        Log end offset, exclusive, and the position in the last segment where it ends.
    zeros_from : int or None
        Where the zeros begin that end the last segment's file, if something stands behind the end.
    """

    storage: Storage
    path: str
    topic_partition: TopicPartition | None
    segments: tuple[Segment, ...]
    start_offset: int
    end: OffsetPosition
    zeros_from: int | None = None

    @property
    def end_offset(self) -> int:
        return self.end.offset

    def segment_of(self, offset: int) -> int:
        """Return the row of the segment that holds an offset, or would."""
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


def read_layout(path: str, storage: Storage | None = None) -> PartitionLayout:
    """Read what a partition's folder holds now.

    Parameters
    ----------
    path : str
        The folder.
    storage : Storage, optional
        Where it is, if the path does not say.

    Raises
    ------
    PathNotFoundError
        There is no such folder.
    CorruptLogError
        The end of the last segment is damaged, and not merely torn.
    """
    if storage is None:
        storage, path = locate(path)
    directory = path.rstrip("/").rpartition("/")[0]
    for attempt in range(_LISTINGS_MAX):
        mark = commit_version(storage, directory)
        try:
            layout = _bounded(storage, path, list_segments(storage, path))
        except PathNotFoundError:
            # A broker renames and removes segments while it runs: what has just been listed may be gone.
            if attempt + 1 == _LISTINGS_MAX:
                raise
            continue
        if commit_version(storage, directory) == mark:
            return layout
    raise CommitError(f"commits are made to {directory} faster than it can be looked at; read it again")


def list_segments(storage: Storage, folder: str) -> tuple[Segment, ...]:
    """List the segments that a broker would load from a folder."""
    entries = storage.entries(folder)
    _warn_of_links(folder, entries)
    named = list(files.offset_files(entries))
    swapped = _finished_swaps(named)
    kept = {found.offset: (entry, "") for found, entry in named if found.suffix == files.LOG}
    for offset, entry in sorted(swapped.items()):
        kept = _replaced(storage, folder, kept, offset, entry)
    bases = sorted(kept)
    return tuple(
        Segment(
            storage=storage,
            folder=folder,
            base_offset=base,
            upper_offset=bases[row + 1] if row + 1 < len(bases) else files.OFFSET_MAX,
            size_bytes=kept[base][0].size_bytes,
            is_last=row + 1 == len(bases),
            swap=kept[base][1],
        )
        for row, base in enumerate(bases)
    )


def _warn_of_links(folder: str, entries: Iterable[Entry]) -> None:
    """Say which names of segments are none: a broken link would else hide records in silence."""
    for entry in entries:
        found = None if entry.is_file else files.parse_offset_file(entry.name)
        if found is not None and found.suffix == files.LOG:
            _warn_once(f"{folder}/{entry.name} is not a regular file, and a link to none: it is passed over")


def _finished_swaps(named: list[tuple[OffsetFile, Entry]]) -> dict[int, Entry]:
    """Return the ``.log.swap`` files that a broker would put in place: those whose cleaning was done."""
    cleaned = [found.offset for found, _ in named if found.suffix.endswith(files.CLEANED)]
    lowest_cleaned = min(cleaned, default=None)
    return {
        found.offset: entry
        for found, entry in named
        if found.suffix == _SWAPPED_LOG and (lowest_cleaned is None or found.offset < lowest_cleaned)
    }


def _replaced(
    storage: Storage, folder: str, kept: dict[int, tuple[Entry, str]], offset: int, entry: Entry
) -> dict[int, tuple[Entry, str]]:
    """Put a finished swap in the place of the segments that it was made from."""
    swap = Segment(storage, folder, offset, files.OFFSET_MAX, entry.size_bytes, True, files.SWAP)
    with swap.open() as log:
        end_offset = log.end().offset
    outside = {base: found for base, found in kept.items() if found[1] or not offset <= base < end_offset}
    return {**outside, offset: (entry, files.SWAP)}


def _bounded(storage: Storage, folder: str, segments: tuple[Segment, ...]) -> PartitionLayout:
    name = folder.rstrip("/").rpartition("/")[2]
    topic_partition = files.parse_partition_folder(name)
    bound = bound_of(storage, folder)
    if bound is not None:
        return _as_before(PartitionLayout(storage, folder, topic_partition, segments, 0, OffsetPosition(0, 0)), bound)
    checkpoint = _log_start_checkpoint(storage, folder, topic_partition)
    layout = PartitionLayout(storage, folder, topic_partition, segments, checkpoint, OffsetPosition(0, checkpoint))
    if not segments:
        return layout
    start_offset = max(checkpoint, segments[0].base_offset)
    with segments[-1].open() as log:
        end = log.end()
        layout = replace(layout, zeros_from=log.zeros_from)
    _warn_of_damaged_tail(layout, segments[-1], end)
    if end.offset < start_offset:
        _log.warning(
            "%s ends at offset %d, before the log start offset %d of its checkpoint: a broker would delete it all",
            folder,
            end.offset,
            start_offset,
        )
        return replace(layout, segments=())
    return _from(start_offset, replace(layout, end=end))


def synced_offset(storage: Storage, folder: str) -> int:
    """Return the offset below which all of a log was on the disk when its writer last said so.

    A write that a crash tore is at or above it: what is not whole below it is damage. After a clean shutdown that is
    all of the log, else what is below the recovery point that the log directory's checkpoint has; 0 where it has none.
    """
    directory = folder.rstrip("/").rpartition("/")[0]
    if storage.read_small(f"{directory}/{files.CLEAN_SHUTDOWN}") is not None:
        return files.OFFSET_MAX
    return recovery_point(storage, folder) or 0


def recovery_point(storage: Storage, folder: str) -> int | None:
    """Return the recovery point that the log directory's checkpoint has for a log; None where it has none."""
    directory, _, name = folder.rstrip("/").rpartition("/")
    path = f"{directory}/{files.RECOVERY_POINT_CHECKPOINT}"
    topic_partition = files.parse_partition_folder(name)
    data = storage.read_small(path)
    if topic_partition is None or data is None:
        return None
    try:
        return _offsets_of(data, path).get(topic_partition)
    except CorruptCheckpointError as error:
        _warn_once(f"{error}; every log of this directory is taken to have no recovery point")
        return None


def _warn_of_damaged_tail(layout: PartitionLayout, last: Segment, end: OffsetPosition) -> None:
    """Say that a log ends in the midst of a batch although it was written whole: no crash does that."""
    lost_bytes = last.size_bytes - end.position
    if not lost_bytes:
        flushed_offset = recovery_point(layout.storage, layout.path) or 0
        if end.offset < flushed_offset:
            _warn_once(
                f"{last.path()} ends at position {end.position}, offset {end.offset}, and everything before offset "
                f"{flushed_offset} was on the disk, says the recovery point: records are lost"
            )
    elif lost_bytes > 0 and end.offset < synced_offset(layout.storage, layout.path):
        _warn_once(
            f"{last.path()} ends with {lost_bytes} bytes at position {end.position}, offset {end.offset}, that are no "
            f"whole batch, although all of it was on the disk when its writer last said so: it is damaged, and records "
            f"may be lost. It is read up to there; see 'sparklog verify'"
        )


@lru_cache(maxsize=1024)
def _warn_once(message: str) -> None:
    """Warn, and not again of the same: a layout is read many times."""
    _log.warning("%s", message)


def _as_before(layout: PartitionLayout, bound: LogExtent) -> PartitionLayout:
    """Leave out what a commit has put into a log that is not done yet."""
    before = [segment for segment in layout.segments if segment.base_offset <= bound.segment]
    if before:
        before[-1] = replace(before[-1], is_last=True, size_bytes=bound.position)
    end = OffsetPosition(bound.position, bound.end_offset)
    return _from(bound.start_offset, replace(layout, segments=tuple(before), end=end))


def _from(start_offset: int, layout: PartitionLayout) -> PartitionLayout:
    """Leave out the segments that are wholly before the log start offset."""
    rows = enumerate(layout.segments)
    first = max((row for row, segment in rows if segment.base_offset <= start_offset), default=0)
    return replace(layout, segments=layout.segments[first:], start_offset=start_offset)


def _log_start_checkpoint(storage: Storage, folder: str, topic_partition: TopicPartition | None) -> int:
    """Return the log start offset that the log directory's checkpoint has for a partition; 0 where it has none."""
    if topic_partition is None:
        return 0
    path = f"{folder.rstrip('/').rpartition('/')[0]}/{files.LOG_START_CHECKPOINT}"
    data = storage.read_small(path)
    if data is None:
        return 0
    try:
        return _offsets_of(data, path).get(topic_partition, 0)
    except CorruptCheckpointError as error:
        # As a broker does: it says so, and starts every log at its first segment.
        _log.warning("%s; every log of this directory is taken to start at its first segment", error)
        return 0


@lru_cache(maxsize=4)
def _offsets_of(data: bytes, path: str) -> Mapping[TopicPartition, int]:
    """Parse a checkpoint once, and not once for each of the partitions that it has a line for."""
    return parse_offset_checkpoint(data, path)
