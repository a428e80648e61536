"""Finds the partitions of topics for a producer, again and again: topics are deleted, made anew and grow.

A route is found anew when it is older than ``metadata_max_age_ms``, when a record names a partition that it lacks,
and when the folder of a partition is gone. A vanished topic is made anew as a whole if the producer creates
topics; otherwise its records are refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from sparklog.clients.settings import ProducerSettings, chooser
from sparklog.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import checked_topic
from sparklog.log.places import PartitionFolder
from sparklog.topic.log_manager import LogManager
from sparklog.topic.write.partitioner import Partitioner, make_partitioner


@dataclass
class Route:
    """The partitions of a topic, and the settings of its batches.

    Attributes
    ----------
    folders : mapping of int to PartitionFolder
        The folders of all partitions, by number.
    config : LogConfig
        This producer's settings for batches.
    full_bytes : int
        With this many waiting bytes there is a batch for each partition.
    has_times, has_producers : bool
        Whether the record format of the topic has timestamps, and producers.
    """

    topic: str
    folders: Mapping[int, PartitionFolder]
    config: LogConfig
    partitioner: Partitioner
    full_bytes: int
    numbers: list[int] = field(init=False)
    has_times: bool = field(init=False)
    has_producers: bool = field(init=False)
    found_seconds: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.numbers = list(self.folders)
        self.has_times, self.has_producers = self.config.magic > 0, self.config.magic > 1


class Routes:
    """The routes of a producer. Threads may share them.

    Parameters
    ----------
    manager : LogManager
    settings : ProducerSettings

    Attributes
    ----------
    known : dict of str to Route
        The last route found for each topic.
    """

    def __init__(self, manager: LogManager, settings: ProducerSettings) -> None:
        self._manager, self._settings = manager, settings
        self._finding = threading.Lock()
        self.known: dict[str, Route] = {}

    def current(self, topic: str) -> Route:
        """Return a topic's route, finding it anew if it is too old; for errors see `find`."""
        route = self.known.get(topic)
        if route is not None and time.monotonic() - route.found_seconds < self._settings.metadata_max_age_ms / 1000:
            return route
        return self.find(topic, route)

    def find(self, topic: str, old: Route | None) -> Route:
        """Find a topic's route anew, creating the topic if it does not exist.

        Parameters
        ----------
        old : Route or None
            The route that the caller knows; if another thread has found a newer one, that is returned.

        Raises
        ------
        InvalidTopicError
            The name is not valid.
        UnknownTopicOrPartitionError
            The topic does not exist, and ``allow_auto_create_topics`` is off; or some of its partitions are not here.
        LockedError
            The topic must be created, and another process writes to the directory, or a broker runs on it.
        """
        checked_topic(topic)
        with self._finding:
            newer = self.known.get(topic)
            if newer is not None and newer is not old:
                return newer
            self.known.pop(topic, None)
            folders = self._folders(topic)
            config = self.config(topic)
            full_bytes = min(max(1, config.batch_size) * len(folders), max(1, self._settings.buffer_memory // 4))
            route = self.known[topic] = Route(topic, folders, config, self._partitioner(config), full_bytes)
            return route

    def full_bytes(self, topic: str) -> int:
        """Return how many bytes of a topic are enough to be written; 0 for a vanished topic."""
        route = self.known.get(topic)
        return 0 if route is None else route.full_bytes

    def config(self, topic: str) -> LogConfig:
        """Return this producer's settings for a topic's batches, with the topic's current stored properties."""
        stored = self._manager.configs(topic)
        return self._manager.config(topic, self._settings.log_config(stored), {topic: stored})

    def config_of_log(self, folder: PartitionFolder) -> LogConfig:
        """Return the properties for opening a log.

        Raises
        ------
        UnknownTopicOrPartitionError
            Its folder is gone: the topic was deleted, or the log was moved.
        """
        if not folder.storage.is_folder(folder.location):
            raise UnknownTopicOrPartitionError(
                f"{folder.location} is gone: the topic was deleted, or the log moved away"
            )
        return self.config(folder.topic)

    def _folders(self, topic: str) -> Mapping[int, PartitionFolder]:
        manager = self._manager
        folders = manager.folders.find(topic)
        if not folders and self._settings.allow_auto_create_topics:
            # Another process may be faster.
            with suppress(TopicAlreadyExistsError):
                return manager.create_topic(topic)
        elif not folders and topic not in manager.folders.by_topic():
            raise UnknownTopicOrPartitionError(
                f"no topic {topic!r} in {manager!r}, and allow_auto_create_topics is off"
            )
        folders = folders or manager.partitions(topic)
        if list(folders) != list(range(len(folders))):
            raise UnknownTopicOrPartitionError(
                f"partitions {', '.join(map(str, folders))} of {topic} are here, and so not all of them: name all "
                f"log directories"
            )
        return folders

    def _partitioner(self, config: LogConfig) -> Partitioner:
        given = self._settings.partitioner
        if isinstance(given, str):
            return make_partitioner(given, seed=id(self) & 0xFFFF, batch_bytes=config.batch_size)
        if given is not None and chooser(given) is None:
            return given  # type: ignore[no-any-return]
        return make_partitioner("default", seed=wall_clock_ms(), batch_bytes=config.batch_size)
