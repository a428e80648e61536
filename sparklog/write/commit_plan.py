"""Plans how a commit adds staged runs to a log. The plan is a list of journal moves; `write.journal` applies them.

The log rolls by the same rules as under a single writer: a run is appended to the active segment while it fits there,
and begins a new segment otherwise. A long run that is alone in its file becomes that segment as it is, without a copy.
The runs of files that partitions share are gathered in a file of the commit's own, with their offsets, so that a move
takes all consecutive ones, from any number of tasks.

Batches copied from other logs may have producers. The state that a broker keeps for them is kept here as well: their
state in the snapshots, and in the transaction index of each segment the transactions that were aborted in it, all by
the offsets that the batches get. Logs that are copied to one partition follow each other. A producer id in two
of them means two producers, and the markers of one must not end a transaction of the other: see `_Foreign`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import CommitError, InvalidOptionError, PathNotFoundError
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, encode_topic_id, parse_topic_id
from sparklog.log.config import LogConfig
from sparklog.log.files import offset_file_name
from sparklog.log.journal import NO_SEGMENT, Append, LogExtent, Move, Rename
from sparklog.log.log_identity import encode_log_id, new_log_id
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import Producers, encode_aborted
from sparklog.storage.base import WritableFile
from sparklog.write.active_segment import (
    ActiveSegmentState,
    append_run,
    fits,
    new_segment,
    refuse_past_last_offset,
    rows_before_roll,
    seal,
)
from sparklog.write.recovery import Recovered
from sparklog.write.staged_files import StagedRun
from sparklog.write.staged_runs import StagedBatches, StagedRuns, gathered
from sparklog.write.staging import COPIED_SHARE_MAX

_BUFFERED_BYTES_MAX: Final = 1 << 20
_GATHERED_BYTES_MAX: Final = 1 << 23
"""Upper bound, roughly, for the bytes of a log's small runs in memory."""


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """The start, end and leader epoch that a log of copied batches must get, and its topic's id; None for no demand.

    Attributes
    ----------
    start_offset : int or None
        Log start offset. The log must be empty.
    end_offset : int or None
        The log end offset, if it is beyond the last batch.
    topic_id : str or None
        For ``partition.metadata``.
    leader_epoch : int or None
        The leader epoch of all its batches. The log must be empty.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    topic_id: str | None = None
    leader_epoch: int | None = None


UNBOUND: Final = OffsetBounds()


@dataclass(frozen=True)
class PartitionChange:
    """The changes that one commit makes to one log.

    Attributes
    ----------
    before : LogExtent
        The log before the commit.
    first_offset : int
        The offset of the first batch that the commit adds; the log end offset before it if it adds none.
    end_offset : int
        The log end offset after the commit.
    moves : tuple of Move
        The journal entries that make the changes, in order.
    segments : tuple of int
        Base offsets of the segments that records are added to.
    log_id : str or None
        The id of the log, if the commit creates the log.
    """

    before: LogExtent
    first_offset: int
    end_offset: int
    moves: tuple[Move, ...]
    segments: tuple[int, ...]
    log_id: str | None = None


class SmallFiles:
    """The small pieces that a commit writes, in one staged file, so that one sync is enough.

    Parameters
    ----------
    file : WritableFile
        The staged file, empty.
    name : str
        Its path, relative to the log directory.
    """

    def __init__(self, file: WritableFile, name: str) -> None:
        self._file, self._name = file, name
        self._buffer, self._size_bytes = bytearray(), 0

    def append(self, data: bytes | memoryview, target: str, position: int = 0) -> Append:
        """Add some bytes, and return the move that writes them to a file from a position on."""
        source_position = self._size_bytes
        self._buffer += data
        self._size_bytes += len(data)
        if len(self._buffer) > _BUFFERED_BYTES_MAX:
            self.flush()
        return Append(self._name, source_position, len(data), target, position)

    def flush(self) -> None:
        """Write what has been added; the caller syncs the file."""
        if self._buffer:
            self._file.append(self._buffer)
            self._buffer = bytearray()


def plan_commit(
    folder: PartitionFolder,
    found: Recovered,
    staged: Sequence[StagedRun],
    config: LogConfig,
    runs: StagedRuns,
    small: SmallFiles,
    now_ms: int,
    topic_id: str | None = None,
    bounds: OffsetBounds = UNBOUND,
) -> PartitionChange:
    """Give staged runs their offsets, and plan how they become part of one log.

    Parameters
    ----------
    folder : PartitionFolder
        Its log directory is locked.
    found : Recovered
        The log before the commit. It need not have a segment.
    staged : sequence of StagedRun
        The runs, in the order that their records are to have.
    runs : StagedRuns
        Reads the runs.
    small : SmallFiles
        Takes the bytes of runs of shared files, and of indexes, snapshots and checkpoints.
    topic_id : str, optional
        For ``partition.metadata``.
    bounds : OffsetBounds
        The demands on a log that gets copied batches.

    Returns
    -------
    PartitionChange
        No file but the staged ones has been changed, and those are not synced.

    Raises
    ------
    CommitError
        Batches are to keep offsets that the log is past, or transactions of different producers would be mixed up.
    OffsetOutOfRangeError
        The log would get offsets above the largest possible one.
    """
    plan = _CommitPlan(folder, found, config, small)
    leader_epoch = bounds.leader_epoch
    if leader_epoch is None:
        leader_epoch = max((epoch for epoch, _ in found.leader_epochs), default=0)
    first_offset, epoch_offset = found.state.end_offset, None
    for number, group in enumerate(gathered(staged, _GATHERED_BYTES_MAX)):
        base_offset = plan.base_offset_for(group[0])
        count = sum(run.end_offset - run.base_offset for run in group)
        refuse_past_last_offset(folder.name, base_offset, count)
        batches = runs.batches(group, base_offset)
        if not number:
            plan.begin_at(base_offset if bounds.start_offset is None else min(base_offset, bounds.start_offset), now_ms)
            first_offset = base_offset
        if epoch_offset is None:
            epoch_offset = batches.first_with_epoch()
        plan.refuse_mixed(group[0], batches)
        if group[0].is_alone:
            runs.stamp_file(group[0], batches, leader_epoch)
            plan.add_file(group[0], batches, now_ms)
        else:
            plan.add_bytes(memoryview(runs.stamped(group, batches, leader_epoch)), batches, now_ms)
    plan.end_at(bounds.end_offset, now_ms)
    if epoch_offset is not None and not found.leader_epochs:
        plan.put_file(encode_leader_epochs([(leader_epoch, epoch_offset)]), files.LEADER_EPOCH_CHECKPOINT)
    metadata = metadata_to_write(folder, bounds.topic_id or topic_id)
    if metadata is not None:
        plan.put_file(metadata, files.PARTITION_METADATA)
    log_id = None if found.has_segment else new_log_id()
    if log_id is not None:
        plan.put_file(encode_log_id(log_id), files.LOG_IDENTITY)
    return plan.result(first_offset, log_id)


def metadata_to_write(folder: PartitionFolder, topic_id: str | None) -> bytes | None:
    """Return the new content of ``partition.metadata``; None if it has that content, or no topic id is given.

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
            f"topicId is {topic_id}, and {path} says {found}: a broker would take the log for stray"
        )
    return None


