"""Schemas that refer to others of the same folder, by answers of a registry and by files, in each of the kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError
from sparklog.values.decoder import make_decoder
from sparklog.values.references import whole_avro
from sparklog.values.spec import parse_decoder
from tests.values.test_avro import framed

TOWN = {"type": "record", "name": "Town", "namespace": "geo", "fields": [{"name": "zip", "type": "string"}]}
ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "geo",
    "fields": [{"name": "town", "type": "Town"}, {"name": "kind", "type": "Kind"}],
}
KIND = {"type": "enum", "name": "geo.Kind", "symbols": ["X", "Y"]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "sales",
    "fields": [{"name": "to", "type": "geo.Address"}, {"name": "from", "type": ["null", "geo.Address"]}],
}
ADDRESS_TYPE = pa.struct([("town", pa.struct([("zip", pa.string())])), ("kind", pa.string())])
ORDER_VALUE = b"\x02a\x00\x02\x02b\x02"
ORDER_ROW = {"to": {"town": {"zip": "a"}, "kind": "X"}, "from": {"town": {"zip": "b"}, "kind": "Y"}}


def write(folder: Path, files: dict[str, Any]) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder)


def answer(schema: Any, subject: str, schema_id: int, of: str = "AVRO", **references: str) -> dict[str, Any]:
    """Return what a registry answers; references are names by subject, of its version 3."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    of_others = [{"name": name, "subject": each, "version": 3} for each, name in references.items()]
    return {
        "subject": subject, "version": 3, "id": schema_id, "schemaType": of, "schema": text, "references": of_others
    }  # fmt: skip


AVRO_ANSWERS = [
    answer(TOWN, "town", 3),
    answer(KIND, "kind", 4),
    answer(ADDRESS, "address", 5, town="geo.Town", kind="geo.Kind"),
]


@pytest.mark.parametrize(
    "files",
    [
        {"9.avsc": ORDER, "geo.Address.avsc": ADDRESS, "deep/geo.Town.avsc": TOWN, "geo.Town.avsc": TOWN,
         "geo.Kind.avsc": KIND},
        {"9.json": answer(ORDER, "order", 9, address="geo.Address"), "others.json": AVRO_ANSWERS},
        {"9.json": answer(ORDER, "order", 9, address="geo.Address"), "5.json": AVRO_ANSWERS[2], "3.json":
         AVRO_ANSWERS[0], "registry/kind-3.json": AVRO_ANSWERS[1]},
    ],
    ids=["files", "a dump beside", "answers"],
)  # fmt: skip
def test_an_avro_schema_has_the_types_of_others(tmp_path: Path, files: dict[str, Any]) -> None:
    decoder = make_decoder(parse_decoder("avro", write(tmp_path, files), schema_id=9))
    assert decoder.type == pa.struct([("to", ADDRESS_TYPE), ("from", ADDRESS_TYPE)])
    decoded = decoder.decode(pa.array([framed(9, ORDER_VALUE)]))
    assert decoded.array.to_pylist() == [ORDER_ROW]


def test_a_name_is_that_of_its_own_space(tmp_path: Path) -> None:
    """A type without a namespace that is put into one with a namespace stays without."""
    plain = {"type": "record", "name": "Plain", "fields": [{"name": "n", "type": "int"}]}
    outer = {
        "type": "record",
        "name": "a.Outer",
        "fields": [
            {"name": "own", "type": {**plain, "fields": [{"name": "s", "type": "string"}]}},
            {"name": "again", "type": "Plain"},
            {"name": "other", "type": "b.Other"},
        ],
    }
    other = {"type": "record", "name": "b.Other", "fields": [{"name": "own", "type": "Plain"}]}
    known = {"b.Other": other, "b.Plain": {**plain, "name": "b.Plain"}}

    def find(name: str) -> bytes | None:
        return json.dumps(known[name]).encode() if name in known else None

    decoder = make_decoder(parse_decoder("avro", whole_avro(json.dumps(outer).encode(), find).decode(), wire="none"))
    text, number = pa.struct([("s", pa.string())]), pa.struct([("n", pa.int32())])
    assert decoder.type == pa.struct([("own", text), ("again", text), ("other", pa.struct([("own", number)]))])


