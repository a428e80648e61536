"""Restores a log directory to an empty one, up to a point in time.

Logs are copied as by a copy that keeps offsets and producers. They become visible at once, with the batches that are
appended to them here:

- With a time, each log ends before the first record at or after it, by the order of offsets. Later offsets are left out
  even if their timestamps are earlier. Markers of transactions are records, too. The batch that holds the end is
  written again without its last records, and the log ends where the batch did, so that no offset is given twice.
- A transaction without its marker before the end of a log gets one. It is a commit if ``__transaction_state`` had
  decided so before the end of its own log, and an abort otherwise; that log gets the state after the marker. An abort
  has the next producer epoch if the coordinator is known, so that a producer which still runs is fenced, and otherwise
  the epoch of the producer's last batch.
- The offsets in ``__consumer_offsets`` are committed again with the time of the restore, since a broker soon removes
  old ones. An offset beyond the new end of its log is lowered to that end, and so is one in ``seglog.offsets``, which
  has only the last commits. There a commit gets the time of the restore if it was the later one, so that it still is.

Leader epochs in batches begin again at 0, as in every copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from sparklog.errors import NOTHING_VISIBLE, InvalidOptionError, outcome
from sparklog.jobs.copy.job import Copied, CopyJob, CopyTask
from sparklog.jobs.copy.plan import CopyPiece
from sparklog.jobs.ledger import Settings, read_ledger
from sparklog.jobs.restore.cluster import NodeFormat
from sparklog.jobs.restore.new_cluster import keyed_rows
from sparklog.jobs.restore.nodes import RestoredLog
from sparklog.jobs.run.job import Report
from sparklog.jobs.source import reading
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.folders import listed
from sparklog.log.group_offsets import OffsetCommit
from sparklog.log.layout import cut_at, read_layout
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.record.encode.batches import EncodedBatches
from sparklog.record.encode.end_markers import MarkerBatch
from sparklog.system.group_commits import renewed_commits
from sparklog.system.records import InternalLog
from sparklog.system.transaction_state import EndedTransaction, ended_transactions
from sparklog.topic.internal.groups import CONSUMER_OFFSETS
from sparklog.topic.places.discovery import place_at
from sparklog.topic.transactions.commit import Ending, stage_ends
from sparklog.topic.transactions.ids import PRODUCER_IDS_FROM
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.write.group_offsets import changed_file
from sparklog.write.pipeline import encode_records
from sparklog.write.running_jobs import begin
from sparklog.write.staged_files import StagedRun
from sparklog.write.staging import TaskStage

RESTORE: Final = "restore"
"""The name of the job in the ledger."""

_HARMLESS: Final = frozenset(
    {
        *(files.META_PROPERTIES, files.BOOTSTRAP_CHECKPOINT, files.LOCK, "lost+found"),
        *(files.WRITERS_LOCK, files.WRITERS_QUEUE, files.JOBS_LOCK, files.LAST_COMMIT),
    }
)
"""Names that a target may have: locks, and files of ``kafka-storage format`` or of a new file system."""
_UNFINISHED: Final = (files.STAGED, files.BEING_WRITTEN)
_APPENDING_TASK: Final = (1 << 31) - 3
"""A number greater than all tasks of a job, and less than the number for markers."""
_LIKE_COORDINATORS: Final = LogConfig.from_properties({"compression.type": "uncompressed"})


class OpenProducer(NamedTuple):
    """A producer with an open transaction at the end of a log."""

    producer_id: int
    epoch: int
    coordinator_epoch: int


@dataclass(frozen=True)
class RestoredEnd:
    """The end of a restored log.

    Attributes
    ----------
    source : PartitionFolder
        The log that was restored.
    target : str
        The name of its folder.
    cut_offset : int
        The offset from which on no record is restored.
    end_offset : int
        The end offset, which is greater if a batch was cut.
    open_producers : tuple of OpenProducer
        The producers with open transactions.
    next_producer_id : int
        The first id above the ids of its producers, except sparklog's own.
    leader_epoch : int
        The leader epoch of its last record by its checkpoint, or -1.
    """

    source: PartitionFolder
    target: str
    cut_offset: int
    end_offset: int
    open_producers: tuple[OpenProducer, ...]
    next_producer_id: int
    leader_epoch: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.source.topic, self.source.partition or 0)

    def log(self) -> InternalLog:
        """Return the log up to its end, for the decoders of internal topics."""
        layout = cut_at(read_layout(self.source), self.end_offset)
        return InternalLog(layout, end_offset=min(self.cut_offset, layout.end_offset))


@dataclass(frozen=True)
class Restored:
    """The logs, or parts of logs, that a task has staged, and the ends of the logs that it has finished."""

    copied: Copied
    ends: tuple[RestoredEnd, ...]


@dataclass(frozen=True)
class RestoreJob:
    """Restores logs to an empty log directory.

    Attributes
    ----------
    copy : CopyJob
        The copy of the logs; it keeps offsets and producers, and cuts batches.
    to_ms : int or None
        The time at which logs end, ms since the epoch; None restores all of them, open transactions included.
    node : NodeFormat or None
        The node of a new cluster that gets the directory.
    """

    copy: CopyJob
    to_ms: int | None = None
    node: NodeFormat | None = None

    commits_as_it_goes = False

    @property
    def threads_bytes_max(self) -> int:
        return self.copy.threads_bytes_max

    def held(self) -> AbstractContextManager[None]:
        return self.copy.held()

    def plan(self) -> list[CopyTask]:
        """Plan the copy; return no tasks if an earlier run of the same restore was committed.

        Raises
        ------
        InvalidOptionError
            The target is not empty.
        """
        with outcome(NOTHING_VISIBLE):
            if self.is_done():
                return []
            self._refuse_filled()
            return self.copy.plan()

    def is_done(self) -> bool:
        """Return whether an earlier run of the same restore was committed."""
        directory = self.copy.directory
        return read_ledger(directory.storage, directory.file(files.JOBS_LEDGER)).settings == self._settings

    @property
    def _settings(self) -> Settings:
        node = None if self.node is None else self.node.place.path
        sources = [place_at(path).path for source in self.copy.sources for path in source.logs.paths]
        return Settings((("restored", ",".join(sources)), ("to_ms", str(self.to_ms)), ("for_cluster", str(node))))

    def _refuse_filled(self) -> None:
        """Raise `InvalidOptionError` unless the target has nothing but what a format or a dead run left."""
        directory, harmless = self.copy.directory, set(_HARMLESS)
        if not directory.storage.is_folder(directory.path):
            return
        if self.node is not None and self.node.place == directory:
            harmless |= {files.METADATA_FOLDER, files.RESTORED_NODES, files.RESTORED_NODES_LOCK}
        names = [each.name for each in directory.storage.names(directory.path)]
        filled = [each for each in names if each not in harmless and not each.endswith(_UNFINISHED)]
        if filled:
            raise InvalidOptionError(
                f"{directory.path} is not empty, it has {listed(sorted(filled))}: restore to a new directory"
            )

    def run(self, task: CopyTask, report: Report) -> Restored:
        """Find the ends of logs, and stage the logs, of a task."""
        with outcome(NOTHING_VISIBLE), reading():
            ends = tuple(self._end(piece) for piece in task.pieces if piece.is_last)
        return Restored(self.copy.run(task, report), ends)

    def _end(self, piece: CopyPiece) -> RestoredEnd:
        folder, end_offset = piece.range.folder, piece.range.end_offset
        producers = producers_at_end(cut_at(read_layout(folder), end_offset))
        path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
        epochs = parse_leader_epochs(folder.storage.read_small(path) or b"", path)
        return RestoredEnd(
            folder,
            piece.target,
            end_offset if piece.cut_offset is None else piece.cut_offset,
            end_offset,
            tuple(
                OpenProducer(each, producers.entries[each].epoch, producers.entries[each].coordinator_epoch)
                for each in sorted(producers.open_transactions, key=producers.open_transactions.__getitem__)
            ),
            max((each + 1 for each in producers.entries if each < PRODUCER_IDS_FROM), default=0),
            max((epoch for epoch, start in epochs if start < end_offset), default=-1),
        )

    def commit(self, results: Sequence[Restored]) -> None:
        """Make the logs and the appended batches visible; the node of a new cluster is formatted before."""
        if not results:
            return
        copied, ends = [each.copied for each in results], [end for each in results for end in each.ends]
        request = self.copy.request(copied, RESTORE, (self._settings,))
        with outcome(NOTHING_VISIBLE):
            appended, offsets = self._appended(request, ends)
            request = replace(request, replaced={**request.replaced, **offsets})
            if self.node is not None:
                request = _for_node(request, self.node, ends, self.copy.now_ms)
        staged = [run for each in copied for run in each.staged]
        commit(request, [*staged, *appended], self.copy.now_ms, is_held=True)

    def _appended(
        self, request: CommitRequest, ends: Sequence[RestoredEnd]
    ) -> tuple[list[StagedRun], dict[str, bytes]]:
        """Stage the end of open transactions and the offsets of groups; return sparklog's offsets as files by name."""
        now_ms = self.copy.now_ms
        begin(request.directory, request.job_id)
        stage = TaskStage(request.directory, request.job_id, _APPENDING_TASK, 0, request.config)
        decided: dict[int, EndedTransaction] = {}
        offsets = {end.at: end.end_offset for end in ends}
        times: dict[tuple[str, TopicPartition], int] = {}
        for end in ends:
            records: Sequence[tuple[bytes, bytes]] = ()
            if end.source.topic == CONSUMER_OFFSETS:
                records, of_log = renewed_commits(end.log(), offsets, now_ms)
                times |= of_log
            elif end.source.topic == files.TRANSACTION_STATE_TOPIC and self.to_ms is not None:
                ended = ended_transactions(end.log(), now_ms)
                decided |= {each.producer_id: each for each in ended}
                records = [(each.key, each.value) for each in ended]
            if records:
                stage.append(*_encoded(end, records, now_ms))

        def cut(group: str, at: TopicPartition, last: OffsetCommit) -> OffsetCommit:
            time_ms = now_ms if last.timestamp >= times.get((group, at), 0) else last.timestamp
            return last._replace(offset=min(last.offset, offsets.get(at, last.offset)), timestamp=time_ms)

        own = changed_file(ends[0].source.directory, cut)
        staged = stage.finish()
        if self.to_ms is not None:
            open_ones = [(end.target, each) for end in ends for each in end.open_producers]
            markers = [Ending(target, _marker(each, decided.get(each.producer_id))) for target, each in open_ones]
            staged += stage_ends(request, markers, self.to_ms)
        return staged, {} if own is None else {files.GROUP_OFFSETS: own}


