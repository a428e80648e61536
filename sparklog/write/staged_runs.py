"""Reads the batches that tasks have staged, and gives them their offsets in the log.

Batches of a transaction get their producer here as well. A task does not know the sequence numbers of its
batches: other tasks write to the same partition, and the commit decides the order of tasks. So all tasks leave the
producer out, and the whole transaction gets one, with sequence numbers from 0 on in each partition, as if one producer
of Kafka had sent it.

`sparklog.write.staged_files` has the format of the files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Self

import numpy as np

from sparklog.errors import CommitError
from sparklog.log.places import LogDirectory
from sparklog.log.producer_state import AbortedTransaction, Producers
from sparklog.record.batches.framing import OVERHEAD_BYTES
from sparklog.record.batches.producer_stamps import (
    CRC,
    CRC_AT,
    PRODUCER,
    PRODUCER_AT,
    TransactionProducer,
    checksums_with,
    stamp_in_memory,
)
from sparklog.record.batches.stamps import OFFSET, STAMP, stamp_batches
from sparklog.record.format import v2
from sparklog.record.format.streams import Int64s
from sparklog.storage.base import ReadableFile
from sparklog.write.active_segment import BatchRun
from sparklog.write.staged_files import BATCH_ENTRY, StagedRun

_OPEN_FILES_MAX: Final = 128
_SINGLE_STAMPS_MAX: Final = 16
"""Up to this many batches are stamped one by one: arrays would take longer."""

BatchEntries = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class StagedBatches:
    """Consecutive batches of staged runs, with the offsets that a commit gives them.

    Attributes
    ----------
    run : BatchRun
        The numbers that decide their places in the log.
    entries : structured array of `BATCH_ENTRY`, length n_batches
        The fields that producers' states are made from; offsets as in ``run``.
    """

    run: BatchRun
    entries: BatchEntries

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, rows: slice) -> StagedBatches:
        return StagedBatches(self.run[rows], self.entries[rows])

    @property
    def base_offset(self) -> int:
        return int(self.entries["base_offset"][0])

    def first_with_epoch(self) -> int | None:
        """Return the base offset of the first batch that has a leader epoch; magic 0 and 1 have none."""
        has_epoch = self.entries["magic"] == 2
        return int(self.entries["base_offset"][has_epoch.argmax()]) if has_epoch.any() else None

    def in_transactions(self) -> list[int]:
        """Return the ids of the producers with transactional batches or markers among these."""
        has = (self.entries["attributes"] & v2.TRANSACTIONAL != 0) & (self.entries["producer_id"] >= 0)
        return [int(each) for each in np.unique(self.entries["producer_id"][has])]

    def fold_into(self, producers: Producers) -> list[AbortedTransaction]:
        """Add these batches to the state of their producers; return the transactions that they abort."""
        has_producer = self.entries["producer_id"] >= 0
        if not has_producer.any():
            return []
        entries = self.entries[has_producer]
        markers = {row: _marker(entries[row]) for row in np.flatnonzero(entries["attributes"] & v2.CONTROL).tolist()}
        return producers.fold_table(entries, markers)


def _marker(entry: Any) -> v2.EndMarker | None:
    if entry["marker"] < 0:
        return None
    return v2.EndMarker(bool(entry["marker"] == v2.ABORT), int(entry["coordinator_epoch"]))


class StagedRuns:
    """Reads the runs that the tasks of a job have staged; a ``with`` block closes the files.

    A file shared by runs of many partitions is opened, and its entries are read, once, unless there are very many such
    files.

    Parameters
    ----------
    directory : LogDirectory
        The log directory that the files are in.
    producer : TransactionProducer, optional
        The transaction's producer, for batches made of rows.
    """

    def __init__(self, directory: LogDirectory, producer: TransactionProducer | None = None) -> None:
        self._directory, self._producer = directory, producer
        self._next_sequences: dict[str, int] = {}
        self._entries: dict[str, BatchEntries] = {}
        self._open: OrderedDict[str, ReadableFile] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for file in self._open.values():
            file.close()

    def batches(self, runs: Sequence[StagedRun], base_offset: int) -> StagedBatches:
        """Return the batches of runs, in order, with the offsets that a commit gives them.

        Raises
        ------
        CommitError
            The entries of a file are missing, or are not as the task wrote them.
        """
        parts = [self._entries_of(run)[run.first_entry : run.first_entry + run.batches] for run in runs]
        counts = [len(part) for part in parts]
        # As bytes: for structured arrays, numpy works out their common type each time.
        entries = np.frombuffer(bytearray().join(part.data for part in parts), BATCH_ENTRY, sum(counts))
        sizes = entries["batch_bytes"].astype(np.int64)
        starts = np.array([*accumulate(counts[:-1], initial=0)])
        if not (
            counts == [run.batches for run in runs]
            and not np.count_nonzero(sizes <= STAMP.size)
            and np.add.reduceat(sizes, starts).tolist() == [run.size_bytes for run in runs]
            and entries["base_offset"][starts].tolist() == [run.base_offset for run in runs]
            and entries["last_offset"][starts + counts - 1].tolist() == [run.end_offset - 1 for run in runs]
        ):
            raise CommitError(f"a staged file, {self._names(runs, 'batches_name')}, is gone or cut")
        spans = [run.end_offset - run.base_offset for run in runs]
        bases = np.array([*accumulate(spans[:-1], initial=base_offset)])
        shifts = np.repeat(bases - entries["base_offset"][starts], counts)
        entries["base_offset"] += shifts
        entries["last_offset"] += shifts
        self._put_producer(runs[0].folder, entries)
        run = BatchRun(sizes, entries["last_offset"].astype(np.int64), entries["max_timestamp"].astype(np.int64))
        return StagedBatches(run, entries)

    def _put_producer(self, folder: str, entries: BatchEntries) -> None:
        """Write the producer and the sequence numbers into the entries of a log's next batches."""
        rows = self._without_producer(entries)
        if self._producer is None or not len(rows):
            return
        ends = np.cumsum(entries["last_offset"][rows] - entries["base_offset"][rows] + 1)
        sequences = np.concatenate(([0], ends)) + self._next_sequences.get(folder, 0)
        entries["producer_id"][rows], entries["producer_epoch"][rows] = self._producer
        entries["base_sequence"][rows] = sequences[:-1] & v2.SEQUENCE_MAX
        self._next_sequences[folder] = int(sequences[-1]) & v2.SEQUENCE_MAX

    def _without_producer(self, entries: BatchEntries) -> Int64s:
        """Return the rows of batches that were staged without the producer of their transaction."""
        if self._producer is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(entries["attributes"] & (v2.TRANSACTIONAL | v2.CONTROL) == v2.TRANSACTIONAL)

    def _names(self, runs: Sequence[StagedRun], attribute: str) -> str:
        return " or ".join(dict.fromkeys(self._directory.file(getattr(run, attribute)) for run in runs))

    def _entries_of(self, run: StagedRun) -> BatchEntries:
        """Read the entries of a file. Entries of a shared file are kept for its other runs."""
        found = self._entries.get(run.batches_name)
        if found is None:
            data = self._directory.storage.read_small(self._directory.file(run.batches_name)) or b""
            found = np.frombuffer(data, dtype=BATCH_ENTRY, count=len(data) // BATCH_ENTRY.itemsize)
            if not run.is_alone:
                self._entries[run.batches_name] = found
        return found

    def stamped(self, runs: Sequence[StagedRun], batches: StagedBatches, leader_epoch: int) -> bytearray:
        """Return the bytes of runs of shared files, with offsets and a leader epoch written into their batches.

        Parameters
        ----------
        batches : StagedBatches
            From `batches`.

        Raises
        ------
        CommitError
            A file is shorter than its runs.
        """
        data = bytearray()
        for run in runs:
            data += self._opened(run).read(run.position, run.size_bytes)
        if len(data) != batches.run.size_bytes:
            raise CommitError(f"a staged file, {self._names(runs, 'log_name')}, is cut")
        starts = np.cumsum(batches.run.batch_bytes) - batches.run.batch_bytes
        for row in self._without_producer(batches.entries).tolist():
            start, size = int(starts[row]), int(batches.run.batch_bytes[row])
            stamp_in_memory(data, start, start + size, _producer_stamp(batches.entries[row]))
        if len(runs) == 1 and _is_stamped(runs[0], batches, leader_epoch):
            return data
        if len(batches) <= _SINGLE_STAMPS_MAX:
            for position, stamp in _stamps(batches, leader_epoch):
                data[position : position + len(stamp)] = stamp
            return data
        entries = batches.entries
        stamp_batches(
            np.frombuffer(data, np.uint8), starts, entries["magic"], entries["base_offset"], entries["last_offset"],
            leader_epoch,
        )  # fmt: skip
        return data

    def stamp_file(self, run: StagedRun, batches: StagedBatches, leader_epoch: int) -> None:
        """Write offsets and a leader epoch into the file of a single run, unless it has them.

        The caller syncs the file.
        """
        with self._directory.writable.open_for_append(self._directory.file(run.log_name)) as log:
            if log.size_bytes() != run.size_bytes:
                raise CommitError(f"the staged file {log.path} has {log.size_bytes()} bytes and not {run.size_bytes}")
            if not _is_stamped(run, batches, leader_epoch):
                for position, stamp in _stamps(batches, leader_epoch):
                    log.write_at(position, stamp)
            for position, stamp in self._producer_stamps(batches):
                log.write_at(position, stamp)

    def _producer_stamps(self, batches: StagedBatches) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes that a producer changes in the batches of a run, with their positions in the run."""
        rows = self._without_producer(batches.entries)
        entries, sizes = batches.entries[rows], batches.run.batch_bytes
        starts = (np.cumsum(sizes) - sizes)[rows].tolist()
        stamps = [_producer_stamp(entry) for entry in entries]
        crcs = checksums_with(stamps, entries["crc"], sizes[rows])
        for start, stamp, crc in zip(starts, stamps, crcs, strict=True):
            yield start + CRC_AT, CRC.pack(crc)
            yield start + PRODUCER_AT, stamp

    def _opened(self, run: StagedRun) -> ReadableFile:
        """Open a shared file; if too many are open, close the least recently used."""
        found = self._open.pop(run.log_name, None)
        if found is None:
            if len(self._open) >= _OPEN_FILES_MAX:
                self._open.popitem(last=False)[1].close()
            found = self._directory.storage.open(self._directory.file(run.log_name))
        self._open[run.log_name] = found
        return found


def _producer_stamp(entry: Any) -> bytes:
    return PRODUCER.pack(int(entry["producer_id"]), int(entry["producer_epoch"]), int(entry["base_sequence"]))


def _is_stamped(run: StagedRun, batches: StagedBatches, leader_epoch: int) -> bool:
    """Return whether the first batch, and so every batch, has the offset and leader epoch of the commit."""
    return (run.base_offset, run.origin.leader_epoch) == (batches.base_offset, leader_epoch)


def _stamps(batches: StagedBatches, leader_epoch: int) -> Iterator[tuple[int, bytes]]:
    """Yield the first bytes of each batch of a run, with the batch's position in the run."""
    position, entries = 0, batches.entries
    columns = (entries[name].tolist() for name in ("batch_bytes", "magic", "base_offset", "last_offset"))
    for batch_bytes, magic, base_offset, last_offset in zip(*columns, strict=True):
        if magic == 2:
            yield position, STAMP.pack(base_offset, batch_bytes - OVERHEAD_BYTES, leader_epoch)
        else:
            yield position, OFFSET.pack(last_offset)
        position += batch_bytes


def gathered(runs: Sequence[StagedRun], bytes_max: int) -> Iterator[list[StagedRun]]:
    """Yield runs of rows in shared files in groups of about ``bytes_max``, and each other run by itself."""
    group, group_bytes = list[StagedRun](), 0
    for run in runs:
        is_single = run.is_alone or bool(run.origin.source)
        if group and (is_single or group[-1].is_alone or group_bytes + run.size_bytes > bytes_max):
            yield group
            group, group_bytes = [], 0
        group.append(run)
        group_bytes += run.size_bytes
    if group:
        yield group
