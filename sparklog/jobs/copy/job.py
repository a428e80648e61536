"""Copies partition logs to a log directory: whole batches, as they are but for their offsets and leader epochs.

No batch is decompressed, unless it is to get another codec; the checksum of each is checked. What is copied becomes
visible at once, with the line of the ledger that says so.

A batch is copied whole or not at all: a range of offsets is widened to the batches at its ends. Records before the log
start offset of the source that share a batch with later ones stay hidden, which needs a target that is empty; into
another one they would come back, and such a copy is refused.

Offsets are counted on from the end of the target, or kept. Kept ones must be at or behind that end. An empty log then
begins and ends where the source does.

Sources of one partition come one behind the other, in the order in which they are given. Producers get other ids, which
no cluster reaches, but where batches come back to the topic of the cluster that they are of. Producers that keep theirs
are told apart by them alone, as by a broker: see `sparklog.write.commit_plan` for what is refused. Otherwise their
batches may follow each other with whatever sequence numbers they have, since those are checked when a batch is
produced, and not when a log is loaded. An uncommitted copy takes open transactions along, which a later copy of the
same source ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.errors import NOTHING_VISIBLE, InvalidOptionError, SeglogError, outcome
from sparklog.jobs.copy.plan import CopyPiece, CopyPlan, CopySource
from sparklog.jobs.landing import landed_of
from sparklog.jobs.ledger import Entry, Moved, encode_commit, read_ledger
from sparklog.jobs.run.exclusive import exclusive
from sparklog.jobs.run.job import Amount, PiecesTask, Report
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.run.shares import grouped
from sparklog.jobs.source import reading
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory
from sparklog.log.scan import scan
from sparklog.log.segment import Segment, Window
from sparklog.record.codecs.table import codec_named
from sparklog.storage.registry import Location
from sparklog.topic.places.ranges import ReadRange
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.configs import StoredConfigs, changed_properties, topic_config
from sparklog.topic.write.target import find_target
from sparklog.write.commit_plan import OffsetBounds, PartitionChange
from sparklog.write.copied import BatchTaker
from sparklog.write.staging import COPIED_SHARE_MAX, StagedRun, TaskStage

_ALONE_BYTES_MIN: Final = 1 << 20
"""A piece of more bytes is staged in files of its own: a commit reads and writes again what lies in a shared one."""
_THREADS_BYTES_MAX: Final = 1 << 33
_NAME: Final = "copy"


CopyTask = PiecesTask[CopyPiece]


@dataclass(frozen=True)
class Copied:
    """What a task has staged.

    Attributes
    ----------
    moved : tuple of Moved
        What the ledger is to say of each piece.
    bounds : tuple of (str, OffsetBounds)
        Where the logs that it goes to are to start and end, by the names of their folders.
    replaced_batches : int
        How many batches have got other producer ids.
    """

    staged: tuple[StagedRun, ...]
    moved: tuple[Moved, ...]
    bounds: tuple[tuple[str, OffsetBounds], ...]
    replaced_batches: int


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
        What the caller says of the topics; it is over what is stored for them. It says where segments are rolled, and
        how far apart index entries are.
    stored : mapping of str to mapping of str to str
        The properties that are stored for topics of the target; see `sparklog.topic.write.configs.stored_configs`. Its
        ``compression.type`` and the format of messages are of records that are written, not of batches that are copied.
    keeps_offsets : bool
        Whether batches keep their offsets.
    keeps_producers : bool
        Whether producers keep their ids, also where the target may be another cluster's.
    codec : str or None
        Kafka's name of the codec that batches get; None leaves each as it is.
    since_last : bool
        Whether to leave out what was copied before, by the ledger.
    brought : mapping of str to mapping of str to str
        The properties that new topics bring along; they are among those that are stored, for the tasks.
    run_id : str
        Of `sparklog.write.job_names.new_job`.
    now_ms : int
        Wall-clock time, ms since the epoch.
    workers : int
        How many tasks run at a time, about.
    syncs_tasks : bool
        Whether each task syncs what it has staged; False only where tasks run on the machine that makes the commit,
        which syncs all that it moves. A task then goes on to write while the disk still works.
    """

    target: Location
    sources: tuple[CopySource, ...]
    config: LogConfig
    run_id: str
    now_ms: int
    stored: StoredConfigs = field(default_factory=dict)
    keeps_offsets: bool = False
    keeps_producers: bool = False
    codec: str | None = None
    since_last: bool = True
    brought: StoredConfigs = field(default_factory=dict)
    workers: int = 1
    syncs_tasks: bool = True
    options: LogJobOptions = field(default_factory=LogJobOptions)

    commits_as_it_goes = False

    @property
    def threads_bytes_max(self) -> int:
        # Most of a copy is done by the kernel; recompressing goes from batch to batch.
        return _THREADS_BYTES_MAX if self.codec is None else 0

    def __post_init__(self) -> None:
        if self.codec is not None:
            codec_named(self.codec)

    @property
    def directory(self) -> LogDirectory:
        return LogDirectory(*self.target)

    def held(self) -> AbstractContextManager[None]:
        if find_target(self.target, None, None, has_topic_column=True).topic is not None:
            raise InvalidOptionError(f"{self.target.path} is not a log directory: logs are copied to a whole one")
        return exclusive(self.directory, self.run_id, self.options.lock_timeout_seconds, keeps_writers_out=True)

    def plan(self) -> list[CopyTask]:
        """Cut what is to be copied into tasks of about equal bytes, and give small partitions to one together.

        Raises
        ------
        InvalidOptionError
            A log would be copied to itself, offsets cannot be as they are asked to be, or a stored property
            contradicts what the caller says.
        CorruptLogError, DataLossError
            A log is damaged, or offsets of it are gone: nothing is copied then.
        """
        with outcome(NOTHING_VISIBLE):
            planned = CopyPlan(
                self.directory,
                keeps_offsets=self.keeps_offsets,
                keeps_producers=self.keeps_producers,
                since_last=self.since_last,
                task_bytes=self.options.task_bytes,
                workers=self.workers,
            )
            for source in self.sources:
                planned.add(source)
            for piece in planned.pieces:
                self._config_of(piece)
        pieces = planned.with_topic_ids()
        rows = grouped([piece.log_bytes for piece in pieces], self.options.task_bytes, self.workers)
        return [CopyTask(number, tuple(pieces[each])) for number, each in enumerate(rows)]

    def run(self, task: CopyTask, report: Report) -> Copied:
        """Stage the batches of a task, checked and with the offsets that they are expected to get."""
        stage = TaskStage(self.directory, self.run_id, task.number, secrets.randbits(31), self.config)
        try:
            with outcome(NOTHING_VISIBLE):
                copied = [self._copy(piece, stage, report) for piece in task.pieces]
                staged = tuple(stage.finish(is_synced=self.syncs_tasks))
        except BaseException:
            # The error that is being raised says more than one that the removal may meet.
            with suppress(SeglogError):
                stage.discard()
            raise
        bounds = tuple((piece.target, piece.bounds) for piece in task.pieces)
        return Copied(staged, tuple(moved for moved, _ in copied), bounds, sum(replaced for _, replaced in copied))

    def _copy(self, piece: CopyPiece, stage: TaskStage, report: Report) -> tuple[Moved, int]:
        """Stage a piece; return what the ledger is to say, and how many batches have got other producer ids."""
        of_log, config = piece.range, self._config_of(piece)
        alone_bytes = min(_ALONE_BYTES_MIN, config.segment_bytes * COPIED_SHARE_MAX)
        is_large = piece.log_bytes > alone_bytes
        stage.begin_copy(piece.target, piece.base_offset, piece.origin, is_large=is_large)
        taker = BatchTaker(
            start_offset=of_log.start_offset,
            end_offset=of_log.end_offset,
            keeps_offsets=self.keeps_offsets,
            leader_epoch=piece.origin.leader_epoch,
            codec=self.codec,
            producers_of=piece.moved.producers_of,
            decompressed_bytes_max=config.max_decompressed_message_bytes,
        )
        rows = log_bytes = with_producer = 0
        if of_log.size > 0:
            for segment, window in _scanned(of_log):
                batches = taker.take(segment, window, stage.end_offset(piece.target))
                if batches is None:
                    continue
                stage.append(batches, [piece.target], [len(batches.headers)], self.now_ms, config)
                more = Amount(len(batches.data), int(batches.headers.column("record_count").sum()))
                rows, log_bytes = rows + more.records, log_bytes + more.size_bytes
                with_producer += int((batches.headers.column("producer_id") >= 0).sum())
                report(more)
        moved = replace(piece.moved, rows=rows, log_bytes=log_bytes)
        return moved, with_producer if moved.producers_of is not None else 0

    def _config_of(self, piece: CopyPiece) -> LogConfig:
        return topic_config(self.directory.folder(piece.target).topic, self.config, self.stored)

    def commit(self, results: Sequence[Copied]) -> None:
        """Make all that was staged visible, at once, and say so in the ledger."""
        bounds = {target: each for result in results for target, each in result.bounds}
        if not bounds:
            return
        ledger = read_ledger(self.directory.storage, self.directory.file(files.JOBS_LEDGER))
        moved = [each for result in results for each in result.moved if each.end_offset > each.start_offset]
        replaced = {files.TOPICS_PROPERTIES: changed_properties(self.directory, self.brought)} if self.brought else {}

        def lines(changes: Mapping[str, PartitionChange]) -> bytes:
            entries: list[Entry] = [*moved, *landed_of(self.directory, changes)]
            return encode_commit(ledger.next_number, _NAME, self.run_id, self.now_ms, entries)

        job = CommitRequest(
            job_id=self.run_id,
            directory=self.directory,
            config=self.config,
            new_topics={},
            replaced=replaced,
            appended={files.JOBS_LEDGER: lines},
            append_positions={files.JOBS_LEDGER: ledger.size_bytes},
            bounds=bounds,
            stored=self.stored,
        )
        commit(job, [each for result in results for each in result.staged], self.now_ms, is_held=True)


def _scanned(of_log: ReadRange) -> Iterator[tuple[Segment, Window]]:
    with reading():
        yield from scan(read_layout(of_log.folder), of_log.start_offset, of_log.end_offset, is_checked=True)
