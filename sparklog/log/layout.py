"""Reads the layout of a partition's folder: its segments, and the first and last offset of its log.

A broker may be writing to the folder, or have left it in the middle of a change; the layout is the one that the broker
would load. Only names, checkpoints, and the headers at the end of the last segment are read.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from sparklog.errors import (
    CommitError,
    CorruptBatchError,
    CorruptCheckpointError,
    PathNotFoundError,
    SeglogError,
)
from sparklog.log import files
from sparklog.log.checkpoints import parse_topic_id
from sparklog.log.damage_rows import OnDamage
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import TopicPartition
from sparklog.log.journal import LogExtent
from sparklog.log.places import LogDirectory, PartitionFolder, ReplicatedFolder, foresee
from sparklog.log.replicas.lineage import NO_EPOCH, Replica, ReplicaLog, merge_logs
from sparklog.log.replicas.logs import read_lineage, refuse_another_log
from sparklog.log.segment import OffsetPosition, OpenSegment, Segment
from sparklog.log.segment_listing import list_segments, warn_once
from sparklog.log.sound_batches import last_sound_batch
from sparklog.record.format.headers import BatchHeaders
from sparklog.storage.base import Storage
from sparklog.storage.looks import map_at_once, one_look

_log = logging.getLogger("sparklog")

_LISTINGS_MAX: Final = 5
_LOOKS_MAX: Final = 10
_TOLD_MAX: Final = 5

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class PartitionLayout:
    """The segments of a partition, ascending, and the start and end of its log.

    Attributes
    ----------
    folder : PartitionFolder
        The folder of the log.
    segments : tuple of Segment
        The segments that hold, or may come to hold, an offset at or after the start offset.
    start_offset : int
        Log start offset: records before it are deleted, even if their bytes are still in a segment.
    end : OffsetPosition
        Log end offset, exclusive, and its position in the last segment.
    zeros_from : int or None
        The position of the zeros at the end of the last segment's file, if any bytes follow the log end.
    replicas : tuple of Replica
        The replicas that the log is merged from, the leader first; empty for the log of one folder. The segments are
        then of the replica with most of the log. Plans may use them, but `scan_range` reads from the copies.
    copies : tuple of PartitionLayout
        The layout of each replica.
    """

    folder: PartitionFolder
    segments: tuple[Segment, ...]
    start_offset: int
    end: OffsetPosition
    zeros_from: int | None = None
    replicas: tuple[Replica, ...] = ()
    copies: tuple[PartitionLayout, ...] = ()

    @property
    def storage(self) -> Storage:
        return self.folder.storage

    @property
    def path(self) -> str:
        return self.folder.location

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition that the folder is named for; None if its name is no partition's."""
        return self.folder.topic_partition

    @property
    def end_offset(self) -> int:
        return self.end.offset

    @property
    def has_bytes_after_end(self) -> bool:
        """Whether bytes follow the log end in its last segment: damage, or what a crash or a broker leaves there."""
        return bool(self.segments) and self.segments[-1].size_bytes > self.end.position

    def segment_of(self, offset: int) -> int:
        """Return the row of the segment that holds an offset, or would hold it."""
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


def read_layout(folder: PartitionFolder, on_damage: OnDamage = "fail") -> PartitionLayout:
    """Read the present layout of a log; for ``on_damage`` see `read_layouts`.

    Raises
    ------
    PathNotFoundError
        There is no such folder.
    CorruptLogError
        The end of the last segment is damaged, and not merely torn.
    """
    return read_layouts([folder], on_damage)[0]


