"""Keeps values that were read from a log directory until their file or folder changes.

A directory of tens of thousands of logs has a few files about all of them: offset checkpoints, ``topics.properties``,
the offsets of groups, the log of the cluster's metadata; and the list of their folders. To read and parse all of it
where one entry is wanted makes work over all logs quadratic. Here each is read once for a process, and again when its
stamp is another.

A stamp proves that nothing has changed only if it is old: a second change within one tick of the file system's clock
may leave the same stamp. A file whose stamp is young is read again, and its value is made again only if its bytes
are others. So a value is never older than its file.

Threads share the values, which nobody changes. A forked process begins without any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from sparklog.errors import CorruptLogError, PathNotFoundError
from sparklog.log.clock import wall_clock_ns
from sparklog.log.files import LOG
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.base import Name, Stamp, Storage
from sparklog.storage.process import ProcessState

_PLACES_MAX: Final = 64
"""How many values are kept for each kind of file, the last used ones."""
_SETTLED_AFTER_NS: Final = 2_000_000_000

K = TypeVar("K")
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
    stamp : Stamp, tuple of Stamp or None
        The stamp before the value was read; None if a change might not have changed it.
    read_seconds : float
        When the value was read, by the monotonic clock.
    source : object
        The bytes or names that the value was made of; the paths that have the stamps, for a log.
    """

    stamp: Stamp | tuple[Stamp | None, ...] | None
    read_seconds: float
    source: Any
    value: V