class _CommitPlan:
    """The moves for one log so far, and the end of the log as it will be after them."""

    def __init__(self, folder: PartitionFolder, found: Recovered, config: LogConfig, small: SmallFiles) -> None:
        self.tail = found.state
        self._folder, self._found, self._config, self._small = folder, found, config, small
        self._moves: list[Move] = []
        self._segments: list[int] = []
        self._indexes = _IndexEntries(found.state)
        self._has_segment, self._has_renamed = found.has_segment, False
        self._producers = Producers(dict(found.producers.entries))
        self._foreign = _Foreign(folder.location)

    def base_offset_for(self, staged: StagedRun) -> int:
        """Return the offset that the first batch of a run gets."""
        end_offset = self.tail.end_offset
        if not staged.origin.keeps_offsets:
            return end_offset
        if staged.base_offset < end_offset:
            raise CommitError(
                f"batches of {staged.origin.source} must keep their offsets, which begin at {staged.base_offset}, but "
                f"{self._folder.location} ends at offset {end_offset}"
            )
        return staged.base_offset

    def begin_at(self, base_offset: int, now_ms: int) -> None:
        """Begin an empty log with a segment of that base offset, if its batches will be above its end."""
        if base_offset > self.tail.end_offset and not self.tail.segment.size_bytes:
            self._begin_segment(base_offset, now_ms)

    def end_at(self, end_offset: int | None, now_ms: int) -> None:
        """End the log at an offset beyond its last batch, with an empty segment."""
        if end_offset is not None and end_offset > self.tail.end_offset:
            self._begin_segment(end_offset, now_ms)

    def _begin_segment(self, base_offset: int, now_ms: int) -> None:
        if self._has_segment:
            self.roll(now_ms, base_offset)
        else:
            self.tail, self._has_segment = new_segment(base_offset, now_ms), True
            self._indexes = _IndexEntries(self.tail)

    def refuse_mixed(self, staged: StagedRun, batches: StagedBatches) -> None:
        """Raise `CommitError` if batches belong to an open transaction of a different producer with the same id."""
        if staged.origin.source:
            self._foreign.begin(staged, self._producers.open_transactions)
            self._foreign.refuse(staged, batches)

    def add_file(self, staged: StagedRun, batches: StagedBatches, now_ms: int) -> None:
        """Append a staged file to the active segment if it is small and fits; otherwise make it a segment."""
        is_small = staged.size_bytes <= self._config.segment_bytes * COPIED_SHARE_MAX
        if self.tail.segment.size_bytes and not (is_small and fits(self.tail, batches.run, self._config, now_ms)):
            self.roll(now_ms, batches.base_offset)
        log, size_bytes = self._log(), self.tail.segment.size_bytes
        if size_bytes or not _can_rename_into(self._folder):
            self._moves.append(Append(staged.log_name, 0, staged.size_bytes, log, size_bytes))
        else:
            self._moves.append(Rename(staged.log_name, log))
        self._append_run(batches)

    def add_bytes(self, data: memoryview, batches: StagedBatches, now_ms: int) -> None:
        """Append batches to the active segment as far as they fit, and the rest to new segments after it."""
        while len(batches):
            rows = rows_before_roll(self.tail, batches.run, self._config, now_ms)
            if rows:
                fitting = batches if rows == len(batches) else batches[:rows]
                size_bytes = fitting.run.size_bytes
                self._append_bytes(data[:size_bytes])
                self._append_run(fitting)
                data, batches = data[size_bytes:], batches[rows:]
            if len(batches):
                self.roll(now_ms, batches.base_offset)

    def _append_bytes(self, data: memoryview) -> None:
        """Append batches with the move of the batches before them, if there is one."""
        move = self._small.append(data, self._log(), self.tail.segment.size_bytes)
        last = self._moves[-1] if self._moves else None
        joined = last.followed_by(move) if isinstance(last, Append) else None
        if joined is None:
            self._moves.append(move)
        else:
            self._moves[-1] = joined

    def _log(self) -> str:
        """Return the path of the active segment, to which records are added."""
        base_offset = self.tail.segment.base_offset
        self._has_segment = True
        if base_offset not in self._segments:
            self._segments.append(base_offset)
        return self._path(base_offset, files.LOG)

    def _append_run(self, batches: StagedBatches) -> None:
        """Note the end of the log after some batches, their producers, and the index entries that they add."""
        self.tail, offset_entries, time_entries = append_run(self.tail, batches.run, self._config)
        self._indexes.offset_entries += offset_entries
        self._indexes.time_entries += time_entries
        aborted = batches.fold_into(self._producers)
        if aborted:
            self._indexes.transactions += encode_aborted(aborted)

    def roll(self, now_ms: int, base_offset: int) -> None:
        """Seal the active segment, and begin another one after it."""
        self._seal()
        self.tail = new_segment(base_offset, now_ms, 0)
        self._indexes = _IndexEntries(self.tail)
        self._put_snapshot()

    def put_file(self, data: bytes, name: str) -> None:
        """Write a small file of the folder; it replaces one of that name."""
        self._moves.append(self._small.append(data, self._folder.relative(name)))

    def result(self, first_offset: int, log_id: str | None) -> PartitionChange:
        """Finish the plan, and return it."""
        before, tail = self._found.state, self.tail
        if not self._has_segment or (tail.end_offset > before.end_offset and not tail.segment.size_bytes):
            self.put_file(b"", offset_file_name(tail.segment.base_offset, files.LOG))
        if tail.end_offset > before.end_offset or not self._found.has_segment:
            self._seal()
        if tail.end_offset > before.end_offset:
            self._put_snapshot()
        segment = before.segment.base_offset if self._found.has_segment else NO_SEGMENT
        return PartitionChange(
            before=LogExtent(self._found.start_offset, before.end_offset, segment, before.segment.size_bytes),
            first_offset=first_offset,
            end_offset=tail.end_offset,
            moves=tuple(self._moves),
            segments=tuple(self._segments),
            log_id=log_id,
        )

    def _seal(self) -> None:
        """Write the active segment's indexes, with the last entry that a segment gets when it is rolled or closed."""
        base_offset, entries = self.tail.segment.base_offset, self._indexes
        self.tail, last_entry = seal(self.tail)
        entries.time_entries += last_entry
        # Recovery has made both indexes of the segment that was there.
        has_indexes = self._found.has_segment and base_offset == self._found.state.segment.base_offset
        for suffix, data, position in (
            (files.OFFSET_INDEX, entries.offset_entries, entries.offset_position),
            (files.TIME_INDEX, entries.time_entries, entries.time_position),
        ):
            if data or not has_indexes:
                self._moves.append(self._small.append(bytes(data), self._path(base_offset, suffix), position))
        if entries.transactions:
            path = self._path(base_offset, files.TRANSACTION_INDEX)
            self._moves.append(self._small.append(bytes(entries.transactions), path, self._transactions_bytes(path)))

    def _transactions_bytes(self, relative: str) -> int:
        """Return the size of a transaction index. Recovery has made sure that it ends with a whole entry."""
        directory = self._folder.directory
        try:
            with directory.storage.open(directory.file(relative)) as index:
                return index.size_bytes()
        except PathNotFoundError:
            return 0

    def _put_snapshot(self) -> None:
        """Write a snapshot of the producers at the log end offset.

        An existing snapshot is left alone: recovery has found it sound, and it may hold producers that have been
        idle for so long that recovery no longer lists them.
        """
        if self.tail.end_offset in self._found.snapshots:
            return
        spare = self._spare_snapshot()
        if spare is None:
            self.put_file(self._producers.encode(), offset_file_name(self.tail.end_offset, files.SNAPSHOT))
        else:
            self._moves.append(Rename(spare, self._path(self.tail.end_offset, files.SNAPSHOT)))

    def _spare_snapshot(self) -> str | None:
        """Return the path of a snapshot that the commit replaces by an equal one; None if there is none.

        Most logs have no producers, and so their snapshots are all the same. To make a file and to remove another takes
        a third of the time of a small commit. The snapshot at a segment's base offset stays, as a broker's would.
        """
        before = self._found.state
        is_equal = self._found.empty_snapshot == before.end_offset and not self._producers.entries
        bases = (before.segment.base_offset, self.tail.segment.base_offset, *self._segments)
        if self._has_renamed or not is_equal or before.end_offset in bases:
            return None
        self._has_renamed = True
        return self._path(before.end_offset, files.SNAPSHOT)

    def _path(self, offset: int, suffix: str) -> str:
        return self._folder.relative(offset_file_name(offset, suffix))


