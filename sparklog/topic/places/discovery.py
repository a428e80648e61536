"""Finds the topic-partitions at the paths that users give to reads, to writes, and at the command line.

A path is one of three things. They are told apart by their contents and not by the name alone, since a log directory
may well be called ``kafka-logs-1``; `sparklog.log.folders` has the rules.

- a log directory;
- a partition's folder;
- a topic path: if no folder ``/logs/events`` exists, it stands for ``/logs/events-0``, ``/logs/events-1``, ...

A path that is both a partition's folder and a topic's path (``/logs/a-0`` beside ``/logs/a-0-0``) is refused.

A pattern stands for the log directories, partitions and topics that match it; `sparklog.storage.registry` reads the
text of paths and patterns. Folders that Kafka has set aside (``-delete``, ``-future``, ``-stray``),
``__cluster_metadata``, ``remote-log-index-cache`` and foreign names are ignored; a warning names folders that look like
a partition and have a number that no partition can have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property, lru_cache
from typing import Final

from sparklog.errors import InvalidOptionError, PathNotFoundError, StorageError, nearest
from sparklog.log import layout
from sparklog.log.damage_rows import OnDamage
from sparklog.log.files import PARTITION_MAX, TopicPartition, parse_partition_folder, topic_of_passed_over
from sparklog.log.folders import Folder, FolderKind, holds_segments, listed, look_at, what_it_is
from sparklog.log.kept_by_stamp import names_in
from sparklog.log.layout import PartitionLayout
from sparklog.log.places import LogDirectory, PartitionFolder, ReplicatedFolder, split_path
from sparklog.storage.base import Name, Storage
from sparklog.storage.looks import another_look
from sparklog.storage.registry import Location, PathText, expand, expand_one, is_pattern, locate, paths_of
from sparklog.topic.selection import PartitionSelection, ReplicaOptions, Selection

INTERNAL_PREFIX: Final = "__"
"""Prefix of Kafka's internal topics, which are read only when named."""

_FINDINGS_MAX: Final = 10

_log = logging.getLogger("sparklog")


@dataclass(frozen=True)
class Discovery:
    """The topic-partitions found at some paths.

    Attributes
    ----------
    partitions : tuple of PartitionFolder
        Every topic-partition, sorted, internal topics included.
    named_by_path : frozenset of PartitionFolder
        The partitions whose topic a path names, instead of only their log directory.
    """

    paths: tuple[str, ...]
    partitions: tuple[PartitionFolder, ...]
    named_by_path: frozenset[PartitionFolder] = frozenset()

    @cached_property
    def topics(self) -> list[str]:
        return sorted({found.topic for found in self.partitions})

    def select(
        self, selection: PartitionSelection | None = None, *, may_come_later: bool = False
    ) -> list[PartitionFolder]:
        """Return the selected partitions; by default all, except internal topics that no path names.

        Only this function interprets selections of topics, patterns and partitions.

        Parameters
        ----------
        may_come_later : bool
            Whether missing topics and partitions are left out instead of raising.

        Raises
        ------
        PathNotFoundError
            A topic or a partition does not exist, or the pattern matches no topic.
        """
        selection = selection or Selection()
        partitions, topics, pattern = set(selection.partitions), set(selection.topics), selection.topic_pattern
        if partitions:
            found = [each for each in self.partitions if named(each) in partitions]
            missing = [("partition", str(at)) for at in sorted(partitions - {named(each) for each in found})]
        elif topics:
            found = [each for each in self.partitions if each.topic in topics]
            missing = [("topic", name) for name in selection.topics if name not in self.topics]
        else:
            found = [each for each in self.partitions if self._is_of_user(each)]
            found = [each for each in found if pattern is None or pattern.fullmatch(each.topic)]
            missing = [("topic whose name matches", pattern.pattern)] if pattern is not None and not found else []
        for what, name in () if may_come_later else missing:
            there = [str(named(each)) for each in self.partitions] if what == "partition" else self.topics
            shown = name if what == "partition" else repr(name)
            raise PathNotFoundError(f"no {what} {shown} in {', '.join(self.paths)}; {_nearest(name, there)}")
        return found

    def _is_of_user(self, found: PartitionFolder) -> bool:
        """Return whether the partition is of no internal topic, or of one that a path names."""
        return not found.topic.startswith(INTERNAL_PREFIX) or found in self.named_by_path


