"""Decodes protobuf messages, by `protobuf`: one message a value.

    protobuf                                        Arrow
    bool, float, double, string, bytes              bool, float, double, string, binary
    int32, sint32, sfixed32                         int32
    int64, sint64, sfixed64                         int64
    uint32, fixed32                                 int64
    uint64, fixed64                                 decimal(20, 0)
    enum                                            string, the name; of a number without a name, the number
    message, group                                  struct
    google.protobuf.Timestamp                       timestamp, microseconds, UTC; nanoseconds are cut off
    repeated, map                                   list, map

A field that has presence (``optional``, in a ``oneof``, of a message, or of proto2) is
null if it is absent. Others have the default of their type, which is not written. Extensions and unknown fields are
left out.

With Confluent's prefix the id and the message index name the message of a value. It must be the reader's, by its full
name, or the row fails; its fields are read by the reader's schema, by number, as protobuf intends schemas to change.
Sources (``.proto``) are compiled by `grpcio-tools` when a decoder is specified, not where it runs.

Messages that hold themselves are refused, since no column can hold them. Decoding takes memory in proportion to the
bytes of a value, and `protobuf` refuses groups and messages that are nested more than 100 deep.

Source: protobuf.dev, encoding and descriptor.proto.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.storage.small_files import read_files, scratch_folder
from sparklog.values.framing import split_message_index, split_prefix
from sparklog.values.imports import import_optional
from sparklog.values.rows import DecodedValues, Failures, call_rows, decode_rows
from sparklog.values.schemas import FieldCount, Schema

_EXTRA: Final = "protobuf"
_LIBRARY: Final = "protobuf"
_SOURCE: Final = "sparklog_schema.proto"
_TARGET: Final = "sparklog_schema.desc"
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_PART: Final = 1024
# Source: descriptor.proto, FieldDescriptorProto.Type.
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_PLAIN: Final = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.decimal128(20, 0),  # uint64
    5: pa.int32(),
    6: pa.decimal128(20, 0),  # fixed64
    7: pa.int64(),  # fixed32
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),  # uint32
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}


class ProtobufCodec:
    """Decodes protobuf messages.

    Parameters
    ----------
    schemas : mapping of int or None to Schema
        The schemas that values were written with, by id, compiled.
    reader_id : int or None
        The id of the schema that defines the columns.
    message : str
        The full name of the message that defines the columns; empty for the first of the reader's schema.
    has_prefix : bool
        Whether values have Confluent's prefix.

    Raises
    ------
    InvalidOptionError
        `protobuf` is not installed, or a schema cannot be used.
    """

    def __init__(
        self, schemas: Mapping[int | None, Schema], reader_id: int | None, message: str, *, has_prefix: bool
    ) -> None:
        sets = {schema_id: _file_set(schema) for schema_id, schema in schemas.items()}
        self._files = {schema_id: found.file[-1] for schema_id, found in sets.items()}
        # For each schema, the message index that last led to the reader's message.
        self._index_bytes: dict[int, bytes] = {}
        self._has_prefix = has_prefix
        name = schemas[reader_id].name
        self._message = message or self._name(reader_id, (0,))
        self._class = _message_class(sets[reader_id], self._message, name)
        self._columns = _Message(self._class, (), FieldCount(name))
        self.type = self._columns.type

    def decode(self, values: pa.Array) -> DecodedValues:
        if self._has_prefix:
            ids, payloads, reasons = split_prefix(values)
            pairs = [
                None if payload is None else (schema_id, payload)
                for schema_id, payload in zip(ids.tolist(), payloads.to_pylist(), strict=True)
            ]
            messages, unread = call_rows(self._framed_message, pairs)
        else:
            reasons = {}
            messages, unread = call_rows(self._class.FromString, values.to_pylist())
        array, misfits = decode_rows(messages, self._columns.array, self.type)
        return DecodedValues(array, Failures.of({**misfits.by_row(), **unread, **reasons}))

    def _framed_message(self, pair: tuple[int, bytes]) -> Any:
        schema_id, payload = pair
        usual = self._index_bytes.get(schema_id)
        # No index is a prefix of another.
        if usual is not None and payload.startswith(usual):
            return self._class.FromString(payload[len(usual) :])
        if schema_id not in self._files:
            raise ValueError(f"there is no schema with the id {schema_id}")
        index, content = split_message_index(payload)
        name = self._name(schema_id, index)
        if name != self._message:
            raise ValueError(f"the message is {name}, and not {self._message}")
        self._index_bytes[schema_id] = payload[: len(payload) - len(content)]
        return self._class.FromString(content)

    def _name(self, schema_id: int | None, index: tuple[int, ...]) -> str:
        """Return the full name of the message that a message index leads to."""
        file = self._files[schema_id]
        names = [file.package] if file.package else []
        inside = file.message_type
        for number in index:
            if not 0 <= number < len(inside):
                raise ValueError(f"the schema {schema_id} has no message with the index {list(index)}")
            names.append(inside[number].name)
            inside = inside[number].nested_type
        return ".".join(names)


class _Message:
    """Makes a struct array of messages of one kind, field by field."""

    def __init__(self, kind: Any, holders: tuple[str, ...], count: FieldCount) -> None:
        descriptor = kind.DESCRIPTOR
        if descriptor.full_name in holders:
            raise InvalidOptionError(
                f"{count.name}: the message {descriptor.full_name} holds itself, and no column can"
            )
        inside = (*holders, descriptor.full_name)
        self._empty = kind()
        self._fields = [_Field(each, kind.HasField, inside, count) for each in descriptor.fields]
        self.type = pa.struct([pa.field(each.name, each.type) for each in self._fields])

    def array(self, messages: Sequence[Any]) -> pa.Array:
        """Return an array of messages; None becomes null."""
        is_absent = np.fromiter((message is None for message in messages), bool, len(messages))
        mask = pa.array(is_absent) if is_absent.any() else None
        if mask is not None:
            messages = [self._empty if message is None else message for message in messages]
        arrays = [each.array(messages) for each in self._fields]
        if not arrays:
            return pa.array([None if absent else {} for absent in is_absent.tolist()], self.type)
        return pa.StructArray.from_arrays(arrays, fields=list(self.type), mask=mask)


class _Field:
    """Makes an array of one field of messages.

    Parameters
    ----------
    has_field : callable
        The class's own function for presence, since a field of a message may have its name.
    """

    def __init__(
        self, descriptor: Any, has_field: Callable[[Any, str], bool], holders: tuple[str, ...], count: FieldCount
    ) -> None:
        count.add()
        self.name = descriptor.name
        self._get, self._has_field = attrgetter(descriptor.name), has_field
        self._has_presence = descriptor.has_presence
        self._is_list = _is_repeated(descriptor)
        self._is_map = descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry
        if self._is_map:
            entry = descriptor.message_type.fields_by_name
            self._keys, self._items = _values(entry["key"], holders, count), _values(entry["value"], holders, count)
            self.type = pa.map_(self._keys[0], self._items[0])
        else:
            self._items = _values(descriptor, holders, count)
            self.type = pa.list_(self._items[0]) if self._is_list else self._items[0]

    def array(self, messages: Sequence[Any]) -> pa.Array:
        found = list(map(self._get, messages))
        _, make = self._items
        if self._is_map:
            keys = self._keys[1](list(chain.from_iterable(found)))
            items = _in_parts(chain.from_iterable(each.values() for each in found), make)
            return pa.MapArray.from_arrays(_offsets(found), keys, items)
        if self._is_list:
            return pa.ListArray.from_arrays(_offsets(found), _in_parts(chain.from_iterable(found), make))
        if self._has_presence:
            name, has = self.name, self._has_field
            found = [value if has(message, name) else None for value, message in zip(found, messages, strict=True)]
        return make(found)


def _values(
    descriptor: Any, holders: tuple[str, ...], count: FieldCount
) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array]]:
    """Return the type of a field's single values, and the function that makes an array of them."""
    if descriptor.type in (_MESSAGE, _GROUP):
        if descriptor.message_type.full_name == _TIMESTAMP:
            return _TIME, _times
        message = _Message(_class_of(descriptor.message_type), holders, count)
        return message.type, message.array
    if descriptor.type == _ENUM:
        # If a number has several names the first counts, as when a message is written as JSON.
        names = {value.number: value.name for value in reversed(descriptor.enum_type.values)}
        return pa.string(), lambda numbers: pa.array(
            [None if number is None else names.get(number, str(number)) for number in numbers], pa.string()
        )
    kind = _PLAIN[descriptor.type]
    return kind, lambda values: pa.array(values, kind)


