"""Writes a producer's gathered records, in its one background thread.

The records of a topic become columns, get their partitions, and are appended to the log of each partition at once. A
record that a log refuses is taken out and the others are written; any other error of a log fails the records
for it.

An idempotent producer has an id from a range that no cluster reaches: Kafka's controllers give out ids from 0 upward,
a thousand at a time, and the ids here are random numbers from 2**62 to 2**63 - 1. When it is unknown how much of an
append is in the log, the producer continues under another id, so that no new record counts as a repetition.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.clients.accumulator import Accumulator, Pending, SentRecords
from sparklog.clients.futures import UNKNOWN_OFFSET, TableMetadata, Written, record_metadata
from sparklog.clients.routes import Route, Routes
from sparklog.clients.settings import ALL
from sparklog.clients.transactions import ProducerTransactions
from sparklog.errors import (
    BrokerRunningError,
    IllegalStateError,
    InvalidOptionError,
    LockedError,
    MessageSizeTooLargeError,
    RecordTooLargeError,
    SeglogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.clock import wall_clock_ms
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.producer_state import plus
from sparklog.record.batches.producer_stamps import FIRST_OWN_PRODUCER_ID
from sparklog.record.format.arrays import array_of, filled, numbers_of
from sparklog.record.format.schema import HEADERS_TYPE
from sparklog.record.format.streams import Int64s
from sparklog.topic.write.open_logs import SharedLogs
from sparklog.topic.write.partitioner import assign_partitions, row_bytes
from sparklog.write.metrics import LogMetrics

_log = logging.getLogger("sparklog")

_RELEASED_SECONDS: Final = 3600.0
"""How long to wait for records while no log is open; nothing else is due then."""


def new_producer_id() -> int:
    """Return a new, unique producer id."""
    return FIRST_OWN_PRODUCER_ID + secrets.randbelow(FIRST_OWN_PRODUCER_ID)


class Sender:
    """Takes from an accumulator and writes, in the thread that calls `run`.

    Parameters
    ----------
    accumulator : Accumulator
    routes : Routes
        The routes of the topics.
    acks : int
        The acknowledgement that records wait for: 0, 1, or `ALL` for the disk.
    is_idempotent : bool
        Whether batches carry a producer id and sequence numbers.
    logs : SharedLogs
        The logs to append to.
    transactions : ProducerTransactions or None
        The transactions to append in, if the producer has a transactional id.
    idle_seconds : float
        The idle time after which the logs are closed, so that other processes can write; also the time after which a
        busy producer closes them if others wait.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        routes: Routes,
        *,
        acks: int,
        is_idempotent: bool,
        logs: SharedLogs,
        transactions: ProducerTransactions | None,
        idle_seconds: float,
    ) -> None:
        self._accumulator, self._routes, self._acks = accumulator, routes, acks
        self._idle_seconds = idle_seconds
        self._producer_id = new_producer_id() if is_idempotent else -1
        self._sequences: dict[PartitionFolder, int] = {}
        self._logs, self._transactions = logs, transactions
        self._turn_ends: float | None = None
        self.sent_records = self.failed_records = self.sent_bytes = 0

    def run(self) -> None:
        """Write records until the accumulator is closed and empty."""
        wait_seconds = _RELEASED_SECONDS
        try:
            while (taken := self._accumulator.take(self._routes.full_bytes, wait_seconds)) is not None:
                for pending in taken:
                    self._deliver(pending)
                    wait_seconds = self._idle_seconds
                    self._take_turns()
                if not taken and not self._in_transaction:
                    self.release()
                    wait_seconds = _RELEASED_SECONDS
        finally:
            if self._transactions is not None:
                self._transactions.close()
            self.release()

    @property
    def _in_transaction(self) -> bool:
        return self._transactions is not None and self._transactions.in_transaction

    def _take_turns(self) -> None:
        """Release the directory for waiting writers, if this producer has held it for long enough."""
        now = time.monotonic()
        if self._turn_ends is None:
            self._turn_ends = now + self._idle_seconds
        elif now >= self._turn_ends and not self._in_transaction:
            self._turn_ends = None
            with self._warning():
                self._logs.give_way()

    def end(self, refusal: SeglogError) -> None:
        """Let `run` write the waiting records and return; refuse new ones."""
        if self._transactions is not None:
            self._transactions.give_up()
        self._accumulator.close(refusal)

    def logs(self) -> dict[str, LogMetrics]:
        """Return the counters of the open logs, by partition."""
        return self._logs.metrics()

    def release(self) -> None:
        """Close the logs, so that others can write to the directory."""
        with self._warning():
            self._logs.close()
        self._turn_ends = None

    @contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except SeglogError as error:
            _log.warning("%s", error)

    def forget(self) -> None:
        """Release the logs in a forked child of the process that opened them."""
        self._logs.forget()

    def _deliver(self, pending: Pending) -> None:
        """Write a delivery's records, and resolve their futures."""
        records = pending.records
        try:
            self._write(pending)
        except Exception as error:
            if not isinstance(error, SeglogError):
                _log.exception("the records for %s could not be written", pending.topic)
            self.failed_records += records
            if self._transactions is not None:
                self._transactions.failed(error)
            pending.fail(error, records)
        finally:
            self._accumulator.written(pending)

    def _write(self, pending: Pending) -> None:
        if pending.table is not None:
            rows, explicit = pending.table, None
            if "partition" in rows.schema.names:
                explicit = rows.column("partition")
                rows = rows.drop_columns(["partition"])
        else:
            rows, explicit = columns_of_records(pending.rows)
        pending.rows = SentRecords()
        route = self._routes.current(pending.topic)
        try:
            outcomes = self._write_by(route, pending, rows, explicit)
        except UnknownTopicOrPartitionError:
            # The topic has been deleted since its route was found.
            outcomes = self._write_by(self._routes.find(pending.topic, route), pending, rows, explicit)
        self.failed_records += len(outcomes.errors)
        self.sent_records += rows.num_rows - len(outcomes.errors)
        self.sent_bytes += pending.size_bytes
        if pending.table is not None:
            self._resolve_table(pending, rows.num_rows, outcomes)
        elif self._acks:
            pending.resolve(record_metadata(pending.topic, outcomes.written()), outcomes.errors)
        elif outcomes.errors:
            _log.warning(
                "%d records for %s were not written, and acks is 0: %s",
                len(outcomes.errors), pending.topic, next(iter(outcomes.errors.values())),
            )  # fmt: skip

    def _write_by(self, route: Route, pending: Pending, rows: pa.RecordBatch, explicit: pa.Array | None) -> Outcomes:
        """Write rows by a route. If a log has vanished before any row is written, raise that error."""
        names = rows.schema.names
        keys = rows.column("key") if "key" in names else None
        sizes = row_bytes([rows.column(name) for name in ("key", "value") if name in names], rows.num_rows)
        chosen = assign_partitions(route.partitioner, explicit, keys, sizes, len(route.folders))
        partitions = chosen.astype(np.int64)
        outcomes = Outcomes(rows, partitions)
        if self._acks == 0 and pending.table is None and not pending.is_done:
            # Nobody waits for their outcome, which is told without offsets for good: not even those written below.
            pending.resolve(record_metadata(pending.topic, Outcomes(rows, partitions).written()), {})
        with nullcontext() if self._transactions is None else self._transactions.lock:
            self._append_all(route, rows, partitions, outcomes, is_whole=pending.table is not None)
            if outcomes.errors and self._transactions is not None:
                self._transactions.failed(next(iter(outcomes.errors.values())))
        return outcomes

    def _resolve_table(self, pending: Pending, records: int, outcomes: Outcomes) -> None:
        if outcomes.errors:
            pending.fail(next(iter(outcomes.errors.values())), 1)
        else:
            metadata = TableMetadata(pending.topic, records, outcomes.extents())
            pending.resolve(lambda _: metadata, {})

    def _append_all(
        self, route: Route, rows: pa.RecordBatch, partitions: Int64s, outcomes: Outcomes, *, is_whole: bool
    ) -> None:
        """Append rows to the logs of their partitions, and sync the logs if ``acks`` demands it."""
        touched: list[tuple[PartitionFolder, Int64s]] = []
        refused: dict[LogDirectory, LockedError] = {}
        for partition, numbers in _by_partition(partitions):
            folder = route.folders[partition]
            if folder.directory in refused:
                outcomes.failed(numbers, refused[folder.directory])
                continue
            of_partition = rows if len(numbers) == rows.num_rows else rows.take(array_of(numbers))
            try:
                self._append(route, folder, of_partition, numbers, outcomes, is_whole=is_whole)
                touched.append((folder, numbers))
            except SeglogError as error:
                if isinstance(error, UnknownTopicOrPartitionError) and not touched:
                    raise
                self._failed(folder, error)
                outcomes.failed(numbers, error)
                if isinstance(error, LockedError) and folder.writable.claimed_as(folder.location) is None:
                    # The whole directory is locked: do not wait for it again for each partition.
                    refused[folder.directory] = error
        for folder, numbers in touched if self._acks == ALL else ():
            try:
                self._logs.flush(folder)
            except SeglogError as error:
                self._failed(folder, error)
                outcomes.failed(numbers, error)

    def _append(
        self,
        route: Route,
        folder: PartitionFolder,
        rows: pa.RecordBatch,
        numbers: Int64s,
        outcomes: Outcomes,
        *,
        is_whole: bool,
    ) -> None:
        """Append rows to one log. If it refuses a row, append the others, unless all must be written or none."""
        try:
            first = self._append_rows(route, folder, rows)
        except (InvalidOptionError, RecordTooLargeError) as error:
            if is_whole:
                raise
            if rows.num_rows == 1:
                outcomes.failed(numbers, _as_of_kafka(error))
                return
            half = rows.num_rows // 2
            for part, its_numbers in ((rows.slice(0, half), numbers[:half]), (rows.slice(half), numbers[half:])):
                self._append(route, folder, part, its_numbers, outcomes, is_whole=False)
        else:
            outcomes.wrote(numbers, *first)

    def _append_rows(self, route: Route, folder: PartitionFolder, rows: pa.RecordBatch) -> tuple[int, int | None]:
        """Append rows, and return the first offset and, under LogAppendTime, a time."""
        now_ms = wall_clock_ms()
        if self._transactions is not None:
            first, _ = self._transactions.append(folder, rows, route.config, now_ms)
        elif self._producer_id < 0 or not route.has_producers:
            first, _ = self._logs.append(folder, rows, config=route.config, now_ms=now_ms)
        else:
            sequence = self._sequences.get(folder, 0)
            first, _ = self._logs.append(
                folder,
                rows,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                config=route.config,
                now_ms=now_ms,
            )
            self._sequences[folder] = plus(sequence, rows.num_rows)
        return first, now_ms if route.config.message_timestamp_type == "LogAppendTime" else None

    def _failed(self, folder: PartitionFolder, error: BaseException) -> None:
        """Reopen a log after an error, under a new producer id, so that no record counts as a repetition."""
        if isinstance(error, InvalidOptionError | RecordTooLargeError | BrokerRunningError | IllegalStateError):
            return
        self._logs.discard(folder)
        if self._producer_id >= 0:
            self._producer_id, self._sequences = new_producer_id(), {}


