"""Plans how a commit adds staged files to a log. The plan is a list of journal moves; `write.journal` applies them.

The rules are those by which a single writer rolls: a small file is appended to the active segment while it fits there,
and any other file becomes a segment as it is, without being copied.
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
"""A staged file that is longer than this share of a segment becomes a segment of its own, and is not copied."""


@dataclass(frozen=True)
class PartitionChange:
    """The changes that one commit makes to one log.

    Attributes
    ----------
    before : LogExtent
        The log before the commit.
    end_offset : int
        The log end offset after the commit.
    moves : tuple of Move
        The journal entries that make the changes, in order.
    segments : tuple of int
        Base offsets of the segments that records are added to.
    """

    before: LogExtent
    end_offset: int
    moves: tuple[Move, ...]
    segments: tuple[int, ...]


class SmallFiles:
    """The small pieces that a commit writes, one behind the other in one staged file, so that one sync is enough."""

    def __init__(self, file: WritableFile, name: str) -> None:
        self._file, self._name = file, name

    def append(self, data: bytes, target: str, position: int = 0) -> Append:
        """Add some bytes, and return the move that writes them to a file from a position on."""
        source_position = self._file.size_bytes()
        if data:
            self._file.append(data)
        return Append(self._name, source_position, len(data), target, position)


def plan_commit(
    folder: PartitionFolder,
    found: Recovered,
    staged: Sequence[StagedFile],
    config: LogConfig,
    small: SmallFiles,
    now_ms: int,
    topic_id: str | None = None,
) -> PartitionChange:
    """Give staged files their offsets, and plan how they become part of one log.

    Parameters
    ----------
    folder : PartitionFolder
        Its log directory is locked.
    found : Recovered
        The log before the commit.
    staged : sequence of StagedFile
        The files, in the order that their records are to have.
    small : SmallFiles
        Takes the bytes for indexes, snapshots and checkpoints.
    topic_id : str, optional
        For ``partition.metadata``.

    Returns
    -------
    PartitionChange
        No file but the staged ones has been changed, and those are not synced.
    """
    snapshots = frozenset(offset for offset, _ in snapshots_of(folder))
    plan = _CommitPlan(folder, found, config, small, snapshots)
    epochs = found.leader_epochs or ([(0, found.state.end_offset)] if staged else [])
    for each in staged:
        base_offset = plan.tail.end_offset
        run = each.run(folder.directory, base_offset)
        stamp(folder.directory, each, run, base_offset, max(epoch for epoch, _ in epochs))
        is_small = each.size_bytes <= config.segment_bytes * _COPIED_SHARE_MAX
        if plan.tail.segment.size_bytes and not (is_small and fits(plan.tail, run, config, now_ms)):
            plan.roll(now_ms)
        plan.add(each)
        plan.append_entries(*append_run(plan.tail, run, config))
    if epochs and not found.leader_epochs:
        plan.put_file(encode_leader_epochs(epochs), files.LEADER_EPOCH_CHECKPOINT)
    metadata = metadata_to_write(folder, topic_id)
    if metadata is not None:
        plan.put_file(metadata, files.PARTITION_METADATA)
    return plan.result()


def metadata_to_write(folder: PartitionFolder, topic_id: str | None) -> bytes | None:
    """Return the new content of ``partition.metadata``; None where it has that content, or no topic id is given.

    Raises
    ------
    InvalidOptionError
        The partition has another topic id: the topic was deleted and made again, or is another cluster's.
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
            f"topicId is {topic_id}, and {path} says {found}: a broker would add the log for stray"
        )
    return None


class _CommitPlan:
    """The moves for one log so far, and the end of the log as it will be after them."""

    def __init__(
        self, folder: PartitionFolder, found: Recovered, config: LogConfig, small: SmallFiles, snapshots: frozenset[int]
    ) -> None:
        self.tail, self._snapshots = found.state, snapshots
        self._folder, self._found, self._config, self._small = folder, found, config, small
        self._moves: list[Move] = []
        self._segments: list[int] = []
        self._indexes = _IndexEntries(found.state)

    def add(self, staged: StagedFile) -> None:
        """Append a staged file to the active segment, or put it in the segment's place where that is empty."""
        base_offset, size_bytes = self.tail.segment.base_offset, self.tail.segment.size_bytes
        log = self._path(base_offset, files.LOG)
        if size_bytes:
            self._moves.append(Append(staged.log_name, 0, staged.size_bytes, log, size_bytes))
        else:
            self._moves.append(Rename(staged.log_name, log))
        if base_offset not in self._segments:
            self._segments.append(base_offset)

    def append_entries(self, tail: ActiveSegmentState, offset_entries: bytes, time_entries: bytes) -> None:
        """Note the end of the log after a file, and the index entries that it adds."""
        self.tail = tail
        self._indexes.offset_entries += offset_entries
        self._indexes.time_entries += time_entries

    def roll(self, now_ms: int) -> None:
        """Seal the active segment, and begin another one behind it."""
        self._seal()
        self.tail = new_segment(self.tail.end_offset, now_ms, 0)
        self._indexes = _IndexEntries(self.tail)
        self._put_snapshot()

    def put_file(self, data: bytes, name: str) -> None:
        """Write a small file of the folder; it replaces one of that name."""
        self._moves.append(self._small.append(data, self._folder.relative(name)))

    def result(self) -> PartitionChange:
        """Finish the plan, and return it."""
        before, tail = self._found.state, self.tail
        if tail.end_offset > before.end_offset:
            self._seal()
            self._put_snapshot()
        return PartitionChange(
            before=LogExtent(
                self._found.start_offset, before.end_offset, before.segment.base_offset, before.segment.size_bytes
            ),
            end_offset=tail.end_offset,
            moves=tuple(self._moves),
            segments=tuple(self._segments),
        )

    def _seal(self) -> None:
        """Write the active segment's indexes, with the last entry that a segment gets when it is rolled or closed."""
        base_offset, entries = self.tail.segment.base_offset, self._indexes
        self.tail, last_entry = seal(self.tail)
        entries.time_entries += last_entry
        for suffix, data, position in (
            (files.OFFSET_INDEX, entries.offset_entries, entries.offset_position),
            (files.TIME_INDEX, entries.time_entries, entries.time_position),
        ):
            self._moves.append(self._small.append(bytes(data), self._path(base_offset, suffix), position))

    def _put_snapshot(self) -> None:
        """Write a snapshot of the producers at the log end offset; the records of a commit have no producer.

        A snapshot that exists is left as it is: recovery has found it sound, and it may hold producers that have been
        idle for so long that recovery no longer lists them.
        """
        if self.tail.end_offset in self._snapshots:
            return
        self.put_file(self._found.producers.encode(), offset_file_name(self.tail.end_offset, files.SNAPSHOT))

    def _path(self, offset: int, suffix: str) -> str:
        return self._folder.relative(offset_file_name(offset, suffix))


@dataclass
class _IndexEntries:
    """The entries that a commit adds to the indexes of the active segment, and their positions in the files."""

    tail: ActiveSegmentState
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)

    @property
    def offset_position(self) -> int:
        return self.tail.offset_index_bytes

    @property
    def time_position(self) -> int:
        return self.tail.time_index_bytes
