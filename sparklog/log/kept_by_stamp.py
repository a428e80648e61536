"""Keeps values that were read from a log directory until their file or folder changes.

A directory of tens of thousands of logs has a few files about all of them: offset checkpoints, ``topics.properties``,
the offsets of groups; and the list of their folders. To read and parse all of it where one entry is wanted makes
work over all logs quadratic. Here each is read once for a process, and again when its stamp is another.

A stamp proves that nothing has changed only if it is old: a second change within one tick of the file system's clock
may leave the same stamp. A file whose stamp is young is read again, and its value is made again only if its bytes
are others. So a value is never older than its file.

Threads share the values, which nobody changes. A forked process begins without any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sparklog.log.clock import wall_clock_ns
from sparklog.log.files import parse_partition_folder
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.base import Name, Stamp
from sparklog.storage.process import ProcessState

_PLACES_MAX: Final = 64
"""How many values are kept for each kind of file, the last used ones."""
_SETTLED_AFTER_NS: Final = 2_000_000_000

V = TypeVar("V")


def is_settled(stamp: Stamp, now_ns: int | None = None) -> bool:
    """Return whether a stamp is so old that any later change will change it.

    A change within 2 s of another may leave the same stamp: no clock of a file system is coarser.
    """
    return stamp.modified_ns < (wall_clock_ns() if now_ns is None else now_ns) - _SETTLED_AFTER_NS


@dataclass(frozen=True)
class _Known(Generic[V]):
    """A value, and the facts that show whether it is still right.

    Attributes
    ----------
    stamp : Stamp or None
        The stamp before the value was read; None if a change might not have changed it.
    read_seconds : float
        When the value was read, by the monotonic clock.
    source : object
        The bytes or names that the value was made of.
    """

    stamp: Stamp | None
    read_seconds: float
    source: object
    value: V


class _Kept(Generic[V]):
    """Values by place, the last used ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[LogDirectory, str], _Known[V]] = {}
        self._ours = ProcessState(threading.Lock, self._known)

    def get(self, place: tuple[LogDirectory, str]) -> _Known[V] | None:
        with self._ours.lock:
            known = self._known.pop(place, None)
            if known is not None:
                self._known[place] = known
            return known

    def put(self, place: tuple[LogDirectory, str], known: _Known[V]) -> None:
        with self._ours.lock:
            self._known.pop(place, None)
            self._known[place] = known
            while len(self._known) > _PLACES_MAX:
                del self._known[next(iter(self._known))]


class StampedFile(Generic[V]):
    """The values that small files in log directories are parsed to.

    Parameters
    ----------
    parse : callable
        Returns the value of the bytes of a file at a path, or raises; nobody may change the value.
    """

    def __init__(self, parse: Callable[[bytes, str], V]) -> None:
        self._parse = parse
        self._kept = _Kept[V]()

    def read(self, directory: LogDirectory, name: str) -> V | None:
        """Return the value of a file in a log directory as it is now; None if there is no such file.

        Raises
        ------
        SeglogError
            The file cannot be read or parsed; the next call tries again.
        """
        path, now_ns = directory.file(name), wall_clock_ns()
        stamp = directory.storage.stamp(path)
        known = self._kept.get((directory, name))
        if known is not None and known.stamp is not None and known.stamp == stamp:
            return known.value
        data = None if stamp is None else directory.storage.read_small(path)
        if data is None:
            return None
        value = known.value if known is not None and known.source == data else self._parse(data, path)
        self._put(directory, name, stamp, now_ns, data, value)
        return value

    def written(self, directory: LogDirectory, name: str, data: bytes, value: V) -> None:
        """Keep the value of bytes that the caller, who holds the directory's lock, has just written to a file."""
        self._put(directory, name, None, 0, data, value)

    def _put(self, directory: LogDirectory, name: str, stamp: Stamp | None, now_ns: int, data: bytes, value: V) -> None:
        proven = stamp if stamp is not None and is_settled(stamp, now_ns) else None
        self._kept.put((directory, name), _Known(proven, time.monotonic(), data, value))


class FolderNames:
    """The names in a log directory, and the folders of logs among them.

    Attributes
    ----------
    names : tuple of Name
        All names, sorted.
    files : tuple of str
        The names of all that is no folder.
    """

    def __init__(self, directory: LogDirectory, names: tuple[Name, ...]) -> None:
        self.names = names
        self.files = tuple(each.name for each in names if not each.is_folder)
        self._directory = directory
        self._topics: dict[str, dict[int, PartitionFolder]] | None = None

    @property
    def topics(self) -> Mapping[str, Mapping[int, PartitionFolder]]:
        """The folders of partitions by topic and number, ascending."""
        if self._topics is None:
            found: dict[str, dict[int, PartitionFolder]] = {}
            for each in self.names:
                at = parse_partition_folder(each.name) if each.is_folder else None
                if at is not None:
                    found.setdefault(at.topic, {})[at.partition] = PartitionFolder(self._directory, *at)
            self._topics = {topic: dict(sorted(folders.items())) for topic, folders in sorted(found.items())}
        return self._topics


_names = _Kept[FolderNames]()


def names_in(directory: LogDirectory, *, age_seconds: float = 0.0) -> FolderNames:
    """Return the names in a log directory; empty if there is no such directory.

    Parameters
    ----------
    age_seconds : float
        How old the list may be, although names have changed since: who finds something missing asks again without.
        So a directory that changes all the time is listed now and then, and not for each question.

    Raises
    ------
    StorageError
        The directory cannot be listed.
    """
    place, now_ns, now_seconds = (directory, ""), wall_clock_ns(), time.monotonic()
    known = _names.get(place)
    if known is not None and now_seconds - known.read_seconds < age_seconds:
        return known.value
    stamp = directory.storage.stamp(directory.path)
    if known is not None and known.stamp is not None and known.stamp == stamp:
        return known.value
    names = tuple(directory.storage.names(directory.path)) if directory.storage.is_folder(directory.path) else ()
    value = known.value if known is not None and known.source == names else FolderNames(directory, names)
    proven = stamp if stamp is not None and is_settled(stamp, now_ns) else None
    _names.put(place, _Known(proven, now_seconds, names, value))
    return value
