"""A task's own files, which become parts of logs when the job is committed.

A task puts what it writes to a partition into the partition's folder, in files of which a broker knows nothing:

    seglog-<job>-<task>-<attempt>-<number>.log.staged     v2 batches, offsets counted from the task's first
    seglog-<job>-<task>-<attempt>-<number>.batches.staged one entry a batch:

        byte  size  field
        0     4     batch_bytes
        4     4     record_count     offsets that the batch takes
        8     8     max_timestamp    ms; -1 none

and, while the job runs, beside the folders

    seglog-<job>-running.staged                           empty; a task that finds it gone is one that nobody waits for

``<job>`` begins with the time at which the job was made, ms in 12 hexadecimal digits, so that what a dead job left is
known by its age. The entries are what a commit must know of the batches, in the byte order of the machines: they do
not outlive the job. A file is rolled where a segment would be, so that it can become one as it is.
"""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sparklog.errors import CommitError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory, PartitionFolder, relative_path
from sparklog.record.headers import BatchHeaders
from sparklog.write.active_segment import ActiveSegmentState, BatchRun, append_run, new_segment, rows_before_roll

if TYPE_CHECKING:
    from sparklog.record.encode import EncodedBatches

BATCH_ENTRY: Final = np.dtype([("batch_bytes", "<i4"), ("record_count", "<i4"), ("max_timestamp", "<i8")])
assert BATCH_ENTRY.itemsize == 16

