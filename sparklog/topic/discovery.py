"""Which topic-partitions are at the paths that a user gives.

A path is one of three things, told apart by what is there and not by its name alone, since a log directory may well be
called ``kafka-logs-1``:

- a log directory: it holds partition folders, ``<topic>-<n>``, or the checkpoints that a broker keeps beside them;
- a partition's folder;
- a topic path: ``/logs/events`` where there is no such folder stands for ``/logs/events-0``, ``/logs/events-1``, ...

Folders that Kafka has set aside (``-delete``, ``-future``, ``-stray``), ``__cluster_metadata``,
``remote-log-index-cache`` and foreign names are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NoReturn

from sparklog.errors import CommitError, InvalidOptionError, PathNotFoundError
from sparklog.log import files
from sparklog.log.files import TopicPartition, parse_offset_file, parse_partition_folder
from sparklog.log.journal import commit_mark
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.storage.base import Entry, Located, locate

INTERNAL_PREFIX: Final = "__"
"""What the names of Kafka's own topics begin with; they are read when they are asked for by name."""

_BROKER_FILES: Final = frozenset(
    {
        files.LOG_START_CHECKPOINT,
        files.RECOVERY_POINT_CHECKPOINT,
        files.HIGH_WATERMARK_CHECKPOINT,
        files.CLEANER_CHECKPOINT,
        "meta.properties",
    }
)
_NAMES_SHOWN_MAX: Final = 8
_LOOKS_MAX: Final = 10


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
        if other.folder != found.folder:
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
        marks = [commit_mark(storage[directory], directory) for directory in sorted(directories)]
        layouts = {each.topic_partition: (each, read_layout(each.folder)) for each in found}
        if marks == [commit_mark(storage[directory], directory) for directory in sorted(directories)]:
            return layouts
    raise CommitError("commits are made faster than the logs can be looked at; read them again")


def _partitions_at(place: Located) -> list[PartitionFolder]:
    parent, _, name = place.path.rpartition("/")
    if place.storage.is_folder(place.path):
        entries = place.storage.entries(place.path)
        within = _partition_folders(place.path, entries)
        if within or any(entry.name in _BROKER_FILES for entry in entries):
            return within
        itself = parse_partition_folder(name)
        if itself is not None:
            return [PartitionFolder(*itself, place.path, is_named=True)]
    else:
        entries = []
    beside = place.storage.entries(parent or "/") if place.storage.is_folder(parent or "/") else []
    of_topic = [found for found in _partition_folders(parent, beside, is_named=True) if found.topic == name]
    if of_topic:
        return of_topic
    if any(entry.name == name for entry in beside):
        raise PathNotFoundError(f"no topic partition at {place.path}: {_what_it_is(place, entries)}")
    if not beside:
        raise PathNotFoundError(f"no such path: {place.path}; there is nothing at {parent or '/'} either")
    raise PathNotFoundError(f"no such path: {place.path}; {_nearest(name, _names_beside(parent, beside, name))}")


def _names_beside(parent: str, beside: list[Entry], name: str) -> list[str]:
    """List what may have been meant by a name: other partitions of its topic, else topics and other names."""
    folders = _partition_folders(parent, beside)
    meant = parse_partition_folder(name)
    partitions = [str(each.topic_partition) for each in folders if meant and each.topic == meant.topic]
    others = {entry.name for entry in beside} - {str(each.topic_partition) for each in folders}
    return partitions or sorted({each.topic for each in folders} | others)


def _partition_folders(folder: str, entries: Iterable[Entry], *, is_named: bool = False) -> list[PartitionFolder]:
    named = [(parse_partition_folder(entry.name), entry.name) for entry in entries if entry.is_folder]
    return [PartitionFolder(*found, f"{folder}/{name}", is_named) for found, name in named if found is not None]


def _is_open(found: PartitionFolder) -> bool:
    return found.is_named or not found.topic.startswith(INTERNAL_PREFIX)


def _what_it_is(place: Located, entries: list[Entry]) -> str:
    """Say why a path that is there is not one to read."""
    name = place.path.rpartition("/")[2]
    if not place.storage.is_folder(place.path):
        return "it is a file, and what is read are folders: a log directory, <topic>-<partition>, or a topic's path"
    if files.METADATA_TOPIC in name:
        return "it is the metadata log of the cluster, which holds no topic's records"
    if any((parsed := parse_offset_file(entry.name)) and parsed.suffix == files.LOG for entry in entries):
        return (
            "it holds segments, but a folder's name must be <topic>-<partition>, with a partition of at most "
            f"{files.PARTITION_MAX}, and not one that Kafka set aside (-delete, -future, -stray): copy or rename it"
        )
    if not entries:
        return "it is empty"
    return f"it holds {_listed([entry.name for entry in entries])}"


def _nearest(name: str, there: Sequence[str]) -> str:
    if not there:
        return "there is none"
    close = get_close_matches(name, there, n=3, cutoff=0.6)
    if close:
        return f"nearest is {' or '.join(close)}" + (f", of {len(there)}" if len(there) > len(close) else "")
    return f"there is {_listed(there)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return shown if len(names) <= _NAMES_SHOWN_MAX else f"{shown} and {len(names) - _NAMES_SHOWN_MAX} more"
