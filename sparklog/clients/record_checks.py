"""What callers give a producer to send, checked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparklog.errors import SerializationError


def to_bytes(data: Any, name: str) -> bytes:
    """Return a key or a value as bytes; raise `SerializationError` where it is something else."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationError(f"the {name} is a {type(data).__name__}, and not bytes: set {name}_serializer")


def checked_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """Return headers; raise `SerializationError` where they are none."""
    if not isinstance(headers, list | tuple):
        raise SerializationError(f"headers are a list of (str, bytes), and not a {type(headers).__name__}")
    for each in headers:
        is_pair = isinstance(each, tuple) and len(each) == 2
        if not is_pair or not isinstance(each[0], str) or not isinstance(each[1], bytes | None):
            raise SerializationError(f"a header is a pair of str and bytes, and not {each!r}")
    return list(headers)


def partition_column(table: Any) -> pa.Array | None:
    """Return the column that names the partitions of rows, if there is one."""
    if isinstance(table, pa.Table | pa.RecordBatch):
        if "partition" not in table.schema.names:
            return None
        column = table.column("partition")
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(table, dict) and "partition" in table:
        return pa.array(table["partition"], pa.int32())
    return None
