"""Finds the target of a write: the log directory, its topics, and how many partitions each has.

A path means the same as in a read, and may also name a new log directory, or a new topic in an existing one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import InvalidOptionError, PathNotFoundError, did_you_mean
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import (
    REMOTE_INDEX_CACHE,
    TopicPartition,
    checked_partition,
    checked_topic,
    parse_partition_folder,
)
from sparklog.log.folders import FolderKind, is_proven_directory, refuse_within_partition, what_it_is
from sparklog.log.layout import while_current
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import Location
from sparklog.topic.places.discovery import FoundPath, PathKind, interpret
from sparklog.topic.write.configs import stored_configs
from sparklog.write.locking import refuse_link

_NOT_FOREIGN: Final = frozenset({REMOTE_INDEX_CACHE})


@dataclass(frozen=True)
class WriteTarget:
    """The target of a write: a log directory, and the topics and partitions in it.

    Attributes
    ----------
    directory : LogDirectory
        The log directory, which need not exist yet.
    topic : str or None
        The only topic; None if each row names its own.
    partition : int or None
        The only partition, if the path is of one.
    there : mapping of str to tuple of int
        The partitions of the existing topics.
    new_partitions : int or None
        How many partitions a new topic gets.
    stored : mapping of str to mapping of str to str
        The stored properties of topics; see `sparklog.topic.write.configs.stored_configs`.
    """

    directory: LogDirectory
    topic: str | None
    partition: int | None
    there: Mapping[str, tuple[int, ...]]
    new_partitions: int | None
    stored: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has, or will have.

        Raises
        ------
        InvalidOptionError
            The name is not valid, the directory lacks some of the topic's partitions or has another number of them than
            ``new_partitions``, or the topic does not exist and ``new_partitions`` is None.
        """
        checked_topic(topic)
        numbers = self.there.get(topic)
        if numbers is None:
            if self.new_partitions is None:
                raise InvalidOptionError(f"no topic {topic!r} in {self.directory.path}; {self._instead(topic)}")
            checked_partition(topic, self.new_partitions - 1)
            return self.new_partitions
        if numbers != tuple(range(len(numbers))):
            raise InvalidOptionError(
                f"{self.directory.path} has partitions {', '.join(map(str, numbers))} of {topic}, and so not all of "
                f"them: write to a directory that has, or to the folder of one partition"
            )
        if self.new_partitions not in (None, len(numbers)):
            raise InvalidOptionError(
                f"numPartitions is {self.new_partitions}, and {topic} in {self.directory.path} has {len(numbers)} "
                f"partitions: a write does not change that"
            )
        return len(numbers)

    def is_new(self, topic: str) -> bool:
        return topic not in self.there

    def new_topics(self, folders: Collection[str]) -> dict[str, int]:
        """Return the topics that a write creates, and how many partitions each gets.

        Parameters
        ----------
        folders : collection of str
            The folders of partitions that get rows. The only topic of the target is created even without any.
        """
        if self.partition is not None:
            return {}
        topics = {self.directory.folder(name).topic for name in folders}
        if self.topic is not None:
            topics.add(self.topic)
        return {topic: self.partitions_of(topic) for topic in sorted(topics) if self.is_new(topic)}

    def _instead(self, topic: str) -> str:
        hint = did_you_mean(topic, list(self.there), "", cutoff=0.6)
        return f"{hint} Or set numPartitions to make it" if hint else "set numPartitions to make it"


