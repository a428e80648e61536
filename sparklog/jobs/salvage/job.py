"""Makes a log directory with the sound copies of damaged logs; `sparklog.salvage` describes the options.

A task has one or more partitions. It writes the copy of each into a folder of its own, named as Kafka names the folder
of a deleted partition, so that no reader opens it, and a broker would only remove it. The driver commits finished
tasks while others run: it writes the offsets of their partitions to the checkpoints of the directory, renames the
folders, and then adds the partitions to the record (`sparklog.jobs.salvage.record`). After a kill at any point a rerun
removes every folder that is not in the record, and makes it again. The source is only read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.jobs.run.exclusive import exclusive
from sparklog.jobs.run.job import OF_ONE_PARTITION, PartlyDoneError, PiecesTask, Report
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.run.shares import task_slices
from sparklog.jobs.salvage.log_copy import LogToSalvage, SalvagedLog, salvage_log
from sparklog.jobs.salvage.record import SalvageRecord, add_logs, begin_record, end_record, read_record
from sparklog.log import files
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import TopicPartition, deleted_folder_name, is_set_aside, parse_partition_folder
from sparklog.log.folders import listed
from sparklog.log.layout import topic_id_of
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.registry import Location
from sparklog.topic.log_manager import remove_folder
from sparklog.topic.places.discovery import named
from sparklog.topic.quarantine import Quarantine
from sparklog.topic.write.commit import ORPHAN_AGE_MS
from sparklog.write.small_files import set_checkpoint_offsets, write_atomically

_NOTHING_DONE: Final = "Nothing was salvaged: repeat it once the cause is gone"
_CARRIED: Final = (files.META_PROPERTIES, files.BOOTSTRAP_CHECKPOINT, files.TOPICS_PROPERTIES)
"""Files of a log directory, beside its logs, that the copy needs unchanged."""
_OWN: Final = {files.LOCK, files.JOBS_LOCK, files.WRITERS_LOCK, files.WRITERS_QUEUE, files.SALVAGE_RECORD}
_CHECKPOINTS: Final = {
    files.LOG_START_CHECKPOINT: "start_offset",
    files.RECOVERY_POINT_CHECKPOINT: "end_offset",
    files.HIGH_WATERMARK_CHECKPOINT: "high_watermark",
}
_TOKEN_DIGITS: Final = 19
_NONE: Final = -1

SalvageTask = PiecesTask[LogToSalvage]


@dataclass(frozen=True)
class SalvageJob:
    """Makes sound copies of logs in a new log directory.

    Attributes
    ----------
    target : Location
        The directory, which is empty, does not exist, or has an unfinished salvage of the same sources.
    sources : tuple of str
        The paths of the sources, as the record names them.
    whole : LogDirectory or None
        The log directory that is salvaged as a whole.
    run_id, now_ms
        The id of the run, from `sparklog.write.running_jobs.new_job`, and its wall-clock time, ms since the epoch.
    quarantine : Quarantine or None
        Keeps the bytes of damage; the partitions in the record have theirs there.
    """

    target: Location
    sources: tuple[str, ...]
    folders: tuple[PartitionFolder, ...]
    whole: LogDirectory | None
    run_id: str
    now_ms: int
    quarantine: Quarantine | None = None
    workers: int = 1
    options: LogJobOptions = field(default_factory=LogJobOptions)

    commits_as_it_goes: bool = field(default=True, init=False)
    # Compiled code and the kernel do most of the work.
    threads_bytes_max: int = field(default=1 << 33, init=False)

    @property
    def directory(self) -> LogDirectory:
        return LogDirectory(*self.target)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep others out of the target; begin or continue its record, and end it if all partitions are in place."""
        directory = self.directory
        self._refuse_other(directory)
        timeout = self.options.lock_timeout_seconds
        with exclusive(directory, self.run_id, timeout, keeps_writers_out=True, nothing_done=_NOTHING_DONE):
            record = self._refuse_other(directory)
            if record is None:
                begin_record(directory, self.sources)
            self._remove_unfinished({} if record is None else record.logs)
            self._carry()
            yield
            end_record(directory)

    def _refuse_other(self, directory: LogDirectory) -> SalvageRecord | None:
        """Return the record in the target; raise unless that is empty, or has an unfinished salvage of the sources."""
        if not directory.storage.is_folder(directory.path):
            return None
        record = read_record(directory)
        if record is not None and record.is_finished:
            raise InvalidOptionError(
                f"{directory.path} holds a finished salvage of {listed(record.sources)}: name another"
            )
        if record is not None and record.sources != self.sources:
            raise InvalidOptionError(
                f"{directory.path} holds an unfinished salvage of {listed(record.sources)}, and not of "
                f"{listed(self.sources)}: name another directory"
            )
        names = {each.name for each in directory.storage.names(directory.path)} - _OWN
        foreign = sorted(name for name in names if not name.endswith((files.STAGED, files.BEING_WRITTEN)))
        if record is None and foreign:
            raise InvalidOptionError(
                f"{directory.path} is not empty, it has {listed(foreign)}: salvage to a new directory"
            )
        return record

    def _remove_unfinished(self, done: Mapping[TopicPartition, SalvagedLog]) -> None:
        """Remove the folders of copies that are not in the record."""
        for each in self.directory.storage.names(self.directory.path):
            at = parse_partition_folder(each.name)
            if each.is_folder and (is_set_aside(each.name) or (at is not None and at not in done)):
                remove_folder(self.directory, each.name)

    def _carry(self) -> None:
        if self.whole is not None:
            for name in _CARRIED:
                if (data := self.whole.storage.read_small(self.whole.file(name))) is not None:
                    write_atomically(self.directory, name, data)

    def plan(self) -> list[SalvageTask]:
        """Return the tasks: the partitions that are not in the record, small ones together.

        Raises
        ------
        InvalidOptionError
            A commit to a source is decided and not finished.
        """
        record = read_record(self.directory)
        done = record.logs if record is not None else {}
        views = {each: DirectoryView(each) for each in {folder.directory for folder in self.folders}}
        for directory, view in views.items():
            if view.journal is not None:
                raise InvalidOptionError(
                    f"a commit to {directory.path} was decided and is not finished: finish it with 'sparklog recover "
                    f"{directory.path}', or remove {directory.file(files.JOURNAL)} from a copy to give it up"
                )
        ids = {folder.topic: found for folder in reversed(self.folders) if (found := topic_id_of(folder)) is not None}
        logs = [
            _log_of(folder, views[folder.directory], ids.get(folder.topic))
            for folder in self.folders
            if named(folder) not in done
        ]
        rows = task_slices([each.log_bytes for each in logs], self.options.task_bytes, self.workers)
        return [SalvageTask(number, tuple(logs[each])) for number, each in enumerate(rows)]

    def run(self, task: SalvageTask, report: Report) -> list[SalvagedLog]:
        """Write the copies of a task into folders of their own."""
        salvaged, errors = list[SalvagedLog](), list[Exception]()
        for each in task.pieces:
            name = deleted_folder_name(each.name, self.now_ms + ORPHAN_AGE_MS, secrets.token_hex(10)[:_TOKEN_DIGITS])
            try:
                done = salvage_log(each, self.directory.folder(name), report)
                if self.quarantine is not None:
                    self.quarantine.keep(done.damage, each.folder.storage)
                salvaged.append(done)
            except OF_ONE_PARTITION as error:
                error.add_note(f"in {each.name}")
                errors.append(error)
        if errors:
            raise PartlyDoneError(salvaged, errors)
        return salvaged

    def commit(self, results: Sequence[Sequence[SalvagedLog]]) -> None:
        """Put copies in place, and add them to the record."""
        directory, logs = self.directory, [each for result in results for each in result]
        if not logs:
            return
        for name, field_name in _CHECKPOINTS.items():
            set_checkpoint_offsets(directory, name, {log.topic_partition: getattr(log, field_name) for log in logs})
        for log in logs:
            directory.writable.rename(directory.file(log.staged), directory.file(str(log.topic_partition)))
        directory.writable.sync_folder(directory.path)
        add_logs(directory, logs)


def _log_of(folder: PartitionFolder, view: DirectoryView, topic_id: str | None) -> LogToSalvage:
    at, size_bytes = named(folder), 0
    with suppress(SeglogError):
        size_bytes = sum(
            each.size_bytes for each in folder.storage.entries(folder.location) if each.name.endswith(files.LOG)
        )
    lines = (view.start_offsets, view.recovery_points, view.offsets(files.HIGH_WATERMARK_CHECKPOINT))
    # A damaged line may name an offset that no log has.
    start, point, mark = (found if 0 <= (found := line.get(at, _NONE)) < OFFSET_MAX else _NONE for line in lines)
    return LogToSalvage(folder, size_bytes, max(start, 0), max(point, mark, 0), None if mark < 0 else mark, topic_id)
