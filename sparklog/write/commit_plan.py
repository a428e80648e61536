"""Staged files become part of a log: decided here, as moves of a commit's journal, and done by whoever finishes it.

Where the files go is decided by the rules by which one writer rolls: a small file is appended to the active segment
while it has room, and any other becomes a segment as it is, without being copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, encode_topic_id, parse_topic_id
from sparklog.log.config import LogConfig
from sparklog.log.files import offset_file_name
from sparklog.log.journal import Append, LogExtent, Move, Rename
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import snapshots_of
from sparklog.storage.base import WritableFile
from sparklog.write.active_segment import ActiveSegmentState, append_run, fits, new_segment, seal
from sparklog.write.recovery import Recovered
from sparklog.write.staging import StagedFile, stamp

_COPIED_SHARE_MAX: Final = 1 / 32
"""Of a segment's size: what is longer is worth a segment of its own, rather than a copy."""


@dataclass(frozen=True)
class Adopted:
    """What a commit does to one log.

    Attributes
    ----------
    before : LogExtent
        The log as it is.
    end_offset : int
        The log end offset that it gets.
    moves : tuple of Move
        How.
    segments : tuple of int
        Base offsets of the segments that records go to.
    """

    before: LogExtent
    end_offset: int
    moves: tuple[Move, ...]
    segments: tuple[int, ...]


class SmallFiles:
    """The small things that a commit writes, one behind the other in one staged file, so that one sync is enough."""

    def __init__(self, file: WritableFile, name: str) -> None:
        self._file, self._name = file, name

    def append(self, data: bytes, target: str, position: int = 0) -> Append:
        """Return the move that puts some bytes into a file, from a position on."""
        source_position = self._file.size_bytes()
        if data:
            self._file.append(data)
        return Append(self._name, source_position, len(data), target, position)


def adopt(
    folder: PartitionFolder,
    found: Recovered,
    staged: Sequence[StagedFile],
    config: LogConfig,
    small: SmallFiles,
    now_ms: int,
    topic_id: str | None = None,
) -> Adopted:
    """Give staged files their offsets, and plan how they become part of a log.

    Parameters
    ----------
    folder : PartitionFolder
        Its log directory is locked.
    found : Recovered
        The log as it is.
    staged : sequence of Staged
        In the order in which their records are to be.
    small : SmallFiles
        Takes what goes into indexes, snapshots and checkpoints.
    topic_id : str, optional
        For ``partition.metadata``.

    Returns
    -------
    Adopted
        Nothing but the staged files has been changed, and those are not synced.
    """
    snapshots = frozenset(offset for offset, _ in snapshots_of(folder))
    adoption = _Adoption(folder, found, config, small, snapshots)
    epochs = found.leader_epochs or ([(0, found.tail.end_offset)] if staged else [])
    for each in staged:
        base_offset = adoption.tail.end_offset
        run = each.run(folder.directory, base_offset)
        stamp(folder.directory, each, run, base_offset, max(epoch for epoch, _ in epochs))
        is_small = each.size_bytes <= config.segment_bytes * _COPIED_SHARE_MAX
        if adoption.tail.segment.size_bytes and not (is_small and fits(adoption.tail, run, config, now_ms)):
            adoption.roll(now_ms)
        adoption.take(each)
        adoption.grow(*append_run(adoption.tail, run, config))
    if epochs and not found.leader_epochs:
        adoption.put(encode_leader_epochs(epochs), files.LEADER_EPOCH_CHECKPOINT)
    metadata = metadata_to_write(folder, topic_id)
    if metadata is not None:
        adoption.put(metadata, files.PARTITION_METADATA)
    return adoption.done()


