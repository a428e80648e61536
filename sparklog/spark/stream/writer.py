"""The writer of a stream: tasks stage rows, and one commit per batch makes them visible, once.

Spark repeats a batch if it does not know that it was committed. The repeated batch has the same number, so the commit
records the query, the batch's number and a digest of its rows (`sparklog.topic.write.txn_versions`), and a batch that
was committed before writes nothing. A repeated number with other rows, or a gap in the numbers, is an error: the
checkpoint and the log directory are not of the same time. Spark tells a task its query, but tells a commit only the
number of the batch; so the tasks pass the query on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.log.clock import wall_clock_ms
from sparklog.spark.options.write import WriteOptions
from sparklog.spark.worker.boundary import plain_errors
from sparklog.spark.worker.garbage_collection import first_use_freezes
from sparklog.spark.worker.process import LoadedByWorkers
from sparklog.spark.writer import Destination, running_task
from sparklog.topic.write.txn_versions import RowsDigest, TxnVersion
from sparklog.write.running_jobs import begin, job_of_stream
from sparklog.write.staged_files import StagedRun

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class StagedByStreamTask(WriterCommitMessage):
    """The files that one task of a batch has staged, the digest of its rows, and the query's id."""

    staged: list[StagedRun]
    digest: RowsDigest
    query_id: str


class SeglogStreamWriter(LoadedByWorkers, DataSourceStreamArrowWriter):
    """Writes the batches of a stream into partition logs.

    Tasks call `write`; `commit` and `abort` are called on another instance, in another process.

    Parameters
    ----------
    options : WriteOptions
        The user's options.
    schema : StructType
        The schema of the rows.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._destination = Destination.checked(options, schema)

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedByStreamTask:
        """Stage the rows of one task. Each task begins a job of its own, since the driver has begun none."""
        context = running_task()
        query_id = _query_of(context)
        job_id = job_of_stream(query_id, wall_clock_ms())
        begin(self._destination.target.directory, job_id)
        return StagedByStreamTask(*self._destination.stage(iterator, job_id, context, is_numbered=True), query_id)

    @plain_errors()
    @first_use_freezes()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Make all staged rows visible at once; do nothing if the batch was committed before."""
        found = [message for message in messages if isinstance(message, StagedByStreamTask)]
        staged = [each for message in found for each in message.staged]
        query_id = found[0].query_id
        job_id = job_of_stream(query_id, wall_clock_ms())
        digest = sum((message.digest for message in found), RowsDigest())
        transaction = replace(self._transaction(query_id, batchId), digest=digest)
        self._destination.commit(self._destination.job(job_id, staged, transaction), staged)

    @plain_errors()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove the files that the tasks have staged, unless the commit was decided.

        Spark passes no messages of failed tasks. They have removed their files themselves, and the query's next commit
        removes the files of killed tasks.
        """
        for query_id in {message.query_id for message in messages if isinstance(message, StagedByStreamTask)}:
            self._destination.abort(self._destination.job(job_of_stream(query_id, wall_clock_ms()), [], None))

    def _transaction(self, query_id: str, batch_id: int) -> TxnVersion:
        options = self._destination.options
        first = options.transaction or options.numbered(query_id, 0)
        return replace(first, version=first.version + batch_id, first_version=first.version)


def _query_of(context: TaskContext) -> str:
    query_id = context.getLocalProperty(_QUERY_ID)
    if query_id is None:
        raise RuntimeError("Spark has not told a task of a stream its query")
    return query_id
