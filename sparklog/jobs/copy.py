"""Copies partition logs to a log directory: whole batches, as they are but for their offsets and leader epochs.

No batch is decompressed, unless it is to get another codec; the checksum of each is checked. What is copied becomes
visible at once, with the line of the ledger that says so.

A batch is copied whole or not at all: a range of offsets is widened to the batches at its ends. Records before the log
start offset of the source that share a batch with later ones stay hidden, which needs a target that is empty; into
another one they would come back, and such a copy is refused.

Offsets are counted on from the end of the target, or kept. Kept ones must be at or behind that end. An empty log then
begins and ends where the source does.

Sources of one partition come one behind the other, in the order in which they are given. Producers of the same id are
not told apart, as by a broker: see `sparklog.write.commit_plan` for what is refused. Otherwise their batches may follow
each other with whatever sequence numbers they have, since those are checked when a batch is produced, and not when a
log is loaded. An uncommitted copy takes open transactions along, which a later copy of the same source ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.errors import NOTHING_VISIBLE, InvalidOptionError, SeglogError, outcome
from sparklog.jobs.job import Amount, Report
from sparklog.jobs.ledger import Moved, commits, encode_commit, read_ledger
from sparklog.jobs.source import LogSource, Selected
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs, parse_topic_id
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.scan import refuse_damaged_end, scan
from sparklog.log.segment import OffsetPosition, OpenSegment
from sparklog.log.transactions import last_stable_offset
from sparklog.record.compression import CODEC_IDS
from sparklog.record.wrappers import last_offset_inside
from sparklog.storage.registry import Location
from sparklog.topic.commit import Job as CommitJob
from sparklog.topic.commit import commit, holding
from sparklog.topic.discovery import named
from sparklog.topic.packing import pack
from sparklog.topic.ranges import ReadRange, cut_by_bytes
from sparklog.topic.write_target import find_target, is_topic_name
from sparklog.write.commit_plan import OffsetBounds
from sparklog.write.copied import BatchTaker
from sparklog.write.staging import COPIED_SHARE_MAX, Origin, StagedRun, TaskStage

TASK_BYTES: Final = 1 << 28
"""How many bytes of log a task copies at most, about, by default."""
_TASK_BYTES_MIN: Final = 1 << 26
_TASKS_A_WORKER: Final = 3
_NAME: Final = "copy"


@dataclass(frozen=True)
class CopySource:
    """Logs to be copied, and under which topics.

    Attributes
    ----------
    renames : tuple of (str, str)
        Topics, each with the one that it is copied to; the others keep their names.
    """

    logs: LogSource
    renames: tuple[tuple[str, str], ...] = ()

    def target_of(self, at: TopicPartition) -> TopicPartition:
        """Return the partition that another is copied to."""
        return TopicPartition(dict(self.renames).get(at.topic, at.topic), at.partition)


@dataclass(frozen=True)
class CopyPiece:
    """A range of offsets of one log that one task copies.

    Attributes
    ----------
    target : str
        The folder of the log that it goes to, by its name.
    base_offset : int
        The offset that its first batch is expected to get.
    bounds : OffsetBounds
        Where that log is to start and end.
    moved : Moved
        What the ledger is to say of it, but for the counts.
    """

    range: ReadRange
    target: str
    base_offset: int
    origin: Origin
    bounds: OffsetBounds
    moved: Moved


@dataclass(frozen=True)
class CopyTask:
    """Some pieces of about a task's size in all."""

    number: int
    name: str
    pieces: tuple[CopyPiece, ...]
    follows: int | None = None

    @property
    def size_bytes(self) -> int:
        return sum(piece.moved.log_bytes for piece in self.pieces)


@dataclass(frozen=True)
class Copied:
    """What a task has staged.

    Attributes
    ----------
    moved : tuple of Moved
        What the ledger is to say of each piece.
    bounds : tuple of (str, OffsetBounds)
        Where the logs that it goes to are to start and end, by the names of their folders.
    """

    staged: tuple[StagedRun, ...]
    moved: tuple[Moved, ...]
    bounds: tuple[tuple[str, OffsetBounds], ...]


