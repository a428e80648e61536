"""Decides which partitions a job reads, and which offsets of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from sparklog.errors import (
    CorruptCheckpointError,
    CorruptLogError,
    DataLossError,
    InvalidOptionError,
    OutputNameError,
    PathNotFoundError,
    SeglogError,
    StorageError,
    UnreadableLogError,
)
from sparklog.jobs.ledger import Moved
from sparklog.jobs.run.shares import even_share
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs, parse_offset_checkpoint, parse_topic_id
from sparklog.log.damage_rows import DamagedStretch, DamagePolicy, OnDamage
from sparklog.log.files import TopicPartition
from sparklog.log.filters.where_parser import parse_where
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.log_identity import LOG_ID, TOPIC_ID, LogIdentity, end_batch, read_log_id
from sparklog.log.places import LogDirectory, PartitionFolder, is_within
from sparklog.log.reader import LogReader
from sparklog.log.reads.fates import stable_offset_past_damage
from sparklog.log.transactions import last_stable_offset
from sparklog.log.windows import Window
from sparklog.record.decode.where import Where
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import Storage
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import discover, layouts_by_partition, log_directories, named, place_at, places_at
from sparklog.topic.places.ranges import OffsetsByGroup, ReadRange
from sparklog.topic.quarantine import Quarantine
from sparklog.topic.selection import Selection

_log = logging.getLogger("sparklog")

_OF_LOG: Final = (CorruptLogError, DataLossError, OutputNameError, UnreadableLogError)
"""Errors that keep a job from moving anything of a log."""
_ANEW: Final = "Move it to another target, or give the old ledger up"
_Parsed = TypeVar("_Parsed")
_GO_ON: Final = (
    "Move it to another target; or, to continue there at offset {} nevertheless, export it with adopt (--adopt), or "
    "copy all of it after the records there with since_last=False (--no-since-last)"
)


@dataclass(frozen=True)
class Bound:
    """The start or end of what is read: offsets of partitions, a time, or the offsets of a group; by default none.

    Attributes
    ----------
    offsets : mapping of TopicPartition to int or None
        The offsets, by partition; other partitions have no bound.
    time_ms : int or None
        Means the first record of each partition at or after this time, ms since the epoch.
    group : str or None
        The consumer group whose committed offsets are the bound; the log start for partitions without one.
    """

    offsets: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    group: str | None = None

    def offset(self, layout: PartitionLayout, groups: OffsetsByGroup, on_damage: OnDamage) -> int | None:
        """Return the offset of the bound in a log; None if there is no bound."""
        if self.group is not None:
            return groups[self.group].get(named(layout.folder), layout.start_offset)
        if self.time_ms is not None:
            found = LogReader(layout, policy=DamagePolicy(on_damage)).offset_for_time(self.time_ms)
            return layout.end_offset if found is None else found
        return (self.offsets or {}).get(named(layout.folder))


@dataclass(frozen=True)
class DamageSpan:
    """The damage that one task records: stretches by their first offsets, without the ones recorded before."""

    start_offset: int = 0
    end_offset: int = OFFSET_MAX
    told: frozenset[tuple[str, int]] = frozenset()

    def holds(self, stretch: DamagedStretch) -> bool:
        is_inside = self.start_offset <= stretch.first_offset < self.end_offset
        return is_inside and (stretch.file, stretch.position) not in self.told


@dataclass(frozen=True)
class Selected:
    """A range of offsets of a partition to be moved, and what distinguishes its log from another of the same name.

    Attributes
    ----------
    topic_id : str or None
        The topic id in ``partition.metadata``.
    log_id : str or None
        The id of the log; see `sparklog.log.log_identity`.
    leader_epochs : tuple of (int, int)
        Epochs and their start offsets, from the leader epoch checkpoint.
    damage : SeglogError or None
        The reason why nothing of the log can be moved; None if it can.
    told : frozenset of (str, int)
        The files and positions of damage that was recorded with the range that was moved last.
    """

    range: ReadRange
    layout: PartitionLayout | None
    topic_id: str | None = None
    log_id: str | None = None
    leader_epochs: tuple[tuple[int, int], ...] = ()
    damage: SeglogError | None = None
    told: frozenset[tuple[str, int]] = frozenset()

    @property
    def has_unread_end(self) -> bool:
        """Whether the last segment has bytes after the last sound batch, and the range reaches them."""
        layout = self.layout
        return layout is not None and layout.has_bytes_after_end and self.range.end_offset >= layout.end_offset

    def damage_of(self, piece: ReadRange) -> DamageSpan:
        """Return the damage that one piece of the range records, so that each stretch is recorded once."""
        is_first, is_last = piece.start_offset == self.range.start_offset, piece.end_offset == self.range.end_offset
        first = 0 if is_first and not self.told else piece.start_offset
        reaches_end = is_last and self.layout is not None and piece.end_offset >= self.layout.end_offset
        return DamageSpan(first, OFFSET_MAX if reaches_end else piece.end_offset, self.told)

    def identity(self, end_offset: int) -> LogIdentity:
        """Return the identity of the log for a reader that has read it up to an offset."""
        batch = None if self.layout is None else end_batch(self.layout, end_offset)
        return LogIdentity(self.topic_id, self.log_id, batch)

    def leader_epoch(self, end_offset: int) -> int | None:
        """Return the epoch of the last offset before ``end_offset``; None if it is not known."""
        found = [epoch for epoch, start in self.leader_epochs if start < end_offset]
        return found[-1] if found else None


@dataclass(frozen=True)
class LogSource:
    """The logs that a job reads, and their ranges; a frozen value that pickles.

    Attributes
    ----------
    paths : tuple of str
        Log directories, topic paths, partition folders and patterns.
    selection : Selection
        The partitions, and the offsets of each.
    where : Where or None
        The filter for records to move. The others count as moved as well, since their offsets were looked at.
    adopts : bool
        Whether to continue in a log that is not the one that was moved before.
    """

    paths: tuple[PathText, ...]
    selection: Selection = field(default_factory=Selection)
    where: Where | None = None
    adopts: bool = False

    @property
    def skips_damage(self) -> bool:
        return self.selection.on_damage != "fail"

    @property
    def quarantine(self) -> Quarantine | None:
        """The folder that keeps damaged bytes, if there is one."""
        path = self.selection.quarantine
        return None if path is None else Quarantine(place_at(path, "quarantine"))

    @property
    def start(self) -> Bound:
        given = self.selection
        return Bound(given.start_offsets, given.start_time, given.start_group)

    @property
    def end(self) -> Bound:
        given = self.selection
        return Bound(given.end_offsets, given.end_time, given.end_group)

    def folders(self) -> list[PartitionFolder]:
        """Find the partitions; errors: see `sparklog.topic.places.discovery.discover`."""
        return discover(self.paths, self.selection).select(self.selection)

    def check(self) -> list[PartitionFolder]:
        """Find the partitions; raise `InvalidOptionError` or `PathNotFoundError` if a named one is missing."""
        return check_sources([self])

    def select(self, moved: Callable[[TopicPartition], Moved | None]) -> list[Selected]:
        """Return which offsets are to be moved, without those that have been moved before.

        Parameters
        ----------
        moved : callable
            Returns the range that was moved last of a partition, or None.

        Returns
        -------
        list of Selected
            Sorted by topic and partition. Partitions without new offsets are left out, unless they are damaged, or
            damage is skipped and may be at their end.
        """
        found = self._layouts()
        directories = {each.folder.directory for each in found.values() if isinstance(each, PartitionLayout)}
        marks = {each: _high_watermarks(each) for each in directories} if self.selection.stops_at_high_watermark else {}
        groups = self.committed([each.folder for each in found.values() if isinstance(each, PartitionLayout)])
        selected = [
            each if isinstance(each, Selected) else self._selected(each, at, moved, marks, groups)
            for at, each in found.items()
        ]
        return [
            each
            for each in selected
            if each.damage is not None or each.range.size > 0 or (self.skips_damage and each.has_unread_end)
        ]

    def _layouts(self) -> dict[TopicPartition, PartitionLayout | Selected]:
        """Read the layouts of all logs together; if that fails, read them one by one to find the damaged ones."""
        folders = self.folders()
        try:
            return dict(layouts_by_partition(folders, self.selection.on_damage))
        except (CorruptLogError, StorageError, PathNotFoundError):
            return {named(folder): _layout_or_damage(folder, self.selection.on_damage) for folder in folders}

    def committed(self, folders: Sequence[PartitionFolder]) -> OffsetsByGroup:
        """Return the committed offsets of the groups that bound the source.

        Raises
        ------
        InvalidOptionError
            The group does not exist.
        """
        names = {bound.group for bound in (self.start, self.end) if bound.group is not None}
        if not names or not folders:
            return {}
        # The decoder of offsets takes long to import, so it is imported only if a group is named.
        from sparklog.topic.internal.groups import committed_by_groups

        # The offsets may also be on a disk that has none of the partitions to read.
        directories = [*log_directories(self.paths), *(each.directory for each in folders)]
        return committed_by_groups(names, directories, self.selection.offsets_path)

    def _selected(
        self,
        layout: PartitionLayout,
        at: TopicPartition,
        moved: Callable[[TopicPartition], Moved | None],
        marks: HighWatermarks,
        groups: OffsetsByGroup,
    ) -> Selected:
        try:
            last = moved(at)
            with reading():
                found = self._identified(layout)
                if last is not None:
                    _refuse_cut(layout, last)
                if last is not None and not self.adopts:
                    _refuse_another(found, layout, last)
                told = frozenset((each.file, each.position) for each in (last.lost if last is not None else ()))
                return replace(found, range=self._range(layout, last, marks, groups), told=told)
        except _OF_LOG as error:
            return _damaged(layout.folder, error)

    def _identified(self, layout: PartitionLayout) -> Selected:
        folder = layout.folder
        return Selected(
            range=ReadRange(folder, 0, 0, 0),
            layout=layout,
            topic_id=self._parsed(folder, files.PARTITION_METADATA, parse_topic_id),
            log_id=read_log_id(folder),
            leader_epochs=tuple(self._parsed(folder, files.LEADER_EPOCH_CHECKPOINT, parse_leader_epochs) or ()),
        )

    def _parsed(self, folder: PartitionFolder, name: str, parse: Callable[[bytes, str], _Parsed]) -> _Parsed | None:
        """Parse a small file of a log; None if there is none, or if damage is skipped."""
        path = folder.file(name)
        data = folder.storage.read_small(path)
        try:
            return None if data is None else parse(data, path)
        except CorruptCheckpointError:
            if not self.skips_damage:
                raise
            _log.warning("%s is damaged, and taken to be missing", path)
            return None

    def _range(
        self, layout: PartitionLayout, moved: Moved | None, marks: HighWatermarks, groups: OffsetsByGroup
    ) -> ReadRange:
        committed = self.selection.isolation_level == "read_committed"
        stable_offset = stable_offset_past_damage if self.skips_damage else last_stable_offset
        stable = stable_offset(layout) if committed else layout.end_offset
        ends = [stable, self.end.offset(layout, groups, self.selection.on_damage)]
        if self.selection.stops_at_high_watermark:
            ends.append(marks[layout.folder.directory].get(named(layout.folder), layout.start_offset))
        wanted = self.start.offset(layout, groups, self.selection.on_damage)
        for bound, offset in ((self.start, wanted), (self.end, ends[1])):
            if bound.group is not None and (moved is None or moved.end_offset < layout.start_offset):
                self._check_committed(layout, bound.group, offset or 0)
        if moved is not None and moved.end_offset < layout.start_offset and (wanted or 0) < layout.start_offset:
            self._lose_between(layout, moved)
        starts = [layout.start_offset, wanted, None if moved is None else moved.end_offset]
        start = max(each for each in starts if each is not None)
        end = max(min(each for each in ends if each is not None), start)
        return ReadRange(layout.folder, start, end, stable)

    def _check_committed(self, layout: PartitionLayout, group: str, offset: int) -> None:
        """Report a committed offset of a group that is neither in the log nor its end."""
        if not layout.start_offset <= offset <= layout.end_offset:
            self._lose(
                f"group {group} has committed offset {offset} of {named(layout.folder)}, and {layout.path} has offsets "
                f"[{layout.start_offset}, {layout.end_offset})"
            )

    def _lose_between(self, layout: PartitionLayout, moved: Moved) -> None:
        self._lose(
            f"offsets [{moved.end_offset}, {layout.start_offset}) of {moved.topic_partition} were not moved, and are "
            f"gone: {layout.path} now begins at {layout.start_offset}"
        )

    def _lose(self, message: str) -> None:
        if self.selection.fail_on_data_loss:
            raise DataLossError(f"{message}. Set fail_on_data_loss to false to continue with the offsets that exist")
        _log.warning("%s; continuing with the offsets that exist", message)


HighWatermarks = Mapping[LogDirectory, Mapping[TopicPartition, int]]
"""The high watermarks of the partitions of log directories."""


def _layout_or_damage(folder: PartitionFolder, on_damage: OnDamage) -> PartitionLayout | Selected:
    try:
        with reading():
            return read_layout(folder, on_damage)
    except _OF_LOG as error:
        return _damaged(folder, error)


@contextmanager
def reading() -> Iterator[None]:
    """Raise `UnreadableLogError` for a storage error while a log is read; an error of the target ends the job."""
    try:
        yield
    except (StorageError, PathNotFoundError) as error:
        raise UnreadableLogError(error.message) from error


def _damaged(folder: PartitionFolder, error: SeglogError) -> Selected:
    return Selected(ReadRange(folder, 0, 0, 0), None, damage=error)


def _high_watermarks(directory: LogDirectory) -> Mapping[TopicPartition, int]:
    path = directory.file(files.HIGH_WATERMARK_CHECKPOINT)
    data = directory.storage.read_small(path)
    if data is None:
        raise InvalidOptionError(f"there is no {path}: a broker writes it, and without it no high watermark is known")
    return parse_offset_checkpoint(data, path)


def _refuse_cut(layout: PartitionLayout, moved: Moved) -> None:
    """Raise `DataLossError` if a log ends before the ledger does: it was cut, or created again."""
    if moved.end_offset > layout.end_offset:
        raise DataLossError(
            f"{layout.path} ends at offset {layout.end_offset}, and offsets up to {moved.end_offset} were moved "
            f"before: it was cut, or made again. {_ANEW}"
        )


def _refuse_another(found: Selected, layout: PartitionLayout, moved: Moved) -> None:
    """Raise `DataLossError` if a log is not the one that was moved: it was created again, or cut and written on."""
    at, path, end = moved.topic_partition, layout.path, moved.end_offset
    difference = moved.identity.difference(found.identity(end))
    if difference == TOPIC_ID:
        raise DataLossError(
            f"the topic of {path} has the id {found.topic_id}, and {at} was moved from {moved.topic_id}: it "
            f"was deleted and made again. {_GO_ON.format(end)}"
        )
    if difference == LOG_ID:
        raise DataLossError(
            f"{path} has the id {found.log_id}, and {at} was moved from {moved.log_id}: it was deleted and "
            f"made again, or is another log of that name. {_GO_ON.format(end)}"
        )
    epoch = found.leader_epoch(end)
    is_there = end > layout.start_offset and None not in (moved.leader_epoch, epoch)
    if is_there and moved.leader_epoch != epoch:
        raise DataLossError(
            f"offset {end - 1} of {path} is of leader epoch {epoch}, and was of {moved.leader_epoch} when it was "
            f"moved: records were replaced by those of another leader. {_GO_ON.format(end)}"
        )
    if difference is not None:
        raise DataLossError(
            f"the batch before offset {end} of {path} is not the one that was there when it was moved: the log was cut "
            f"and written on, was made again, or is another of that name. {_GO_ON.format(end)}"
        )


def adjacent_batches(window: Window) -> Iterator[Window]:
    """Divide a window where other bytes are between its batches."""
    headers = window.headers
    ends = headers.column("position") + headers.column("batch_bytes")
    cuts = (np.flatnonzero(headers.column("position")[1:] != ends[:-1]) + 1).tolist()
    for first, end in pairwise([0, *cuts, len(headers)]):
        yield Window(window.buffer, headers[first:end])


def piece_bytes_max(selected: Sequence[Selected], task_bytes: int, workers: int) -> int:
    """Return the largest size, in bytes of log, of a piece of the work; one task does a whole piece."""
    layouts = [each.layout for each in selected if each.layout is not None]
    return even_share([sum(segment.size_bytes for segment in each.segments) for each in layouts], task_bytes, workers)


def check_sources(sources: Sequence[LogSource]) -> list[PartitionFolder]:
    """Find the partitions of sources; errors: see `LogSource.check`."""
    of_sources = [source.folders() for source in sources]
    for source, of_source in zip(sources, of_sources, strict=True):
        source.committed(of_source)
        if source.quarantine is not None:
            source.quarantine.check({folder.directory for folder in of_source})
    folders = [folder for of_source in of_sources for folder in of_source]
    there = {named(folder) for folder in folders}
    for source in sources:
        for each in (*(source.start.offsets or ()), *(source.end.offsets or ())):
            if each not in there:
                raise InvalidOptionError(f"an offset is given for {each}, which is not read")
    return folders


def source_of(
    source: PathText | Sequence[PathText], selection: Selection, where: str | None = None, *, adopts: bool = False
) -> LogSource:
    """Make a source from the arguments of a caller."""
    return LogSource(places_at(source, "source"), selection, None if where is None else parse_where(where), adopts)


def refuse_nested(storage: Storage, path: str, directory: LogDirectory) -> None:
    """Raise `InvalidOptionError` if the target of a job is within a log directory that it reads."""
    if storage.scheme == directory.storage.scheme and is_within(storage.real(path), storage.real(directory.path)):
        raise InvalidOptionError(
            f"the target {path} is in {directory.path}, whose logs are read: a folder of others in a log directory "
            f"stops a broker. Move to another folder"
        )
