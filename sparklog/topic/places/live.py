"""Logs that others write to, looked at again and again: each look reads only what has changed since the one before.

A look asks the storage for the stamp of each partition's folder and of its last segment's file, and takes what it knows
where both are as they were. Nothing stays open between looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sparklog.errors import PathNotFoundError
from sparklog.log.clock import NS_PER_MS, wall_clock_ms
from sparklog.log.files import TopicPartition
from sparklog.log.journal import LogExtent
from sparklog.log.layout import DirectoryView, PartitionLayout, at_one_time, layout_in, topic_id_of
from sparklog.log.log_identity import read_log_id
from sparklog.log.places import PartitionFolder
from sparklog.log.transactions import SeenTransactions, stable_offset_again
from sparklog.storage.base import Stamp
from sparklog.topic.places.discovery import named

_SETTLED_AFTER_NS: Final = 2_000_000_000
"""A change within this time of another may leave the same stamp: no clock of a file system is coarser."""


@dataclass(frozen=True)
class LiveLog:
    """A log as it was when it was looked at.

    Attributes
    ----------
    layout : PartitionLayout
        Its segments, and its start and end.
    latest : int
        The offset that it can be read up to: its end, or its last stable offset.
    topic_id : str or None
        That of ``partition.metadata``; None where there is none, or none that can be read.
    log_id : str or None
        The same of `sparklog.log.log_identity`.
    """

    layout: PartitionLayout
    latest: int
    topic_id: str | None
    log_id: str | None


@dataclass(frozen=True)
class _Seen:
    """A log, and what it is known by to be still the same.

    Attributes
    ----------
    stamps : tuple of Stamp
        Of the folder, and of the last segment's file.
    start_offset : int
        The log start offset of the checkpoint.
    bound : LogExtent or None
        Where a commit that is not done begins.
    """

    log: LiveLog
    stamps: tuple[Stamp | None, ...]
    start_offset: int
    bound: LogExtent | None


class LiveLogs:
    """What was found of the logs of a directory, for the next look.

    Parameters
    ----------
    is_committed : bool
        Whether logs are read up to their last stable offsets.
    """

    def __init__(self, *, is_committed: bool) -> None:
        self._is_committed = is_committed
        self._seen: dict[PartitionFolder, _Seen] = {}
        self._transactions: dict[PartitionFolder, SeenTransactions] = {}

    def look(self, folders: Iterable[PartitionFolder]) -> dict[TopicPartition, LiveLog]:
        """Look at logs, all of them as they were at one time: of a commit over many of them, all or nothing.

        Returns
        -------
        dict of TopicPartition to LiveLog
            Without those whose folders are gone.

        Raises
        ------
        CorruptLogError
            The end of a last segment is damaged, and not merely torn.
        CommitError
            Commits were made again and again while the logs were looked at.
        """
        wanted = list(folders)
        found = at_one_time(wanted, self._look_at)
        seen = {folder: each for folder, each in zip(wanted, found, strict=True) if each is not None}
        self._transactions = {folder: each for folder, each in self._transactions.items() if folder in seen}
        settled_ns = wall_clock_ms() * NS_PER_MS - _SETTLED_AFTER_NS
        self._seen = {folder: each for folder, each in seen.items() if _is_settled(each, settled_ns)}
        return {named(folder): each.log for folder, each in seen.items()}

    def _look_at(self, folder: PartitionFolder, view: DirectoryView) -> _Seen | None:
        known = self._seen.get(folder)
        start_offset = view.start_offsets.get(named(folder), 0)
        bound = None if view.journal is None else view.journal.partitions.get(folder.name)
        if (
            known is not None
            and (known.start_offset, known.bound) == (start_offset, bound)
            and known.stamps == stamps_of(known.log.layout)
        ):
            return known
        try:
            before = folder.storage.stamp(folder.location)
            layout = layout_in(view, folder)
            latest = self._stable_offset(layout) if self._is_committed else layout.end_offset
            log = LiveLog(layout, latest, topic_id_of(folder), read_log_id(folder))
            # The stamps are those of before the look, or are the same: what changes during it is seen by the next.
            stamps = (before, _stamp_of_last(layout))
        except PathNotFoundError:
            if folder.storage.is_folder(folder.location):
                raise
            return None
        size_bytes = layout.segments[-1].size_bytes if layout.segments else 0
        if stamps[1] is not None and stamps[1].size_bytes != size_bytes:
            stamps = (before, None)
        return _Seen(log, stamps, start_offset, bound)

    def _stable_offset(self, layout: PartitionLayout) -> int:
        known = self._transactions.get(layout.folder)
        stable_offset, self._transactions[layout.folder] = stable_offset_again(layout, known)
        return stable_offset


def stamps_of(layout: PartitionLayout) -> tuple[Stamp | None, ...]:
    """Return the stamps of a log's folder and of its last segment's file, by which changes are noticed."""
    return layout.storage.stamp(layout.path), _stamp_of_last(layout)


def _stamp_of_last(layout: PartitionLayout) -> Stamp | None:
    """Return the stamp of the last segment's file; None where there is no segment."""
    return layout.storage.stamp(layout.segments[-1].path()) if layout.segments else None


def _is_settled(seen: _Seen, settled_ns: int) -> bool:
    """Tell whether a change that comes now will be seen by the stamps."""
    needed = seen.stamps if seen.log.layout.segments else seen.stamps[:1]
    return all(stamp is not None and stamp.modified_ns < settled_ns for stamp in needed)