def _in_parts(values: Iterator[Any], make: Callable[[list[Any]], pa.Array]) -> pa.Array:
    """Make an array of the values of all lists, a part at a time.

    `protobuf` makes a Python object of each message that is read. The time for that grows with the number of
    living objects, so that a value with a million messages in it would take minutes.
    """
    parts = [make(list(islice(values, _PART)))]
    while len(parts[-1]) == _PART:
        parts.append(make(list(islice(values, _PART))))
    return pa.concat_arrays(parts)


_TIME: Final = pa.timestamp("us", "UTC")


def _times(messages: list[Any]) -> pa.Array:
    times = [None if each is None else each.seconds * 1_000_000 + each.nanos // 1000 for each in messages]
    return pa.array(times, _TIME)


def _offsets(lists: Sequence[Any]) -> pa.Array:
    ends = np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))
    return pa.array(np.concatenate([[0], ends]), pa.int32())


def _is_repeated(descriptor: Any) -> bool:
    # Older versions have only the label, and newer ones warn about it.
    if hasattr(descriptor, "is_repeated"):
        return bool(descriptor.is_repeated)
    return bool(descriptor.label == descriptor.LABEL_REPEATED)


def _class_of(descriptor: Any) -> Any:
    return import_optional("google.protobuf.message_factory", _LIBRARY, _EXTRA).GetMessageClass(descriptor)


