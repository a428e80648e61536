"""Gathers the rows of a task, sorts them by partition, and stages batches of them.

The gathered rows are bounded in bytes, whatever the number of partitions. When they are enough, all are encoded, the
rows of many partitions at once, and staged as one run per partition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.topic.write.configs import topic_config
from sparklog.topic.write.partitioner import Partitioner, assign_partitions, make_partitioner, row_bytes
from sparklog.topic.write.routing import grouped_by_partition
from sparklog.topic.write.target import WriteTarget
from sparklog.topic.write.txn_versions import RowsDigest
from sparklog.write.legacy_limits import refuse_fixed_offsets
from sparklog.write.pipeline import (
    NO_PRODUCER,
    UNKNOWN_PRODUCER,
    RowBuffer,
    check_records,
    digest_rows,
    encode_records_of_logs,
)
from sparklog.write.staged_files import StagedRun
from sparklog.write.staging import TaskStage

BUFFERED_BYTES_MAX: Final = 1 << 25
"""Rows are encoded when they have this many bytes, whatever the number of their partitions."""

_BUFFERED_BYTES_MIN: Final = 1 << 24
_BUFFERED_BATCHES: Final = 16
"""Rows of few partitions are encoded sooner, when they fill about this many batches per partition.

More rows would take memory that the processor has not used yet, and so more time."""

_ENCODED_BYTES_MAX: Final = 1 << 23
"""About this many bytes of rows are encoded at once, whatever the number of their partitions."""


@dataclass(frozen=True)
class TaskAttempt:
    """One attempt of a task, and its settings.

    Attributes
    ----------
    target : WriteTarget
        The log directory and the topics that are written to.
    config : LogConfig
        The caller's properties; they override the stored properties of topics.
    partitioner : str
        The name of the partitioner; see `make_partitioner`.
    job_id : str
        The id of the job, which has begun; see `sparklog.write.running_jobs.begin`.
    task : int
        The number of the task in the job.
    attempt : int
        The number of the attempt, unique in the job.
    now_ms : int
        The time of the job, ms since the epoch. Records without a timestamp get it; under LogAppendTime all do.
    is_transactional : bool
        Whether the rows belong to a transaction, whose producer the commit writes into the batches.
    base_offsets : mapping of str to int
        The expected offset of the task's first record in each partition, by folder name.
    is_numbered : bool
        Whether the job is a batch of an application; a digest of its rows shows whether a rerun has the same rows.
    """

    target: WriteTarget
    config: LogConfig
    partitioner: str
    job_id: str
    task: int
    attempt: int
    now_ms: int
    is_transactional: bool = False
    base_offsets: Mapping[str, int] = field(default_factory=dict)
    is_numbered: bool = False


class RecordAccumulator:
    """Takes a task's rows and leaves staged files; it leaves none if an error leaves its ``with`` block.

    Parameters
    ----------
    task : TaskAttempt
        The attempt whose rows it takes.
    clock : callable
        Returns wall-clock time, ms since the epoch.
    buffered_bytes_max : int
        The most bytes of rows to gather before they are encoded.

    Attributes
    ----------
    digest : RowsDigest
        The digest of the staged rows, if the job is numbered.
    """

    def __init__(
        self,
        task: TaskAttempt,
        clock: Callable[[], int] = wall_clock_ms,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
    ) -> None:
        self._task, self._clock = task, clock
        self._stage = TaskStage(task.target.directory, task.job_id, task.task, task.attempt, task.config)
        self._partitioners: dict[str, Partitioner] = {}
        self._configs: dict[str, LogConfig] = {}
        self._buffer, self._buffered_bytes_max = RowBuffer(), buffered_bytes_max
        self.digest = RowsDigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is not None:
            # The error that is being raised says more than an error of the removal.
            with contextlib.suppress(SeglogError):
                self._stage.discard()

    def append(self, rows: pa.RecordBatch) -> None:
        """Take rows: ``value``, and any of ``key``, ``headers``, ``timestamp``, ``topic`` and ``partition``.

        Raises
        ------
        InvalidOptionError
            A row has no topic, or a topic that may not be written to, or names a partition that does not exist.
        RecordTooLargeError
            A record can never fit into a batch.
        CommitError
            The job has ended without this task.
        """
        self._buffer.append(rows)
        if self._buffer.size_bytes >= self._worth_encoding_bytes():
            self._flush()

    def _worth_encoding_bytes(self) -> int:
        batches_bytes = self._stage.partition_count * self._task.config.batch_size * _BUFFERED_BATCHES
        return min(max(batches_bytes, _BUFFERED_BYTES_MIN), self._buffered_bytes_max)

    def finish(self, *, is_synced: bool = True) -> list[StagedRun]:
        """Stage the remaining rows, and return all staged runs; see `sparklog.write.staging.TaskStage.finish`."""
        self._flush()
        return self._stage.finish(is_synced=is_synced)

    def _flush(self) -> None:
        """Stage the rows of the buffer, if there are any."""
        pieces = list(self._buffer.drain())
        for piece in pieces:
            self._stage_rows(piece)
        if pieces:
            self._stage.refuse_ended_job()

    def _stage_rows(self, rows: pa.RecordBatch) -> None:
        written_ms = self._task.now_ms
        producer = UNKNOWN_PRODUCER if self._task.is_transactional else NO_PRODUCER
        for topic, of_topic in _by_topic(rows, self._task.target.topic):
            config = self._config_of(topic)
            records = check_records(of_topic, config, written_ms, self._clock())
            found = grouped_by_partition(records, self._partitions(topic, of_topic, records))
            if self._task.is_numbered:
                self.digest += RowsDigest(of_topic.num_rows, digest_rows(of_topic, topic))
            for part in found.portions(_ENCODED_BYTES_MAX):
                folders = [str(TopicPartition(topic, partition)) for partition in part.partitions]
                base_offsets = np.array([self._next_offset(folder) for folder in folders])
                encoded, batch_ends = encode_records_of_logs(
                    part.rows, config, part.ends, base_offsets, written_ms, folders, producer
                )
                self._stage.append(encoded, folders, batch_ends, written_ms, config)

    def _next_offset(self, folder: str) -> int:
        return self._stage.end_offset(folder, self._task.base_offsets.get(folder, 0))

    def _config_of(self, topic: str) -> LogConfig:
        """Return the configuration of a topic, which is made once per topic."""
        config = self._configs.get(topic)
        if config is None:
            config = topic_config(topic, self._task.config, self._task.target.stored)
            refuse_fixed_offsets(config)
            self._configs[topic] = config
        return config

    def _partitions(
        self, topic: str, rows: pa.RecordBatch, records: pa.RecordBatch
    ) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        target, names = self._task.target, rows.schema.names
        if target.partition is not None:
            return self._only_partition(rows)
        keys = records.column("key") if "key" in names else None
        sizes = row_bytes([records.column(name) for name in ("key", "value") if name in names], rows.num_rows)
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = make_partitioner(
                self._task.partitioner, seed=self._task.task, batch_bytes=self._config_of(topic).batch_size
            )
            self._partitioners[topic] = partitioner
        explicit = rows.column("partition") if "partition" in names else None
        return assign_partitions(partitioner, explicit, keys, sizes, target.partitions_of(topic))

    def _only_partition(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Return the partition that the path names, if no row names another."""
        only = self._task.target.partition
        if "partition" in rows.schema.names:
            kind = rows.schema.field("partition").type
            if not pa.types.is_integer(kind) and not pa.types.is_null(kind):
                raise InvalidOptionError(f"the column partition must be of integers, and is of {kind}")
            others = pc.unique(rows.column("partition").drop_null()).to_pylist()
            if any(other != only for other in others):
                raise InvalidOptionError(f"the path is of partition {only}, and the column partition says {others[0]}")
        return np.full(rows.num_rows, only, dtype=np.int32)


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic with its rows; all rows, if ``topic`` is given."""
    if topic is not None:
        yield topic, rows
        return
    named = rows.column("topic")
    if named.null_count:
        raise InvalidOptionError("null topic present in the data. Use the topic option for setting a topic.")
    topics = pc.unique(named).to_pylist()
    for each in topics:
        yield each, rows if len(topics) == 1 else rows.filter(pc.equal(named, each))
