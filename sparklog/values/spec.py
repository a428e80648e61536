"""Describes the decoder that a user asks for: checked at once, small, and sent to the tasks as it is.

    format               schema                                          wire
    raw                  none                                            none
    string               none                                            none
    json                 columns, or a JSON Schema                       none (default), confluent
    json-schema          columns, or JSON Schemas                        confluent (default), none
    avro                 Avro schemas                                    confluent (default), none
    protobuf             sources or compiled schemas                     confluent (default), none
    package.module:f     none                                            none

``schema`` is the text of a schema, or the path of a file or of a folder of files named by id (`sparklog.values.schemas`
defines the names). Text that begins with ``{``, ``[`` or a quote is a schema, and so are columns such as ``id bigint,
name string`` (`sparklog.values.columns`); all other text is a path. Begin a relative path with a blank in it with
``./``.

``wire`` is ``confluent`` if values have Confluent's prefix, which names their schema by id (`sparklog.values.framing`).
With it Avro and protobuf need schemas with ids. JSON ignores the id: all documents are read by one schema.

One schema, the reader's, defines the columns: the one with the highest id, or with ``schema_id``; for
protobuf, its first message, or the one named by ``message``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.values.columns import is_columns, parse_columns
from sparklog.values.json_schema import parse_json_schema
from sparklog.values.protobuf import compile_schema
from sparklog.values.schemas import AVRO, JSON, PROTOBUF, Schema, read_schemas

RAW: Final = "raw"
STRING: Final = "string"
CALLABLE: Final = "module:function"
NO_WIRE: Final = "none"
CONFLUENT: Final = "confluent"

# By format: whether a prefix is expected by default, and the kind of its schemas.
_WITH_SCHEMAS: Final = MappingProxyType(
    {
        JSON: (NO_WIRE, JSON),
        "json-schema": (CONFLUENT, JSON),
        AVRO: (CONFLUENT, AVRO),
        PROTOBUF: (CONFLUENT, PROTOBUF),
    }
)
_FORMATS: Final = (RAW, STRING, *_WITH_SCHEMAS)
_WIRES: Final = (CONFLUENT, NO_WIRE)
_HOW: Final = MappingProxyType(
    {
        JSON: "a JSON Schema, columns such as 'id bigint, name string', or a path",
        AVRO: "an Avro schema or a path",
        PROTOBUF: "the path of a .proto or .desc file, or of a folder with them",
    }
)


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Specifies a decoder completely, so that it can be made anywhere.

    Attributes
    ----------
    kind : str
        ``raw``, ``string``, ``json``, ``avro``, ``protobuf`` or ``module:function``.
    function : str
        The user's own ``package.module:function``.
    columns : pyarrow.DataType, optional
        The type of JSON documents.
    schemas : tuple of Schema
        The schemas of Avro and protobuf, by ascending id.
    reader_id : int or None
        The id of the reader's schema; None if it has none.
    message : str
        The full name of a protobuf message, or empty.
    has_prefix : bool
        Whether values have Confluent's prefix.
    """

    kind: str
    function: str = ""
    columns: pa.DataType | None = None
    schemas: tuple[Schema, ...] = ()
    reader_id: int | None = None
    message: str = ""
    has_prefix: bool = False