def _as_of_kafka(error: SeglogError) -> SeglogError:
    """Return the error of a too large record under its name in producers."""
    return MessageSizeTooLargeError(error.message) if isinstance(error, RecordTooLargeError) else error


def _by_partition(partitions: Int64s) -> list[tuple[int, Int64s]]:
    """Return the partitions of rows, each with the numbers of its rows in order."""
    if not len(partitions):
        return []
    if (partitions == partitions[0]).all():
        return [(int(partitions[0]), np.arange(len(partitions)))]
    order = np.argsort(partitions, kind="stable")
    ends = np.flatnonzero(np.diff(partitions[order], append=UNKNOWN_OFFSET)) + 1
    return [(int(partitions[each[0]]), each) for each in np.split(order, ends[:-1])]


_NO_SIZE: Final = -1


def columns_of_records(rows: SentRecords) -> tuple[pa.RecordBatch, pa.Array | None]:
    """Return the columns of records, and the partitions that they name; None if none does."""
    columns: dict[str, pa.Array] = {
        "value": pa.array(rows.values, pa.binary()),
        "timestamp": array_of(np.array(rows.timestamps, np.int64)),
    }
    keys = pa.array(rows.keys, pa.binary())
    if keys.null_count < len(keys):
        columns["key"] = keys
    if rows.headers:
        columns["headers"] = _headers(rows)
    explicit = pa.array(map(rows.partitions.get, range(len(rows))), pa.int32()) if rows.partitions else None
    return pa.RecordBatch.from_pydict(columns), explicit


