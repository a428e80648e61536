"""Copies partition logs to a log directory: whole batches, of which only offsets and leader epochs change.

No batch is decompressed, unless it gets another codec; the checksum of each is checked. The copy becomes visible at
once, together with its lines in the ledger.

A batch is copied whole or not at all: a range of offsets is widened to the batches at its ends. Records before the log
start offset of the source that share a batch with later ones stay hidden. This needs an empty target: in any other they
would become visible again, so such a copy is refused.

Offsets continue from the end of the target, or are kept. Kept offsets must not be before that end. An empty log then
has the start and end offset of the source.

Sources of one partition are copied one after the other, in the order of the arguments. Producers get other ids, which
no cluster reaches, except if batches come back to the same topic of their own cluster. Producers that keep their ids
are distinguished only by them, as by a broker; `sparklog.write.commit_plan` describes what is refused. Otherwise their
batches may follow each other with any sequence numbers, since those are checked when a batch is produced, and not when
a log is loaded. An uncommitted copy includes open transactions, which a later copy of the same source ends.
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
from sparklog.jobs.ledger import LedgerEntry, Moved, encode_commit, read_ledger
from sparklog.jobs.run.exclusive import exclusive
from sparklog.jobs.run.job import Amount, PiecesTask, Report
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.run.shares import task_slices
from sparklog.jobs.source import adjacent_batches, reading
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory
from sparklog.log.scans.of_range import scan_range
from sparklog.log.scans.sound_range import scan_range_past_damage
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.codecs.table import codec_named
from sparklog.storage.registry import Location
from sparklog.topic.found_damage import FoundDamage
from sparklog.topic.quarantine import Quarantine
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.configs import StoredConfigs, changed_properties, topic_config
from sparklog.topic.write.target import find_target
from sparklog.write.commit_plan import OffsetBounds, PartitionChange
from sparklog.write.copied import BatchTaker, cut_window
from sparklog.write.staged_files import StagedRun
from sparklog.write.staging import COPIED_SHARE_MAX, TaskStage

_ALONE_BYTES_MIN: Final = 1 << 20
"""A larger piece is staged in files of its own, since a commit reads and writes again what is in shared files."""
_THREADS_BYTES_MAX: Final = 1 << 33
_NAME: Final = "copy"


CopyTask = PiecesTask[CopyPiece]


@dataclass(frozen=True)
class Copied:
    """The batches that a task has staged.

    Attributes
    ----------
    moved : tuple of Moved
        The entry for the ledger of each piece.
    bounds : tuple of (str, OffsetBounds)
        The bounds that the target logs must get, by the names of their folders.
    replaced_batches : int
        The number of batches with replaced producer ids.
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
        The log directory, which is created if it does not exist.
    sources : tuple of CopySource
        The logs to copy. Logs of the same name are merged, in this order.
    config : LogConfig
        The caller's properties of the topics; they override the stored ones. They decide where segments are rolled, and
        how far apart index entries are.
    stored : mapping of str to mapping of str to str
        The stored properties of the target's topics; see `sparklog.topic.write.configs.stored_configs`. Their
        ``compression.type`` and message format apply to records that are written, not to batches that are copied.
    keeps_offsets : bool
        Whether batches keep their offsets.
    keeps_producers : bool
        Whether producers keep their ids, even if the target may be another cluster's.
    codec : str or None
        Kafka's name of the codec that batches get; None keeps the codec of each.
    cuts_batches : bool
        Whether the end of a range cuts the batch that holds it, which is written again without its last records.
    since_last : bool
        Whether to skip ranges that were copied before, by the ledger.
    brought : mapping of str to mapping of str to str
        The properties that new topics get from the source; for tasks they are also in ``stored``.
    run_id : str
        The id of the run, from `sparklog.write.running_jobs.new_job`.
    now_ms : int
        Wall-clock time, ms since the epoch.
    workers : int
        The number of tasks that run at a time, about.
    syncs_tasks : bool
        Whether each task syncs what it has staged; False only if tasks run on the machine that makes the commit,
        which syncs all that it moves. A task then continues to write while the disk still works.
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
    cuts_batches: bool = False
    since_last: bool = True
    brought: StoredConfigs = field(default_factory=dict)
    workers: int = 1
    syncs_tasks: bool = True
    options: LogJobOptions = field(default_factory=LogJobOptions)

    commits_as_it_goes = False

    @property
    def threads_bytes_max(self) -> int:
        # The kernel does most of a copy; recompressing runs Python code for each batch.
        return _THREADS_BYTES_MAX if self.codec is None else 0

    def __post_init__(self) -> None:
        if self.codec is not None:
            codec_named(self.codec)

    @property
    def directory(self) -> LogDirectory:
        return LogDirectory(*self.target)

    @property
    def _quarantine(self) -> Quarantine | None:
        # Each source has the same selection.
        return self.sources[0].logs.quarantine

    def held(self) -> AbstractContextManager[None]:
        if find_target(self.target, None, None, has_topic_column=True).topic is not None:
            raise InvalidOptionError(f"{self.target.path} is not a log directory: logs are copied to a whole one")
        return exclusive(self.directory, self.run_id, self.options.lock_timeout_seconds, keeps_writers_out=True)

    def plan(self) -> list[CopyTask]:
        """Split the ranges to copy into tasks of about equal bytes; a task may have many small partitions.

        Raises
        ------
        InvalidOptionError
            A log would be copied to itself, offsets cannot be kept as requested, or a stored property contradicts the
            caller's.
        CorruptLogError, DataLossError
            A log is damaged, or offsets of it are gone; then nothing is copied.
        """
        with outcome(NOTHING_VISIBLE):
            planned = CopyPlan(
                self.directory,
                keeps_offsets=self.keeps_offsets,
                keeps_producers=self.keeps_producers,
                since_last=self.since_last,
                task_bytes=self.options.task_bytes,
                workers=self.workers,
                cuts_batches=self.cuts_batches,
            )
            for source in self.sources:
                planned.add(source)
            for piece in planned.pieces:
                self._config_of(piece)
        pieces = planned.with_topic_ids()
        rows = task_slices([piece.log_bytes for piece in pieces], self.options.task_bytes, self.workers)
        return [CopyTask(number, tuple(pieces[each])) for number, each in enumerate(rows)]

    def run(self, task: CopyTask, report: Report) -> Copied:
        """Check the batches of a task, and stage them with the offsets that they are expected to get."""
        stage = TaskStage(self.directory, self.run_id, task.number, secrets.randbits(31), self.config)
        try:
            with outcome(NOTHING_VISIBLE):
                copied = [self._copy(piece, stage, report) for piece in task.pieces]
                staged = tuple(stage.finish(is_synced=self.syncs_tasks))
        except BaseException:
            # The error that is being raised tells more than an error of this removal.
            with suppress(SeglogError):
                stage.discard()
            raise
        bounds = tuple((piece.target, piece.bounds) for piece in task.pieces)
        return Copied(staged, tuple(moved for moved, _ in copied), bounds, sum(replaced for _, replaced in copied))

    def _copy(self, piece: CopyPiece, stage: TaskStage, report: Report) -> tuple[Moved, int]:
        """Stage a piece; return its entry for the ledger, and the number of batches with replaced producer ids."""
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
        damage = FoundDamage(self._quarantine)
        if of_log.size > 0 or piece.damage is not None:
            for segment, window in _scanned(piece, damage):
                left = window if piece.cut_offset is None else cut_window(segment, window, piece.cut_offset)
                batches = taker.take(segment, left, stage.end_offset(piece.target))
                if batches is None:
                    continue
                stage.append(batches, [piece.target], [len(batches.headers)], self.now_ms, config)
                more = Amount(len(batches.data), int(batches.headers.column("record_count").sum()))
                rows, log_bytes = rows + more.records, log_bytes + more.size_bytes
                with_producer += int((batches.headers.column("producer_id") >= 0).sum())
                report(more)
        moved = replace(piece.moved, rows=rows, log_bytes=log_bytes, lost=damage.rows)
        return moved, with_producer if moved.producers_of is not None else 0

    def _config_of(self, piece: CopyPiece) -> LogConfig:
        return topic_config(self.directory.folder(piece.target).topic, self.config, self.stored)

    def commit(self, results: Sequence[Copied]) -> None:
        """Make all staged batches visible, and record them in the ledger, at once."""
        if any(result.bounds for result in results):
            staged = [each for result in results for each in result.staged]
            commit(self.request(results), staged, self.now_ms, is_held=True)

    def request(
        self, results: Sequence[Copied], name: str = _NAME, entries: Sequence[LedgerEntry] = ()
    ) -> CommitRequest:
        """Describe the commit of some results, with the name of the job and more entries for the ledger."""
        ledger = read_ledger(self.directory.storage, self.directory.file(files.JOBS_LEDGER))
        moved = [each for result in results for each in result.moved if not each.is_empty]
        replaced = {files.TOPICS_PROPERTIES: changed_properties(self.directory, self.brought)} if self.brought else {}

        def lines(changes: Mapping[str, PartitionChange]) -> bytes:
            whole: list[LedgerEntry] = [*entries, *moved, *landed_of(self.directory, changes)]
            return encode_commit(ledger.next_number, name, self.run_id, self.now_ms, whole)

        return CommitRequest(
            job_id=self.run_id,
            directory=self.directory,
            config=self.config,
            new_topics={},
            replaced=replaced,
            appended={files.JOBS_LEDGER: lines},
            append_positions={files.JOBS_LEDGER: ledger.size_bytes},
            bounds={target: each for result in results for target, each in result.bounds},
            stored=self.stored,
        )


def _scanned(piece: CopyPiece, damage: FoundDamage) -> Iterator[tuple[Segment, Window]]:
    """Yield the batches of a piece; if damage is skipped, only sound ones, without bytes between them."""
    folder, bounds = piece.range.folder, (piece.range.start_offset, piece.range.end_offset)
    with reading():
        if piece.damage is None:
            yield from scan_range(read_layout(folder), *bounds, is_checked=True)
            return
        parts = scan_range_past_damage(read_layout(folder, "skip"), *bounds)
        for segment, window in damage.pass_on(parts, folder.storage, piece.damage.holds):
            yield from ((segment, run) for run in adjacent_batches(window))
