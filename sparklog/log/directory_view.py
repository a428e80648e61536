"""Reads the facts that a log directory stores about all of its logs.

Its offset checkpoints are read and parsed once, and not once for each log; `sparklog.log.checkpoints` has their format.
A view has all facts for one look at many logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparklog.errors import CorruptCheckpointError
from sparklog.log import files
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.files import TopicPartition
from sparklog.log.journal import Journal, commit_version
from sparklog.log.kept_by_stamp import StampedFile
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.segment_listing import warn_once
from sparklog.record.format.v2 import OFFSET_MAX


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


class DirectoryView:
    """The facts that a log directory stores about its logs, each read once however many logs are looked at.

    Attributes
    ----------
    version : CommitVersion
        The commit version when the view was made.
    """

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self.version = commit_version(directory)
        # functools.cached_property has a lock, which another thread may hold when this process is forked.
        self._journal: Journal | None = None
        self._is_clean: bool | None = None
        self._offsets: dict[str, Mapping[TopicPartition, int]] = {}

    def is_current(self) -> bool:
        """Return whether no commit was decided or finished since the view was made."""
        return commit_version(self.directory) == self.version

    @property
    def journal(self) -> Journal | None:
        """The commit that was decided and is not finished."""
        if self._journal is None:
            self._journal = self.version.pending(self.directory)
        return self._journal

    @property
    def start_offsets(self) -> Mapping[TopicPartition, int]:
        """The log start offsets of the checkpoint; empty if it cannot be read."""
        # Like a broker, which warns, and starts every log at its first segment.
        return self.offsets(files.LOG_START_CHECKPOINT, "to start at its first segment")

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """The recovery points of the checkpoint; empty if it cannot be read."""
        return self.offsets(files.RECOVERY_POINT_CHECKPOINT, "to have no recovery point")

    @property
    def is_clean(self) -> bool:
        """Whether the directory has the marker of a broker's clean shutdown."""
        if self._is_clean is None:
            self._is_clean = self.directory.storage.read_small(self.directory.file(files.CLEAN_SHUTDOWN)) is not None
        return self._is_clean

    def offsets(self, name: str, taken: str = "") -> Mapping[TopicPartition, int]:
        """Read a checkpoint of the directory once; empty if it is missing or damaged.

        Parameters
        ----------
        taken : str
            The end of the warning about a damaged checkpoint: how every log of the directory is then taken. If empty,
            there is no warning.
        """
        if name not in self._offsets:
            self._offsets[name] = _offsets_in(self.directory, name, taken)
        return self._offsets[name]

    def recovery_point(self, folder: PartitionFolder) -> int | None:
        """Return the recovery point of a log in the checkpoint; None if it has none."""
        at = folder.topic_partition
        return None if at is None else self.recovery_points.get(at)

    def synced_offset(self, folder: PartitionFolder) -> int:
        """Return the offset below which all of a log was on the disk when its writer last said so.

        A write torn by a crash is at or above it; a batch below it that is not whole is damage. After a clean shutdown
        it is above the whole log, otherwise it is the recovery point, or 0 if there is none.
        """
        return OFFSET_MAX if self.is_clean else self.recovery_point(folder) or 0


def _offsets_in(directory: LogDirectory, name: str, taken: str) -> Mapping[TopicPartition, int]:
    """Read a checkpoint of a log directory; if it is damaged, warn how every log of the directory is ``taken``."""
    try:
        return read_offsets(directory, name)
    except CorruptCheckpointError as error:
        if taken:
            warn_once(f"{error}; every log of this directory is taken {taken}")
        return {}
