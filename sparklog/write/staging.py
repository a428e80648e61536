"""Writes a task's own files, which become parts of logs when the job is committed.

A task writes to files of the log directory that a broker does not know:

    seglog-<job>-<task>-<attempt>-<number>.log.staged     v2 batches
    seglog-<job>-<task>-<attempt>-<number>.batches.staged one entry a batch, in the same order:

        byte  size  field
        0     8     base_offset        as the task counts them; of a compressed wrapper the lowest that it may have
        8     8     last_offset
        16    8     max_timestamp      ms; -1 none
        24    8     producer_id        -1 none
        32    4     batch_bytes
        36    4     record_count
        40    4     base_sequence      -1 none
        44    4     coordinator_epoch  of a marker
        48    2     producer_epoch     -1 none
        50    1     attributes
        51    1     magic
        52    4     marker             0 abort, 1 commit; -1 for a batch that ends no transaction
        56    4     crc                of magic 2

All partitions of a task share the file with number 0. It holds runs: consecutive batches of one partition. A commit
copies them, with their offsets, to their logs. Only a partition with so many bytes
that they may fill a segment continues in files of its own, which can become segments as they are: they hold nothing
else, and they are rolled where a segment would be. So a task leaves a handful of files, however many partitions it
writes to.

The offsets of a partition are counted from the task's guess of the right one, or from 0; a commit corrects them
in the batches if the guess was wrong.

`sparklog.write.running_jobs` has ``<job>``. The entries are all that a commit must know about the batches, in the byte
order of the machines: they do not outlive the job. `sparklog.write.staged_runs` reads the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sparklog.errors import CommitError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.write.active_segment import ActiveSegmentState, BatchRun, append_run, new_segment, rows_before_roll
from sparklog.write.running_jobs import is_running

if TYPE_CHECKING:
    from sparklog.record.encode.batches import EncodedBatches

BATCH_ENTRY: Final = np.dtype(
    [
        ("base_offset", "<i8"),
        ("last_offset", "<i8"),
        ("max_timestamp", "<i8"),
        ("producer_id", "<i8"),
        ("batch_bytes", "<i4"),
        ("record_count", "<i4"),
        ("base_sequence", "<i4"),
        ("coordinator_epoch", "<i4"),
        ("producer_epoch", "<i2"),
        ("attributes", "u1"),
        ("magic", "u1"),
        ("marker", "<i4"),
        ("crc", "<u4"),
    ]
)
assert BATCH_ENTRY.itemsize == 60
_OF_MARKERS: Final = ("coordinator_epoch", "marker")
_OF_HEADERS: Final = tuple(name for name in BATCH_ENTRY.names or () if name not in _OF_MARKERS)
_NONE: Final = -1

COPIED_SHARE_MAX: Final = 1 / 32
"""A task's staged bytes for a partition are copied into the log, unless they exceed this share of a segment."""
_SHARED_SHARE_MAX: Final = COPIED_SHARE_MAX / 8
"""A partition continues in a file of its own once a task has more than this share of a segment for it.

It may well fill a segment. The share is below the one for copying, so that most of such a partition is not copied."""
_SHARED_RUNS_MAX: Final = 16
"""So does a partition with this many separate runs in the shared file, since a commit reads each by itself."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a run's batches, and the rule for their offsets.

    Attributes
    ----------
    source : str
        The path of the log that they are copied from; empty if they were made of rows.
    goes_on : bool
        Whether they continue an earlier copy from that log to this one.
    keeps_offsets : bool
        Whether they keep the offsets that they have.
    leader_epoch : int
        The leader epoch in them.
    """

    source: str = ""
    goes_on: bool = False
    keeps_offsets: bool = False
    leader_epoch: int = 0


OF_ROWS: Final = Origin()