# A batch begins with its base offset, the bytes behind that and the size, and the leader epoch; see v2.
_STAMP: Final = struct.Struct(">qii")
_FRAMING_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One staged file, as the task that wrote it describes it to the driver.

    Attributes
    ----------
    folder, job : str
        The partition's folder by its name, and the job.
    name : str
        Unique among the files that the job stages in the folder: ``<task>-<attempt>-<number>``.
    task : int
        Number of the task; files are committed in the order of their tasks, and then of their ``number``.
    records, batches, size_bytes : int
        The numbers of records and batches in the file, and its size.
    base_offset : int
        The offset of the first record as the batches have it: the number of records that the task wrote before it.
    max_timestamp : int
        ms; -1 none.
    """

    folder: str
    job: str
    name: str
    task: int
    number: int
    base_offset: int
    records: int
    batches: int
    size_bytes: int
    max_timestamp: int

    @property
    def log_name(self) -> str:
        """The path of the batches, relative to the log directory."""
        return relative_path(self.folder, files.staged_name(self.job, files.staged_log(self.name)))

    @property
    def batches_name(self) -> str:
        """The path of the entries, relative to the log directory."""
        return relative_path(self.folder, files.staged_name(self.job, files.staged_batches(self.name)))

    def run(self, directory: LogDirectory, base_offset: int) -> BatchRun:
        """Return the batches of the file with the offsets that a commit gives them.

        Raises
        ------
        CommitError
            The entries of the file are gone, or are not those that the task wrote.
        """
        path = directory.file(self.batches_name)
        data = directory.storage.read_small(path)
        if data is None or len(data) != self.batches * BATCH_ENTRY.itemsize:
            raise CommitError(f"the staged file {path} is gone or cut")
        entries = np.frombuffer(data, dtype=BATCH_ENTRY)
        return BatchRun(
            batch_bytes=entries["batch_bytes"].astype(np.int64),
            last_offsets=base_offset - 1 + np.cumsum(entries["record_count"], dtype=np.int64),
            max_timestamps=entries["max_timestamp"].astype(np.int64),
        )


class StagedWriter:
    """Writes the staged files of one attempt of a task for one partition.

    Parameters
    ----------
    folder : PartitionFolder
        The partition's folder, which exists.
    job : str
        The job of the task.
    task, attempt : int
        No other attempt in the job has the same two numbers.
    config : LogConfig
        Says where files are rolled.
    """

    def __init__(self, folder: PartitionFolder, job: str, task: int, attempt: int, config: LogConfig) -> None:
        self.folder, self._storage, self._config = folder, folder.writable, config
        self._job, self._task, self._attempt = job, task, attempt
        self._files: list[StagedFile] = []
        self._base_offset = 0
        self._tail: ActiveSegmentState | None = None
        self._entries: list[np.ndarray[Any, np.dtype[Any]]] = []

    @property
    def end_offset(self) -> int:
        """The number of records written so far, which is the offset that the next batch must begin with."""
        return self._base_offset + (0 if self._tail is None else self._tail.end_offset)

    def append(self, encoded: EncodedBatches, now_ms: int) -> None:
        """Write batches. They begin at the end offset and have leader epoch 0, as the batches of an empty log do.

        So nothing need be changed in them where the log turns out to be one; else they are stamped when the job is
        committed.
        """
        headers = encoded.headers
        if len(headers) and headers.column("base_offset")[0] != self.end_offset:
            raise ValueError(f"the batches begin at {headers.column('base_offset')[0]} and not at {self.end_offset}")
        while len(headers):
            end_offset = 0 if self._tail is None else self._tail.end_offset
            run = _run(headers, end_offset)
            tail = self._tail or new_segment(0, now_ms, 0)
            rows = rows_before_roll(tail, run, self._config, now_ms)
            if rows:
                self._write(encoded.data, headers[:rows], tail, _run(headers[:rows], end_offset))
            if rows < len(headers):
                self._close_file()
            headers = headers[rows:]

    def finish(self) -> list[StagedFile]:
        """Finish the last file, and return all files; the caller syncs them."""
        self._close_file()
        return self._files

    def discard(self) -> None:
        """Remove the files that were written."""
        for number in range(len(self._files) + 1):
            for name_of in (files.staged_log, files.staged_batches):
                self._storage.remove(self._path(name_of(self._name_of(number))))

    def _write(self, data: memoryview, headers: BatchHeaders, tail: ActiveSegmentState, run: BatchRun) -> None:
        """Append batches to the unfinished file, which has room for them."""
        positions, sizes = headers.column("position"), headers.column("batch_bytes")
        start, end = int(positions[0]), int(positions[-1]) + int(sizes[-1])
        with self._storage.open_for_append(self._path(files.staged_log(self._name))) as log:
            log.append(data[start:end])
            log.begin_sync(log.size_bytes() - (end - start))
        entries = np.empty(len(headers), dtype=BATCH_ENTRY)
        entries["batch_bytes"] = sizes
        entries["record_count"] = headers.column("record_count")
        entries["max_timestamp"] = headers.column("max_timestamp")
        self._entries.append(entries)
        self._tail, _, _ = append_run(tail, run, self._config)

    @property
    def _name(self) -> str:
        return self._name_of(len(self._files))

    def _name_of(self, number: int) -> str:
        return f"{self._task}-{self._attempt}-{number}"

    def _path(self, what: str) -> str:
        return self.folder.file(files.staged_name(self._job, what))

    def _close_file(self) -> None:
        """Write the entries of the unfinished file's batches, if there is such a file."""
        if self._tail is None:
            return
        entries = np.concatenate(self._entries)
        staged = StagedFile(
            folder=self.folder.name,
            job=self._job,
            name=self._name,
            task=self._task,
            number=len(self._files),
            base_offset=self._base_offset,
            records=int(entries["record_count"].sum()),
            batches=len(entries),
            size_bytes=int(entries["batch_bytes"].sum()),
            max_timestamp=int(entries["max_timestamp"].max()),
        )
        with self._storage.open_for_append(self._path(files.staged_batches(staged.name))) as file:
            file.append(entries.tobytes())
        self._files.append(staged)
        self._base_offset = self.end_offset
        self._tail, self._entries = None, []