def place_at(path: PathText, argument: str = "path") -> Location:
    """Return the one place that a path or a pattern stands for; for errors see `locate` and `expand_one`."""
    return expand_one(locate(path, argument), argument)


def places_at(paths: PathText | Sequence[PathText], argument: str = "path") -> tuple[Location, ...]:
    """Return the places of one or several paths, patterns unexpanded; for errors see `locate`."""
    return tuple(locate(path, argument) for path in paths_of(paths))


def discover(paths: Sequence[PathText], options: ReplicaOptions | None = None) -> Discovery:
    """Find the topic-partitions at some paths.

    Parameters
    ----------
    paths : sequence of str or Path
        Log directories, topic paths, partition folders and patterns, in any mix; relative ones start at the working
        directory.

    Returns
    -------
    Discovery
        It is empty for a log directory that holds no topic yet.

    Raises
    ------
    PathNotFoundError
        A path does not exist or holds no partition (the message says what it holds), or nothing matches a pattern.
    InvalidOptionError
        A topic-partition is in two places, and replicas are not merged.
    StorageError
        A folder cannot be listed.
    """
    located = places_at(paths)
    options = options or ReplicaOptions()
    by_name: dict[TopicPartition, list[PartitionFolder]] = {}
    by_path: set[TopicPartition] = set()
    for found in (place for location in located for place in _found_at(location)):
        for folder in found.partitions:
            others = by_name.setdefault(named(folder), [])
            if not any(other == folder or is_same(other, folder) for other in others):
                others.append(folder)
            if len(others) > 1 and not options.merges_replicas:
                raise InvalidOptionError(
                    f"{folder.name} is in two places, {others[0].location} and {folder.location}: name one of them; "
                    f"or, if they are replicas of one partition, set replicas to merge"
                )
            if found.is_topic_named:
                by_path.add(named(folder))
    folders = {at: _as_one(by_name[at], options) for at in sorted(by_name)}
    return Discovery(
        tuple(location.path for location in located),
        tuple(folders.values()),
        frozenset(folder for at, folder in folders.items() if at in by_path),
    )


def _as_one(folders: Sequence[PartitionFolder], options: ReplicaOptions) -> PartitionFolder:
    first = folders[0]
    if not options.merges_replicas:
        return first
    return ReplicatedFolder(first.directory, first.topic, first.partition, tuple(folders), options.replicas_min)


def log_directories(paths: Iterable[PathText]) -> list[LogDirectory]:
    """Return the log directories among some paths and the matches of patterns."""
    located = [each for location in places_at(list(paths)) for each in expand(location)]
    return [LogDirectory(*each) for each in located if look_at(*each).kind is FolderKind.LOG_DIRECTORY]


def layouts_by_partition(
    folders: Iterable[PartitionFolder], on_damage: OnDamage = "fail"
) -> dict[TopicPartition, PartitionLayout]:
    """Read the layouts of partitions, all as of one moment; see `sparklog.log.layout.read_layouts`."""
    found = list(folders)
    layouts = layout.read_layouts(found, on_damage)
    return {named(folder): of_folder for folder, of_folder in zip(found, layouts, strict=True)}


def read_found(
    find: Callable[[], Sequence[PartitionFolder]], on_damage: OnDamage = "fail"
) -> dict[TopicPartition, PartitionLayout]:
    """Find partitions, and read their layouts as `layouts_by_partition` does.

    Partitions are listed again after their layouts are read, because a commit may have created some in between, and all
    or none of its records must be read. If a broker keeps creating topics, the listing ends after a few rounds.
    """
    folders = find()
    for _ in range(_FINDINGS_MAX):
        layouts, before = layouts_by_partition(folders, on_damage), folders
        with another_look():
            folders = find()
        if folders == before:
            break
    return layouts