class StagedRun(NamedTuple):
    """Consecutive batches of one partition in a staged file, as the task that wrote them describes them to the driver.

    Attributes
    ----------
    folder, job : str
        The partition's folder by its name, and the job.
    name : str
        The file's name among the job's staged files: ``<task>-<attempt>-<number>``.
    task, number : int
        Runs of a partition are committed in the order of tasks, and within a task by number.
    is_alone : bool
        Whether the file holds nothing else, so that it can become a segment.
    origin : Origin
        The source of its batches.
    position, size_bytes : int
        The run's position in the file, and its size.
    first_entry, batches : int
        The row of its first batch among the entries of the file, and the number of its batches.
    records : int
        The number of its records.
    base_offset, end_offset : int
        The offset of its first batch, and the offset after its last, as the task counts them.
    """

    folder: str
    job: str
    name: str
    task: int
    number: int
    is_alone: bool
    origin: Origin
    position: int
    size_bytes: int
    first_entry: int
    batches: int
    records: int
    base_offset: int
    end_offset: int

    @property
    def log_name(self) -> str:
        """The path of the file, relative to the log directory."""
        return files.staged_name(self.job, files.staged_log(self.name))

    @property
    def batches_name(self) -> str:
        """The path of the entries of the file, relative to the log directory."""
        return files.staged_name(self.job, files.staged_batches(self.name))

    def followed_by(self, other: StagedRun) -> StagedRun | None:
        """Return both runs as one, if the other follows this one in the same file; otherwise None."""
        if self.name != other.name or self.position + self.size_bytes != other.position:
            return None
        if self.origin != other.origin or (self.end_offset != other.base_offset and not self.origin.keeps_offsets):
            return None
        return self._replace(
            size_bytes=self.size_bytes + other.size_bytes,
            batches=self.batches + other.batches,
            records=self.records + other.records,
            end_offset=other.end_offset,
        )


class _StagedFile:
    """A staged file open for writing, and the entries of its batches.

    Parameters
    ----------
    job, name : str
        See `StagedRun`.
    """

    def __init__(self, directory: LogDirectory, job: str, name: str) -> None:
        self.name, self._directory, self._job = name, directory, job
        self._entries: list[np.ndarray[Any, np.dtype[Any]]] = []
        self.size_bytes = self.batches = 0

    @property
    def paths(self) -> list[str]:
        return [self._path(name_of(self.name)) for name_of in (files.staged_log, files.staged_batches)]

    def append(self, encoded: EncodedBatches, rows: Sequence[slice]) -> None:
        """Append some of the batches; each slice has consecutive ones."""
        began_at = self.size_bytes
        storage, path = self._directory.writable, self._path(files.staged_log(self.name))
        with storage.open_for_append(path) if self.batches else storage.create(path) as log:
            for chosen in rows:
                headers = encoded.headers[chosen]
                positions, sizes = headers.column("position"), headers.column("batch_bytes")
                log.append(encoded.data[int(positions[0]) : int(positions[-1]) + int(sizes[-1])])
                self._entries.append(_entries_of(encoded, headers))
                self.size_bytes += int(sizes.sum())
                self.batches += len(headers)
            log.begin_sync(began_at)

    def finish(self) -> None:
        """Write the entries; the caller syncs the files."""
        with self._directory.writable.create(self._path(files.staged_batches(self.name))) as file:
            file.append(np.concatenate(self._entries).tobytes())
        self._entries = []

    def _path(self, what: str) -> str:
        return self._directory.file(files.staged_name(self._job, what))


@dataclass
class _Staged:
    """The staged batches of one partition.

    Attributes
    ----------
    runs : list of StagedRun
        The finished runs: first in the shared file, then in files of their own.
    own : _StagedFile or None
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
    own: _StagedFile | None = None
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
        self._files: list[_StagedFile] = []
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

    def _run(self, folder: str, found: _Staged, file: _StagedFile, *at: int, is_alone: bool = False) -> StagedRun:
        return StagedRun(folder, self._job, file.name, self._task, len(found.runs), is_alone, found.origin, *at)

    def _new_file(self) -> _StagedFile:
        name = f"{self._task}-{self._attempt}-{len(self._files)}"
        self._files.append(_StagedFile(self._directory, self._job, name))
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


def _entries_of(encoded: EncodedBatches, headers: BatchHeaders) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the entries of some of the batches."""
    entries = np.empty(len(headers), dtype=BATCH_ENTRY)
    for column in _OF_HEADERS:
        entries[column] = headers.column(column)
    for column in _OF_MARKERS:
        entries[column] = _NONE
    ends = (headers.column("position") + headers.column("batch_bytes")).tolist()
    for row in np.flatnonzero(headers.is_control).tolist():
        marker = v2.end_marker(encoded.data[int(headers.column("position")[row]) : ends[row]])
        if marker is not None:
            entries["coordinator_epoch"][row] = marker.coordinator_epoch
            entries["marker"][row] = v2.ABORT if marker.is_abort else v2.COMMIT
    return entries
