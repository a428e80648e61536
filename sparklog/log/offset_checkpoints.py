"""Keeps the offset checkpoints of log directories: each is read and parsed once, and not once for each log.

`sparklog.log.checkpoints` has the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.files import TopicPartition
from sparklog.log.kept_by_stamp import StampedFile
from sparklog.log.places import LogDirectory


class CheckpointOffsets(dict[TopicPartition, int]):
    """The offsets of a checkpoint, in the order of its lines. Nobody changes them, since threads share them."""

    _by_topic: dict[str, list[TopicPartition]] | None = None

    def of_topic(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of a topic that have an offset."""
        if self._by_topic is None:
            found: dict[str, list[TopicPartition]] = {}
            for at in self:
                found.setdefault(at.topic, []).append(at)
            self._by_topic = found
        return self._by_topic.get(topic, ())


kept_checkpoints: Final = StampedFile(lambda data, path: CheckpointOffsets(parse_offset_checkpoint(data, path)))


def read_offsets(directory: LogDirectory, name: str) -> CheckpointOffsets:
    """Return the offsets of a checkpoint as it is now; none if there is no such file.

    Raises
    ------
    CorruptCheckpointError
        The checkpoint is damaged.
    """
    return kept_checkpoints.read(directory, name) or CheckpointOffsets()