def _file_set(schema: Schema) -> Any:
    library = import_optional("google.protobuf.descriptor_pb2", _LIBRARY, _EXTRA)
    try:
        found = library.FileDescriptorSet.FromString(schema.content)
    except Exception as error:
        raise InvalidOptionError(f"{schema.name} is not a FileDescriptorSet: {error}") from error
    if not found.file or not found.file[-1].message_type:
        raise InvalidOptionError(f"{schema.name} is a FileDescriptorSet whose last file has no message")
    return found


def _message_class(file_set: Any, message: str, name: str) -> Any:
    """Return the class of a message in a set of files."""
    pool = import_optional("google.protobuf.descriptor_pool", _LIBRARY, _EXTRA).DescriptorPool()
    try:
        for file in file_set.file:
            pool.AddSerializedFile(file.SerializeToString())
        known = {found for file in file_set.file for found in _messages_of(file)}
        if message in known:
            return _class_of(pool.FindMessageTypeByName(message))
    except Exception as error:
        raise InvalidOptionError(
            f"{name} cannot be used: {error}; a set of files is made with protoc --include_imports"
        ) from error
    raise InvalidOptionError(
        f"{name} has no message {message!r}: {did_you_mean(message, sorted(known), f'there are {sorted(known)}')}"
    )


def _messages_of(file: Any) -> list[str]:
    """Return the full names of the messages of a file, nested ones included."""
    waiting = [(f"{file.package}." if file.package else "", each) for each in file.message_type]
    names = []
    while waiting:
        prefix, message = waiting.pop()
        names.append(prefix + message.name)
        waiting += [(f"{prefix}{message.name}.", each) for each in message.nested_type]
    return names


def compile_schema(schema: Schema) -> Schema:
    """Compile a source and its imports.

    Raises
    ------
    InvalidOptionError
        `grpcio-tools` is not installed, or the source has an error.
    """
    if schema.is_compiled:
        return schema
    import_optional("grpc_tools.protoc", "grpcio-tools", _EXTRA)
    source = schema.name if schema.name.endswith(".proto") else _SOURCE
    with scratch_folder({**schema.others, source: schema.content}) as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--include_imports"]
        command += [f"--descriptor_set_out={_TARGET}", source]
        # In a process of its own: the compiler reports errors on the standard error only.
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise InvalidOptionError(f"{schema.name} cannot be compiled: {' '.join(ran.stderr.split())[:500]}")
        content = read_files(folder, "the compiled schema", _TARGET.__eq__)[_TARGET]
    return replace(schema, content=content, is_compiled=True, others={})