class LastUsed(Generic[K, V]):
    """Values of this process by place, the last used ones; a forked process begins without any.

    Parameters
    ----------
    most : int
        How much is kept.
    weigh : callable
        Returns how much a value counts; by default each counts as one.
    """

    def __init__(self, most: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._known: dict[K, V] = {}
        self._most, self._weigh = most, weigh
        self._ours = ProcessState(threading.Lock, self._known)  # Its number is the weight of all values.

    def get(self, place: K) -> V | None:
        with self._ours.lock:
            known = self._known.pop(place, None)
            if known is not None:
                self._known[place] = known
            return known

    def put(self, place: K, known: V) -> None:
        with self._ours.lock:
            if place in self._known:
                self._drop(place)
            self._known[place] = known
            self._ours.number += self._weigh(known)
            while self._ours.number > self._most:
                self._drop(next(iter(self._known)))

    def _drop(self, place: K) -> None:
        self._ours.number -= self._weigh(self._known.pop(place))


class StampedFile(Generic[V]):
    """The values that small files in log directories are parsed to.

    Parameters
    ----------
    parse : callable
        Returns the value of the bytes of a file at a path, or raises; nobody may change the value.
    """

    def __init__(self, parse: Callable[[bytes, str], V]) -> None:
        self._parse = parse
        self._kept = LastUsed[tuple[LogDirectory, str], _Known[V]](_PLACES_MAX)

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


class LinesRead(Protocol):
    """A value that the lines of a growing file have led to.

    Attributes
    ----------
    end_position : int
        The end of the lines.
    ending : bytes
        Their last bytes, which a file with other lines does not have there; empty if there are no lines.
    """

    @property
    def end_position(self) -> int: ...

    @property
    def ending(self) -> bytes: ...


_L = TypeVar("_L", bound=LinesRead)


class StampedLines(Generic[_L]):
    """The values that growing files in log directories lead to: only lines that are new are read.

    Parameters
    ----------
    add : callable
        Takes a value, the bytes from its end on, and the path; returns the value with the lines there, the same value
        if there are none. Nobody may change a value.
    """

    def __init__(self, add: Callable[[_L, bytes, str], _L]) -> None:
        self._add = add
        self._kept = LastUsed[tuple[LogDirectory, str], _Known[_L]](_PLACES_MAX)

    def read(self, directory: LogDirectory, name: str, first: _L) -> _L:
        """Return the value that a file leads to as it is now.

        Parameters
        ----------
        first
            The value before the first line, and if there is no such file. Only values that begin with the same object
            are continued.

        Raises
        ------
        SeglogError
            The file cannot be read, or a line is damaged; the next call tries again.
        """
        path = directory.file(name)
        while True:
            now_ns, stamp = wall_clock_ns(), directory.storage.stamp(path)
            known = self._kept.get((directory, name))
            value = known.value if known is not None and known.source is first else first
            if known is not None and value is known.value and known.stamp is not None and known.stamp == stamp:
                return value
            try:
                value = self._continued(directory, path, value, first)
            except PathNotFoundError:
                return first
            except CorruptLogError:
                # A writer may have cut the file and written on while it was read.
                if directory.storage.stamp(path) == stamp:
                    raise
                continue
            proven = stamp if stamp is not None and is_settled(stamp, now_ns) else None
            self._kept.put((directory, name), _Known(proven, time.monotonic(), first, value))
            return value

    def _continued(self, directory: LogDirectory, path: str, value: _L, first: _L) -> _L:
        with directory.storage.open(path) as file:
            size_bytes, start = file.size_bytes(), value.end_position - len(value.ending)
            data = bytes(file.read(start, max(size_bytes - start, 0)))
            if not data.startswith(value.ending):
                value, data = first, bytes(file.read(0, size_bytes))
        return self._add(value, data[len(value.ending) :], path)


class FolderNames:
    """The names in a log directory, and the folders of logs among them.

    Attributes
    ----------
    names : tuple of Name
        All names, sorted.
    files : tuple of str
        The names of all that is no folder.
    """

    def __init__(self, directory: LogDirectory, names: tuple[Name, ...], before: FolderNames | None = None) -> None:
        self.names = names
        self.files = tuple(each.name for each in names if not each.is_folder)
        self._directory = directory
        # An earlier list knows most of the names: taking a folder from it is cheaper than parsing its name again.
        self._folders: Mapping[str, PartitionFolder] = {} if before is None else before._folders
        self._parsed: tuple[dict[str, dict[int, PartitionFolder]], tuple[str, ...]] | None = None

    @property
    def topics(self) -> Mapping[str, Mapping[int, PartitionFolder]]:
        """The folders of partitions by topic and number, ascending."""
        return self._parse()[0]

    @property
    def others(self) -> tuple[str, ...]:
        """The names of all other folders."""
        return self._parse()[1]

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return sum(map(len, self.topics.values()))

    def _parse(self) -> tuple[dict[str, dict[int, PartitionFolder]], tuple[str, ...]]:
        if self._parsed is None:
            known, names = self._folders, [each.name for each in self.names if each.is_folder]
            self._folders = {name: known.get(name) or self._directory.folder(name) for name in names}
            found: dict[str, dict[int, PartitionFolder]] = {}
            others = []
            for name, folder in self._folders.items():
                if folder.partition is None:
                    others.append(name)
                else:
                    found.setdefault(folder.topic, {})[folder.partition] = folder
            topics = {topic: dict(sorted(folders.items())) for topic, folders in sorted(found.items())}
            self._parsed = topics, tuple(others)
        return self._parsed


_names: LastUsed[tuple[LogDirectory, str], _Known[FolderNames]] = LastUsed(_PLACES_MAX)


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
    before = None if known is None else known.value
    value = before if before is not None and before.names == names else FolderNames(directory, names, before)
    proven = stamp if stamp is not None and is_settled(stamp, now_ns) else None
    _names.put(place, _Known(proven, now_seconds, names, value))
    return value


class StampedLog(Generic[V]):
    """The values that logs are read to. A change is seen by the stamps of the log's folder and of its last segment.

    Parameters
    ----------
    read : callable
        Returns the value of the log in a folder, or raises; nobody may change the value.
    """

    def __init__(self, read: Callable[[PartitionFolder], V]) -> None:
        self._read = read
        self._kept = LastUsed[tuple[LogDirectory, str], _Known[V]](_PLACES_MAX)

    def read(self, folder: PartitionFolder) -> V | None:
        """Return the value of a log as it is now; None if there is no such folder.

        Raises
        ------
        SeglogError
            The log cannot be read; the next call tries again.
        """
        storage, place, now_ns = folder.storage, (folder.directory, folder.name), wall_clock_ns()
        known = self._kept.get(place)
        if known is not None and known.stamp is not None and known.stamp == _stamps(storage, known.source):
            return known.value
        if not storage.is_folder(folder.location):
            return None
        before = storage.stamp(folder.location)
        last = [folder.file(each.name) for each in storage.names(folder.location) if each.name.endswith(LOG)][-1:]
        stamps = (before, *_stamps(storage, last))
        value = self._read(folder)
        proven = stamps if all(each is not None and is_settled(each, now_ns) for each in stamps) else None
        self._kept.put(place, _Known(proven, time.monotonic(), [folder.location, *last], value))
        return value


def _stamps(storage: Storage, paths: Iterable[str]) -> tuple[Stamp | None, ...]:
    return tuple(map(storage.stamp, paths))
