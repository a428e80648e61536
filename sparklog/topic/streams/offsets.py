"""The offsets of a stream, as Spark keeps them in a checkpoint, JSON, and the logs that they were taken of.

    {"events": {"0": 123, "1": 7}, "@topicIds": {"events": "Q2TYVrXaSDWPZ5lUZtm3Jg"}, "@from": {"events": {"0": 100}}}

Topics are as in the offsets of Spark's Kafka source: for each partition the offset of the next record. No topic has an
@ in its name.

    @topicIds   the ids of the topics that have one, which tell a topic that was made anew
    @logIds     of topics without an id, for each partition the id of its log, where it has one (`log.log_identity`)
    @endBatches of topics without an id, for each partition the batch that holds the offset before (`log.end_batch`):
                its fields in their order; by it a topic that was made anew is known, as far as that can be proven
    @from       only in the first: where the stream began
    @initial    true, and nothing else: before the first, since Spark does not keep where a stream begins. A first batch
                that is run again thereby reads what it was to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout
from sparklog.log.log_identity import EndBatch, LogIdentity, end_batch
from sparklog.topic.places.live import LiveLog

Offsets = Mapping[TopicPartition, int]
_Value = TypeVar("_Value")

INITIAL: Final[dict[str, Any]] = {"@initial": True}
_TOPIC_IDS: Final = "@topicIds"
_LOG_IDS: Final = "@logIds"
_END_BATCHES: Final = "@endBatches"
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
    end_batches : mapping of TopicPartition to EndBatch
        Of logs of topics without an id the batch before the offset.
    log_ids : mapping of TopicPartition to str
        Of such logs their own ids.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    first: Offsets | None = None
    end_batches: Mapping[TopicPartition, EndBatch] = field(default_factory=dict)
    log_ids: Mapping[TopicPartition, str] = field(default_factory=dict)

    def identity(self, at: TopicPartition) -> LogIdentity:
        """Return what is kept of a log by which it is known."""
        return LogIdentity(self.topic_ids.get(at.topic), self.log_ids.get(at), self.end_batches.get(at))

    def topics_json(self) -> dict[str, dict[str, int]]:
        """Return the offsets as Spark's Kafka source has them."""
        return _nested(self.offsets)

    def to_json(self) -> dict[str, Any]:
        """Return what Spark keeps."""
        made: dict[str, Any] = self.topics_json()
        if self.topic_ids:
            made[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        if self.log_ids:
            made[_LOG_IDS] = _nested(self.log_ids)
        if self.end_batches:
            made[_END_BATCHES] = _nested({at: batch.that_stays() for at, batch in self.end_batches.items()})
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
        return cls(
            _flat(topics, _offset),
            _topic_ids(found.get(_TOPIC_IDS, {})),
            None if first is None else _flat(first, _offset),
            _flat(found.get(_END_BATCHES, {}), _end_batch),
            _flat(found.get(_LOG_IDS, {}), _log_id),
        )


def _nested(values: Mapping[TopicPartition, _Value]) -> dict[str, dict[str, _Value]]:
    made: dict[str, dict[str, _Value]] = {}
    for at in sorted(values):
        made.setdefault(at.topic, {})[str(at.partition)] = values[at]
    return made


def _flat(topics: object, parse: Callable[[object], _Value | None]) -> dict[TopicPartition, _Value]:
    made: dict[TopicPartition, _Value] = {}
    for topic, partitions in topics.items() if isinstance(topics, dict) else [("", topics)]:
        for partition, found in partitions.items() if isinstance(partitions, dict) else [("", None)]:
            value = parse(found)
            if not re.fullmatch("[0-9]{1,10}", partition) or value is None:
                raise InvalidOptionError(f"not the offsets of a stream: {topic!r} has {str(partitions)[:200]}")
            made[TopicPartition(topic, int(partition))] = value
    return made


def _topic_ids(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidOptionError(f"not the ids of the topics of a stream: {str(found)[:200]}")
    return found


def _offset(found: object) -> int | None:
    return found if type(found) is int else None


def _log_id(found: object) -> str | None:
    return found if isinstance(found, str) else None


def _end_batch(found: object) -> EndBatch | None:
    try:
        return EndBatch.of_numbers(found)
    except ValueError:
        return None


_KEPT_MAX: Final = 2


class Identities:
    """Compares logs with offsets that were taken of them; what was read of a log is kept until it is looked at anew."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, tuple[PartitionLayout, dict[int, EndBatch | None]]] = {}

    def is_other(self, at: TopicPartition, taken: StreamOffset, log: LiveLog) -> bool:
        """Tell whether a log is another than the one of which an offset was taken, or was cut before it."""
        return self.difference(at, taken, log) is not None

    def difference(self, at: TopicPartition, taken: StreamOffset, log: LiveLog) -> str | None:
        """Return what tells a log from the one of which an offset was taken, as `LogIdentity.difference` does."""
        if at not in taken.offsets:
            return None
        known = taken.identity(at)
        before = None if known.end_batch is None else self._before(at, log, taken.offsets[at])
        return known.difference(LogIdentity(log.topic_id, log.log_id, before))

    def end_batches(
        self, end: Offsets, before: StreamOffset, logs: Mapping[TopicPartition, LiveLog]
    ) -> dict[TopicPartition, EndBatch]:
        """Return by what the logs of topics without an id are known at an end; what was known at the same offset stays.

        Parameters
        ----------
        end : mapping of TopicPartition to int
        before : StreamOffset
            Where the batch begins that ends there.
        """
        self._found = {at: found for at, found in self._found.items() if at in logs}
        known = {
            at: self._known(at, offset, before, logs[at])
            for at, offset in end.items()
            if at in logs and logs[at].topic_id is None
        }
        return {at: batch for at, batch in known.items() if batch is not None}

    def _known(self, at: TopicPartition, offset: int, before: StreamOffset, log: LiveLog) -> EndBatch | None:
        is_same = before.offsets.get(at) == offset and not self.is_other(at, before, log)
        known = before.end_batches.get(at) if is_same else None
        return self._before(at, log, offset) if known is None else known

    def _before(self, at: TopicPartition, log: LiveLog, offset: int) -> EndBatch | None:
        layout, found = self._found.get(at, (None, {}))
        if layout is not log.layout:
            found = {}
            self._found[at] = log.layout, found
        if offset not in found:
            while len(found) >= _KEPT_MAX:
                del found[next(iter(found))]
            found[offset] = end_batch(log.layout, offset)
        return found[offset]
