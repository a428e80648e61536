"""Watches growing logs: each look reads only the changes since the look before.

A look gets the stamps of each partition's folder and of its last segment's file from the storage, and reuses the
known log if both are unchanged. If only the file has changed, as when records are appended, the other segments are
known: the folder has the same names. Nothing stays open between looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparklog.errors import PathNotFoundError
from sparklog.log.clock import wall_clock_ns
from sparklog.log.damage_rows import OnDamage
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import TopicPartition
from sparklog.log.journal import LogExtent
from sparklog.log.kept_by_stamp import is_settled
from sparklog.log.layout import PartitionLayout, at_one_time, layout_in, layout_of, topic_id_of
from sparklog.log.log_identity import read_log_id
from sparklog.log.places import PartitionFolder
from sparklog.log.reads.fates import stable_offset_past_damage
from sparklog.log.transactions import last_stable_offset
from sparklog.storage.base import Stamp
from sparklog.topic.places.discovery import named


@dataclass(frozen=True)
class LiveLog:
    """The state of a log at the time of a look.

    Attributes
    ----------
    layout : PartitionLayout
        The segments, start and end of the log.
    latest : int
        The offset up to which the log can be read: its end, or its last stable offset.
    topic_id : str or None
        The topic id in ``partition.metadata``; None if missing or unreadable.
    log_id : str or None
        The log's own id, of `sparklog.log.log_identity`; None if missing or unreadable.
    """

    layout: PartitionLayout
    latest: int
    topic_id: str | None
    log_id: str | None


@dataclass(frozen=True)
class _Seen:
    """A log, and the facts that must stay the same for it to be unchanged.

    Attributes
    ----------
    stamps : tuple of Stamp or None
        The stamps of the folder and of the last segment's file. Between looks, the second is None if it is too young
        to show every later change, or if there is no such file.
    start_offset : int
        The log start offset of the checkpoint.
    bound : LogExtent or None
        The beginning of an unfinished commit in the log.
    """

    log: LiveLog
    stamps: tuple[Stamp | None, Stamp | None]
    start_offset: int
    bound: LogExtent | None


class LiveLogs:
    """Looks at logs, and remembers them for the next look.

    Parameters
    ----------
    is_committed : bool
        Whether logs are read up to their last stable offsets.
    on_damage : {"fail", "skip", "best_effort"}
        Unless it is ``fail``, a log whose end is damaged ends after its last sound batch.
    """

    def __init__(self, *, is_committed: bool, on_damage: OnDamage = "fail") -> None:
        self._is_committed, self._on_damage = is_committed, on_damage
        self._seen: dict[PartitionFolder, _Seen] = {}

    def look(self, folders: Iterable[PartitionFolder]) -> dict[TopicPartition, LiveLog]:
        """Look at logs, all as of one moment: a commit over many of them is seen wholly or not at all.

        Returns
        -------
        dict of TopicPartition to LiveLog
            The logs, except those whose folders are gone.

        Raises
        ------
        CorruptLogError
            The end of a last segment is damaged, and not merely torn.
        CommitError
            Commits were made again and again while the logs were looked at.
        """
        # A stamp that is young when it is taken stays unproven, however long the look at the other logs takes.
        wanted, now_ns = list(folders), wall_clock_ns()
        found = at_one_time(wanted, self._look_at)
        seen = {folder: each for folder, each in zip(wanted, found, strict=True) if each is not None}
        self._seen = {
            folder: _proven(each, now_ns) for folder, each in seen.items() if _is_proof(each.stamps[0], now_ns)
        }
        return {named(folder): each.log for folder, each in seen.items()}

    def _look_at(self, folder: PartitionFolder, view: DirectoryView) -> _Seen | None:
        known = self._seen.get(folder)
        start_offset = view.start_offsets.get(named(folder), 0)
        bound = None if view.journal is None else view.journal.partitions.get(folder.name)
        layout = None
        if known is not None and (known.start_offset, known.bound) == (start_offset, bound):
            before, last = stamps_of(known.log.layout)
            has_same_names, is_empty = before == known.stamps[0], not known.log.layout.segments
            if has_same_names and (is_empty or (last is not None and last == known.stamps[1])):
                return known
            if has_same_names and last is not None and bound is None:
                layout = _appended(view, known.log.layout, last, self._on_damage)
        try:
            if layout is None:
                before = folder.storage.stamp(folder.location)
                layout = layout_in(view, folder, self._on_damage)
            stable_offset = last_stable_offset if self._on_damage == "fail" else stable_offset_past_damage
            latest = stable_offset(layout) if self._is_committed else layout.end_offset
            log = LiveLog(layout, latest, topic_id_of(folder), read_log_id(folder))
            # The stamps are from before the look, or equal to these: the next look sees changes made during this one.
            stamps = (before, _stamp_of_last(layout))
        except PathNotFoundError:
            if folder.storage.is_folder(folder.location):
                raise
            return None
        size_bytes = layout.segments[-1].size_bytes if layout.segments else 0
        if stamps[1] is not None and stamps[1].size_bytes != size_bytes:
            stamps = (before, None)
        return _Seen(log, stamps, start_offset, bound)


def stamps_of(layout: PartitionLayout) -> tuple[Stamp | None, Stamp | None]:
    """Return the stamps of a log's folder and of its last segment's file, by which changes are noticed."""
    # As it is now, and not as the layout is pinned to it.
    storage = layout.storage.pinned(()) if layout.storage.capabilities.is_remote else layout.storage
    return storage.stamp(layout.path), storage.stamp(layout.segments[-1].path()) if layout.segments else None


def _stamp_of_last(layout: PartitionLayout) -> Stamp | None:
    """Return the stamp of the last segment's file; None if there is no segment."""
    return layout.storage.stamp(layout.segments[-1].path()) if layout.segments else None


def _appended(view: DirectoryView, layout: PartitionLayout, last: Stamp, on_damage: OnDamage) -> PartitionLayout | None:
    """Read a log whose folder has the same names as before; None if its last segment is gone after all."""
    segments = (*layout.segments[:-1], replace(layout.segments[-1], size_bytes=last.size_bytes))
    try:
        return layout_of(view, layout.folder, segments, on_damage=on_damage)
    except PathNotFoundError:
        return None


def _proven(seen: _Seen, now_ns: int) -> _Seen:
    """Return a log without the stamp of its last segment's file if a later change might not change that."""
    folder, last = seen.stamps
    return seen if _is_proof(last, now_ns) else replace(seen, stamps=(folder, None))


def _is_proof(stamp: Stamp | None, now_ns: int) -> bool:
    return stamp is not None and is_settled(stamp, now_ns)