def read_layouts(folders: Sequence[PartitionFolder], on_damage: OnDamage = "fail") -> list[PartitionLayout]:
    """Read the present layouts of logs, all as of one time: they show all of a commit to many logs, or nothing of it.

    Parameters
    ----------
    on_damage : {"fail", "skip", "best_effort"}
        Unless it is ``fail``, a log whose end is damaged ends after its last sound batch.

    Raises
    ------
    PathNotFoundError
        There is no such folder.
    CorruptLogError
        The end of a last segment is damaged, and not merely torn.
    InvalidOptionError
        The logs of a `ReplicatedFolder` are no replicas of one log.
    CommitError
        Commits were made again and again while the logs were looked at.
    """
    directories = {copy.directory for folder in folders for copy in folder.copies}
    told: list[str] = []

    def look(views: Mapping[LogDirectory, DirectoryView]) -> list[PartitionLayout]:
        told.clear()
        _foresee(folders, views)
        return map_at_once(lambda folder: look_at(views, folder), folders, storages)

    def look_at(views: Mapping[LogDirectory, DirectoryView], folder: PartitionFolder) -> PartitionLayout:
        if isinstance(folder, ReplicatedFolder):
            return _merged_in(views, folder, told)
        return layout_in(views[folder.directory], folder, on_damage)

    storages = [directory.storage for directory in directories]
    with one_look():
        layouts = while_current(directories, look)
    if told:
        more = f"; and {len(told) - _TOLD_MAX} more" if len(told) > _TOLD_MAX else ""
        warn_once(f"left out of logs merged from replicas: {'; '.join(told[:_TOLD_MAX])}{more}")
    return layouts


def at_one_time(
    folders: Sequence[PartitionFolder], look: Callable[[PartitionFolder, DirectoryView], _Found]
) -> list[_Found]:
    """Return the result of a look at each log, all as of one time; the looks may be repeated.

    Raises
    ------
    CommitError
        Commits were made again and again while the logs were looked at.
    SeglogError
        The look raised it, and no commit was made meanwhile.
    """
    directories = {folder.directory for folder in folders}

    def look_at_all(views: Mapping[LogDirectory, DirectoryView]) -> list[_Found]:
        _foresee(folders, views)
        return map_at_once(lambda folder: look(folder, views[folder.directory]), folders, storages)

    storages = [directory.storage for directory in directories]
    with one_look():
        return while_current(directories, look_at_all)


def _foresee(folders: Iterable[PartitionFolder], views: Mapping[LogDirectory, DirectoryView]) -> None:
    """Have each storage list the folders in one pass; read the checkpoints of a remote one before the threads do."""
    foresee(folders)
    for view in views.values():
        if view.directory.storage.capabilities.is_remote:
            _ = (view.journal, view.start_offsets, view.recovery_points)


def while_current(
    directories: Collection[LogDirectory], look: Callable[[Mapping[LogDirectory, DirectoryView]], _Found]
) -> _Found:
    """Return the result of a look at log directories that no commit interrupts; the look may be repeated.

    Raises
    ------
    CommitError
        Commits were made again and again while they were looked at.
    SeglogError
        The look raised it, and no commit was made meanwhile.
    """
    for _ in range(_LOOKS_MAX):
        views = {directory: DirectoryView(directory) for directory in directories}
        try:
            found = look(views)
        except SeglogError:
            # A commit that was made meanwhile may be the reason.
            if all(view.is_current() for view in views.values()):
                raise
            continue
        if all(view.is_current() for view in views.values()):
            return found
    where = ", ".join(sorted(directory.path for directory in directories))
    raise CommitError(f"commits are made to {where} faster than it can be looked at; read it again")


def layout_in(view: DirectoryView, folder: PartitionFolder, on_damage: OnDamage = "fail") -> PartitionLayout:
    """Read the layout of a log with a view of its directory: the caller holds the lock, or checks the view later.

    Raises
    ------
    PathNotFoundError, CorruptLogError
        See `read_layout`.
    """
    folder = folder.pinned()
    for _ in range(_LISTINGS_MAX - 1):
        try:
            return layout_of(view, folder, list_segments(folder), on_damage=on_damage)
        except PathNotFoundError:
            # A broker renames and removes segments while it runs: a listed file may be gone.
            continue
    return layout_of(view, folder, list_segments(folder), on_damage=on_damage)