def parse_decoder(
    format: str,  # noqa: A002 - it is what users call it
    schema: str = "",
    *,
    wire: str = "",
    schema_id: int | None = None,
    message: str = "",
    argument: str = "format",
) -> DecoderSpec:
    """Return the decoder that a user asks for. The top of the module explains the parameters.

    Parameters
    ----------
    format : str
        ``raw``, ``string``, ``json``, ``json-schema``, ``avro``, ``protobuf`` or ``package.module:function``.
    schema : str
        The text or the path of a schema, or empty.
    wire : str
        ``confluent`` or ``none``; empty for the format's default.
    schema_id : int, optional
        The id of the reader's schema; by default the highest.
    message : str
        The full name of a protobuf message; empty for the first of the reader's schema.
    argument : str
        The name of the option or argument that gave the format, for errors.

    Raises
    ------
    InvalidOptionError
        There is no such format, or it does not take one of the other arguments.
    PathNotFoundError
        The schema is a path, and nothing is there.
    """
    if format not in _WITH_SCHEMAS:
        given = {"schema": schema, "wire": wire, "schema id": schema_id, "message": message}
        spec = _plain_spec(format, argument)
        _refuse_given(given, format, argument)
        return spec
    default_wire, kind = _WITH_SCHEMAS[format]
    if not schema.strip():
        instead = ", or use the format string for its text" if kind == JSON else ""
        raise InvalidOptionError(f"{argument} {format} needs a schema: give {_HOW[kind]}{instead}")
    if wire and wire not in _WIRES:
        raise InvalidOptionError(
            f"no wire {wire!r} of {argument} {format}: {did_you_mean(wire, _WIRES, 'there are confluent and none')}"
        )
    has_prefix = (wire or default_wire) == CONFLUENT
    if kind != PROTOBUF:
        _refuse_given({"message": message}, format, argument)
    if kind == JSON and is_columns(schema):
        _refuse_given({"schema id": schema_id}, format, argument)
        return DecoderSpec(JSON, columns=parse_columns(schema, f"the schema of {argument}"), has_prefix=has_prefix)
    schemas = _schemas(schema, kind, argument)
    reader = _reader(schemas, schema_id, argument, is_single=not has_prefix)
    if kind == JSON:
        return DecoderSpec(
            JSON, columns=parse_json_schema(reader.content, reader.name, reader.others), has_prefix=has_prefix
        )
    if has_prefix and reader.schema_id is None:
        raise InvalidOptionError(
            f"the schema of {argument} {format} has no id, and values with Confluent's prefix name theirs: "
            "name its file <id>, or say the wire none where values have no prefix"
        )
    kept = schemas if has_prefix else (reader,)
    return DecoderSpec(kind, schemas=kept, reader_id=reader.schema_id, message=message, has_prefix=has_prefix)


def _plain_spec(format: str, argument: str) -> DecoderSpec:  # noqa: A002
    if format in _FORMATS:
        return DecoderSpec(format)
    module, colon, function = format.partition(":")
    if not colon or not module or not function:
        hint = did_you_mean(format.lower(), _FORMATS, f"there are {', '.join(_FORMATS)} and package.module:function")
        raise InvalidOptionError(f"no {argument} {format!r}: {hint}")
    return DecoderSpec(CALLABLE, function=format)


def _refuse_given(given: Mapping[str, object], format: str, argument: str) -> None:  # noqa: A002
    for name, value in given.items():
        if value not in ("", None):
            raise InvalidOptionError(f"{argument} {format} takes no {name}, and {value!r} is given")


def _schemas(schema: str, kind: str, argument: str) -> tuple[Schema, ...]:
    """Return the schemas of a text or a path, by ascending id."""
    if schema.lstrip()[0] in '{["' and kind != PROTOBUF:
        return (Schema(f"the schema of {argument}", schema.encode()),)
    schemas = read_schemas(schema, kind, f"the schema of {argument}")
    if kind == PROTOBUF:
        schemas = tuple(map(compile_schema, schemas))
    return tuple(sorted(schemas, key=lambda each: -1 if each.schema_id is None else each.schema_id))


def _reader(schemas: tuple[Schema, ...], schema_id: int | None, argument: str, *, is_single: bool) -> Schema:
    """Choose the schema that defines the columns."""
    if schema_id is None:
        if is_single and len(schemas) > 1:
            ids = ", ".join(str(each.schema_id) for each in schemas)
            raise InvalidOptionError(f"{argument} without a prefix needs one schema: say which of the ids {ids} it is")
        return schemas[-1]
    for schema in schemas:
        if schema.schema_id == schema_id:
            return schema
    ids = ", ".join(str(each.schema_id) for each in schemas)
    raise InvalidOptionError(f"{argument} has no schema with the id {schema_id}, but {ids}")
