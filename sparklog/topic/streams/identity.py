"""Tells whether the logs of a stream are still those that its offsets were taken of.

A topic that has an id is known by it, and another by the ids of its logs and by the batch that each had before the
stream's offset (`sparklog.log.log_identity`). What cannot be proven is no change: a log without an id that was made
anew, or one that was cut, goes unnoticed where it has no batch there, or one with the same offsets, leader epoch,
producer and sequence, and no later timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout
from sparklog.log.log_identity import EndBatch, LogIdentity, end_batch
from sparklog.topic.places.live import LiveLog
from sparklog.topic.streams.offsets import Offsets, StreamOffset

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
