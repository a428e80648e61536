"""Checks the columns of the records to write, and casts them to the few types that the encoder accepts.

    column      taken                                               becomes
    value, key  binary or string: plain, large, view, fixed size,   binary, string, or the large kind of either
                in a dictionary or run-end encoded; null
    headers     a list or map of key (text) and value (bytes)       `HEADERS_TYPE`
    timestamp   a timestamp of any unit and zone, or int64 ms       int64, ms since 1970

Rows come as a table, batch or reader of pyarrow, as columns by name, such as ``{"value": ["a", b"b"]}``, or as any
object with Arrow's C interface: a frame of polars or pandas, a relation of DuckDB, a log opened for reading.

A timestamp without a zone is taken as UTC. Times are rounded down to milliseconds. Times before 1970 are refused, as by
Kafka's producer. In an int64 column -1 means that a record has no timestamp, as in a log; in a column of timestamps,
-1 ms is a time before 1970, and is refused.

Source: apache/kafka, ProducerRecord.java, RecordBatch.java (NO_TIMESTAMP).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError
from sparklog.record.format.arrays import array_of, filled, numbers_of
from sparklog.record.format.schema import HEADERS_TYPE

INPUT_COLUMNS: Final = ("key", "value", "headers", "timestamp")
NO_TIMESTAMP: Final = -1

_ARROW_BYTES_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_MS_PER_S: Final = 1000
_UNITS_PER_MS: Final = {"us": 1000, "ns": 1_000_000}
_TEXT_TYPES: Final = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
_LARGE: Final = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
_CANNOT_CAST: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


class ArrowStream(Protocol):
    """An object that can be read as a stream of Arrow batches."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class ArrowArray(Protocol):
    """An object that can be read as one Arrow batch."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


Records = ArrowStream | ArrowArray | Mapping[str, Any]
"""The types that the rows to write may have; tables and batches of pyarrow are such streams and arrays."""


def take_records(given: Records) -> pa.RecordBatch:
    """Return the columns of a record in one batch, cast to the encoder's types; other columns are left out.

    Raises
    ------
    InvalidOptionError
        ``value`` is missing, a column occurs twice or has a type that cannot be written, or a record cannot have one of
        the times. The message names the column, its type and the expected types.
    """
    rows: Any = given if isinstance(given, (pa.Table, pa.RecordBatch)) else _to_arrow(given)
    schema = rows.schema
    refuse_twice(schema)
    there = schema.names
    if "value" not in there:
        raise InvalidOptionError("Required attribute 'value' not found")
    if isinstance(rows, pa.Table) and len(pieces := rows.to_batches()) == 1:
        # A small table is in one piece, and taking columns from a batch costs less.
        rows = pieces[0]
    columns = dict(zip(there, rows.columns, strict=True))
    names = [name for name in INPUT_COLUMNS if name in columns]
    return pa.RecordBatch.from_arrays([_taken(columns[name], name) for name in names], names=names)


def _to_arrow(given: Any) -> pa.Table | pa.RecordBatch:
    try:
        if isinstance(given, Mapping):
            return pa.table({name: _to_bytes(given[name], name) for name in given})
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given).read_all()
        if hasattr(given, "__arrow_c_array__"):
            return pa.record_batch(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidOptionError(f"the records, a {type(given).__name__}, are not rows of Arrow: {error}") from error
    raise InvalidOptionError(
        f"records come as a table, batch or reader of pyarrow, a frame of pandas or polars, or anything else with "
        f"__arrow_c_stream__, not as {type(given).__name__}"
    )


def _to_bytes(column: Any, name: str) -> Any:
    """Return a list of keys or values with its texts as bytes; text and bytes may be mixed."""
    if name not in ("key", "value") or not isinstance(column, (list, tuple)):
        return column
    return [each.encode() if isinstance(each, str) else each for each in column]


def refuse_twice(schema: pa.Schema) -> None:
    """Raise if two columns have the same name, and it is the name of a record's column."""
    names = schema.names
    if len(set(names)) == len(names):
        return
    for name in INPUT_COLUMNS:
        types = [str(schema.field(n).type) for n in schema.get_all_field_indices(name)]
        if len(types) > 1:
            raise InvalidOptionError(
                f"there are {len(types)} columns {name!r}, of types {' and '.join(types)}: one is wanted"
            )


