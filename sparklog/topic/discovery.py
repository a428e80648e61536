"""Which topic-partitions are at the paths that a user gives: to a read, to a write, and at the command line.

A path is one of three things, told apart by what is there and not by its name alone, since a log directory may well be
called ``kafka-logs-1``; `sparklog.log.folders` has the rules.

- a log directory;
- a partition's folder;
- a topic path: ``/logs/events`` where there is no such folder stands for ``/logs/events-0``, ``/logs/events-1``, ...

Folders that Kafka has set aside (``-delete``, ``-future``, ``-stray``), ``__cluster_metadata``,
``remote-log-index-cache`` and foreign names are passed over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NoReturn

from sparklog.errors import CommitError, InvalidOptionError, PathNotFoundError
from sparklog.log.files import TopicPartition, parse_partition_folder
from sparklog.log.folders import Folder, FolderKind, holds_segments, listed, look_at, what_it_is
from sparklog.log.journal import commit_version
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.properties import nearest
from sparklog.storage.base import Name, Storage
from sparklog.storage.registry import Location, locate

INTERNAL_PREFIX: Final = "__"
"""What the names of Kafka's own topics begin with; they are read when they are asked for by name."""

_LOOKS_MAX: Final = 10

_log = logging.getLogger("sparklog")


@dataclass(frozen=True, order=True)
class PartitionFolder:
    """A topic-partition and where it is.

    Attributes
    ----------
    folder : str
        Absolute.
    is_named : bool
        Whether the path that it was found at names its topic, and not merely a log directory.
    """

    topic: str
    partition: int
    folder: str
    is_named: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Discovery:
    """What was found at some paths: every topic-partition, sorted, Kafka's own included."""

    paths: tuple[str, ...]
    partitions: tuple[PartitionFolder, ...]

    @property
    def topics(self) -> list[str]:
        return sorted({found.topic for found in self.partitions})

    def all_topics(self) -> list[PartitionFolder]:
        """Return every partition but those of internal topics that no path names."""
        return [found for found in self.partitions if _is_open(found)]

    def named(self, topics: Collection[str]) -> list[PartitionFolder]:
        """Return the partitions of some topics.

        Raises
        ------
        PathNotFoundError
            A topic is not there.
        """
        for topic in topics:
            if topic not in self.topics:
                self._refuse(f"topic {topic!r}", topic, self.topics)
        return [found for found in self.partitions if found.topic in topics]

    def matching(self, pattern: re.Pattern[str]) -> list[PartitionFolder]:
        """Return the partitions of the topics whose whole name a pattern matches, internal ones left out.

        Raises
        ------
        PathNotFoundError
            There is no such topic.
        """
        matched = [found for found in self.all_topics() if pattern.fullmatch(found.topic)]
        if not matched:
            self._refuse(f"topic whose name matches {pattern.pattern!r}", pattern.pattern, self.topics)
        return matched

    def assigned(self, assignment: Mapping[str, Collection[int]]) -> list[PartitionFolder]:
        """Return the partitions that are named one by one.

        Raises
        ------
        PathNotFoundError
            One of them is not there.
        """
        by_name = {found.topic_partition: found for found in self.partitions}
        wanted = sorted({TopicPartition(topic, n) for topic, numbers in assignment.items() for n in numbers})
        for topic_partition in wanted:
            if topic_partition not in by_name:
                self._refuse(f"partition {topic_partition}", str(topic_partition), [str(each) for each in by_name])
        return [by_name[topic_partition] for topic_partition in wanted]

    def _refuse(self, what: str, name: str, there: Sequence[str]) -> NoReturn:
        raise PathNotFoundError(f"no {what} in {', '.join(self.paths)}; {_nearest(name, there)}")


def discover(paths: Sequence[str]) -> Discovery:
    """Find the topic-partitions at some paths.

    Parameters
    ----------
    paths : sequence of str
        Log directories, topic paths and partition folders, in any mix; relative ones are taken from where we run.

    Returns
    -------
    Discovery
        Also of a log directory that holds no topic yet.

    Raises
    ------
    PathNotFoundError
        There is nothing at a path, or no partition in it; the message says what is there.
    InvalidOptionError
        A topic-partition is in two places.
    StorageError
        A folder cannot be listed.
    """
    located = [locate(path) for path in paths]
    by_name: dict[TopicPartition, PartitionFolder] = {}
    for found in (folder for place in located for folder in _partitions_at(place)):
        other = by_name.setdefault(found.topic_partition, found)
        if other.folder != found.folder and not _is_same(other.folder, found.folder):
            raise InvalidOptionError(
                f"{found.topic_partition} is in two places, {other.folder} and {found.folder}: name one of them"
            )
        if found.is_named:
            by_name[found.topic_partition] = found
    return Discovery(tuple(place.path for place in located), tuple(sorted(by_name.values())))