def metadata_to_write(folder: PartitionFolder, topic_id: str | None) -> bytes | None:
    """Return what ``partition.metadata`` is to be; None where it is that, or no topic id is given.

    Raises
    ------
    InvalidOptionError
        The partition is of another topic id: of a topic that was deleted and made again, or another cluster's.
    """
    if topic_id is None:
        return None
    path = folder.file(files.PARTITION_METADATA)
    data = folder.storage.read_small(path)
    if data is None:
        return encode_topic_id(topic_id)
    found = parse_topic_id(data, path)
    if found != topic_id:
        raise InvalidOptionError(
            f"topicId is {topic_id}, and {path} says {found}: a broker would take the log for stray"
        )
    return None


class _Adoption:
    """The moves for one log in the making, and the end of the log as it will be after them."""

    def __init__(
        self, folder: PartitionFolder, found: Recovered, config: LogConfig, small: SmallFiles, snapshots: frozenset[int]
    ) -> None:
        self.tail, self._snapshots = found.tail, snapshots
        self._folder, self._found, self._config, self._small = folder, found, config, small
        self._moves: list[Move] = []
        self._segments: list[int] = []
        self._open = _OpenIndexes(found.tail)

    def take(self, staged: StagedFile) -> None:
        """Put a staged file at the end of the active segment, or in its place where that is empty."""
        base_offset, size_bytes = self.tail.segment.base_offset, self.tail.segment.size_bytes
        log = self._path(base_offset, files.LOG)
        if size_bytes:
            self._moves.append(Append(staged.log_name, 0, staged.size_bytes, log, size_bytes))
        else:
            self._moves.append(Rename(staged.log_name, log))
        if base_offset not in self._segments:
            self._segments.append(base_offset)

    def grow(self, tail: ActiveSegmentState, offset_entries: bytes, time_entries: bytes) -> None:
        self.tail = tail
        self._open.offset_entries += offset_entries
        self._open.time_entries += time_entries

    def roll(self, now_ms: int) -> None:
        """Seal the active segment, and begin another one behind it."""
        self._seal()
        self.tail = new_segment(self.tail.end_offset, now_ms, 0)
        self._open = _OpenIndexes(self.tail)
        self._put_snapshot()

    def put(self, data: bytes, name: str) -> None:
        """Give the folder a small file, in the place of what is there."""
        self._moves.append(self._small.append(data, self._folder.relative(name)))

    def done(self) -> Adopted:
        before, tail = self._found.tail, self.tail
        if tail.end_offset > before.end_offset:
            self._seal()
            self._put_snapshot()
        return Adopted(
            before=LogExtent(
                self._found.start_offset, before.end_offset, before.segment.base_offset, before.segment.size_bytes
            ),
            end_offset=tail.end_offset,
            moves=tuple(self._moves),
            segments=tuple(self._segments),
        )

    def _seal(self) -> None:
        """Write the active segment's indexes, with the last entry that a segment gets when it is rolled or closed."""
        base_offset, entries = self.tail.segment.base_offset, self._open
        self.tail, last_entry = seal(self.tail)
        entries.time_entries += last_entry
        for suffix, data, position in (
            (files.OFFSET_INDEX, entries.offset_entries, entries.offset_position),
            (files.TIME_INDEX, entries.time_entries, entries.time_position),
        ):
            self._moves.append(self._small.append(bytes(data), self._path(base_offset, suffix), position))

    def _put_snapshot(self) -> None:
        """Write down the producers as of the log end offset; what is committed has none.

        A snapshot that is there is left as it is: recovery has found it sound, and it may hold producers that have been
        idle for so long that they are not among those found.
        """
        if self.tail.end_offset in self._snapshots:
            return
        self.put(self._found.producers.encode(), offset_file_name(self.tail.end_offset, files.SNAPSHOT))

    def _path(self, offset: int, suffix: str) -> str:
        return self._folder.relative(offset_file_name(offset, suffix))


@dataclass
class _OpenIndexes:
    """What the indexes of the active segment get, and where in them."""

    tail: ActiveSegmentState
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)

    @property
    def offset_position(self) -> int:
        return self.tail.offset_index_bytes

    @property
    def time_position(self) -> int:
        return self.tail.time_index_bytes
