"""Writes a task's own files, which become parts of logs when the job is committed.

All partitions of a task share the file with number 0. It holds runs: consecutive batches of one partition. A commit
copies them, with their offsets, to their logs. Only a partition with so many bytes that they may fill a segment
continues in files of its own, which can become segments as they are: they hold nothing else, and they are rolled where
a segment would be. So a task leaves a handful of files, however many partitions it writes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from sparklog.errors import CommitError
from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory
from sparklog.write.active_segment import ActiveSegmentState, BatchRun, append_run, new_segment, rows_before_roll
from sparklog.write.running_jobs import is_running
from sparklog.write.staged_files import OF_ROWS, Origin, StagedRun, TaskFile

if TYPE_CHECKING:
    from sparklog.record.encode.batches import EncodedBatches

COPIED_SHARE_MAX: Final = 1 / 32
"""A task's staged bytes for a partition are copied into the log, unless they exceed this share of a segment."""
_SHARED_SHARE_MAX: Final = COPIED_SHARE_MAX / 8
"""A partition continues in a file of its own once a task has more than this share of a segment for it.

It may well fill a segment. The share is below the one for copying, so that most of such a partition is not copied."""
_SHARED_RUNS_MAX: Final = 16
"""So does a partition with this many separate runs in the shared file, since a commit reads each by itself."""


@dataclass
class _Staged:
    """The staged batches of one partition.

    Attributes
    ----------
    runs : list of StagedRun
        The finished runs: first in the shared file, then in files of their own.
    own : TaskFile or None
        The partition's own unfinished file, if there is one.
    own_records : int
        The number of records in it.
    tail : ActiveSegmentState
        That file as a segment.
    end_offset : int
        The offset behind the last batch.
    origin : Origin
        The source of the next batches.
    is_large : bool
        Whether the partition may fill a segment.
    """

    runs: list[StagedRun] = field(default_factory=list)
    own: TaskFile | None = None
    own_records: int = 0
    tail: ActiveSegmentState = field(default_factory=lambda: new_segment(0, 0))
    end_offset: int = 0
    origin: Origin = OF_ROWS
    is_large: bool = False

    def goes_on_alone(self, size_bytes: int, config: LogConfig) -> bool:
        """Return whether the next run, of ``size_bytes``, goes to a file of the partition's own."""
        if self.is_large or self.own is not None or (self.runs and self.runs[-1].is_alone):
            return True
        shared_bytes = sum(run.size_bytes for run in self.runs) + size_bytes
        return shared_bytes > config.segment_bytes * _SHARED_SHARE_MAX or len(self.runs) >= _SHARED_RUNS_MAX

    def add(self, run: StagedRun) -> None:
        """Add a finished run; join it to the last one if it follows that."""
        joined = self.runs[-1].followed_by(run) if self.runs else None
        if joined is None:
            self.runs.append(run)
        else:
            self.runs[-1] = joined