def read_layouts(folders: Iterable[PartitionFolder]) -> dict[TopicPartition, tuple[PartitionFolder, PartitionLayout]]:
    """Read what logs hold now, all of them as they were at one time: of a commit over many of them, all or nothing.

    Raises
    ------
    CommitError
        Commits were made again and again while the logs were looked at.
    """
    found = list(folders)
    directories = {each.folder.rpartition("/")[0] for each in found}
    storage = {directory: locate(directory).storage for directory in directories}
    for _ in range(_LOOKS_MAX):
        marks = [commit_version(storage[directory], directory) for directory in sorted(directories)]
        layouts = {each.topic_partition: (each, read_layout(each.folder)) for each in found}
        if marks == [commit_version(storage[directory], directory) for directory in sorted(directories)]:
            return layouts
    raise CommitError("commits are made faster than the logs can be looked at; read them again")


class PathKind(Enum):
    """What a path means."""

    LOG_DIRECTORY = auto()
    TOPIC = auto()
    PARTITION = auto()
    OTHER = auto()
    """There is something, and it is none of these."""
    NOTHING = auto()


@dataclass(frozen=True)
class FoundPath:
    """What a path means, and the partitions that it stands for.

    Attributes
    ----------
    path : str
        Absolute.
    folder : Folder
        What there is at the path itself.
    partitions : tuple of PartitionFolder
        Of a log directory all of them, Kafka's own included.
    """

    kind: PathKind
    path: str
    folder: Folder
    partitions: tuple[PartitionFolder, ...] = ()

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0] or "/"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def interpret(storage: Storage, path: str) -> FoundPath:
    """Tell what a path means: the same to whoever reads, writes or looks.

    Parameters
    ----------
    path : str
        Absolute.

    Raises
    ------
    StorageError
        A folder cannot be listed.
    """
    folder = look_at(storage, path)
    place = FoundPath(PathKind.NOTHING if folder.kind is FolderKind.NOTHING else PathKind.OTHER, path, folder)
    if folder.kind is FolderKind.LOG_DIRECTORY:
        within = _partition_folders(path, folder.names)
        return replace(place, kind=PathKind.LOG_DIRECTORY, partitions=within)
    itself = parse_partition_folder(place.name)
    if folder.kind is FolderKind.PARTITION and itself is not None:
        return replace(place, kind=PathKind.PARTITION, partitions=(PartitionFolder(*itself, path, is_named=True),))
    beside = _partition_folders(place.parent, _names_in(storage, place.parent), is_named=True)
    of_topic = tuple(found for found in beside if found.topic == place.name)
    return replace(place, kind=PathKind.TOPIC, partitions=of_topic) if of_topic else place


def _partitions_at(located: Location) -> tuple[PartitionFolder, ...]:
    storage, path = located
    place = interpret(storage, path)
    if place.kind is PathKind.OTHER:
        raise PathNotFoundError(f"no topic partition at {path}: {what_it_is(storage, path)}")
    if place.kind is PathKind.NOTHING:
        beside = _names_in(storage, place.parent)
        if not beside:
            raise PathNotFoundError(f"no such path: {path}; there is nothing at {place.parent} either")
        nearest = _nearest(place.name, _names_beside(place.parent, beside, place.name))
        raise PathNotFoundError(f"no such path: {path}; {nearest}")
    if place.kind is PathKind.LOG_DIRECTORY and holds_segments(place.folder.names):
        _log.warning("%s is a log directory, and holds segments itself: they are nobody's, and not read", path)
    return place.partitions


def _names_in(storage: Storage, folder: str) -> list[Name]:
    return storage.names(folder) if storage.is_folder(folder) else []


def _is_same(folder: str, other: str) -> bool:
    """Tell whether two paths are of one folder."""
    return locate(folder).storage.identity(folder) == locate(other).storage.identity(other)


def _names_beside(parent: str, beside: list[Name], name: str) -> list[str]:
    """List what may have been meant by a name: other partitions of its topic, else topics and other names."""
    folders = _partition_folders(parent, beside)
    meant = parse_partition_folder(name)
    partitions = [str(each.topic_partition) for each in folders if meant and each.topic == meant.topic]
    others = {entry.name for entry in beside} - {str(each.topic_partition) for each in folders}
    return partitions or sorted({each.topic for each in folders} | others)


def _partition_folders(folder: str, names: Iterable[Name], *, is_named: bool = False) -> tuple[PartitionFolder, ...]:
    within = folder.rstrip("/")
    named = [(parse_partition_folder(each.name), each.name) for each in names if each.is_folder]
    return tuple(PartitionFolder(*found, f"{within}/{name}", is_named) for found, name in named if found is not None)


def _is_open(found: PartitionFolder) -> bool:
    return found.is_named or not found.topic.startswith(INTERNAL_PREFIX)


def _nearest(name: str, there: Sequence[str]) -> str:
    if not there:
        return "there is none"
    close = nearest(name, there, most=3, cutoff=0.6)
    if close:
        return f"nearest is {' or '.join(close)}" + (f", of {len(there)}" if len(there) > len(close) else "")
    return f"there is {listed(there)}"
