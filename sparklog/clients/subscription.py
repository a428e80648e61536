"""The topics that a consumer subscribes to, and their partitions, which come and go."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition, checked_topic
from sparklog.log.places import PartitionFolder
from sparklog.topic.log_manager import LogManager
from sparklog.topic.places.discovery import INTERNAL_PREFIX

_TOPICS_SECONDS: Final = 1.0


@dataclass
class Subscription:
    """Topics by name, or by a pattern of their names; without either, nothing is subscribed to.

    For ``listener`` see `sparklog.Consumer.subscribe`; once ``has_joined``, it knows of the partitions.
    """

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    listener: Any = None
    has_joined: bool = False
    _found_seconds: float = float("-inf")

    @classmethod
    def of(cls, topics: str | Iterable[str], pattern: str | None, listener: Any) -> Self:
        """Return a subscription; for parameters and errors see `sparklog.Consumer.subscribe`."""
        names = frozenset([topics] if isinstance(topics, str) else topics)
        if bool(names) == (pattern is not None):
            raise InvalidOptionError("subscribe to topics or to a pattern: one of them")
        for name in names:
            checked_topic(name)
        return cls(names, None if pattern is None else re.compile(pattern), listener)

    @property
    def is_active(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    @property
    def due(self) -> float:
        """When the partitions are to be found again, by the monotonic clock."""
        return self._found_seconds + _TOPICS_SECONDS if self.is_active else float("inf")

    def find_if_due(self, manager: LogManager) -> dict[TopicPartition, PartitionFolder] | None:
        """Return the partitions of the topics; None if they need not be found again yet."""
        if time.monotonic() < self.due:
            return None
        self._found_seconds = time.monotonic()
        folders = manager.folders.by_topic()
        topics = sorted(self.topics & folders.keys()) if self.pattern is None else filter(self._matches, folders)
        return {TopicPartition(topic, number): folder for topic in topics for number, folder in folders[topic].items()}

    def _matches(self, topic: str) -> bool:
        return self.pattern is not None and not topic.startswith(INTERNAL_PREFIX) and bool(self.pattern.match(topic))
