"""The columns in Spark: the connector's, in its order, and others that are read only by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from sparklog.errors import InvalidOptionError, did_you_mean

HEADERS: Final = "headers"
TEXT_COLUMNS: Final = ("key", "value")
"""Binary columns that a user's schema may declare as string; then their bytes must be UTF-8."""

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
SPARK_COLUMNS: Final[dict[str, DataType]] = {
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
DAMAGED: Final = "damaged"
"""The column that a read with ``onDamage=best_effort`` also has: whether the checksum of a record's batch differs."""

_NULL_COLUMNS = ("key", "value", HEADERS)


def source_schema(
    columns: Sequence[str], *, include_headers: bool, types: Mapping[str, DataType] = SPARK_COLUMNS
) -> StructType:
    """Return the schema of a read for which the user gives none.

    Parameters
    ----------
    columns : sequence of str
        The option ``columns``; empty for the connector's columns.
    include_headers : bool
        Whether ``headers`` follows the connector's columns.
    types : mapping of str to DataType
        The type of every column that can be read.
    """
    names = columns or [
        *CONNECTOR_COLUMNS,
        *([HEADERS] if include_headers else []),
        *([DAMAGED] if DAMAGED in types else []),
    ]
    return StructType([StructField(name, types[name]) for name in check_columns(names, types)])


def check_columns(names: Sequence[str], known: Collection[str] = SPARK_COLUMNS) -> Sequence[str]:
    """Return the names, if each is the name of a column and none is repeated."""
    for name in names:
        if name not in known and name == DAMAGED:
            raise InvalidOptionError(f"the column {DAMAGED!r} is of reads with onDamage=best_effort: set that as well")
        if name not in known:
            folded = {column.lower(): column for column in known}
            hint = did_you_mean(name.lower(), folded, f"there are {', '.join(known)}", cutoff=0.6)
            raise InvalidOptionError(f"no column {name!r}: {hint}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InvalidOptionError(f"column {twice!r} is given twice")
    return names


def check_schema(schema: StructType, types: Mapping[str, DataType] = SPARK_COLUMNS) -> StructType:
    """Return a user's schema if it has only known columns, in any order, with their types.

    Raises
    ------
    InvalidOptionError
        A column is unknown or has another type, and the error names both; or the schema has no column.
    """
    refuse_empty(schema)
    check_columns(schema.fieldNames(), types)
    for field in schema.fields:
        right = types[field.name]
        textual = right == BinaryType() and field.name in TEXT_COLUMNS and isinstance(field.dataType, StringType)
        if not textual and field.dataType != right:
            also = _also(field, right)
            raise InvalidOptionError(
                f"column {field.name!r} is {right.simpleString()}{also}, not {field.dataType.simpleString()}"
            )
        if not field.nullable and field.name in _NULL_COLUMNS:
            raise InvalidOptionError(f"column {field.name!r} may be null: it cannot be declared NOT NULL")
    return schema


def refuse_empty(schema: StructType) -> None:
    """Raise `InvalidOptionError` for a schema without columns: Spark would count no rows, since no column has any."""
    if not schema.fields:
        raise InvalidOptionError("the schema has no column: name one, such as offset to count the records")


def _also(field: StructField, right: DataType) -> str:
    """Return the part of a message that names the other types that a column could have."""
    if field.name == HEADERS and isinstance(field.dataType, MapType):
        return " (or map<string,binary> with headersAsMap)"
    if field.name not in TEXT_COLUMNS:
        return ""
    return f" (or string; other types come by {field.name}Format)" if right == BinaryType() else ""


_WRITTEN: Final[dict[str, str]] = {
    "key": "a(n) string or binary",
    "value": "a(n) string or binary",
    "topic": "a(n) string",
    "partition": "a(n) int",
    HEADERS: "a(n) array<struct<key:string,value:binary>>",
    "timestamp": "a(n) timestamp",
}


def check_written(schema: StructType) -> list[str]:
    """Return the names of the columns that a write uses; it ignores others, as the connector does.

    Raises
    ------
    InvalidOptionError
        ``value`` is missing, a column is repeated, or one has a type that cannot be written.
    """
    for name in _WRITTEN:
        types = [field.dataType.simpleString() for field in schema.fields if field.name == name]
        if len(types) > 1:
            raise InvalidOptionError(
                f"there are {len(types)} columns {name!r}, of types {' and '.join(types)}: one is wanted"
            )
    names = [name for name in schema.fieldNames() if name in _WRITTEN]
    if "value" not in names:
        raise InvalidOptionError("Required attribute 'value' not found")
    for name in names:
        kind = schema[name].dataType
        if not _can_write(name, kind):
            raise InvalidOptionError(
                f"{name} attribute unsupported type {kind.simpleString()}. {name} must be {_WRITTEN[name]}"
                f"{_cast_hint(name, kind)}"
            )
    return names


def _cast_hint(name: str, kind: DataType) -> str:
    """Return a hint: the expression that gives a column the type to write, if Spark has one with the same meaning."""
    if name == "timestamp" and isinstance(kind, TimestampNTZType | StringType | DateType):
        cast = "CAST(timestamp AS TIMESTAMP)"
    elif name == "timestamp" and isinstance(kind, LongType):
        cast = "timestamp_millis(timestamp)"
    elif name == "partition" and isinstance(kind, IntegralType | StringType):
        cast = "CAST(partition AS INT)"
    elif name == HEADERS and (pairs := _pairs(kind)):
        cast = f"CAST({pairs} AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"
    elif name in TEXT_COLUMNS and isinstance(kind, ArrayType | MapType | StructType):
        cast = f"to_json({name})"
    elif name in (*TEXT_COLUMNS, "topic") and isinstance(kind, AtomicType):
        cast = f"CAST({name} AS STRING)"
    else:
        return ""
    return f": write {cast} AS {name}"


def _pairs(kind: DataType) -> str:
    """Return the expression that makes header pairs from pairs of strings, or from a map of strings."""
    if isinstance(kind, MapType):
        return "map_entries(headers)" if {type(kind.keyType), type(kind.valueType)} <= _TEXTS else ""
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType) and len(kind.elementType.fields) == 2:
        return HEADERS if {type(field.dataType) for field in kind.elementType.fields} <= _TEXTS else ""
    return ""


_TEXTS: Final = {StringType, BinaryType}


def _can_write(name: str, kind: DataType) -> bool:
    if name in TEXT_COLUMNS:
        return isinstance(kind, StringType | BinaryType | CharType | VarcharType)
    if name == "topic":
        return isinstance(kind, StringType | CharType | VarcharType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    return _is_headers(kind)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    pair = kind.elementType
    return pair.fieldNames() == ["key", "value"] and [type(field.dataType) for field in pair.fields] == [
        StringType,
        BinaryType,
    ]