@dataclass(frozen=True)
class CopyJob:
    """Copies logs to a log directory.

    Attributes
    ----------
    target : Location
        The log directory, which is made where it is not there.
    sources : tuple of CopySource
        Logs of the same name are merged, in this order.
    config : LogConfig
        Says where segments are rolled, and how far apart index entries are.
    keeps_offsets : bool
        Whether batches keep their offsets.
    codec : str or None
        Kafka's name of the codec that batches get; None leaves each as it is.
    since_last : bool
        Whether to leave out what was copied before, by the ledger.
    topic_id : str or None
        Goes into ``partition.metadata``, of one topic.
    run_id : str
        Of `sparklog.write.staging.new_job`.
    now_ms : int
        Wall-clock time, ms since the epoch.
    workers : int
        How many tasks run at a time, about.
    """

    target: Location
    sources: tuple[CopySource, ...]
    config: LogConfig
    run_id: str
    now_ms: int
    keeps_offsets: bool = False
    codec: str | None = None
    since_last: bool = True
    topic_id: str | None = None
    workers: int = 1
    task_bytes: int = TASK_BYTES
    lock_timeout_seconds: float = 600.0

    commits_as_it_goes = False

    def __post_init__(self) -> None:
        if self.codec is not None and self.codec not in CODEC_IDS:
            raise InvalidOptionError(f"unknown codec {self.codec!r}; there are {', '.join(CODEC_IDS)}")

    @property
    def directory(self) -> LogDirectory:
        return LogDirectory(*self.target)

    def held(self) -> AbstractContextManager[None]:
        found, (storage, path) = find_target(self.target, None, None, has_topic_column=True), self.target
        # An empty folder may have the name of a partition.
        if found.topic is not None and not (storage.is_folder(path) and not storage.names(path)):
            raise InvalidOptionError(f"{self.target.path} is not a log directory: logs are copied to a whole one")
        return holding(self.directory, self.run_id, self.lock_timeout_seconds, self.now_ms)

    def plan(self) -> list[CopyTask]:
        """Cut what is to be copied into tasks of about equal bytes, and give small partitions to one together.

        Raises
        ------
        InvalidOptionError
            A log would be copied to itself, or offsets cannot be as they are asked to be.
        CorruptLogError, DataLossError
            A log is damaged, or offsets of it are gone: nothing is copied then.
        """
        with outcome(NOTHING_VISIBLE):
            planned = _Plan(self)
            for source in self.sources:
                planned.add(source)
        pieces = planned.pieces
        rows = pack(
            [piece.moved.log_bytes for piece in pieces],
            [0] * len(pieces),
            bytes_max=self.task_bytes,
            tasks_min=min(self.workers, len(pieces)),
        )
        return [CopyTask(number, _name_of(pieces[each]), tuple(pieces[each])) for number, each in enumerate(rows)]

    def run(self, task: CopyTask, report: Report) -> Copied:
        """Stage the batches of a task, checked and with the offsets that they are expected to get."""
        stage = TaskStage(self.directory, self.run_id, task.number, secrets.randbits(31), self.config)
        try:
            with outcome(NOTHING_VISIBLE):
                moved = tuple(self._copy(piece, stage, report) for piece in task.pieces)
                staged = tuple(stage.finish())
        except BaseException:
            # The error that is being raised says more than one that the removal may meet.
            with suppress(SeglogError):
                stage.discard()
            raise
        return Copied(staged, moved, tuple((piece.target, piece.bounds) for piece in task.pieces))

    def _copy(self, piece: CopyPiece, stage: TaskStage, report: Report) -> Moved:
        of_log, is_large = piece.range, piece.moved.log_bytes > self.config.segment_bytes * COPIED_SHARE_MAX
        stage.begin_copy(piece.target, piece.base_offset, piece.origin, is_large=is_large)
        taker = BatchTaker(
            start_offset=of_log.start_offset,
            end_offset=of_log.end_offset,
            keeps_offsets=self.keeps_offsets,
            leader_epoch=piece.origin.leader_epoch,
            codec=self.codec,
            decompressed_bytes_max=self.config.max_decompressed_message_bytes,
        )
        rows = log_bytes = 0
        if of_log.size > 0:
            layout = read_layout(of_log.folder)
            for segment, window in scan(layout, of_log.start_offset, of_log.end_offset, is_checked=True):
                batches = taker.take(segment, window, stage.end_offset(piece.target))
                if batches is None:
                    continue
                stage.append(batches, [piece.target], [len(batches.headers)], self.now_ms)
                more = Amount(len(batches.data), int(batches.headers.column("record_count").sum()))
                rows, log_bytes = rows + more.records, log_bytes + more.size_bytes
                report(more)
        return replace(piece.moved, rows=rows, log_bytes=log_bytes)

    def commit(self, results: Sequence[Copied]) -> None:
        """Make all that was staged visible, at once, and say so in the ledger."""
        bounds = {target: each for result in results for target, each in result.bounds}
        if not bounds:
            return
        ledger = read_ledger(self.directory.storage, self.directory.file(files.JOBS_LEDGER))
        moved = [each for result in results for each in result.moved if each.end_offset > each.start_offset]
        lines = encode_commit(ledger.next_number, _NAME, self.run_id, self.now_ms, moved)
        job = CommitJob(
            job_id=self.run_id,
            directory=self.directory,
            config=self.config,
            new_topics={},
            topic_id=self.topic_id,
            appended={files.JOBS_LEDGER: lines},
            append_positions={files.JOBS_LEDGER: ledger.size_bytes},
            bounds=bounds,
        )
        commit(job, [each for result in results for each in result.staged], self.now_ms, is_held=True)