class TaskStage:
    """The staged files of one attempt of a task.

    Parameters
    ----------
    directory : LogDirectory
        The log directory, which exists.
    job : str
        The job, which has begun; see `sparklog.write.running_jobs.begin`.
    task, attempt : int
        The number of the task in the job, and the number of the attempt, unique among all attempts of the job.
    config : LogConfig
        Sets when files are rolled.
    """

    def __init__(self, directory: LogDirectory, job: str, task: int, attempt: int, config: LogConfig) -> None:
        self._directory, self._job = directory, job
        self._task, self._attempt, self._config = task, attempt, config
        self._files: list[TaskFile] = []
        self._shared = self._new_file()
        self._staged: dict[str, _Staged] = {}

    @property
    def partition_count(self) -> int:
        """The number of partitions with staged batches."""
        return len(self._staged)

    def end_offset(self, folder: str, base_offset: int = 0) -> int:
        """Return the offset after the last batch staged for a partition, by the name of its folder.

        If there is none, return ``base_offset``, the offset expected for the first batch.
        """
        found = self._staged.get(folder)
        return base_offset if found is None else found.end_offset

    def begin_copy(self, folder: str, base_offset: int, origin: Origin, *, is_large: bool) -> None:
        """Begin a run of copied batches.

        Parameters
        ----------
        base_offset : int
            The offset expected for the first of them; none is lower.
        is_large : bool
            Whether they may fill a segment.
        """
        found = self._staged.setdefault(folder, _Staged())
        self._finish_file(folder, found)
        found.end_offset, found.origin, found.is_large = base_offset, origin, is_large

    def append(
        self,
        encoded: EncodedBatches,
        folders: Sequence[str],
        batch_ends: Sequence[int],
        now_ms: int,
        config: LogConfig | None = None,
    ) -> None:
        """Stage batches of some partitions.

        Parameters
        ----------
        encoded : EncodedBatches
            The batches, partition by partition; the offsets of each partition continue after the task's
            last batch of it. Copied batches that keep their offsets may leave a gap.
        folders : sequence of str
            The names of the partitions' folders, each once.
        batch_ends : sequence of int
            For each partition, the row after its last batch.
        now_ms : int
            Wall-clock time, ms since the epoch.
        config : LogConfig, optional
            The topic's configuration; by default the stage's.
        """
        headers, config = encoded.headers, config or self._config
        base_offsets = headers.column("base_offset").tolist()
        end_offsets = (headers.column("last_offset") + 1).tolist()
        ends = (headers.column("position") + headers.column("batch_bytes")).tolist()
        counts = np.cumsum(headers.column("record_count")).tolist()
        shared, position, first_entry = list[slice](), self._shared.size_bytes, self._shared.batches
        first = start = counted = 0
        for folder, last in zip(folders, batch_ends, strict=True):
            base_offset = base_offsets[first]
            found = self._staged.setdefault(folder, _Staged(end_offset=base_offset))
            size_bytes, records = ends[last - 1] - start, counts[last - 1] - counted
            if base_offset != found.end_offset and not (found.origin.keeps_offsets and base_offset > found.end_offset):
                raise ValueError(f"the batches begin at {base_offset} and not at {found.end_offset}")
            if found.goes_on_alone(size_bytes, config):
                self._append_alone(folder, found, encoded, slice(first, last), now_ms, config)
            else:
                at = (position, size_bytes, first_entry, last - first, records, base_offset, end_offsets[last - 1])
                found.add(self._run(folder, found, self._shared, *at))
                shared.append(slice(first, last))
                position, first_entry = position + size_bytes, first_entry + last - first
            found.end_offset = end_offsets[last - 1]
            first, start, counted = last, ends[last - 1], counts[last - 1]
        if shared:
            self._shared.append(encoded, _joined(shared))

    def _append_alone(
        self, folder: str, found: _Staged, encoded: EncodedBatches, rows: slice, now_ms: int, config: LogConfig
    ) -> None:
        """Append batches of a partition to a file of its own, which rolls like a segment."""
        first = rows.start
        while first < rows.stop:
            headers = encoded.headers[first : rows.stop]
            if found.own is None:
                found.own, found.own_records = self._new_file(), 0
                found.tail = new_segment(int(headers.column("base_offset")[0]), now_ms)
            run = BatchRun.from_headers(headers)
            count = rows_before_roll(found.tail, run, config, now_ms)
            if count:
                found.own.append(encoded, [slice(first, first + count)])
                found.own_records += int(headers.column("record_count")[:count].sum())
                found.tail, _, _ = append_run(found.tail, run[:count], config)
            first += count
            if first < rows.stop:
                self._finish_file(folder, found)

    def _finish_file(self, folder: str, found: _Staged) -> None:
        """Finish the partition's own file, if there is one."""
        if found.own is None:
            return
        found.own.finish()
        offsets = (found.tail.segment.base_offset, found.tail.end_offset)
        at = (0, found.own.size_bytes, 0, found.own.batches, found.own_records, *offsets)
        found.runs.append(self._run(folder, found, found.own, *at, is_alone=True))
        found.own = None

    def _run(self, folder: str, found: _Staged, file: TaskFile, *at: int, is_alone: bool = False) -> StagedRun:
        return StagedRun(folder, self._job, file.name, self._task, len(found.runs), is_alone, found.origin, *at)

    def _new_file(self) -> TaskFile:
        name = f"{self._task}-{self._attempt}-{len(self._files)}"
        self._files.append(TaskFile(self._directory, self._job, name))
        return self._files[-1]

    def finish(self, *, is_synced: bool = True) -> list[StagedRun]:
        """Close all files, and return their runs.

        Parameters
        ----------
        is_synced : bool
            Whether the files are synced here. They need not be if the commit runs on the same machine: it syncs
            each file that it moves, and its own copy of the batches from the others.

        Raises
        ------
        CommitError
            The job has ended.
        """
        for folder, found in self._staged.items():
            self._finish_file(folder, found)
        if self._shared.batches:
            self._shared.finish()
        if is_synced:
            self._directory.writable.sync_files([path for file in self._files if file.batches for path in file.paths])
        self.refuse_ended_job()
        return [run for found in self._staged.values() for run in found.runs]

    def discard(self) -> None:
        """Remove all files."""
        for file in self._files:
            for path in file.paths:
                self._directory.writable.remove(path)

    def refuse_ended_job(self) -> None:
        """Raise `CommitError` if the job has ended.

        Call it after making files, since the end of the job removes all files made before.
        """
        if not is_running(self._directory, self._job):
            raise CommitError("the job of this task has ended: what the task has staged is removed")


def _joined(rows: Sequence[slice]) -> list[slice]:
    """Join consecutive slices of rows."""
    joined = [rows[0]]
    for each in rows[1:]:
        if joined[-1].stop == each.start:
            joined[-1] = slice(joined[-1].start, each.stop)
        else:
            joined.append(each)
    return joined
