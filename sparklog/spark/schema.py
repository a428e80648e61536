"""The columns as Spark sees them: the connector's, in its order, and those that may be asked for by name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.errors import InvalidOptionError

HEADERS: Final = "headers"
TEXT_COLUMNS: Final = ("key", "value")
"""Binary columns that a user schema may declare as string: their bytes are then checked to be UTF-8."""

_HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

CONNECTOR_COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
COLUMNS: Final[dict[str, DataType]] = {
    **CONNECTOR_COLUMNS,
    HEADERS: _HEADERS_TYPE,
    "leader_epoch": IntegerType(),
    "producer_id": LongType(),
    "producer_epoch": IntegerType(),
    "sequence": IntegerType(),
    "is_transactional": BooleanType(),
    "compression": StringType(),
    "magic": IntegerType(),
    "base_offset": LongType(),
    "file": StringType(),
    "position": LongType(),
}
"""Every column that can be read, and its type."""

_NULL_COLUMNS = ("key", "value", HEADERS)


def source_schema(columns: Sequence[str], *, include_headers: bool) -> StructType:
    """Return the schema of a read where the user gives none.

    Parameters
    ----------
    columns : sequence of str
        Of the option ``columns``; empty for the connector's own.
    include_headers : bool
        Whether ``headers`` comes behind the connector's columns.
    """
    names = columns or [*CONNECTOR_COLUMNS, *([HEADERS] if include_headers else [])]
    return StructType([StructField(name, COLUMNS[name]) for name in check_columns(names)])


def check_columns(names: Sequence[str]) -> Sequence[str]:
    """Return the names if each is that of a column, and none is there twice."""
    for name in names:
        if name not in COLUMNS:
            folded = {column.lower(): column for column in COLUMNS}
            close = get_close_matches(name.lower(), folded, n=1)
            hint = f"did you mean {folded[close[0]]!r}?" if close else f"there are {', '.join(COLUMNS)}"
            raise InvalidOptionError(f"no column {name!r}: {hint}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InvalidOptionError(f"column {twice!r} is asked for twice")
    return names


def check_schema(schema: StructType) -> StructType:
    """Return a user's schema if it is a choice of the columns, in any order, with their types.

    Raises
    ------
    InvalidOptionError
        Naming the column, and the type that it has.
    """
    check_columns(schema.fieldNames())
    for field in schema.fields:
        right = COLUMNS[field.name]
        textual = field.name in TEXT_COLUMNS and isinstance(field.dataType, StringType)
        if not textual and field.dataType != right:
            also = " (or string)" if field.name in TEXT_COLUMNS else ""
            raise InvalidOptionError(
                f"column {field.name!r} is {right.simpleString()}{also}, not {field.dataType.simpleString()}"
            )
        if not field.nullable and field.name in _NULL_COLUMNS:
            raise InvalidOptionError(f"column {field.name!r} may be null: it cannot be declared NOT NULL")
    return schema