def _merged_in(
    views: Mapping[LogDirectory, DirectoryView], folder: ReplicatedFolder, told: list[str]
) -> PartitionLayout:
    """Read the layout of the log merged from replicas; note the offsets that are left out."""
    layouts: dict[PartitionFolder, PartitionLayout] = {}
    logs: list[ReplicaLog] = []
    for each in folder.replicas:
        layout = layout_in(views[each.directory], each, on_damage="skip")
        layouts[each] = layout
        logs.append(_replica_log(views[each.directory], layout))
    merge = merge_logs(logs, folder.replicas_min)
    told += [f"{folder.name}: {each}" for each in merge.told]
    copies = tuple(layouts[each.log.folder] for each in merge.replicas)
    for replica, copy in zip(merge.replicas[1:], copies[1:], strict=True):
        one, other = (_sound_batch_before(layout, replica.agreed_offset) for layout in (copies[0], copy))
        refuse_another_log(copies[0].path, one, copy.path, other)

    def covered(row: int) -> int:
        end_offset = min(merge.replicas[row].agreed_offset, merge.end_offset)
        return max(end_offset - max(copies[row].start_offset, merge.start_offset), 0)

    most = copies[max(range(len(copies)), key=covered)]
    return PartitionLayout(
        replace(folder, directory=copies[0].folder.directory),
        most.segments,
        merge.start_offset,
        OffsetPosition(most.end.position, merge.end_offset),
        replicas=merge.replicas,
        copies=copies,
    )


def _replica_log(view: DirectoryView, layout: PartitionLayout) -> ReplicaLog:
    folder, at = layout.folder, layout.topic_partition
    epochs = read_lineage(folder, layout.segments)
    checkpoint = 0 if at is None else view.start_offsets.get(at, 0)
    begun = max(checkpoint, epochs[0][1]) if epochs else layout.start_offset
    if epochs and epochs[0][1] > layout.start_offset:
        epochs = ((NO_EPOCH, layout.start_offset), *epochs)
    return ReplicaLog(
        folder,
        epochs,
        log_start_offset=min(layout.start_offset, begun),
        start_offset=layout.start_offset,
        end_offset=layout.end_offset,
        high_watermark=None if at is None else view.offsets(files.HIGH_WATERMARK_CHECKPOINT).get(at),
        topic_id=topic_id_of(folder),
        is_compacted=at in view.offsets(files.CLEANER_CHECKPOINT),
    )


def _sound_batch_before(layout: PartitionLayout, offset: int) -> np.void | None:
    header = batch_holding(layout, offset - 1)
    if header is None:
        return None
    with layout.segments[layout.segment_of(offset - 1)].open() as log:
        intact = log.header_at(int(header.column("position")[0]))
    return None if intact is None else intact.table[0]


def cut_at(layout: PartitionLayout, offset: int) -> PartitionLayout:
    """Return the layout that a log had when its end offset was ``offset``.

    Raises
    ------
    CorruptBatchError
        The batches before the offset cannot be scanned.
    """
    if offset >= layout.end_offset:
        return layout
    segments = layout.segments[: layout.segment_of(offset - 1) + 1] if offset > layout.start_offset else ()
    if not segments:
        return replace(layout, segments=(), end=OffsetPosition(0, offset), zeros_from=None)
    last = segments[-1]
    if offset < last.upper_offset:
        with last.open() as log:
            header = log.first_batch_from(offset)
        position = last.size_bytes if header is None else int(header.column("position")[0])
        last = replace(last, is_last=True, size_bytes=position)
    return replace(
        layout, segments=(*segments[:-1], last), end=OffsetPosition(last.size_bytes, offset), zeros_from=None
    )


def batch_holding(layout: PartitionLayout, offset: int) -> BatchHeaders | None:
    """Return the header of the batch that holds an offset; None if there is no such batch, or it cannot be read."""
    if not layout.segments or not layout.start_offset <= offset < layout.end_offset:
        return None
    try:
        with layout.segments[layout.segment_of(offset)].open() as log:
            header = log.first_batch_from(offset)
    except (PathNotFoundError, CorruptBatchError):
        return None
    return None if header is None or int(header.column("base_offset")[0]) > offset else header


def topic_id_of(folder: PartitionFolder) -> str | None:
    """Return the topic id in ``partition.metadata``; None if the file is missing or cannot be parsed."""
    path = folder.file(files.PARTITION_METADATA)
    data = folder.storage.read_small(path)
    try:
        return None if data is None else parse_topic_id(data, path)
    except CorruptCheckpointError:
        return None


