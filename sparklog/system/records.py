"""Reads the records of an internal topic's log as a coordinator does, and finds the last one of each key.

A coordinator applies a record at once, unless it is part of a transaction: then it counts from its COMMIT marker on,
and never after an ABORT. So the state is the last record of each key among records outside transactions and in
committed ones. A marker that follows another record of the key does not matter: the record with the larger offset wins.

Source: apache/kafka, OffsetMetadataManager.java (replay, replayEndTransactionMarker).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import MessageDecodeError
from sparklog.log.layout import PartitionLayout
from sparklog.log.reader import LogReader
from sparklog.log.transactions import EndMarkers, TransactionState
from sparklog.system.codecs import MessageFields
from sparklog.system.messages import decode_key, decode_value

_log = logging.getLogger("sparklog")

TIMESTAMP: Final = pa.timestamp("ms", "UTC")
TRANSACTION_COLUMN: Final = "transaction"
_READ: Final = ("key", "value", "offset", "timestamp", "is_transactional", "producer_id")
_FOLD_ROWS_MIN: Final = 1 << 18
_STATE_NAMES: Final = (None, "committed", "aborted", "open")

HISTORY_FIELDS: Final = (
    pa.field("log_partition", pa.int32()),
    pa.field("log_offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field(TRANSACTION_COLUMN, pa.string()),
    pa.field("is_tombstone", pa.bool_()),
    pa.field("raw_key", pa.binary()),
    pa.field("raw_value", pa.binary()),
)
"""The columns of a history after those of its rows.