def find_target(
    location: Location, topic: str | None, new_partitions: int | None, *, has_topic_column: bool
) -> WriteTarget:
    """Find the target of a write to a path.

    Parameters
    ----------
    location : Location
        A log directory, a topic's path, or a partition's folder.
    topic : str or None
        The topic of the option, which overrides the column.
    new_partitions : int or None
        How many partitions a new topic gets.
    has_topic_column : bool
        Whether rows name their topics.

    Raises
    ------
    InvalidOptionError
        No topic is given, or two different ones; the storage cannot be written to; or an error of
        `WriteTarget.partitions_of`.
    PathNotFoundError
        The path is not a log directory.
    """
    to_writable(*location)
    directory, of_path = _directory_of(location, topic, is_topic_said=topic is not None or has_topic_column)
    if of_path is not None and topic not in (None, of_path.topic):
        raise InvalidOptionError(f"the path is of topic {of_path.topic!r}, and the option topic says {topic!r}")
    chosen = of_path.topic if of_path is not None else topic
    if chosen is None and not has_topic_column:
        raise InvalidOptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    only = of_path.partition if of_path is not None and of_path.partition >= 0 else None
    target = WriteTarget(directory, chosen, only, topics_of(directory), new_partitions, stored_configs(directory))
    if chosen is not None:
        for number in target.there.get(chosen, ()) if only is None else (only,):
            refuse_link(PartitionFolder(directory, chosen, number))
    if chosen is not None and only is None:
        target.partitions_of(chosen)
    return target


_ALL_PARTITIONS: Final = -1


def _directory_of(
    location: Location, topic: str | None, *, is_topic_said: bool
) -> tuple[LogDirectory, TopicPartition | None]:
    """Return the log directory of a path, with the topic and the partition that the path names, if any.

    An empty folder with a partition's name, in a directory without proof that it is a log directory, is a new log
    directory if another topic is given: a broker's disk may be called ``kafka-logs-1``.
    """
    place = interpret(location)
    if place.kind is PathKind.PARTITION:
        folder = place.partitions[0]
        if is_topic_said and topic != folder.topic and not is_proven_directory(folder.directory):
            return LogDirectory(*location), None
        directory, of_path = folder.directory, folder.topic_partition
    elif place.kind is PathKind.TOPIC or (place.kind is PathKind.NOTHING and not is_topic_said):
        directory, of_path = place.parent, TopicPartition(place.name, _ALL_PARTITIONS)
    else:
        _refuse_other(place)
        return LogDirectory(*location), None
    if directory.storage.is_folder(directory.path):
        refuse_within_partition(directory)
    return directory, of_path


def _refuse_other(place: FoundPath) -> None:
    """Raise unless a path is a log directory, or one may be made there."""
    if place.kind is PathKind.NOTHING:
        if place.storage.is_folder(place.parent.path):
            refuse_within_partition(place.parent)
        return
    foreign = [each.name for each in place.folder.names if each.is_folder and _is_foreign(each.name)]
    if foreign:
        raise PathNotFoundError(
            f"{place.path} is not a log directory: it holds {foreign[0]!r}, which is no partition's folder, "
            f"and a broker would not start on it"
        )
    is_plain = place.folder.kind is FolderKind.FOREIGN and parse_partition_folder(place.name) is None
    if place.kind is PathKind.OTHER and place.folder.kind is not FolderKind.EMPTY and not is_plain:
        raise PathNotFoundError(f"{place.path} is not a log directory: {what_it_is(place.storage, place.path)}")


def _is_foreign(name: str) -> bool:
    return "-" not in name and name not in _NOT_FOREIGN and not name.startswith("lost+found")


def topics_of(directory: LogDirectory) -> dict[str, tuple[int, ...]]:
    """Return the partitions of each topic in a directory, ascending; empty if the directory does not exist.

    A topic that a commit creates has all its partitions from the moment when the commit is decided.
    """
    found: dict[str, list[int]] = {}
    for name in while_current([directory], lambda views: _logs_in(views[directory])):
        named = parse_partition_folder(name)
        if named is not None:
            found.setdefault(named.topic, []).append(named.partition)
    return {topic: tuple(sorted(numbers)) for topic, numbers in found.items()}


def _logs_in(view: DirectoryView) -> set[str]:
    storage, path = view.directory.storage, view.directory.path
    if not storage.is_folder(path):
        return set()
    there = {entry.name for entry in storage.names(path) if entry.is_folder}
    return there if view.journal is None else there.union(view.journal.partitions)
