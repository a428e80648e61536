"""The writer of a batch query: tasks stage rows, and one commit on the driver makes them visible."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.places import LogDirectory, PartitionFolder, split_path
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.spark.options.schema import check_written
from sparklog.spark.options.write import WriteOptions
from sparklog.spark.worker.boundary import plain_errors
from sparklog.spark.worker.garbage_collection import first_use_freezes
from sparklog.spark.worker.process import LoadedByWorkers
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import Location, expand_one
from sparklog.topic.write.commit import CommitRequest, abort, commit
from sparklog.topic.write.target import WriteTarget, find_target
from sparklog.topic.write.txn_versions import RowsDigest, TxnVersion
from sparklog.write.locking import refuse_running_broker
from sparklog.write.running_jobs import begin, new_job
from sparklog.write.staged_files import StagedRun

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("sparklog")


@dataclass
class StagedByTask(WriterCommitMessage):
    """The files that one task has staged, and the digest of its rows if the write is numbered."""

    staged: list[StagedRun]
    digest: RowsDigest


@dataclass(frozen=True)
class Destination:
    """Where and how rows are written, for batch writes and the batches of streams. It is sent to the tasks.

    Attributes
    ----------
    options : WriteOptions
        The user's options.
    target : WriteTarget
        The log directory, and the topic if it is one.
    now_ms : int
        The time at which the write began, ms since the epoch.
    """

    options: WriteOptions
    target: WriteTarget
    now_ms: int

    @classmethod
    def checked(cls, options: WriteOptions, schema: StructType) -> Self:
        """Check the columns and the path, and find the target of the write.

        Raises
        ------
        SeglogError
            The columns or the path are wrong, or a broker runs there.
        """
        names = check_written(schema)
        location = expand_one(options.path)
        target = find_target(location, options.topic, options.num_partitions, has_topic_column="topic" in names)
        directory = target.directory
        if options.topic_id is not None and target.topic is None:
            raise InvalidOptionError("topicId is for one topic: name it by the option topic, or by the path")
        if directory.storage.is_folder(directory.path):
            refuse_running_broker(directory)
        if options.report_path:
            _check_report_path(options.report_path, directory)
        return cls(options, target, wall_clock_ms())

    def stage(
        self, rows: Iterator[pa.RecordBatch], job_id: str, context: TaskContext, *, is_numbered: bool
    ) -> tuple[list[StagedRun], RowsDigest]:
        """Stage the rows of one task of a job, and return the files and, if the job is numbered, their digest."""
        from sparklog.topic.write.accumulator import RecordAccumulator, TaskAttempt

        task = TaskAttempt(
            target=self.target,
            config=self.options.config,
            partitioner=self.options.partitioner,
            job_id=job_id,
            task=context.partitionId(),
            attempt=context.taskAttemptId(),
            now_ms=self.now_ms,
            is_transactional=self.options.is_transactional,
            is_numbered=is_numbered,
        )
        with first_use_freezes(), RecordAccumulator(task) as accumulator:
            for batch in rows:
                accumulator.append(batch)
            return accumulator.finish(), accumulator.digest

    def job(
        self, job_id: str, staged: Sequence[StagedRun], transaction: TxnVersion | None, *, is_overwrite: bool = False
    ) -> CommitRequest:
        """Return the request that commits the staged files."""
        target, options = self.target, self.options
        return CommitRequest(
            job_id=job_id,
            directory=target.directory,
            config=options.config,
            new_topics=target.new_topics({each.folder for each in staged}),
            topic_id=options.topic_id,
            is_overwrite=is_overwrite,
            overwritten_topics=() if target.topic is None else (target.topic,),
            transaction=transaction,
            lock_timeout_seconds=options.lock_timeout_ms / 1000,
            stored=target.stored,
        )

    def begin_transaction(self) -> TransactionProducer | None:
        """Start the transactional id of a job, if it has one. That fences an earlier producer with the same id."""
        name, directory = self.options.transactional_id, self.target.directory
        if name is None:
            return None
        from sparklog.topic.transactions.commit import begin_transactional_id

        timeout_seconds = self.options.lock_timeout_ms / 1000
        return begin_transactional_id(directory, name, self.now_ms, lock_timeout_seconds=timeout_seconds)

    def commit(
        self, job: CommitRequest, staged: Sequence[StagedRun], producer: TransactionProducer | None = None
    ) -> None:
        """Make all staged rows visible at once, and write the report.

        Parameters
        ----------
        producer : TransactionProducer, optional
            The result of `begin_transaction`. Without it the commit starts the transactional id, if there is one.
        """
        summary = self._committed(job, staged, producer)
        # The rows are written: if the job failed now, a user who repeats it would have them twice.
        try:
            self._report(summary)
        except Exception as error:
            _log.warning(
                "the write is committed, and all of it is visible; the report of it could not be written: %s", error
            )

    def _committed(
        self, job: CommitRequest, staged: Sequence[StagedRun], producer: TransactionProducer | None
    ) -> Mapping[str, Any]:
        name = self.options.transactional_id
        if name is None or not staged:
            return commit(job, staged, wall_clock_ms())
        from sparklog.topic.transactions.commit import commit_transaction

        return commit_transaction(job, staged, name, producer, wall_clock_ms())

    def abort(self, job: CommitRequest) -> None:
        """Remove the files that a job has staged; committed rows stay."""
        if job.directory.storage.is_folder(job.directory.path):
            abort(job, wall_clock_ms())

    def _report(self, summary: Mapping[str, Any]) -> None:
        lines = _report(summary)
        for line in lines:
            _log.info("wrote %s", line)
        if self.options.report_path:
            storage, path = self.options.report_path
            with to_writable(storage, path).open_for_append(path) as file:
                file.truncate(0)
                file.append("".join(f"{line}\n" for line in lines).encode())


class SeglogWriter(LoadedByWorkers, DataSourceArrowWriter):
    """Writes rows into partition logs.

    It is made on the driver; tasks call `write` and the driver `commit` or `abort`, each on a copy of it. Code that
    only tasks need, above all compiled code, is imported in them.

    Parameters
    ----------
    options : WriteOptions
        The user's options.
    schema : StructType
        The schema of the rows.
    is_overwrite : bool
        Whether the commit raises the topics' log start offsets above all their present records.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, is_overwrite: bool) -> None:
        self._destination, self._is_overwrite = Destination.checked(options, schema), is_overwrite
        for name in options.idle_in_batches():
            _log.warning("%s does nothing in this write, which is not a batch of a stream", name)
        self._job_id = new_job(self._destination.now_ms)
        self._producer = self._destination.begin_transaction()
        begin(self._destination.target.directory, self._job_id)

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedByTask:
        """Stage the rows of one task."""
        is_numbered = self._destination.options.transaction is not None
        return StagedByTask(*self._destination.stage(iterator, self._job_id, running_task(), is_numbered=is_numbered))

    @plain_errors()
    @first_use_freezes()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all staged rows visible at once."""
        found = [message for message in messages if isinstance(message, StagedByTask)]
        staged = [each for message in found for each in message.staged]
        digest = sum((message.digest for message in found), RowsDigest())
        self._destination.commit(self._job(staged, digest), staged, self._producer)

    @plain_errors()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove the files that the job has staged; committed rows stay."""
        self._destination.abort(self._job([], RowsDigest()))

    def _job(self, staged: Sequence[StagedRun], digest: RowsDigest) -> CommitRequest:
        given = self._destination.options.transaction
        transaction = None if given is None else replace(given, digest=digest)
        return self._destination.job(self._job_id, staged, transaction, is_overwrite=self._is_overwrite)


def running_task() -> TaskContext:
    """Return the context of the current task."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows are written by Spark's tasks only")
    return context


def _check_report_path(location: Location, directory: LogDirectory) -> None:
    """Raise `InvalidOptionError` for a path that cannot be written to, before anything else is written."""
    storage, path = to_writable(*location), location.path
    folder, _ = split_path(path)
    if folder == directory.path and not storage.is_folder(folder):
        # The write creates the log directory.
        return
    within = PartitionFolder.at(storage, folder)
    if within.directory == directory and within.partition is not None:
        raise InvalidOptionError(f"reportPath is in the folder of a partition, where only its log is: {path}")
    if not storage.is_folder(folder):
        raise InvalidOptionError(f"reportPath cannot be written, there is no folder {folder}; nothing was written")
    try:
        is_there = storage.identity(path) is not None
        storage.open_for_append(path).close()
        if not is_there:
            storage.remove(path)
    except SeglogError as error:
        raise InvalidOptionError(f"reportPath cannot be written, {error.message}; nothing was written") from error


def _report(summary: Mapping[str, Any]) -> list[str]:
    common = {name: value for name, value in summary.items() if name != "partitions"}
    return [json.dumps({**common, **partition}) for partition in summary["partitions"]]