``transaction`` is committed, aborted or open, or null outside a transaction. ``raw_key`` and
``raw_value`` are the bytes of a record that cannot be decoded, and null otherwise.
"""


@dataclass(frozen=True)
class InternalLog:
    """One log of an internal topic, with the names of topics from its log directory.

    Attributes
    ----------
    topic_names : mapping of str to str
        Names of topics by their ids.
    end_offset : int or None
        The records from this offset on do not count.
    """

    layout: PartitionLayout
    topic_names: Mapping[str, str] = field(default_factory=dict)
    end_offset: int | None = None

    @property
    def path(self) -> str:
        return self.layout.path

    @property
    def partition(self) -> int:
        """The number of the partition; 0 if the folder's name has none."""
        return self.layout.folder.partition or 0

    def batches(self, start_offset: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records from an offset on, with the column ``transaction``; for errors see `LogReader.batches`."""
        markers: EndMarkers | None = None
        for batch in LogReader(self.layout).batches(start_offset, self.end_offset, columns=_READ):
            is_transactional = np.asarray(batch.column("is_transactional").cast(pa.uint8()), bool)
            states = np.zeros(batch.num_rows, np.int8)
            if is_transactional.any():
                markers = markers or EndMarkers(self.layout)
                producers, offsets = (np.asarray(batch.column(name)) for name in ("producer_id", "offset"))
                states = markers.states(producers, offsets, is_transactional)
            kept = batch.select(["key", "value", "offset", "timestamp"])
            yield kept.append_column(TRANSACTION_COLUMN, pa.array(_STATE_NAMES).take(pa.array(states)))


@dataclass
class Undecodable:
    """Counts the records that cannot be decoded, for one warning about all of them."""

    count: int = 0
    first: str = ""

    def note(self, log: InternalLog, offset: int, reason: str) -> None:
        """Count a record, and remember the first."""
        self.first = self.first or f"{log.path}, offset {offset}: {reason}"
        self.count += 1

    def warn(self, *, is_history: bool) -> None:
        """Warn of all counted records."""
        if self.count:
            _log.warning(
                "%d records cannot be decoded, and %s; the first: %s",
                self.count,
                "have their bytes in raw_key and raw_value" if is_history else "are left out; the history has them",
                self.first,
            )


def last_records(
    log: InternalLog, identities: Callable[[pa.Array], pa.Array] | None = None, *, with_open: bool = False
) -> pa.Table:
    """Read the last record of each key, tombstones included, in offset order.

    Records of aborted transactions are left out.

    Parameters
    ----------
    identities : callable, optional
        Maps keys to bytes that are equal for keys with the same meaning.
    with_open : bool
        Whether records of open transactions count, too: they show which keys exist.

    Returns
    -------
    pyarrow.Table
        key, value, offset, timestamp.
    """
    kept: list[pa.Table] = []
    rows, limit = 0, _FOLD_ROWS_MIN
    for batch in log.batches():
        table = pa.Table.from_batches([batch])
        kept.append(_last(_counting(table, with_open), identities))
        rows += kept[-1].num_rows
        if rows > limit:
            kept = [_last(pa.concat_tables(kept), identities)]
            rows = kept[0].num_rows
            limit = max(_FOLD_ROWS_MIN, 2 * rows)
    return _last(pa.concat_tables(kept), identities) if kept else _NONE


def _counting(table: pa.Table, with_open: bool) -> pa.Table:
    """Leave out the records of aborted transactions, and unless asked for, of open ones."""
    counting = (TransactionState.COMMITTED, TransactionState.OPEN)[: 2 if with_open else 1]
    counts = pc.is_in(table[TRANSACTION_COLUMN], pa.array([None, *(state.name.lower() for state in counting)]))
    return table.filter(counts).drop_columns([TRANSACTION_COLUMN])


def _last(table: pa.Table, identities: Callable[[pa.Array], pa.Array] | None) -> pa.Table:
    """Return the last record of each key in a table in offset order."""
    keys = table["key"] if identities is None else identities(table["key"])
    numbered = pa.table({"key": keys, "row": np.arange(table.num_rows)})
    last = numbered.group_by("key").aggregate([("row", "max")])["row_max"]
    chosen = np.zeros(table.num_rows, bool)
    chosen[np.asarray(last)] = True
    return table.filter(pa.array(chosen))


# Made of no arrays: an array of Python's objects would import pandas.
_NONE: Final = pa.Table.from_batches(
    [], pa.schema({"key": pa.binary(), "value": pa.binary(), "offset": pa.int64(), "timestamp": TIMESTAMP})
)


class DecodedMessage(NamedTuple):
    """A record of a coordinator's topic.

    Attributes
    ----------
    name : str
        The name of its message, such as ``OffsetCommit``.
    key : dict
        Empty if the key cannot be decoded.
    value : dict or None
        None for a tombstone.
    version : int or None
        The version of the value.
    is_raw : bool
        Whether it cannot be decoded; then only its key is known.
    """

    name: str
    key: MessageFields
    value: MessageFields | None
    version: int | None
    is_raw: bool = False

    @property
    def is_there(self) -> bool:
        """Whether the record is not a tombstone."""
        return self.value is not None


def decode_coordinator_records(
    log: InternalLog,
    rows: pa.Table | pa.RecordBatch,
    component: str,
    unreadable: Undecodable,
    is_wanted: Callable[[int | None], bool],
) -> Iterator[tuple[int, DecodedMessage]]:
    """Decode the records of a coordinator's topic.

    Parameters
    ----------
    rows : pyarrow.Table or pyarrow.RecordBatch
        The records, with columns key, value and offset.
    is_wanted : callable
        Takes the type of a key, None if it has none, and returns whether to decode the record.

    Yields
    ------
    (int, Decoded)
        The row number of each wanted record, and the record. Records that cannot be decoded have been counted.
    """
    columns = (rows[name].to_pylist() for name in ("key", "value", "offset"))
    for row, (key, value, offset) in enumerate(zip(*columns, strict=True)):
        kind = None if key is None or len(key) < 2 else int.from_bytes(key[:2], "big")
        if not is_wanted(kind):
            continue
        fields = None
        try:
            fields = decode_key(component, key)
            found, version, decoded = decode_value(component, kind or 0, value)
        except MessageDecodeError as error:
            unreadable.note(log, offset, error.message)
            yield row, DecodedMessage("", fields or {}, None, None, is_raw=True)
        else:
            yield row, DecodedMessage(found.name.removesuffix("Value"), fields, decoded, version)


def history(
    log: InternalLog,
    component: str,
    unreadable: Undecodable,
    is_wanted: Callable[[int | None], bool],
    row_of: Callable[[DecodedMessage], Sequence[Any]],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield every wanted record of a coordinator's log, with its offset and time.

    Parameters
    ----------
    component, is_wanted
        See `decode_coordinator_records`.
    row_of : callable
        Makes the row of a decoded record, tombstones included.
    schema : pyarrow.Schema
        The fields of that row, then `HISTORY_FIELDS`.
    """
    of_row = pa.schema(list(schema)[: -len(HISTORY_FIELDS)])
    for batch in log.batches():
        numbers: list[int] = []
        rows: list[Sequence[Any] | None] = []
        # One by one: many decoded records at a time would keep the garbage collector busy.
        for number, found in decode_coordinator_records(log, batch, component, unreadable, is_wanted):
            numbers.append(number)
            rows.append(None if found.is_raw else row_of(found))
        where = where_written(log, batch, numbers, [row is None for row in rows])
        arrays = {**arrays_of(rows, of_row), **where}
        yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def where_written(
    log: InternalLog, batch: pa.RecordBatch, rows: Sequence[int], is_raw: Sequence[bool]
) -> dict[str, pa.Array]:
    """Make the columns of `HISTORY_FIELDS` for some rows of a batch; ``is_raw`` marks the rows shown as bytes."""
    taken = batch.take(pa.array(rows, pa.int64()))
    raw, nothing = pa.array(is_raw, pa.bool_()), pa.scalar(None, pa.binary())
    return {
        "log_partition": pa.repeat(pa.scalar(log.partition, pa.int32()), len(rows)),
        "log_offset": taken["offset"],
        "timestamp": taken["timestamp"],
        TRANSACTION_COLUMN: taken[TRANSACTION_COLUMN],
        "is_tombstone": pc.is_null(taken["value"]),
        "raw_key": pc.if_else(raw, taken["key"], nothing),
        "raw_value": pc.if_else(raw, taken["value"], nothing),
    }


def arrays_of(rows: Sequence[Sequence[Any] | None], schema: pa.Schema) -> dict[str, pa.Array]:
    """Make columns from rows; a row that is None is null in each."""
    nothing = (None,) * len(schema)
    columns = list(zip(*(nothing if row is None else row for row in rows), strict=True)) or [()] * len(schema)
    return {each.name: pa.array(column, each.type) for each, column in zip(schema, columns, strict=True)}


def known(number: int) -> int | None:
    """Return a number, or None for -1, which Kafka writes for no number."""
    return None if number == -1 else number