@pytest.mark.parametrize(
    "files",
    [
        {"1.json": {"properties": {"to": {"$ref": "common/address.json#/definitions/address"}}},
         "common/address.json": {"definitions": {"address": {"properties": {"zip": {"$ref": "#/definitions/zip"}}},
                                                 "zip": {"type": "integer"}}}},
        {"1.json": {"properties": {"to": {"$ref": "http://acme/address"}}},
         "any.json": {"$id": "http://acme/address#", "properties": {"zip": {"type": "integer"}}}},
        {"1.json": answer({"properties": {"to": {"$ref": "a.json"}}}, "order", 1, "JSON", address="a.json"),
         "dump.json": [answer({"properties": {"zip": {"type": "integer"}}}, "address", 2, "JSON")]},
    ],
    ids=["file", "$id", "answers"],
)  # fmt: skip
def test_a_json_schema_has_the_parts_of_others(tmp_path: Path, files: dict[str, Any]) -> None:
    decoder = make_decoder(parse_decoder("json-schema", write(tmp_path, files), schema_id=1))
    assert decoder.type == pa.struct([("to", pa.struct([("zip", pa.int64())]))])


def test_json_schemas_that_hold_each_other_are_refused(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"1.json": {"properties": {"a": {"$ref": "b.json"}}}, "b.json": {"properties": {"c": {"$ref": "1.json"}}}},
    )
    with pytest.raises(InvalidOptionError, match=r"refers to another schema, '1.json', which is not in the same|holds"):
        parse_decoder("json-schema", str(tmp_path), schema_id=1)
    write(tmp_path, {"b.json": {"properties": {"c": {"$ref": "b.json"}}}})
    with pytest.raises(InvalidOptionError, match=r"holds itself, by 'b\.json'"):
        parse_decoder("json-schema", str(tmp_path), schema_id=1)


ORDER_PROTO = 'syntax = "proto3"; import "geo/address.proto"; message Order { geo.Address to = 1; }'
ADDRESS_PROTO = 'syntax = "proto3"; package geo; message Address { string zip = 1; }'


@pytest.mark.parametrize(
    "files",
    [
        {"1.proto": ORDER_PROTO, "geo/address.proto": ADDRESS_PROTO},
        {"1.json": answer(ORDER_PROTO, "order", 1, "PROTOBUF", address="geo/address.proto"),
         "dump.json": [answer(ADDRESS_PROTO, "address", 2, "PROTOBUF")]},
    ],
    ids=["files", "answers"],
)  # fmt: skip
def test_a_source_of_protobuf_imports_others(tmp_path: Path, files: dict[str, Any]) -> None:
    decoder = make_decoder(parse_decoder("protobuf", write(tmp_path, files), schema_id=1))
    assert decoder.type == pa.struct([("to", pa.struct([("zip", pa.string())]))])
    assert decoder.decode(pa.array([framed(1, b"\0\x0a\x03\x0a\x01z")])).array.to_pylist() == [{"to": {"zip": "z"}}]


@pytest.mark.parametrize("name", ["../out.proto", "/tmp/out.proto"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    files = {
        "1.json": answer(ORDER_PROTO, "order", 1, "PROTOBUF", address=name),
        "dump.json": [answer(ADDRESS_PROTO, "address", 2, "PROTOBUF")],
    }
    with pytest.raises(InvalidOptionError, match="is no name of a file in a folder"):
        parse_decoder("protobuf", write(tmp_path, files), schema_id=1)


def test_avro_schemas_that_refer_to_each_other_hold_themselves(tmp_path: Path) -> None:
    first, second = (
        {"type": "record", "name": name, "fields": [{"name": "o", "type": ["null", other]}]}
        for name, other in (("A", "B"), ("B", "A"))
    )
    write(tmp_path, {"1.avsc": first, "A.avsc": first, "B.avsc": second})
    with pytest.raises(InvalidOptionError, match="holds itself"):
        make_decoder(parse_decoder("avro", str(tmp_path), schema_id=1))
