"""Cleans the logs of a directory by the configuration of their topics; `sparklog.clean` describes the options.

A task has one or more partitions. It changes only the files in their folders, by atomic swaps. The driver holds the
locks, writes the files of the directory, and drops the segments that retention drops, which only renames them: first it
raises the log start offsets, in one step for all partitions that were cleaned by then. After a kill at any point a
rerun continues: swapped segments are clean, and segments before the start offset are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.cleaner.opened import OpenedLog, open_to_clean, open_to_look
from sparklog.cleaner.partition import Cleaned, Cleaning, CleanPass
from sparklog.cleaner.retention import KafkaRetention, RetentionPolicy
from sparklog.cleaner.rewriting import Throttle
from sparklog.cleaner.swap import remove_before
from sparklog.errors import NOTHING_CLEANED, CorruptLogError, LockedError
from sparklog.jobs.run.exclusive import exclusive
from sparklog.jobs.run.job import OF_ONE_PARTITION, Amount, PartlyDoneError, PiecesTask, Report
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.run.shares import task_slices
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.properties import LOCAL_RETENTION, UNLIMITED
from sparklog.log.segment_listing import list_segments
from sparklog.topic.write.configs import StoredConfigs, stored_configs, topic_config
from sparklog.values.imports import imported
from sparklog.write.small_files import set_checkpoint_offsets

_RETENTION: Final = "retention.ms"


@dataclass(frozen=True)
class PartitionToClean:
    """A partition, and the options for cleaning it."""

    folder: PartitionFolder
    config: LogConfig
    log_bytes: int

    @property
    def name(self) -> str:
        return self.folder.name


CleanTask = PiecesTask[PartitionToClean]


@dataclass(frozen=True)
class CleanJob:
    """Cleans partitions of one log directory.

    Attributes
    ----------
    folders : tuple of PartitionFolder
        The partitions to clean, all in the directory.
    config : LogConfig
        The caller's properties for the topics; they override the stored ones.
    passes : tuple of CleanPass
        The passes over the segments that retention leaves.
    retention_policy : str or None
        A policy of the caller's own, ``module:Class``.
    bytes_per_second : float or None
        The largest rate of reading and writing of all workers together.
    run_id : str
        The id of the run, from `sparklog.write.running_jobs.new_job`.
    now_ms : int
        Wall-clock time, ms since the epoch.
    """

    directory: LogDirectory
    folders: tuple[PartitionFolder, ...]
    config: LogConfig
    run_id: str
    now_ms: int
    passes: tuple[CleanPass, ...] = ()
    retention_policy: str | None = None
    bytes_per_second: float | None = None
    workers: int = 1
    options: LogJobOptions = field(default_factory=LogJobOptions)

    commits_as_it_goes: bool = field(default=True, init=False)
    threads_bytes_max: int = field(default=0, init=False)

    def held(self) -> AbstractContextManager[None]:
        if self.options.dry_run:
            return nullcontext()
        return exclusive(
            self.directory,
            self.run_id,
            self.options.lock_timeout_seconds,
            keeps_writers_out=True,
            nothing_done=NOTHING_CLEANED,
        )

    def plan(self) -> list[CleanTask]:
        """Return the tasks, with the configuration of each partition; small partitions share a task.

        Raises
        ------
        InvalidOptionError
            A stored property is wrong, or contradicts the caller's.
        """
        stored = stored_configs(self.directory, warns_of=LOCAL_RETENTION)
        each = [
            PartitionToClean(folder, self._config_of(folder.topic, stored), _log_bytes(folder))
            for folder in self.folders
        ]
        rows = task_slices([one.log_bytes for one in each], self.options.task_bytes, self.workers)
        return [CleanTask(n, tuple(each[rows_of])) for n, rows_of in enumerate(rows)]

    def _config_of(self, topic: str, stored: StoredConfigs) -> LogConfig:
        """Return the configuration of a topic. Without a given retention there is none: no default may lose records.

        Kafka's default is a week; a cluster with another default does not store it in its log directories.
        """
        found = topic_config(topic, self.config, stored)
        is_said = _RETENTION in self.config.given or _RETENTION in stored.get(topic, {})
        return found if is_said else replace(found, retention_ms=UNLIMITED)

    def run(self, task: CleanTask, report: Report) -> list[Cleaned]:
        """Clean the partitions of a task; another attempt of the task waits until this one has ended."""
        with self._alone(task):
            return self._run(task, report)

    def _alone(self, task: CleanTask) -> AbstractContextManager[object]:
        if self.options.dry_run:
            return nullcontext()
        path = self.directory.file(files.staged_name(self.run_id, f"clean-{task.number}"))
        return self.directory.writable.lock(path, self.options.lock_timeout_seconds)

    def _run(self, task: CleanTask, report: Report) -> list[Cleaned]:
        cleaning = Cleaning(
            policy=self._policy(),
            passes=self.passes,
            throttle=None if self.bytes_per_second is None else Throttle(self.bytes_per_second / self.workers),
            report=lambda size_bytes: report(Amount(size_bytes, 0)),
            before_swap=self._refuse_another_job,
        )
        cleaned: list[Cleaned] = []
        errors: list[Exception] = []
        for each in task.pieces:
            try:
                cleaned.append(cleaning.clean(self._opened(each)))
            except OF_ONE_PARTITION as error:
                error.add_note(f"in {each.folder.name}")
                errors.append(error)
        if errors:
            raise PartlyDoneError(cleaned, errors)
        return cleaned

    def _opened(self, each: PartitionToClean) -> OpenedLog:
        opened = open_to_look if self.options.dry_run else open_to_clean
        return opened(each.folder, each.config, self.now_ms)

    def _policy(self) -> RetentionPolicy:
        if self.retention_policy is None:
            return KafkaRetention()
        policy: RetentionPolicy = imported(self.retention_policy, "the retention policy")()
        return policy

    def _refuse_another_job(self) -> None:
        """Raise if the driver of this job is dead and the next job has begun."""
        marker = self.directory.file(files.exclusive_job_name(self.run_id))
        if self.directory.storage.identity(marker) is None:
            raise LockedError(f"another job works on {self.directory.path} by now: this one was taken for dead")

    def commit(self, results: Sequence[Sequence[Cleaned]]) -> None:
        """Raise the log start offsets, drop the segments before them, and record up to where logs are compacted."""
        cleaned = {TopicPartition(each.topic, each.partition): each for result in results for each in result}
        if self.options.dry_run or not cleaned:
            return
        dropped = {at: each.start_offset for at, each in cleaned.items() if each.dropped_segments}
        if dropped:
            set_checkpoint_offsets(self.directory, files.LOG_START_CHECKPOINT, dropped)
            for folder, config in self._configs(dropped):
                remove_before(folder, dropped[TopicPartition(folder.topic, folder.partition or 0)], config, self.now_ms)
        compacted = {at: each.clean_offset for at, each in cleaned.items() if each.clean_offset is not None}
        if compacted:
            set_checkpoint_offsets(self.directory, files.CLEANER_CHECKPOINT, compacted)

    def _configs(self, chosen: Mapping[TopicPartition, int]) -> Iterator[tuple[PartitionFolder, LogConfig]]:
        stored = stored_configs(self.directory)
        for folder in self.folders:
            if folder.topic_partition in chosen:
                yield folder, self._config_of(folder.topic, stored)


def _log_bytes(folder: PartitionFolder) -> int:
    try:
        return sum(each.size_bytes for each in list_segments(folder))
    except CorruptLogError:
        # The task that reads it reports the error.
        return 0