class PathKind(Enum):
    """The meaning of a path."""

    LOG_DIRECTORY = auto()
    TOPIC = auto()
    PARTITION = auto()
    OTHER = auto()
    """Something else exists at the path."""
    NOTHING = auto()


@dataclass(frozen=True)
class FoundPath:
    """The meaning of a path, and the partitions that it stands for.

    Attributes
    ----------
    path : str
        The absolute path.
    folder : Folder
        The folder at the path itself, if there is one.
    partitions : tuple of PartitionFolder
        The partitions; for a log directory all, internal topics included.
    """

    kind: PathKind
    storage: Storage
    path: str
    folder: Folder
    partitions: tuple[PartitionFolder, ...] = ()

    @property
    def parent(self) -> LogDirectory:
        return LogDirectory(self.storage, split_path(self.path)[0])

    @property
    def name(self) -> str:
        return split_path(self.path)[1]

    @property
    def is_topic_named(self) -> bool:
        """Whether the path names one topic, instead of only its log directory."""
        return self.kind in (PathKind.TOPIC, PathKind.PARTITION)


def interpret(location: Location, *, is_matched: bool = False) -> FoundPath:
    """Interpret a path, in the same way for reads, writes and inspections.

    Parameters
    ----------
    location : Location
        A path that is no pattern.
    is_matched : bool
        Whether a pattern matched the path's name, so that it means the folder of that name.

    Raises
    ------
    InvalidOptionError
        The path means two things, or the folders that would be a topic's partitions are log directories.
    StorageError
        A folder cannot be listed.
    """
    place = _at(location)
    if place.kind is PathKind.LOG_DIRECTORY or (is_matched and place.kind is PathKind.PARTITION):
        return place
    beside = _partition_folders(place.parent, _names_in(place.parent), topic=place.name)
    if place.kind is PathKind.PARTITION:
        if beside:
            raise InvalidOptionError(
                f"{place.path} is the folder of {place.partitions[0].name}, and the path of topic {place.name!r}, of "
                f"which there is {beside[0].location}: name the log directory, and choose there; to read the folder, "
                f"write {place.path[:-1]}[{place.path[-1]}]"
            )
        return place
    if beside and _is_log_directory(beside[0]):
        raise InvalidOptionError(f"{place.path} is no topic's path: {beside[0].location} is a log directory; name it")
    return replace(place, kind=PathKind.TOPIC, partitions=beside) if beside else place


def _is_log_directory(folder: PartitionFolder) -> bool:
    """Return whether a folder with a partition's name is a log directory; False if it cannot be read."""
    try:
        return look_at(folder.storage, folder.location).kind is FolderKind.LOG_DIRECTORY
    except StorageError:
        return False


def _at(location: Location) -> FoundPath:
    """Interpret a path by the folder there, without looking beside it."""
    storage, path = location
    folder = look_at(storage, path)
    kind = PathKind.NOTHING if folder.kind is FolderKind.NOTHING else PathKind.OTHER
    place = FoundPath(kind, storage, path, folder)
    if folder.kind is FolderKind.LOG_DIRECTORY:
        within = _partition_folders(LogDirectory(storage, path), folder.names)
        return replace(place, kind=PathKind.LOG_DIRECTORY, partitions=within)
    itself = place.parent.folder(place.name)
    if folder.kind is FolderKind.PARTITION and itself.partition is not None:
        return replace(place, kind=PathKind.PARTITION, partitions=(itself,))
    return place


def _found_at(location: Location) -> list[FoundPath]:
    """Interpret a path or the matches of a pattern, without matches that hold no partition."""
    if not is_pattern(location):
        return [_refuse_unreadable(interpret(location))]
    _, last = split_path(location.path)
    matched = [interpret(each, is_matched=split_path(each.path)[1] != last) for each in expand(location)]
    found = [place for place in matched if place.kind not in (PathKind.OTHER, PathKind.NOTHING)]
    if not found:
        raise PathNotFoundError(
            f"{location.path} matches {listed([place.path for place in matched])}, and none of that is a log "
            f"directory, a topic's path, or the folder of a partition"
        )
    is_named = last.startswith(INTERNAL_PREFIX)
    return [place for place in found if is_named or not _is_internal(place)]


