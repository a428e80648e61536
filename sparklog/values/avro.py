"""Avro records, by `fastavro`: one datum a value, without the header of an Avro file.

    Avro                                            Arrow
    boolean, int, long, float, double               bool, int32, int64, float, double
    string, enum, uuid of a string                  string
    bytes                                           binary
    fixed                                           binary of that size
    record                                          struct
    array, map                                      list, map of string
    null with T                                     T
    int with long, float with double                int64, double
    union of several other types                    struct, a field for each but null: member0, member1, ...
    date                                            date32
    time-millis, time-micros                        time32 in ms, time64 in us
    timestamp-millis, -micros, -nanos               timestamp in UTC, in that unit
    local-timestamp-millis, -micros, -nanos         timestamp of no zone
    decimal of up to 38 digits                      decimal128

With Confluent's prefix the id names the schema that a value was written with. It is resolved to the
reader's schema, by Avro's rules, as the value is read: fields are added by their defaults, left out, and widened.

These fail, each as its own row: an id without a schema, bytes that end too early or continue after the datum, and data
that `fastavro` refuses. It does not refuse everything: a negative number of a union's branch or an enum's symbol counts
from the end, and numbers of more than 64 bits lose the upper bits.

A union becomes a struct with one field that is not null, as in Spark's ``from_avro``; `sparklog.values.avro_unions`
explains how.

Schemas that no column can hold are refused: types that are always null, and records that hold themselves. So are arrays
of items that take no bytes, such as nulls: ten bytes could claim 2^60 of them. Every other item takes at least a byte,
so that a value never has more items than bytes. During decoding, an item that is a record takes about two hundred bytes
of memory besides its fields.

Source: Avro specification 1.12.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.values.avro_defaults import set_defaults, with_pending
from sparklog.values.avro_unions import UnionRewriter, member_name, members_of
from sparklog.values.framing import split_prefix
from sparklog.values.imports import import_optional
from sparklog.values.rows import DecodedValues, Failures, call_rows, decode_rows
from sparklog.values.schemas import FieldCount, Schema

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_WIDER: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
_DIGITS_MAX: Final = 38


class AvroCodec:
    """Decodes Avro records.

    Parameters
    ----------
    schemas : mapping of int or None to Schema
        The schemas that values were written with, by id.
    reader_id : int or None
        The id of the schema that defines the columns.
    has_prefix : bool
        Whether values have Confluent's prefix; if not, all were written with the reader's schema.

    Raises
    ------
    InvalidOptionError
        `fastavro` is not installed, or a schema cannot be used.
    """

    def __init__(self, schemas: Mapping[int | None, Schema], reader_id: int | None, *, has_prefix: bool) -> None:
        fastavro = import_optional("fastavro", "fastavro", "avro")
        self._read = fastavro.schemaless_reader
        self._has_prefix, self._reader_id = has_prefix, reader_id
        kept = schemas if has_prefix else {reader_id: schemas[reader_id]}
        parsed = {schema_id: _parse(fastavro, schema) for schema_id, schema in kept.items()}
        for schema_id, schema in kept.items():
            _Types(schema.name, parsed[schema_id]).check_items()
        self.type = _Types(schemas[reader_id].name, parsed[reader_id]).type()
        # The column's type gives numbers their meaning; fastavro would make Python objects of them.
        plain = {schema_id: _without_logical_types(each) for schema_id, each in parsed.items()}
        try:
            rewriter = UnionRewriter(with_pending(plain[reader_id]))
        except (ValueError, LookupError) as error:
            raise InvalidOptionError(
                f"{schemas[reader_id].name} has a field whose default is wrong: {error}"
            ) from error
        self._reader = fastavro.parse_schema(rewriter.reader)
        set_defaults(self._reader)
        writers = {key: fastavro.parse_schema(rewriter.writer(each)) for key, each in plain.items() if key != reader_id}
        self._writers = {**writers, reader_id: self._reader}

    def decode(self, values: pa.Array) -> DecodedValues:
        if self._has_prefix:
            ids, payloads, reasons = split_prefix(values)
            schema_ids: list[int | None] = ids.tolist()
        else:
            schema_ids, payloads, reasons = [self._reader_id] * len(values), values, {}
        pairs = [
            None if payload is None else (schema_id, payload)
            for schema_id, payload in zip(schema_ids, payloads.to_pylist(), strict=True)
        ]
        data, unread = call_rows(self._datum, pairs)
        array, misfits = decode_rows(data, lambda part: pa.array(part, self.type), self.type)
        return DecodedValues(array, Failures.of({**misfits.by_row(), **unread, **reasons}))

    def _datum(self, pair: tuple[int | None, bytes]) -> Any:
        schema_id, payload = pair
        writer = self._writers.get(schema_id)
        if writer is None:
            raise ValueError(f"there is no schema with the id {schema_id}")
        file = BytesIO(payload)
        reader = None if schema_id == self._reader_id else self._reader
        try:
            datum = self._read(file, writer, reader)
        except EOFError as error:
            raise ValueError("the bytes end within the record") from error
        if file.tell() != len(payload):
            raise ValueError(f"{len(payload) - file.tell()} bytes are left behind the record")
        return datum


def _parse(fastavro: Any, schema: Schema) -> Any:
    try:
        return fastavro.parse_schema(json.loads(schema.content))
    except Exception as error:
        raise InvalidOptionError(f"{schema.name} is not an Avro schema: {error}") from error


def _without_logical_types(schema: Any) -> Any:
    """Return a parsed schema with decimals as its only logical types; for all others plain numbers are enough."""
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: value
        for key, value in schema.items()
        if not key.startswith("__") and (key != "logicalType" or value == "decimal")
    }
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _without_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [{**field, "type": _without_logical_types(field["type"])} for field in kept["fields"]]
    return kept


class _Types:
    """Walks through one parsed schema."""

    def __init__(self, name: str, schema: Any) -> None:
        self._name, self._schema, self._fields = name, schema, FieldCount(name)
        self._named: dict[str, Any] = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        if isinstance(schema, list):
            for each in schema:
                self._named |= each.get("__named_schemas", {}) if isinstance(each, dict) else {}

    def type(self) -> pa.DataType:
        """Return the Arrow type of the schema."""
        return self._type(self._schema, "")

    def check_items(self) -> None:
        """Refuse arrays whose items can take no bytes, and records that hold themselves."""
        self._bytes_min(self._schema, "", ())

    def _type(self, schema: Any, path: str) -> pa.DataType:
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            members = [self._type(each, path) for each in members_of(schema)]
            if members:
                return pa.struct([(member_name(place), member) for place, member in enumerate(members)])
            return self._type(self._only_one(schema, path), path)
        if isinstance(schema, str):
            return _PLAIN[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            names = [field["name"] for field in schema["fields"]]
            types = [self._type(field["type"], f"{path}.{field['name']}") for field in schema["fields"]]
            return pa.struct([pa.field(*each) for each in zip(names, types, strict=True)])
        if kind == "array":
            return pa.list_(self._type(schema["items"], path))
        if kind == "map":
            return pa.map_(pa.string(), self._type(schema["values"], path))
        if schema.get("logicalType") == "decimal" and 0 < schema["precision"] <= _DIGITS_MAX:
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if schema.get("logicalType") == "decimal":
            raise self._error(path, f"is a decimal of more than {_DIGITS_MAX} digits")
        if kind == "enum":
            return pa.string()
        if kind == "fixed":
            return pa.binary(schema["size"])
        if not isinstance(kind, str) or kind not in _PLAIN:
            return self._type(kind, path)
        return _LOGICAL.get((kind, schema.get("logicalType", "")), _PLAIN[kind])

    def _only_one(self, choices: list[Any], path: str) -> Any:
        others = [each for each in choices if each != "null"]
        if len(others) == 1:
            return others[0]
        if not others:
            raise self._error(path, "is always null")
        return _WIDER[frozenset(others)]

    def _bytes_min(self, schema: Any, path: str, holders: tuple[str, ...]) -> int:
        """Return a lower bound for the bytes of a datum; it stops counting after a few."""
        self._fields.add()
        if isinstance(schema, str) and schema in holders:
            raise self._error(path, f"holds itself, as {schema!r}")
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            for each in schema:
                self._bytes_min(each, path, holders)
            return 1
        if isinstance(schema, str):
            return 0 if schema == "null" else 1
        kind = schema["type"]
        if kind in ("record", "error"):
            inside = (*holders, schema["name"])
            return sum(self._bytes_min(each["type"], f"{path}.{each['name']}", inside) for each in schema["fields"])
        if kind == "array" and not self._bytes_min(schema["items"], path, holders):
            raise self._error(path, "is an array whose items take no bytes: a few bytes could claim any number")
        if kind == "map":
            self._bytes_min(schema["values"], path, holders)
        if kind == "fixed":
            return int(schema["size"])
        return 1 if kind in ("array", "map", "enum") else self._bytes_min(kind, path, holders)

    def _error(self, path: str, reason: str) -> InvalidOptionError:
        where = f"the field {path.strip('.')!r}" if path else "the datum"
        return InvalidOptionError(f"{self._name} is an Avro schema that cannot become columns: {where} {reason}")