def _taken(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    if name == "timestamp":
        return take_times(_together(column, name))
    if name == "headers":
        return take_headers(_together(column, name))
    if isinstance(column, pa.Array) or column.num_chunks < 2:
        return take_text(_together(column, name), name)
    chunks = [take_text(chunk, name) for chunk in column.chunks]
    if sum(chunk.nbytes for chunk in chunks) > _ARROW_BYTES_MAX:
        # Together they have more bytes than the offsets of the small types can address.
        chunks = [chunk.cast(_LARGE.get(chunk.type, chunk.type)) for chunk in chunks]
    return _together(pa.chunked_array(chunks), name)


def _together(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks < 2:
        return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    try:
        return pa.concat_arrays(column.chunks)
    except pa.ArrowInvalid as error:
        raise InvalidOptionError(f"the column {name} is too long to be written at once, {error}: write less") from error


def take_text(column: pa.Array, name: str) -> pa.Array:
    """Return a column of byte strings in one of the plain types; a column of nulls only is binary."""
    kind = column.type
    if kind in _TEXT_TYPES:
        return column
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if pa.types.is_run_end_encoded(kind):
        return take_text(pc.run_end_decode(column), name)
    if pa.types.is_dictionary(kind):
        return take_text(column.dictionary_decode(), name)
    try:
        if pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
            return column.cast(pa.binary())
        if kind == pa.string_view():
            return column.cast(pa.string())
    except _CANNOT_CAST as error:
        raise _not_text(name, kind) from error
    raise _not_text(name, kind)


def _not_text(name: str, kind: pa.DataType) -> InvalidOptionError:
    return InvalidOptionError(f"{name} attribute unsupported type {kind}. {name} must be a(n) string or binary")


def take_times(column: pa.Array) -> pa.Array:
    """Return timestamps as int64 ms, null if they are null."""
    kind = column.type
    is_time = pa.types.is_timestamp(kind)
    if not is_time and kind != pa.int64():
        raise InvalidOptionError(
            f"timestamp attribute unsupported type {kind}. "
            "timestamp must be a(n) timestamp, or an int64 of milliseconds since 1970"
        )
    plain = column.cast(pa.int64()) if is_time else column
    numbers: np.ndarray[Any, np.dtype[np.int64]] = numbers_of(filled(plain, 0))
    if is_time and kind.unit in _UNITS_PER_MS:
        numbers = numbers // _UNITS_PER_MS[kind.unit]
    elif is_time and kind.unit == "s":
        far = np.flatnonzero(numbers > _LONG_MAX // _MS_PER_S)
        if len(far):
            raise InvalidOptionError(
                f"timestamp of row {far[0]} is {numbers[far[0]]} s, and Kafka's int64 of milliseconds holds no more "
                f"than {_LONG_MAX // _MS_PER_S} s"
            )
        numbers = np.maximum(numbers, -(_LONG_MAX // _MS_PER_S)) * _MS_PER_S
    _refuse_early(numbers, 0 if is_time else NO_TIMESTAMP)
    if not is_time or kind.unit == "ms":
        return plain
    return pa.array(numbers, mask=numbers_of(plain.is_null())) if plain.null_count else array_of(numbers)


def time_numbers(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return timestamps that `take_times` takes as numbers of ms, -1 if they are null."""
    if column.type == pa.int64() and not column.null_count:
        # The rows of one log have this form before they are encoded.
        numbers = numbers_of(column)
        _refuse_early(numbers, NO_TIMESTAMP)
        return numbers
    times = take_times(column)
    return numbers_of(filled(times, NO_TIMESTAMP))


def _refuse_early(numbers: np.ndarray[Any, np.dtype[np.int64]], earliest: int) -> None:
    """Raise if a time is before 1970; the error message for -1 ms differs."""
    if not len(numbers) or numbers.min() >= earliest:
        return
    row = int(np.flatnonzero(numbers < earliest)[0])
    if numbers[row] == NO_TIMESTAMP:
        raise InvalidOptionError(
            f"timestamp of row {row} is in the last millisecond before 1970, which is -1 ms, Kafka's number for no "
            f"timestamp: make it null, and the record gets the time at which it is written"
        )
    raise InvalidOptionError(f"timestamp of row {row} is {numbers[row]} ms: Kafka has none before 1970")


def take_headers(column: pa.Array) -> pa.Array:
    """Return headers as `HEADERS_TYPE`; null if a record has none."""
    kind = column.type
    if kind == HEADERS_TYPE:
        return column
    if pa.types.is_null(kind):
        return pa.nulls(len(column), HEADERS_TYPE)
    wanted = "array<struct<key:string,value:binary>>"
    if not _are_headers(kind):
        raise InvalidOptionError(f"headers attribute unsupported type {kind}. headers must be an {wanted}")
    try:
        return column.cast(HEADERS_TYPE)
    except _CANNOT_CAST as error:
        raise InvalidOptionError(f"headers of type {kind} cannot be read as an {wanted}: {error}") from error


def _are_headers(kind: pa.DataType) -> bool:
    """Return whether a type has only keys and values: a cast would turn a misspelt field into nulls."""
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    names = [pair.field(n).name for n in range(pair.num_fields)]
    return sorted(names) == ["key", "value"] and all(_is_text(pair.field(name).type) for name in names)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return kind in (*_TEXT_TYPES, pa.string_view(), pa.binary_view(), pa.null()) or pa.types.is_fixed_size_binary(kind)
