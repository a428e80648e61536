"""Converts a JSON Schema to the Arrow type of its documents.

    JSON Schema                                     Arrow
    string                                          string
    string, format date-time                        timestamp, microseconds, UTC
    string, format date                             date32
    integer                                         int64
    number                                          double
    boolean                                         bool
    array with items                                list
    object with properties                          struct, a field for each property
    T with null, as a list of types, or as          T
      oneOf or anyOf of two
    enum of strings, const of a string              string
    $ref into the same schema, or into another of   the type there
      the same folder by its file's name or $id

Every field may be null: documents are read, not validated; ``required``, bounds and patterns are ignored.
Fields of a document beyond its schema's properties are left out. Other schemas are refused by the name of the property,
as are schemas that hold themselves.

Source: json-schema.org, drafts 4 to 2020-12.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.values.schemas import FieldCount

_PLAIN: Final = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_TEXTS: Final = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
_DEPTH_MAX: Final = 64


def parse_json_schema(text: bytes, name: str, others: Mapping[str, bytes] = MappingProxyType({})) -> pa.DataType:
    """Return the Arrow type of the documents of a JSON Schema.

    Parameters
    ----------
    text : bytes
        The schema.
    name : str
        The schema's name in errors.
    others : mapping of str to bytes
        The schemas that it may refer to, by the part of ``$ref`` before ``#``, or by any names and their own ``$id``.

    Raises
    ------
    InvalidOptionError
        It is not a JSON Schema, or has no Arrow type.
    """
    root = _parsed(text, name)
    return _Reader(root, name, _Others(others, FieldCount(name))).type(root, (), ())


def _parsed(text: bytes, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(f"{name} is not JSON: {error}") from error


class _Others:
    """The schemas that others refer to, and the total count of fields."""

    def __init__(self, texts: Mapping[str, bytes], fields: FieldCount) -> None:
        self._texts, self.fields = texts, fields
        self._by_id: dict[str, Any] | None = None

    def find(self, name: str) -> Any:
        """Return the schema with a name or ``$id``; None if there is none."""
        if name in self._texts:
            return _parsed(self._texts[name], name)
        if self._by_id is None:
            self._by_id = {}
            for each, text in self._texts.items():
                with suppress(InvalidOptionError):
                    parsed = _parsed(text, each)
                    if isinstance(parsed, dict) and isinstance(parsed.get("$id"), str):
                        self._by_id[parsed["$id"].rstrip("#")] = parsed
        return self._by_id.get(name)


class _Reader:
    """Reads the parts of one schema; a part is named by the properties that lead to it."""

    def __init__(self, root: Any, name: str, others: _Others) -> None:
        self._root, self._name, self._others = root, name, others

    def type(self, schema: Any, path: tuple[str, ...], references: tuple[str, ...]) -> pa.DataType:
        """Return the type of a part; ``references`` are the names that led to it."""
        self._others.fields.add()
        if not isinstance(schema, dict):
            raise self._error(path, "is not described by an object")
        if len(path) > _DEPTH_MAX:
            raise self._error(path, f"is nested more than {_DEPTH_MAX} deep")
        if "$ref" in schema:
            other, _, within = str(schema["$ref"]).partition("#")
            reader = self._of(other, path) if other else self
            reference = f"{reader._name}#{within}"
            if reference in references:
                raise self._error(path, f"holds itself, by {schema['$ref']!r}, and no column can")
            return reader.type(reader._found(within, path), path, (*references, reference))
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                return self.type(self._only_one(schema[choice], path, choice), (*path, choice), references)
        kind = self._kind(schema, path)
        if kind == "string":
            return _TEXTS.get(str(schema.get("format")), pa.string())
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind == "array" and isinstance(schema.get("items"), dict):
            return pa.list_(self.type(schema["items"], (*path, "items"), references))
        if kind == "object" and isinstance(schema.get("properties"), dict) and schema["properties"]:
            properties = schema["properties"].items()
            return pa.struct([(name, self.type(each, (*path, name), references)) for name, each in properties])
        lacks = {"array": "has no items of one kind", "object": "has no properties"}
        raise self._error(path, lacks.get(kind, f"is of the type {kind!r}"))

    def _kind(self, schema: dict[str, Any], path: tuple[str, ...]) -> str:
        """Return the only type of a part that is not null."""
        found = schema.get("type")
        kinds = [each for each in (found if isinstance(found, list) else [found]) if each not in ("null", None)]
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        if not kinds and values and all(isinstance(each, str | None) for each in values):
            return "string"
        if not kinds and "properties" in schema:
            return "object"
        if len(kinds) != 1:
            raise self._error(path, f"is of the types {', '.join(map(str, kinds))}" if kinds else "has no type")
        return str(kinds[0])

    def _only_one(self, choices: Any, path: tuple[str, ...], name: str) -> Any:
        if isinstance(choices, list):
            others = [each for each in choices if each != {"type": "null"}]
            if len(others) == 1:
                return others[0]
        raise self._error(path, f"is one of several in {name}")

    def _of(self, other: str, path: tuple[str, ...]) -> _Reader:
        root = self._others.find(other)
        if root is None:
            raise self._error(path, f"refers to another schema, {other!r}, which is not in the same folder")
        return _Reader(root, other, self._others)

    def _found(self, within: str, path: tuple[str, ...]) -> Any:
        found = self._root
        for part in re.findall("[^/]+", within):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise self._error(path, f"refers to {'#' + within!r}, which is not there")
            found = found[key]
        return found

    def _error(self, path: tuple[str, ...], reason: str) -> InvalidOptionError:
        where = f"the property {'.'.join(path)!r}" if path else "the document"
        return InvalidOptionError(
            f"{self._name} is a JSON Schema that cannot become columns: {where} {reason}; "
            "give the columns as text instead, such as 'id bigint, name string'"
        )
