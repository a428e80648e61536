"""Reads what tasks have staged, and gives it the offsets of the log that it becomes a part of.

`sparklog.write.staging` has the format of the files.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import numpy as np

from sparklog.errors import CommitError
from sparklog.log.places import LogDirectory
from sparklog.storage.base import ReadableFile
from sparklog.write.active_segment import BatchRun
from sparklog.write.staging import BATCH_ENTRY, StagedRun

# A batch begins with its base offset, the bytes behind that and the size, and the leader epoch; see v2.
_STAMP: Final = struct.Struct(">qii")
_FRAMING_BYTES: Final = 12
_OPEN_FILES_MAX: Final = 128

Entries = np.ndarray[Any, np.dtype[Any]]


class StagedRuns:
    """Reads the runs that the tasks of a job have staged; a ``with`` block closes the files.

    A file that runs of many partitions share is opened, and its entries are read, once, unless there are very many such
    files.

    Parameters
    ----------
    directory : LogDirectory
        The log directory that the files are in.
    """

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._entries: dict[str, Entries] = {}
        self._open: OrderedDict[str, ReadableFile] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for file in self._open.values():
            file.close()

    def batches(self, runs: Sequence[StagedRun], base_offset: int) -> BatchRun:
        """Return the batches of some runs, one behind the other, with the offsets that a commit gives them.

        Raises
        ------
        CommitError
            The entries of a file are gone, or are not those that the task wrote.
        """
        parts = [self._entries_of(run)[run.first_entry : run.first_entry + run.batches] for run in runs]
        entries = np.concatenate(parts)
        sizes, counts = entries["batch_bytes"].astype(np.int64), entries["record_count"].astype(np.int64)
        starts = np.cumsum([0, *(run.batches for run in runs[:-1])])
        is_whole = all(len(part) == run.batches for part, run in zip(parts, runs, strict=True))
        if not is_whole or not (
            (sizes > _STAMP.size).all()
            and (counts > 0).all()
            and np.add.reduceat(sizes, starts).tolist() == [run.size_bytes for run in runs]
            and np.add.reduceat(counts, starts).tolist() == [run.records for run in runs]
        ):
            raise CommitError(f"a staged file, {self._names(runs, 'batches_name')}, is gone or cut")
        return BatchRun(sizes, base_offset - 1 + np.cumsum(counts), entries["max_timestamp"].astype(np.int64))

    def _names(self, runs: Sequence[StagedRun], attribute: str) -> str:
        return " or ".join(dict.fromkeys(self._directory.file(getattr(run, attribute)) for run in runs))

    def _entries_of(self, run: StagedRun) -> Entries:
        """Read the entries of a file: those of a shared one are kept for its other runs."""
        found = self._entries.get(run.batches_name)
        if found is None:
            data = self._directory.storage.read_small(self._directory.file(run.batches_name)) or b""
            found = np.frombuffer(data, dtype=BATCH_ENTRY, count=len(data) // BATCH_ENTRY.itemsize)
            if not run.is_alone:
                self._entries[run.batches_name] = found
        return found

    def stamped(self, runs: Sequence[StagedRun], batches: BatchRun, base_offset: int, leader_epoch: int) -> bytearray:
        """Return the bytes of runs of shared files, with offsets and a leader epoch written into their batches.

        Parameters
        ----------
        batches : BatchRun
            From `batches`.

        Raises
        ------
        CommitError
            A file is cut.
        """
        data = bytearray()
        for run in runs:
            data += self._opened(run).read(run.position, run.size_bytes)
        if len(data) != batches.size_bytes:
            raise CommitError(f"a staged file, {self._names(runs, 'log_name')}, is cut")
        for position, stamp in _stamps(batches, base_offset, leader_epoch):
            data[position : position + len(stamp)] = stamp
        return data

    def stamp_file(self, run: StagedRun, batches: BatchRun, base_offset: int, leader_epoch: int) -> None:
        """Write offsets and a leader epoch into the file of a run that is alone in it, unless they are there.

        The caller syncs the file.
        """
        with self._directory.writable.open_for_append(self._directory.file(run.log_name)) as log:
            if log.size_bytes() != run.size_bytes:
                raise CommitError(f"the staged file {log.path} has {log.size_bytes()} bytes and not {run.size_bytes}")
            if (base_offset, leader_epoch) == (run.base_offset, 0):
                return
            for position, stamp in _stamps(batches, base_offset, leader_epoch):
                log.write_at(position, stamp)

    def _opened(self, run: StagedRun) -> ReadableFile:
        """Open a shared file; the one that was used the longest time ago is closed where too many are open."""
        found = self._open.pop(run.log_name, None)
        if found is None:
            if len(self._open) >= _OPEN_FILES_MAX:
                self._open.popitem(last=False)[1].close()
            found = self._directory.storage.open(self._directory.file(run.log_name))
        self._open[run.log_name] = found
        return found


def _stamps(batches: BatchRun, base_offset: int, leader_epoch: int) -> Iterator[tuple[int, bytes]]:
    """Yield the first bytes of each batch of a run, and where the batch begins in the run."""
    position, offset = 0, base_offset
    for batch_bytes, last_offset in zip(batches.batch_bytes.tolist(), batches.last_offsets.tolist(), strict=True):
        yield position, _STAMP.pack(offset, batch_bytes - _FRAMING_BYTES, leader_epoch)
        position, offset = position + batch_bytes, last_offset + 1


def gathered(runs: Sequence[StagedRun], bytes_max: int) -> Iterator[list[StagedRun]]:
    """Yield runs of shared files together, about so many bytes at a time, and each other run by itself."""
    group, group_bytes = list[StagedRun](), 0
    for run in runs:
        if group and (run.is_alone or group[-1].is_alone or group_bytes + run.size_bytes > bytes_max):
            yield group
            group, group_bytes = [], 0
        group.append(run)
        group_bytes += run.size_bytes
    if group:
        yield group
