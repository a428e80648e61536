"""The files that a task stages, and the runs of batches in them, which a commit puts into logs.

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

The offsets of a partition are counted from the task's guess of the right one, or from 0; a commit corrects them
in the batches if the guess was wrong. The entries are all that a commit must know about the batches, in the byte order
of the machines: they do not outlive the job.

`sparklog.write.running_jobs` makes ``<job>``, and `sparklog.write.staged_runs` reads the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sparklog.log import files
from sparklog.log.places import LogDirectory
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders

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


class TaskFile:
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