def layout_of(
    view: DirectoryView,
    folder: PartitionFolder,
    segments: tuple[Segment, ...],
    *,
    is_to_be_cut: bool = False,
    on_damage: OnDamage = "fail",
) -> PartitionLayout:
    """Read the layout of a log whose segments are already listed; see `layout_in`.

    Parameters
    ----------
    is_to_be_cut : bool
        Whether the caller cuts off the remains of a crash after the last whole batch, so that the log ends there.
    on_damage : {"fail", "skip", "best_effort"}
        See `read_layouts`.

    Raises
    ------
    PathNotFoundError
        A segment has gone since it was listed.
    CorruptLogError
        See `read_layout`.
    """
    bound = None if view.journal is None else view.journal.partitions.get(folder.name)
    if bound is not None:
        return _as_before(folder, segments, bound)
    at = folder.topic_partition
    checkpoint = 0 if at is None else view.start_offsets.get(at, 0)
    if not segments:
        return PartitionLayout(folder, (), checkpoint, OffsetPosition(0, checkpoint))
    start_offset = max(checkpoint, segments[0].base_offset)
    with segments[-1].open() as log:
        log.is_to_be_cut = is_to_be_cut
        end = log.end() if on_damage == "fail" else _sound_end(log)
    _warn_of_damaged_tail(segments[-1], end, view)
    if at is not None and end.offset < start_offset:
        # The topic may have been created again since the view was made: read again before the whole log is left out.
        start_offset = max(DirectoryView(folder.directory).start_offsets.get(at, 0), segments[0].base_offset)
    if end.offset < start_offset:
        _log.warning(
            "%s ends at offset %d, before the log start offset %d of its checkpoint: a broker would delete it all",
            folder.location,
            end.offset,
            start_offset,
        )
        return PartitionLayout(folder, (), checkpoint, OffsetPosition(0, checkpoint), log.zeros_from)
    return PartitionLayout(folder, _segments_from(segments, start_offset), start_offset, end, log.zeros_from)


def _sound_end(log: OpenSegment) -> OffsetPosition:
    """Return the end of the last sound batch of a segment, and the offset after it, whatever is damaged."""
    header = last_sound_batch(log)
    if header is None:
        return log.start
    last = header.table[0]
    return OffsetPosition(int(last["position"] + last["batch_bytes"]), int(last["last_offset"]) + 1)


def _warn_of_damaged_tail(last: Segment, end: OffsetPosition, view: DirectoryView) -> None:
    """Warn that bytes of a log are missing or damaged that were on the disk: no crash does that."""
    lost_bytes = last.size_bytes - end.position
    if not lost_bytes:
        flushed_offset = view.recovery_point(last.folder) or 0
        if end.offset < flushed_offset:
            warn_once(
                f"{last.path()} ends at position {end.position}, offset {end.offset}, but the recovery point says that "
                f"everything before offset {flushed_offset} was on the disk: records are lost"
            )
    elif lost_bytes > 0 and end.offset < view.synced_offset(last.folder):
        warn_once(
            f"{last.path()} ends with {lost_bytes} bytes at position {end.position}, offset {end.offset}, that are no "
            f"whole batch, although all of it was on the disk when its writer last said so: it is damaged, and records "
            f"may be lost. It is read up to there; see 'sparklog verify'"
        )


def _as_before(folder: PartitionFolder, segments: Sequence[Segment], bound: LogExtent) -> PartitionLayout:
    """Return the layout of a log without the parts of a commit that is not finished."""
    before = [segment for segment in segments if segment.base_offset <= bound.segment]
    if before:
        before[-1] = replace(before[-1], is_last=True, size_bytes=bound.position)
    end = OffsetPosition(bound.position, bound.end_offset)
    return PartitionLayout(folder, _segments_from(tuple(before), bound.start_offset), bound.start_offset, end)


def _segments_from(segments: tuple[Segment, ...], start_offset: int) -> tuple[Segment, ...]:
    """Return the segments that are not wholly before the log start offset."""
    return segments[max(bisect_right(segments, start_offset, key=lambda segment: segment.base_offset) - 1, 0) :]