def _headers(rows: SentRecords) -> pa.Array:
    pairs: list[Any] = [None] * len(rows)
    for number, headers in rows.headers.items():
        pairs[number] = [{"key": name, "value": data} for name, data in headers]
    return pa.array(pairs, HEADERS_TYPE)


class Outcomes:
    """The outcomes of a delivery's rows, while their partitions are written one by one.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        The columns of the records.
    partitions : int array, shape (n_rows,)
        The partition of each row.
    """

    def __init__(self, rows: pa.RecordBatch, partitions: Int64s) -> None:
        self._rows, self._partitions = rows, partitions
        self._offsets = np.full(len(partitions), UNKNOWN_OFFSET, np.int64)
        self._append_ms: Int64s | None = None
        self.errors: dict[int, Exception] = {}

    def wrote(self, numbers: Int64s, first_offset: int, append_ms: int | None) -> None:
        """Note that rows were written consecutively; ``append_ms`` is their time under LogAppendTime."""
        self._offsets[numbers] = np.arange(first_offset, first_offset + len(numbers))
        if append_ms is not None:
            if self._append_ms is None:
                self._append_ms = np.full(len(self._partitions), UNKNOWN_OFFSET, np.int64)
            self._append_ms[numbers] = append_ms

    def failed(self, numbers: Int64s, error: Exception) -> None:
        """Note that rows were not written."""
        self.errors.update(dict.fromkeys(numbers.tolist(), error))

    def written(self) -> Written:
        """Return the outcomes of all rows."""
        times = numbers_of(self._rows.column("timestamp"))
        if self._append_ms is not None:
            times = np.where(self._append_ms >= 0, self._append_ms, times)
        return Written(
            self._partitions.astype(np.int64),
            self._offsets,
            times,
            _sizes(self._rows, "key"),
            _sizes(self._rows, "value"),
            _header_sizes(self._rows),
            self.errors,
        )

    def extents(self) -> Mapping[int, tuple[int, int]]:
        """Return the first and the last offset of the rows in each partition."""
        found = {}
        for partition in np.unique(self._partitions).tolist():
            offsets = self._offsets[self._partitions == partition]
            found[partition] = (int(offsets.min()), int(offsets.max()))
        return found


def _sizes(rows: pa.RecordBatch, name: str) -> Int64s:
    if name not in rows.schema.names:
        return np.full(rows.num_rows, _NO_SIZE, np.int64)
    return numbers_of(filled(pc.binary_length(rows.column(name)), _NO_SIZE)).astype(np.int64)


def _header_sizes(rows: pa.RecordBatch) -> Int64s:
    sizes = np.full(rows.num_rows, _NO_SIZE, np.int64)
    if "headers" in rows.schema.names:
        for number, headers in enumerate(rows.column("headers").to_pylist()):
            if headers:
                sizes[number] = sum(len(each["key"].encode()) + len(each["value"] or b"") for each in headers)
    return sizes
