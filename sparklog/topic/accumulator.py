"""A task's rows on their way into staged files: gathered, sorted by partition, encoded, written.

What is gathered is bounded in bytes, whatever the number of partitions: when it is enough, all of it is encoded, the
rows of each partition one behind the other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import CommitError, InvalidOptionError, RecordTooLargeError, SeglogError
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.places import PartitionFolder
from sparklog.record.encode import BatchSettings, encode_batches
from sparklog.record.intake import take_records
from sparklog.topic.partitioner import Partitioner, assign_partitions, make_partitioner, row_bytes
from sparklog.topic.routing import grouped
from sparklog.topic.write_target import WriteTarget
from sparklog.write.staging import StagedFile, StagedWriter, is_running
from sparklog.write.validation import refuse_inadmissible, with_timestamps

GATHERED_BYTES_MAX: Final = 1 << 25


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Task:
    """One attempt of a task, and what it writes.

    Attributes
    ----------
    target : WriteTarget
        Where to.
    config : LogConfig
        How.
    partitioner : str
        Its name; see `make_partitioner`.
    job_id : str
        Of the job, which has begun; see `sparklog.write.staging.begin`.
    task : int
        Its number in the job.
    attempt : int
        Its own number, which no other attempt of the job's tasks has.
    now_ms : int
        The time of the job: of records that come without one, and of all under LogAppendTime.
    """

    target: WriteTarget
    config: LogConfig
    partitioner: str
    job_id: str
    task: int
    attempt: int
    now_ms: int


class RecordAccumulator:
    """Takes a task's rows, and leaves staged files; none where an error leaves its ``with`` block.

    Parameters
    ----------
    task : Task
        What is written.
    clock : callable
        Returns the time, ms.
    gathered_bytes_max : int
        How many bytes of rows to gather before they are encoded.
    """

    def __init__(
        self,
        task: Task,
        clock: Callable[[], int] = wall_clock_ms,
        gathered_bytes_max: int = GATHERED_BYTES_MAX,
    ) -> None:
        self._storage, self._task, self._clock = task.target.directory.writable, task, clock
        self._gathered_bytes_max = gathered_bytes_max
        self._settings = _settings(task.config, task.now_ms)
        self._partitioners: dict[str, Partitioner] = {}
        self._stages: dict[TopicPartition, StagedWriter] = {}
        self._rows: list[pa.RecordBatch] = []
        self._gathered_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is not None:
            # The error that is on its way says more than one that the removal may meet.
            with contextlib.suppress(SeglogError):
                self._discard()

    def append(self, rows: pa.RecordBatch) -> None:
        """Take rows: ``value``, and where there are such ``key``, ``headers``, ``timestamp``, ``topic``, ``partition``.

        Raises
        ------
        InvalidOptionError
            A row has no topic, or one that may not be written to, or names a partition that there is not.
        RecordTooLargeError
            A record that can never fit into a batch.
        CommitError
            The job has ended, and nobody waits for this task.
        """
        self._rows.append(rows)
        self._gathered_bytes += rows.nbytes
        if self._gathered_bytes >= self._gathered_bytes_max:
            self._flush()

    def finish(self) -> list[StagedFile]:
        """Stage the rest, and sync; what was staged."""
        self._flush()
        staged = [each for stage in self._stages.values() for each in stage.finish()]
        names = [name for each in staged for name in (each.log_name, each.batches_name)]
        self._storage.sync_files([self._task.target.directory.file(name) for name in names])
        self._refuse_ended_job()
        return staged

    def _discard(self) -> None:
        """Remove what was staged; where no other task is to come, folders too that are empty."""
        for stage in self._stages.values():
            stage.discard()
        if not self._is_job_running():
            for stage in self._stages.values():
                self._storage.remove_folder(stage.folder.location)

    def _is_job_running(self) -> bool:
        return is_running(self._task.target.directory, self._task.job_id)

    def _refuse_ended_job(self) -> None:
        """Fail if the job has ended: looked for after files were made, since its end removes those made before."""
        if not self._is_job_running():
            raise CommitError("the job of this task has ended: what the task has staged is removed")

    def _flush(self) -> None:
        rows, self._rows, self._gathered_bytes = self._rows, [], 0
        if not rows:
            return
        # They are of one piece, unless their bytes are too many for a column to count.
        pieces = rows if len(rows) == 1 else pa.Table.from_batches(rows).combine_chunks().to_batches()
        for piece in pieces:
            self._stage_all(piece)
        self._refuse_ended_job()

    def _stage_all(self, rows: pa.RecordBatch) -> None:
        for topic, of_topic in _by_topic(rows, self._task.target.topic):
            records = with_timestamps(take_records(of_topic), self._task.now_ms)
            refuse_inadmissible(records, self._task.config, self._clock())
            for partition, part in grouped(records, self._partitions(topic, of_topic, records)):
                self._stage(TopicPartition(topic, partition), part)

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
                self._task.partitioner, seed=self._task.task, batch_bytes=self._task.config.batch_size
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

    def _stage(self, at: TopicPartition, rows: pa.RecordBatch) -> None:
        task, stage = self._task, self._stages.get(at)
        if stage is None:
            folder = PartitionFolder(task.target.directory, *at)
            self._storage.make_folder(folder.location)
            stage = StagedWriter(folder, task.job_id, task.task, task.attempt, task.config)
            self._stages[at] = stage
        try:
            stage.append(encode_batches(rows, self._settings, stage.end_offset), task.now_ms)
        except RecordTooLargeError as error:
            raise RecordTooLargeError(f"a record for {at} is too large: {error.message}") from error


def _settings(config: LogConfig, now_ms: int) -> BatchSettings:
    return BatchSettings(
        codec=config.codec,
        level=config.compression_level,
        batch_bytes=config.batch_size,
        batch_bytes_max=config.batch_bytes_max,
        decompressed_bytes_max=config.max_decompressed_message_bytes,
        append_time=now_ms if config.message_timestamp_type == "LogAppendTime" else None,
    )


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Part rows by the topics that they name, unless all are of one."""
    if topic is not None:
        yield topic, rows
        return
    named = rows.column("topic")
    if named.null_count:
        raise InvalidOptionError("null topic present in the data. Use the topic option for setting a topic.")
    topics = pc.unique(named).to_pylist()
    for each in topics:
        yield each, rows if len(topics) == 1 else rows.filter(pc.equal(named, each))