def _can_rename_into(folder: PartitionFolder) -> bool:
    """Return whether a file of the log directory can be renamed into one of its folders, which may be on another disk.

    A missing folder is made by the commit, on the disk of the directory.
    """
    of_directory, of_folder = (folder.storage.identity(place.location) for place in (folder.directory, folder))
    return of_directory is not None and (of_folder is None or of_directory[0] == of_folder[0])


class _Foreign:
    """The transactions that were open when the batches of a source began, which belong to other producers.

    Brokers, and readers of committed records, know producers by their ids alone. If a producer of the
    source had the id of another with an open transaction, it would continue that transaction, and end it.

    Parameters
    ----------
    path : str
        The log that is copied to.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._source = ""
        self._open: Mapping[int, int] = {}

    def begin(self, staged: StagedRun, open_transactions: Mapping[int, int]) -> None:
        """Note the open transactions where a source begins. A source that continues an earlier copy may end them."""
        if staged.origin.source != self._source:
            self._open = {} if staged.origin.goes_on else dict(open_transactions)
            self._source = staged.origin.source

    def refuse(self, staged: StagedRun, batches: StagedBatches) -> None:
        """Raise `CommitError` if batches have the producer id of such a transaction."""
        for producer_id in batches.in_transactions() if self._open else ():
            if producer_id in self._open:
                raise CommitError(
                    f"{self._path} has a transaction of producer {producer_id} open since offset "
                    f"{self._open[producer_id]}, and {staged.origin.source} has batches of a producer of that id, "
                    f"which would continue that transaction and end it. Copy decided transactions only, with "
                    f"isolation_level read_committed, or to another topic"
                )


@dataclass
class _IndexEntries:
    """The entries that a commit adds to the indexes of the active segment, and their positions in the files."""

    tail: ActiveSegmentState
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)
    transactions: bytearray = field(default_factory=bytearray)

    @property
    def offset_position(self) -> int:
        return self.tail.offset_index_bytes

    @property
    def time_position(self) -> int:
        return self.tail.time_index_bytes