def _is_internal(place: FoundPath) -> bool:
    """Return whether a path is of an internal topic; a pattern matches these only if it begins with ``__``."""
    return place.is_topic_named and place.partitions[0].topic.startswith(INTERNAL_PREFIX)


def _refuse_unreadable(place: FoundPath) -> FoundPath:
    storage, path = place.storage, place.path
    if place.kind is PathKind.OTHER:
        raise PathNotFoundError(f"no topic partition at {path}: {what_it_is(storage, path)}")
    if place.kind is PathKind.NOTHING:
        beside = _names_in(place.parent)
        if not beside:
            raise PathNotFoundError(f"no such path: {path}; there is nothing at {place.parent.path} either")
        nearest = _nearest(place.name, _names_beside(place.parent, beside, place.name))
        raise PathNotFoundError(f"no such path: {path}; {nearest}")
    if place.kind is PathKind.LOG_DIRECTORY and holds_segments(place.folder.names):
        _log.warning("%s is a log directory, and holds segments itself: they are of no partition, and not read", path)
    return place


def _names_in(directory: LogDirectory) -> list[Name]:
    storage, path = directory.storage, directory.path
    return storage.names(path) if storage.is_folder(path) else []


def is_same(folder: PartitionFolder, other: PartitionFolder) -> bool:
    """Return whether two places are the same folder."""
    return folder.storage.identity(folder.location) == other.storage.identity(other.location)


def _names_beside(parent: LogDirectory, beside: list[Name], name: str) -> list[str]:
    """List the names that a user may have meant: other partitions of the topic, else topics and other names."""
    folders = [parent.folder(each.name) for each in beside if each.is_folder and parse_partition_folder(each.name)]
    meant = parse_partition_folder(name)
    partitions = [each.name for each in folders if meant and each.topic == meant.topic]
    others = {entry.name for entry in beside if entry.is_folder} - {each.name for each in folders}
    return partitions or sorted({each.topic for each in folders} | others)


def _partition_folders(
    directory: LogDirectory, names: Iterable[Name], topic: str | None = None
) -> tuple[PartitionFolder, ...]:
    """Return the partition folders among the names in a log directory, of all topics or of one."""
    found: list[PartitionFolder] = []
    for each in names:
        at = parse_partition_folder(each.name) if each.is_folder else None
        if at is not None and topic in (None, at.topic):
            found.append(PartitionFolder(directory, *at))
        elif at is None and each.is_folder and topic in (None, topic_of_passed_over(each.name)):
            _warn_of_number(directory, each.name)
    return tuple(found)


def partitions_in(directory: LogDirectory, topic: str) -> tuple[PartitionFolder, ...]:
    """Return the partitions of a topic in a log directory; empty if it has none."""
    names = names_in(directory)
    for name in names.others:
        if topic_of_passed_over(name) == topic:
            _warn_of_number(directory, name)
    return tuple(names.topics.get(topic, {}).values())


@lru_cache(maxsize=1024)
def _warn_of_number(directory: LogDirectory, name: str) -> None:
    """Warn once that a folder with a partition's name, except for an invalid number, is ignored."""
    if topic_of_passed_over(name) is not None:
        _log.warning(
            "%s is passed over: the number of a partition is at most %d, without leading zeros",
            directory.file(name),
            PARTITION_MAX,
        )


def named(folder: PartitionFolder) -> TopicPartition:
    """Return the topic-partition of a folder that discovery found."""
    if folder.topic_partition is None:
        raise AssertionError(f"a folder that discovery has found, and not {folder.location}")
    return folder.topic_partition


def _nearest(name: str, there: Sequence[str]) -> str:
    if not there:
        return "there is none"
    close = nearest(name, there, most=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(each) for each in close)}?"
    return f"there is {listed(there)}"
