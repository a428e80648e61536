"""Defines the columns of records as Arrow types, named as in Spark's Kafka connector, and otherwise as in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from sparklog.errors import InvalidOptionError

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

RECORD_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
        ("leader_epoch", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("sequence", pa.int32()),
        ("is_transactional", pa.bool_()),
        ("compression", pa.string()),
        ("magic", pa.int32()),
        ("base_offset", pa.int64()),
        ("position", pa.int64()),
    ]
)
"""All columns that `sparklog.record.decode.columns.decode_batches` can make.

``position`` is the byte position of the record's batch in its file. ``timestamp`` is in ms, -1 in magic 0;
``timestampType`` is -1 none, 0 create time, 1 log append time. Numbers that a format does not have are -1.
"""

RECORD_COLUMNS: Final = tuple(RECORD_SCHEMA.names)
DEFAULT_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")


def selector(schema: pa.Schema) -> Callable[[tuple[str, ...]], pa.Schema]:
    """Return the function that makes the schema of some columns of a schema, in the order of the given names.

    Each is made once: making one takes as long as reading a few records.
    """

    @lru_cache(maxsize=64)
    def selected(names: tuple[str, ...]) -> pa.Schema:
        return pa.schema([schema.field(name) for name in names])

    return selected


def chosen_columns(
    columns: str | Sequence[str] | None, default: Sequence[str], known: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of the columns that a user asks for; raise `InvalidOptionError` for one that is not known."""
    names = default if columns is None else (columns,) if isinstance(columns, str) else columns
    for name in names:
        if name not in known:
            raise InvalidOptionError(f"no column {name!r}; the columns of a log are {', '.join(known)}")
    return tuple(names)