class TaskStage:
    """Everything that one attempt of a task stages: a `StagedWriter` for each partition that it writes to.

    Parameters
    ----------
    directory : LogDirectory
        The log directory.
    job : str
        The job, which has begun; see `begin`.
    task, attempt : int
        The number of the task in the job, and of the attempt, which no other attempt of the job's tasks has.
    config : LogConfig
        Says where files are rolled.
    """

    def __init__(self, directory: LogDirectory, job: str, task: int, attempt: int, config: LogConfig) -> None:
        self._directory, self._job = directory, job
        self._task, self._attempt, self._config = task, attempt, config
        self._writers: dict[str, StagedWriter] = {}

    def writer(self, folder: str) -> StagedWriter:
        """Return the writer for a partition's folder, which is made where it is not there."""
        found = self._writers.get(folder)
        if found is None:
            place = self._directory.folder(folder)
            self._directory.writable.make_folder(place.location)
            found = StagedWriter(place, self._job, self._task, self._attempt, self._config)
            self._writers[folder] = found
        return found

    def finish(self) -> list[StagedFile]:
        """Close and sync all files, and return them.

        Raises
        ------
        CommitError
            The job has ended.
        """
        staged = [each for writer in self._writers.values() for each in writer.finish()]
        names = [name for each in staged for name in (each.log_name, each.batches_name)]
        self._directory.writable.sync_files([self._directory.file(name) for name in names])
        self.refuse_ended_job()
        return staged

    def discard(self) -> None:
        """Remove all files, and where no other task of the job is to come, the folders that are empty."""
        for writer in self._writers.values():
            writer.discard()
        if not self._is_job_running():
            for writer in self._writers.values():
                self._directory.writable.remove_folder(writer.folder.location)

    def refuse_ended_job(self) -> None:
        """Raise `CommitError` if the job has ended.

        It is asked after files were made, since the end of the job removes those that were made before.
        """
        if not self._is_job_running():
            raise CommitError("the job of this task has ended: what the task has staged is removed")

    def _is_job_running(self) -> bool:
        return is_running(self._directory, self._job)


def _run(headers: BatchHeaders, end_offset: int) -> BatchRun:
    counts = headers.column("record_count")
    return BatchRun(
        batch_bytes=headers.column("batch_bytes"),
        last_offsets=end_offset - 1 + np.cumsum(counts, dtype=np.int64),
        max_timestamps=headers.column("max_timestamp"),
    )


def stamp(directory: LogDirectory, staged: StagedFile, run: BatchRun, base_offset: int, leader_epoch: int) -> None:
    """Write offsets and a leader epoch into a staged file's batches, unless they have them; the caller syncs it."""
    with directory.writable.open_for_append(directory.file(staged.log_name)) as log:
        if log.size_bytes() != staged.size_bytes:
            raise CommitError(f"the staged file {log.path} has {log.size_bytes()} bytes and not {staged.size_bytes}")
        if (base_offset, leader_epoch) == (staged.base_offset, 0):
            return
        sizes, last_offsets = run.batch_bytes.tolist(), run.last_offsets.tolist()
        position, offset = 0, base_offset
        for batch_bytes, last_offset in zip(sizes, last_offsets, strict=True):
            log.write_at(position, _STAMP.pack(offset, batch_bytes - _FRAMING_BYTES, leader_epoch))
            position, offset = position + batch_bytes, last_offset + 1


def new_job(now_ms: int) -> str:
    """Return a name for a job that no other has."""
    return f"{now_ms:012x}{secrets.token_hex(5)}"


def begin(directory: LogDirectory, job: str) -> None:
    """Record that a job runs, before its tasks run."""
    storage = directory.writable
    storage.make_folder(directory.path)
    with storage.open_for_append(_marker(directory, job)):
        pass


def is_running(directory: LogDirectory, job: str) -> bool:
    """Tell whether a job has begun and not ended. Files that its tasks stage after its end are never committed."""
    return directory.storage.read_small(_marker(directory, job)) is not None


def end(directory: LogDirectory, job: str) -> None:
    """Record that a job no longer runs, before the files that it has left are removed."""
    directory.writable.remove(_marker(directory, job))


def _marker(directory: LogDirectory, job: str) -> str:
    return directory.file(files.running_job_name(job))


def made_ms(job: str) -> int:
    """Return the time at which a job was made, ms since the epoch."""
    return int(job[:12], 16)
