"""Decodes records whose values name their own type, as in the metadata of clusters and of remote logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparklog.errors import MessageDecodeError
from sparklog.system.codecs import MessageFields
from sparklog.system.messages import decode_framed, json_of
from sparklog.system.records import HISTORY_FIELDS, InternalLog, Undecodable, arrays_of, where_written

RECORD_FIELDS: Final = (
    pa.field("record", pa.string()),
    pa.field("version", pa.int32()),
    pa.field("fields", pa.string()),
)
"""A record by its name in Kafka, and its fields as JSON."""

FRAMED_HISTORY_SCHEMA: Final = pa.schema([*RECORD_FIELDS, *HISTORY_FIELDS])


class FramedRecord(NamedTuple):
    """A record. ``name`` is the name of its message, such as ``PartitionChangeRecord``."""

    name: str
    version: int
    fields: MessageFields

    def row(self) -> tuple[Any, ...]:
        """Make the row of `RECORD_FIELDS`."""
        return self.name, self.version, json_of(self.fields)


def decode_frame(value: bytes | None, component: str) -> FramedRecord:
    """Decode a value.

    Raises
    ------
    MessageDecodeError
        There is no value, or see `decode_framed`.
    """
    if value is None:
        raise MessageDecodeError("a record has no value that says what it is")
    found, version, fields = decode_framed(value, component)
    return FramedRecord(found.name, version, fields)


def framed_history(
    log: InternalLog,
    batches: Iterator[pa.RecordBatch],
    component: str,
    unreadable: Undecodable,
    is_wanted: Callable[[str], bool],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of some batches in the columns of `FRAMED_HISTORY_SCHEMA`.

    Parameters
    ----------
    is_wanted : callable
        Takes a record's name and returns whether it is shown. A record that cannot be decoded always is.
    """
    record_schema = pa.schema(RECORD_FIELDS)
    for batch in batches:
        rows: list[int] = []
        records: list[tuple[Any, ...] | None] = []
        values, offsets = batch.column("value").to_pylist(), batch.column("offset").to_pylist()
        for row, (value, offset) in enumerate(zip(values, offsets, strict=True)):
            try:
                found = decode_frame(value, component)
            except MessageDecodeError as error:
                unreadable.note(log, offset, error.message)
                rows.append(row)
                records.append(None)
                continue
            if is_wanted(found.name):
                rows.append(row)
                records.append(found.row())
        where = where_written(log, batch, rows, [record is None for record in records])
        arrays = {**arrays_of(records, record_schema), **where}
        yield pa.RecordBatch.from_arrays(
            [arrays[name] for name in FRAMED_HISTORY_SCHEMA.names], schema=FRAMED_HISTORY_SCHEMA
        )
