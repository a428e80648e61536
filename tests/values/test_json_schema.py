"""JSON Schemas become types, or are refused by the name of the property."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError
from sparklog.values.json_schema import parse_json_schema


def test_type_of_every_part_of_the_table() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": ["null", "string"], "format": "date"},
            "mail": {"type": "string", "format": "email"},
            "ok": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "home": {"$ref": "#/definitions/place"},
            "work": {"anyOf": [{"$ref": "#/definitions/place"}, {"type": "null"}]},
            "color": {"enum": ["red", "green", None]},
            "kind": {"const": "order"},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    place = pa.struct([("x", pa.float64())])
    assert parse_json_schema(json.dumps(schema).encode(), "schema") == pa.struct(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("mail", pa.string()),
            ("ok", pa.bool_()),
            ("tags", pa.list_(pa.string())),
            ("home", place),
            ("work", place),
            ("color", pa.string()),
            ("kind", pa.string()),
        ]
    )


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({}, "the property 'a' has no type"),
        (True, "the property 'a' is not described by an object"),
        ({"type": ["string", "integer"]}, "the property 'a' is of the types string, integer"),
        ({"type": "object"}, "the property 'a' has no properties"),
        ({"type": "array"}, "the property 'a' has no items of one kind"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "the property 'a' is one of several in oneOf"),
        ({"$ref": "other.json"}, "refers to another schema, 'other.json'"),
        ({"$ref": "#/none"}, "refers to '#/none', which is not there"),
        ({"$ref": "#"}, "holds itself, by '#'"),
        ({"type": "array", "items": {"type": "nul"}}, "the property 'a.items' is of the type 'nul'"),
    ],
)
def test_part_that_no_column_stands_for_is_refused_by_name(part: Any, reason: str) -> None:
    schema = {"type": "object", "properties": {"a": part}}
    with pytest.raises(InvalidOptionError, match=f"mine is a JSON Schema that cannot become columns: .*{reason}"):
        parse_json_schema(json.dumps(schema).encode(), "mine")


def test_schema_nested_without_end_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="nested more than 64 deep"):
        parse_json_schema(b'{"type":"array","items":' * 200 + b'{"type":"string"}' + b"}" * 200, "schema")
    with pytest.raises(InvalidOptionError, match="is not JSON"):
        parse_json_schema(b'{"items":' * 100_000, "schema")
    with pytest.raises(InvalidOptionError, match="is not JSON"):
        parse_json_schema(b"{", "schema")
