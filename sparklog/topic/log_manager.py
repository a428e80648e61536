"""Creates, deletes and lists the topics of one or more log directories, and keeps their properties.

It works like Kafka's LogManager, without a broker: a new partition goes to the log directory with the fewest
partitions; a deleted topic's folders are renamed to ``<topic>-<n>.<uuid>-delete`` at once, so that nobody opens them,
and their files are removed after ``file.delete.delay.ms``, so that readers can finish. No thread runs for that: the
time is in the folder's name, and `LogManager.remove_deleted` removes folders that are due, as does the next change of a
topic, once a second at most.

Properties are in ``topics.properties``; see `sparklog.topic.write.configs`.

Source: apache/kafka, LogManager.scala (nextLogDirs, asyncDelete), LocalLog.scala (logDeleteDirName).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from sparklog.errors import (
    InvalidOptionError,
    PathNotFoundError,
    SeglogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    did_you_mean,
)
from sparklog.log import files
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import checked_partition
from sparklog.log.folders import (
    FolderKind,
    is_proven_directory,
    listed,
    look_at,
    refuse_within_partition,
    what_it_is,
)
from sparklog.log.kept_by_stamp import names_in
from sparklog.log.layout import topic_id_of
from sparklog.log.places import LogDirectory, PartitionFolder, split_path
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import PathText, paths_of
from sparklog.topic.places.discovery import place_at
from sparklog.topic.places.topic_folders import LIST_SECONDS, TopicFolders
from sparklog.topic.write.configs import (
    StoredConfigs,
    read_properties,
    stored_configs,
    stored_properties,
    topic_config,
    update_configs,
)
from sparklog.write.group_offsets import forget_offsets
from sparklog.write.journal import only_writer
from sparklog.write.locking import refuse_claimed
from sparklog.write.partition import LogWriter
from sparklog.write.small_files import BEFORE_LOG_END, keep_offsets, make_directory

_log = logging.getLogger("sparklog")

_CHECKPOINTS: Final = (files.LOG_START_CHECKPOINT, *BEFORE_LOG_END)
_TOKEN_BYTES: Final = 10
_TOKEN_DIGITS: Final = 19


class LogManager:
    """Manages the topics of some log directories. It holds no lock between calls, and threads may share it.

    Parameters
    ----------
    log_directories : str, os.PathLike or a sequence of them
        Log directories; each is made when the first partition is put into it.
    num_partitions : int
        How many partitions a new topic gets by default.
    configs : mapping of str to str, optional
        Properties that are stored for each new topic; its own override them.
    lock_timeout_seconds : float
        How long to wait for other writers.
    clock : callable
        Returns wall-clock time, ms since the epoch.

    Attributes
    ----------
    directories : tuple of LogDirectory
        The log directories.
    folders : TopicFolders
        The folders of all partitions.

    Raises
    ------
    InvalidOptionError
        A property is wrong, a directory is given twice, or its storage cannot be written to.
    PathNotFoundError
        A path is not a log directory.
    """

    def __init__(
        self,
        log_directories: PathText | Sequence[PathText],
        *,
        num_partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        lock_timeout_seconds: float = 60.0,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.directories = tuple(_directory_at(path) for path in paths_of(log_directories))
        if not self.directories or len(set(self.directories)) < len(self.directories):
            raise InvalidOptionError("give at least one log directory, and each only once")
        _refuse_count(num_partitions)
        self._configs = dict(configs or {})
        LogConfig.from_properties(self._configs)
        self.folders = TopicFolders(self.directories)
        self._num_partitions, self._lock_timeout_seconds, self._clock = num_partitions, lock_timeout_seconds, clock
        self._removed_seconds = float("-inf")

    def __repr__(self) -> str:
        return f"LogManager({', '.join(each.path for each in self.directories)})"

    def topics(self) -> dict[str, int]:
        """Return how many partitions of each topic are here, internal topics included."""
        return {topic: len(folders) for topic, folders in self.folders.by_topic().items()}

    def partitions(self, topic: str) -> dict[int, PartitionFolder]:
        """Return the folders of a topic's partitions by partition number, ascending.

        Raises
        ------
        UnknownTopicOrPartitionError
            There is no such topic.
        """
        folders = self.folders.by_topic()
        if topic not in folders:
            hint = did_you_mean(topic, list(folders), "create_topic makes it", cutoff=0.6)
            raise UnknownTopicOrPartitionError(f"no topic {topic!r} in {self._where()}: {hint}")
        return dict(folders[topic])

    def configs(self, topic: str) -> dict[str, str]:
        """Return a topic's stored properties, from ``topics.properties``, else from the cluster's metadata.

        Raises
        ------
        InvalidOptionError
            The file is malformed.
        """
        of_directories = (stored_properties(directory, topic) for directory in self.directories)
        return {name: value for properties in of_directories for name, value in properties.items()}

    def stored(self) -> dict[str, dict[str, str]]:
        """Return the stored properties of all topics; see `sparklog.topic.write.configs.stored_configs`."""
        found: dict[str, dict[str, str]] = {}
        for directory in self.directories:
            for topic, properties in stored_configs(directory).items():
                found.setdefault(topic, {}).update(properties)
        return found

    def config(self, topic: str, given: LogConfig | None = None, stored: StoredConfigs | None = None) -> LogConfig:
        """Return a topic's configuration: ``given``, else the stored properties, else the defaults."""
        return topic_config(topic, given or LogConfig(), {topic: self.configs(topic)} if stored is None else stored)

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Change the properties that ``topics.properties`` has for a topic; None removes one.

        Returns
        -------
        dict of str to str
            The topic's properties in the file after the change.

        Raises
        ------
        UnknownTopicOrPartitionError
            There is no such topic.
        InvalidOptionError
            A property is unknown or its value wrong; nothing was changed.
        """
        now: dict[str, str] = {}
        for directory in self._holding(self.folders.find(topic) or self.partitions(topic)):
            now = update_configs(directory, topic, changes, lock_timeout_seconds=self._lock_timeout_seconds)
        return now

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        topic_id: str | None = None,
    ) -> dict[int, PartitionFolder]:
        """Create a topic, with an empty log for each partition.

        Its properties are stored first, and its partitions are made from the last to the first: a topic with a
        partition 0 is complete, and repeating the call completes an unfinished one.

        Parameters
        ----------
        partitions : int, optional
            The number of partitions; by default the manager's ``num_partitions``.
        configs : mapping of str to str, optional
            The topic's own properties.
        topic_id : str, optional
            The topic id for ``partition.metadata``; a broker sets folders without that file aside.

        Returns
        -------
        dict of int to PartitionFolder

        Raises
        ------
        InvalidTopicError
            The name is not valid for a topic.
        TopicAlreadyExistsError
            The topic exists.
        InvalidOptionError
            A property or the number of partitions is wrong.
        LockedError
            A broker runs on a directory, or another process writes to it.
        """
        count = self._num_partitions if partitions is None else partitions
        _refuse_count(count)
        checked_partition(name, count - 1)
        there = self.folders.look_for(name, range(count))
        if 0 in there:
            known = len(self.folders.by_topic().get(name, there))
            raise TopicAlreadyExistsError(f"topic {name!r} is in {self._where()} already, with {known} partitions")
        stored = {**self._configs, **(configs or {})}
        config = LogConfig.from_properties(stored)
        chosen = {number: there.get(number) or folder for number, folder in self.folders.place(name, count).items()}
        for directory in self._holding(chosen):
            make_directory(directory)
            self._forget(directory, name)
            if stored:
                update_configs(directory, name, stored, lock_timeout_seconds=self._lock_timeout_seconds)
        self._forget_commits(name)
        config = topic_config(name, LogConfig(), {name: stored}) if stored else config
        self._make_logs([chosen[number] for number in sorted(chosen, reverse=True)], config, topic_id)
        self._remove_now_and_then()
        return chosen

    def add_partitions(self, topic: str, partitions: int) -> dict[int, PartitionFolder]:
        """Add empty partitions to a topic; from then on, keys go to other partitions than before.

        Parameters
        ----------
        partitions : int
            The new number of partitions. If the call is interrupted, some may be missing; repeat it.

        Returns
        -------
        dict of int to PartitionFolder
            The new partitions.

        Raises
        ------
        UnknownTopicOrPartitionError
            There is no such topic.
        InvalidOptionError
            The topic has at least as many already, or some of its partitions are not here.
        LockedError
            A broker runs on a directory, or another process writes to it.
        """
        there = self.folders.find(topic) or self.partitions(topic)
        _refuse_count(partitions)
        if list(there) != list(range(len(there))):
            raise InvalidOptionError(f"{self._where()} has partitions {listed(list(map(str, there)))} of {topic} only")
        if partitions <= len(there):
            raise InvalidOptionError(
                f"topic {topic!r} has {len(there)} partitions, and is to have {partitions}: partitions are only added"
            )
        placed = self.folders.place(topic, partitions)
        new = {number: folder for number, folder in placed.items() if number not in there}
        for directory in self._holding(new):
            self._forget_starts(directory, topic)
        self._forget_commits(topic)
        self._make_logs(list(new.values()), self.config(topic), topic_id_of(there[0]))
        return new

    def _make_logs(self, folders: Sequence[PartitionFolder], config: LogConfig, topic_id: str | None) -> None:
        for folder in folders:
            LogWriter.open(
                folder.location,
                config,
                topic_id=topic_id,
                lock_timeout_seconds=self._lock_timeout_seconds,
                storage=folder.storage,
            ).close()
            self.folders.add(folder)

    def delete_topic(self, name: str) -> None:
        """Delete a topic: it disappears at once, and its files are removed after its ``file.delete.delay.ms``.

        Raises
        ------
        UnknownTopicOrPartitionError
            There is no such topic.
        LockedError
            A log of the topic is open, a broker runs on a directory, or another process writes to it. Some partitions
            may already be deleted; repeat the call.
        """
        folders = self.folders.find(name) or self.partitions(name)
        due_ms, deleted = self._clock() + self.config(name).file_delete_delay_ms, []
        for directory in self._holding(folders):
            with only_writer(directory, self._lock_timeout_seconds):
                ours = [folder for folder in folders.values() if folder.directory == directory]
                for folder in ours:
                    refuse_claimed(folder)
                for folder in ours:
                    token = secrets.token_hex(_TOKEN_BYTES)[:_TOKEN_DIGITS]
                    gone = files.deleted_folder_name(folder.name, due_ms, token)
                    directory.writable.rename(folder.location, directory.file(gone))
                    deleted.append((directory, gone))
                directory.writable.sync_folder(directory.path)
            self._forget(directory, name)
        self._forget_commits(name)
        self._remove_due(deleted)
        self._remove_now_and_then()

    def remove_deleted(self) -> list[str]:
        """Remove the files of deleted partitions whose delay has passed.

        Returns
        -------
        list of str
            The paths of the removed folders. A folder that cannot be removed gets a warning, and is tried again next
            time.
        """
        self._removed_seconds = time.monotonic()
        return self._remove_due(
            (directory, name) for directory in self.directories for name in names_in(directory).others
        )

    def _remove_now_and_then(self) -> None:
        if time.monotonic() - self._removed_seconds > LIST_SECONDS:
            self.remove_deleted()

    def _remove_due(self, names: Iterable[tuple[LogDirectory, str]]) -> list[str]:
        removed = []
        for directory, name in names:
            due_ms = files.deletion_due_ms(name)
            if due_ms is None or due_ms > self._clock():
                continue
            try:
                remove_folder(directory, name)
                removed.append(directory.file(name))
            except SeglogError as error:
                _log.warning("%s: a deleted partition could not be removed yet", error)
        return removed

    def _holding(self, folders: Mapping[int, PartitionFolder]) -> list[LogDirectory]:
        """Return the directories of some partitions."""
        within = {folder.directory for folder in folders.values()}
        return [directory for directory in self.directories if directory in within]

    def _forget(self, directory: LogDirectory, topic: str) -> None:
        """Remove a missing topic's properties and checkpoint entries, which a new topic of its name must not get."""
        known = read_properties(directory).get(topic)
        if known:
            gone: dict[str, str | None] = dict.fromkeys(known)
            update_configs(directory, topic, gone, lock_timeout_seconds=self._lock_timeout_seconds)
        self._forget_starts(directory, topic)

    def _forget_starts(self, directory: LogDirectory, topic: str) -> None:
        """Remove the entries of missing partitions of a topic from the checkpoints of a directory."""
        with only_writer(directory, self._lock_timeout_seconds):
            for name in _CHECKPOINTS:
                keep_offsets(directory, name, topic, lambda at: directory.storage.is_folder(directory.file(str(at))))

    def _forget_commits(self, topic: str) -> None:
        """Remove groups' offsets of missing partitions of a topic; any directory may have some."""
        for directory in self.directories:
            if directory.storage.stamp(directory.file(files.GROUP_OFFSETS)) is not None:
                with only_writer(directory, self._lock_timeout_seconds):
                    forget_offsets(
                        directory,
                        lambda at: at.topic == topic and not self.folders.look_for(topic, [at.partition]),
                        self._clock(),
                        self._lock_timeout_seconds,
                    )

    def _where(self) -> str:
        return ", ".join(each.path for each in self.directories)


def _directory_at(path: PathText) -> LogDirectory:
    located = place_at(path)
    storage = to_writable(located.storage, located.path)
    directory = LogDirectory(storage, storage.real(located.path))
    kind = look_at(storage, directory.path).kind
    if kind is FolderKind.PARTITION and not is_proven_directory(LogDirectory(storage, split_path(directory.path)[0])):
        # An empty disk of a broker may be called kafka-logs-1.
        return directory
    if kind in (FolderKind.PARTITION, FolderKind.MIXED, FolderKind.COPY, FolderKind.SET_ASIDE, FolderKind.FILE):
        raise PathNotFoundError(f"{directory.path} is not a log directory: {what_it_is(storage, directory.path)}")
    if kind is not FolderKind.NOTHING:
        refuse_within_partition(directory)
    return directory


def _refuse_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidOptionError(f"a topic has a whole number of partitions, at least 1, and not {count!r}")


def remove_folder(directory: LogDirectory, name: str) -> None:
    """Remove the folder of a deleted partition, with all its files."""
    storage, folder = directory.writable, directory.folder(name)
    for each in storage.names(folder.location):
        if not each.is_folder:
            storage.remove(folder.file(each.name))
    storage.remove_folder(folder.location)