def _name_of(pieces: Sequence[CopyPiece]) -> str:
    first, last = pieces[0].range, pieces[-1].range
    return str(first) if len(pieces) == 1 else f"{len(pieces)} ranges, {first} to {last}"


_Identity = tuple[TopicPartition, str]
"""A partition of a source: known by its topic id, where it has one, and else by the path of its log directory."""


def _identity(at: TopicPartition, topic_id: str | None, source: str | None) -> _Identity:
    return at, topic_id or source or ""


@dataclass
class _Landing:
    """A log that is copied to, as it will be after the pieces that are planned so far.

    Attributes
    ----------
    is_empty : bool
        Whether it has no records yet.
    leader_epoch : int
        The epoch that batches are expected to get.
    """

    folder: PartitionFolder
    is_new: bool
    is_empty: bool = True
    end_offset: int = 0
    leader_epoch: int = 0
    bounds: OffsetBounds = field(default_factory=OffsetBounds)


class _Plan:
    """The pieces of a copy, source by source; the target is held."""

    def __init__(self, job: CopyJob) -> None:
        self.pieces: list[CopyPiece] = []
        self._targets: set[str] = set()
        self._job, self._directory = job, job.directory
        self._there = {entry.name for entry in self._directory.storage.names(self._directory.path) if entry.is_folder}
        self._landings: dict[str, _Landing] = {}
        self._seen: dict[_Identity, str] = {}
        self._moved = self._ledger() if job.since_last else {}

    def _ledger(self) -> dict[_Identity, Moved]:
        """Return what was copied last of each partition of each source."""
        return {
            _identity(entry.topic_partition, entry.topic_id, entry.source): entry
            for each in commits(self._directory.storage, self._directory.file(files.JOBS_LEDGER))
            for entry in each.entries
            if isinstance(entry, Moved)
        }

    def add(self, source: CopySource) -> None:
        """Plan what is to be copied of a source, behind what is planned already."""
        folders = source.logs.folders()
        moved: dict[TopicPartition, Moved] = {}
        for folder in folders:
            identity = _identity(named(folder), topic_id_of(folder), folder.directory.path)
            if identity in self._seen:
                raise InvalidOptionError(
                    f"{folder.location} and {self._seen[identity]} are the same partition of the same topic: copy one"
                )
            self._seen[identity] = folder.location
            if identity in self._moved:
                moved[named(folder)] = self._moved[identity]
        selected = source.logs.select(moved)
        for each in selected:
            if each.damage is not None:
                raise each.damage
        ranges = {each.range.topic_partition: each for each in selected}
        bytes_max = self._bytes_max(selected)
        for folder in folders:
            found = ranges.get(named(folder))
            landing = self._landing(folder, source.target_of(named(folder)))
            if found is None or found.layout is None:
                self._add_empty(folder, landing)
            else:
                is_committed = source.logs.isolation_level == "read_committed"
                whole = self._whole_batches(found.range, found.layout, is_committed=is_committed)
                self._add(found, whole, found.layout, landing, bytes_max, goes_on=named(folder) in moved)

    def _bytes_max(self, selected: Sequence[Selected]) -> int:
        total_bytes = sum(
            sum(segment.size_bytes for segment in each.layout.segments) for each in selected if each.layout
        )
        return min(self._job.task_bytes, max(total_bytes // (self._job.workers * _TASKS_A_WORKER), _TASK_BYTES_MIN))

    def _landing(self, source: PartitionFolder, at: TopicPartition) -> _Landing:
        """Return the log that a partition is copied to."""
        if not is_topic_name(at.topic):
            raise InvalidOptionError(f"not a topic's name: {at.topic!r}")
        folder = PartitionFolder(self._directory, at.topic, at.partition)
        if folder.name not in self._landings:
            self._landings[folder.name] = self._found(folder) if folder.name in self._there else _Landing(folder, True)
        storage = folder.storage
        if not self._landings[folder.name].is_new and storage.identity(folder.location) == source.storage.identity(
            source.location
        ):
            raise InvalidOptionError(f"{source.location} would be copied to itself: give its topic another name")
        return self._landings[folder.name]

    def _found(self, folder: PartitionFolder) -> _Landing:
        layout = read_layout(folder)
        path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
        epochs = parse_leader_epochs(folder.storage.read_small(path) or b"", path)
        return _Landing(
            folder,
            is_new=False,
            is_empty=layout.start_offset == layout.end_offset,
            end_offset=layout.end_offset,
            leader_epoch=max((epoch for epoch, _ in epochs), default=0),
        )

    def _add_empty(self, folder: PartitionFolder, landing: _Landing) -> None:
        """Have a partition of which nothing is copied be there, and where offsets are kept begin where it begins."""
        if not landing.is_new or landing.folder.name in self._targets:
            return
        layout = read_layout(folder)
        if self._job.keeps_offsets and layout.start_offset == layout.end_offset > 0:
            landing.bounds = OffsetBounds(layout.start_offset, layout.end_offset)
            landing.end_offset = layout.end_offset
        nothing = ReadRange(folder, layout.end_offset, layout.end_offset, layout.end_offset)
        moved = Moved(folder.topic, folder.partition or 0, nothing.start_offset, nothing.end_offset, 0, 0)
        origin = Origin(folder.location)
        self._put(CopyPiece(nothing, landing.folder.name, landing.end_offset, origin, landing.bounds, moved))

    def _put(self, piece: CopyPiece) -> None:
        self.pieces.append(piece)
        self._targets.add(piece.target)

    def _add(
        self,
        found: Selected,
        whole: ReadRange,
        layout: PartitionLayout,
        landing: _Landing,
        bytes_max: int,
        *,
        goes_on: bool,
    ) -> None:
        if whole.size <= 0:
            self._add_empty(layout.folder, landing)
            return
        keeps_offsets, first_offset = self._job.keeps_offsets, _base_offset_at(layout, whole.start_offset)
        self._bound(first_offset, whole.end_offset, layout, landing)
        origin = Origin(layout.path, goes_on, keeps_offsets, landing.leader_epoch)
        shift = 0 if keeps_offsets else landing.end_offset - first_offset
        base_offset = first_offset + shift
        for piece, log_bytes in cut_by_bytes(whole, layout, bytes_max):
            at, epoch = piece.topic_partition, found.leader_epoch(piece.end_offset)
            moved = Moved(
                at.topic, at.partition, piece.start_offset, piece.end_offset, 0, log_bytes, found.topic_id, epoch,
                source=layout.folder.directory.path,
            )  # fmt: skip
            self._put(CopyPiece(piece, landing.folder.name, base_offset, origin, landing.bounds, moved))
            # A batch in which a piece was cut may begin before the next one: then offsets that are kept do.
            base_offset = first_offset if keeps_offsets else piece.end_offset + shift
        landing.end_offset, landing.is_empty = whole.end_offset + shift, False

    def _whole_batches(self, wanted: ReadRange, layout: PartitionLayout, *, is_committed: bool) -> ReadRange:
        """Widen a range to the batch at its end; where only decided transactions are copied, cut others off."""
        start, end = wanted.start_offset, wanted.end_offset
        if end == layout.end_offset:
            refuse_damaged_end(layout)
        elif end > start:
            end = _end_offset_at(layout, end - 1)
        while is_committed and start < end < layout.end_offset:
            # What was decided before the last stable offset may have its marker behind that, as in the midst of a log.
            stable_offset = last_stable_offset(replace(layout, end=OffsetPosition(0, end)))
            if stable_offset == end:
                break
            end = stable_offset
        return wanted.within(start, max(start, end))

    def _bound(self, first_offset: int, end_offset: int, layout: PartitionLayout, landing: _Landing) -> None:
        """Say where the log that is copied to is to start and end; raise where it cannot."""
        path, target = layout.path, landing.folder.location
        hidden = max(layout.start_offset - first_offset, 0)
        if hidden and not landing.is_empty:
            raise InvalidOptionError(
                f"the first batch of {path} has {hidden} offsets before its log start offset {layout.start_offset}, "
                f"where records were deleted that would be back in {target}, which is not empty. Begin behind that "
                f"batch, or copy to an empty log"
            )
        if not self._job.keeps_offsets:
            if hidden:
                landing.bounds = OffsetBounds(landing.end_offset + hidden)
            return
        if first_offset < landing.end_offset:
            raise InvalidOptionError(
                f"keep_offsets: the first offset of {path} that is to be copied is {first_offset}, and {target} "
                f"ends at offset {landing.end_offset}, so that it cannot take that offset. Begin there, or let the "
                f"offsets be counted on"
            )
        start_offset = first_offset + hidden if landing.is_empty else landing.bounds.start_offset
        landing.bounds = OffsetBounds(start_offset, end_offset if end_offset == layout.end_offset else None)


def topic_id_of(folder: PartitionFolder) -> str | None:
    """Return the topic id of a partition; None where it has none."""
    path = folder.file(files.PARTITION_METADATA)
    data = folder.storage.read_small(path)
    return None if data is None else parse_topic_id(data, path)


def _base_offset_at(layout: PartitionLayout, offset: int) -> int:
    """Return the first offset of the batch that holds an offset; the offset itself where none does."""
    with _segment_at(layout, offset) as log:
        header = None if log is None else log.first_batch_from(offset)
        if log is None or header is None:
            return offset
        base_offset = int(header.column("base_offset")[0])
        if header.column("record_count")[0] < 0 and header.column("magic")[0] == 1:
            inside = last_offset_inside(log.read(header).batch(0))
            base_offset -= inside or 0
    return min(base_offset, offset)


def _end_offset_at(layout: PartitionLayout, offset: int) -> int:
    """Return the offset behind the batch that holds an offset, or behind the offset itself."""
    with _segment_at(layout, offset) as log:
        header = None if log is None else log.first_batch_from(offset)
    if header is None or header.column("base_offset")[0] > offset:
        return offset + 1
    return int(header.column("last_offset")[0]) + 1


def _segment_at(layout: PartitionLayout, offset: int) -> OpenSegment | nullcontext[None]:
    if not layout.segments or offset >= layout.end_offset:
        return nullcontext()
    return layout.segments[layout.segment_of(offset)].open()
