"""The offsets of a stream, as Spark keeps them in a checkpoint: JSON.

    {"events": {"0": 123, "1": 7}, "@topicIds": {"events": "Q2TYVrXaSDWPZ5lUZtm3Jg"}, "@from": {"events": {"0": 100}}}

Topics are as in the offsets of Spark's Kafka source: for each partition the offset of the next record. No topic has an
@ in its name.

    @topicIds   the ids of the topics that have one, which tell a topic that was made anew
    @from       only in the first: where the stream began
    @initial    true, and nothing else: before the first, since Spark does not keep where a stream begins. A first batch
                that is run again thereby reads what it was to read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition

Offsets = Mapping[TopicPartition, int]

INITIAL: Final[dict[str, Any]] = {"@initial": True}
_TOPIC_IDS: Final = "@topicIds"
_FROM: Final = "@from"
_MARK: Final = "@"


@dataclass(frozen=True)
class StreamOffset:
    """Where a stream is.

    Attributes
    ----------
    offsets : mapping of TopicPartition to int
        Of each partition the offset of the next record.
    topic_ids : mapping of str to str
        By topic.
    first : mapping of TopicPartition to int, optional
        Where the stream began.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    first: Offsets | None = None

    def topics_json(self) -> dict[str, dict[str, int]]:
        """Return the offsets as Spark's Kafka source has them."""
        return _nested(self.offsets)

    def to_json(self) -> dict[str, Any]:
        """Return what Spark keeps."""
        made: dict[str, Any] = self.topics_json()
        if self.topic_ids:
            made[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        if self.first is not None:
            made[_FROM] = _nested(self.first)
        return made

    @classmethod
    def parse(cls, found: object) -> StreamOffset:
        """Read what Spark has kept, of this source or of its Kafka source.

        Raises
        ------
        InvalidOptionError
            It is no offset of a stream.
        """
        if not isinstance(found, dict) or found == INITIAL:
            raise InvalidOptionError(f"not the offsets of a stream: {str(found)[:200]}")
        topics = {name: value for name, value in found.items() if not name.startswith(_MARK)}
        first = found.get(_FROM)
        return cls(_flat(topics), found.get(_TOPIC_IDS, {}), None if first is None else _flat(first))


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        made.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return made


def _flat(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    made: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        for partition, offset in partitions.items() if isinstance(partitions, dict) else [("", None)]:
            if not re.fullmatch("[0-9]{1,10}", partition) or type(offset) is not int:
                raise InvalidOptionError(f"not the offsets of a stream: {topic!r} has {str(partitions)[:200]}")
            made[TopicPartition(topic, int(partition))] = offset
    return made
