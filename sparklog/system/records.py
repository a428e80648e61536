"""Records of an internal topic's log as a coordinator takes them, and the last one of each key.

A coordinator applies a record at once, but for one that is part of a transaction: that counts from its COMMIT marker
on, and never after an ABORT. So the state is the last record of each key among those of no transaction and of committed
ones. That is also so where the marker came later than another record of the key: by offset the later record wins.

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
from sparklog.system.codecs import Fields
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
"""The columns that a history has beside those of its rows.

``transaction`` is null of a record of no transaction, and else committed, aborted or open. ``raw_key`` and
``raw_value`` are the bytes of a record that cannot be decoded; they are null of any other.
"""


@dataclass(frozen=True)
class InternalLog:
    """One log of an internal topic, and what the directory around it says.

    Attributes
    ----------
    topic_names : mapping of str to str
        Names of topics by their ids.
    """

    layout: PartitionLayout
    topic_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return self.layout.path

    @property
    def partition(self) -> int:
        """The number of the partition; 0 of a folder that has another name."""
        return self.layout.folder.partition or 0

    def batches(self, start_offset: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records from an offset on, with the column ``transaction``; errors as of `LogReader.batches`."""
        markers: EndMarkers | None = None
        for batch in LogReader(self.layout).batches(start_offset, columns=_READ):
            is_transactional = np.asarray(batch.column("is_transactional").cast(pa.uint8()), bool)
            states = np.zeros(batch.num_rows, np.int8)
            if is_transactional.any():
                markers = markers or EndMarkers(self.layout)
                producers, offsets = (np.asarray(batch.column(name)) for name in ("producer_id", "offset"))
                states = markers.states(producers, offsets, is_transactional)
            kept = batch.select(["key", "value", "offset", "timestamp"])
            yield kept.append_column(TRANSACTION_COLUMN, pa.array(_STATE_NAMES).take(pa.array(states)))


@dataclass
class Unreadable:
    """Counts the records that cannot be decoded, so that one warning tells of all of them."""

    count: int = 0
    first: str = ""

    def note(self, log: InternalLog, offset: int, reason: str) -> None:
        """Count a record, and remember the first."""
        self.first = self.first or f"{log.path}, offset {offset}: {reason}"
        self.count += 1

    def warn(self, *, is_history: bool) -> None:
        """Warn of all records that were counted."""
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
        Turns keys into bytes that are the same for the same thing, where several keys mean one.
    with_open : bool
        Whether records of open transactions count, too: by them it is known already what there is.

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
    """Leave out records of transactions that were aborted, or are open."""
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


class Decoded(NamedTuple):
    """A record of a coordinator's topic.

    Attributes
    ----------
    name : str
        That of its message, such as ``OffsetCommit``.
    key : dict
        Empty where the key cannot be decoded.
    value : dict or None
        None of a tombstone.
    version : int or None
        Of the value.
    is_raw : bool
        Whether it cannot be decoded: then there is no more of it than what its key says.
    """

    name: str
    key: Fields
    value: Fields | None
    version: int | None
    is_raw: bool = False

    @property
    def is_there(self) -> bool:
        """Whether the record says something, and not that something is gone."""
        return self.value is not None


def decode_records(
    log: InternalLog,
    rows: pa.Table | pa.RecordBatch,
    component: str,
    unreadable: Unreadable,
    is_wanted: Callable[[int | None], bool],
) -> Iterator[tuple[int, Decoded]]:
    """Decode the records of a coordinator's topic.

    Parameters
    ----------
    rows : pyarrow.Table or pyarrow.RecordBatch
        With key, value and offset.
    is_wanted : callable
        Tells by the type that a key says, None where it says none, whether a record is to be decoded.

    Yields
    ------
    (int, Decoded)
        The row of each that is wanted. One that cannot be decoded has been counted.
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
            yield row, Decoded("", fields or {}, None, None, is_raw=True)
        else:
            yield row, Decoded(found.name.removesuffix("Value"), fields, decoded, version)


def history(
    log: InternalLog,
    component: str,
    unreadable: Unreadable,
    is_wanted: Callable[[int | None], bool],
    row_of: Callable[[Decoded], Sequence[Any]],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield every record of a coordinator's log that is wanted, with where and when it was written.

    Parameters
    ----------
    component, is_wanted
        As of `decode_records`.
    row_of : callable
        Makes the row of a record that can be decoded, tombstones included.
    schema : pyarrow.Schema
        Of that row, and behind it `HISTORY_FIELDS`.
    """
    of_row = pa.schema(list(schema)[: -len(HISTORY_FIELDS)])
    for batch in log.batches():
        numbers: list[int] = []
        rows: list[Sequence[Any] | None] = []
        # One by one: many decoded records at a time would keep the collector of garbage busy.
        for number, found in decode_records(log, batch, component, unreadable, is_wanted):
            numbers.append(number)
            rows.append(None if found.is_raw else row_of(found))
        where = where_written(log, batch, numbers, [row is None for row in rows])
        arrays = {**arrays_of(rows, of_row), **where}
        yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def where_written(
    log: InternalLog, batch: pa.RecordBatch, rows: Sequence[int], is_raw: Sequence[bool]
) -> dict[str, pa.Array]:
    """Make the columns of `HISTORY_FIELDS` of some rows of a batch; ``is_raw`` tells which are shown as their bytes."""
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
    """Make the columns of some rows; one that is None is null in each."""
    nothing = (None,) * len(schema)
    columns = list(zip(*(nothing if row is None else row for row in rows), strict=True)) or [()] * len(schema)
    return {each.name: pa.array(column, each.type) for each, column in zip(schema, columns, strict=True)}


def known(number: int) -> int | None:
    """Return a number, or None for the -1 that Kafka writes where there is none."""
    return None if number == -1 else number