def _marker(producer: OpenProducer, ended: EndedTransaction | None) -> MarkerBatch:
    epoch = producer.epoch if ended is None else max(ended.marker_epoch, producer.epoch)
    is_abort = ended is None or ended.is_abort
    return MarkerBatch(producer.producer_id, epoch, is_abort, max(producer.coordinator_epoch, 0))


def _encoded(
    end: RestoredEnd, records: Sequence[tuple[bytes, bytes]], now_ms: int
) -> tuple[EncodedBatches, list[str], list[int], int]:
    """Encode records as arguments for `TaskStage.append`."""
    encoded = encode_records(keyed_rows(records, now_ms), _LIKE_COORDINATORS, 0, now_ms, name=end.target)
    # Readers get no record of it.
    encoded.headers.table["record_count"] = 0
    return encoded, [end.target], [len(encoded.headers)], now_ms


def _for_node(request: CommitRequest, node: NodeFormat, ends: Sequence[RestoredEnd], now_ms: int) -> CommitRequest:
    """Format a node; return a commit that gives logs its topic ids and epochs, and has ``meta.properties``."""
    logs = {end.target: RestoredLog(end.leader_epoch, end.end_offset) for end in ends}
    plan = node.write(logs, max(end.next_producer_id for end in ends), now_ms)
    of_node = plan.nodes.nodes[plan.node_id].logs
    bounds = dict(request.bounds)
    for end in ends:
        topic_id, epoch = plan.nodes.topics[end.at.topic].topic_id, of_node[end.target].epoch
        bounds[end.target] = replace(bounds[end.target], topic_id=topic_id, leader_epoch=epoch)
    return replace(request, bounds=bounds, replaced={**request.replaced, **node.properties_of_logs(plan)})
