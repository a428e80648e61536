"""Schemas from files: what their names say, dumps of a registry, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.values.decoder import make_decoder
from sparklog.values.schemas import AVRO, JSON, PROTOBUF, read_schemas
from sparklog.values.spec import parse_decoder

RECORD = '{"type": "record", "name": "R", "fields": []}'
OBJECT = '{"type": "object", "properties": {"a": {"type": "string"}}}'


def ids(path: Path, kind: str) -> list[int | None]:
    return [schema.schema_id for schema in read_schemas(str(path), kind, "schema")]


def test_files_of_a_folder_are_those_with_an_id_for_a_name(tmp_path: Path) -> None:
    for name in ("1.avsc", "20.json", "user.avsc", "3.proto", "4.desc", "x5.avsc", "6.avsc.bak"):
        (tmp_path / name).write_text(RECORD)
    assert ids(tmp_path, AVRO) == [1, 20]
    assert ids(tmp_path, JSON) == [20]


def test_sources_beside_are_there_to_be_imported(tmp_path: Path) -> None:
    (tmp_path / "3.proto").write_text("a")
    (tmp_path / "shared.proto").write_text("b")
    found = read_schemas(str(tmp_path), PROTOBUF, "schema")
    assert [(schema.schema_id, schema.is_compiled) for schema in found] == [(3, False)]
    assert found[0].others == {"shared.proto": b"b"}


def test_one_file_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "user.avsc").write_text(RECORD)
    (tmp_path / "7.avsc").write_text(RECORD)
    assert ids(tmp_path / "user.avsc", AVRO) == [None]
    assert ids(tmp_path / "7.avsc", AVRO) == [7]


def test_dump_of_a_registry_has_a_schema_once_for_each_id_and_kind(tmp_path: Path) -> None:
    dump = [
        {"subject": "a-value", "version": 1, "id": 1, "schema": RECORD},
        {"subject": "b-value", "version": 4, "id": 1, "schemaType": "AVRO", "schema": RECORD},
        {"subject": "c-value", "version": 1, "id": 2, "schemaType": "JSON", "schema": OBJECT},
        {"subject": "a-value", "version": 2, "id": 5, "schema": RECORD},
    ]
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    assert ids(tmp_path / "dump.json", AVRO) == [1, 5]
    (found,) = read_schemas(str(tmp_path / "dump.json"), JSON, "schema")
    assert (found.schema_id, found.content) == (2, OBJECT.encode())


def test_answer_of_a_registry_is_told_from_a_schema(tmp_path: Path) -> None:
    (tmp_path / "9.json").write_text(json.dumps({"schema": OBJECT, "schemaType": "JSON"}))
    (tmp_path / "8.json").write_text(OBJECT)
    found = read_schemas(str(tmp_path), JSON, "schema")
    assert {schema.schema_id: schema.content.decode() for schema in found} == {8: OBJECT, 9: OBJECT}


@pytest.mark.parametrize(
    ("files", "kind", "reason"),
    [
        ({"a.txt": ""}, AVRO, "where no file has a name that is read, such as 'a.txt'"),
        ({"1.avsc": RECORD, "01.avsc": RECORD}, AVRO, "has two schemas with the id 1"),
        ({"1.avsc": "{"}, AVRO, "1.avsc is not JSON"),
        ({"1.avsc": "[" * 100_000}, AVRO, "1.avsc is not JSON"),
        ({"9999999999.avsc": RECORD}, AVRO, "has the id 9999999999, and ids are 0 to 2147483647"),
        (
            {"1.json": json.dumps({"schema": "x", "schemaType": "JSON"})},
            AVRO,
            "is a schema of the type JSON, not of avro",
        ),
        ({"1.json": json.dumps({"schema": "x", "references": [{}]})}, AVRO, "a reference has no name, subject and"),
        (
            {"1.json": json.dumps({"schema": "x", "references": [{"name": "a.B", "subject": "b", "version": 2}]})},
            AVRO,
            "schema 1 of 1.json refers to a.B, version 2 of the subject b, which is not there: save",
        ),
        ({"x.json": json.dumps({"schema": "x"})}, AVRO, "a schema in x.json has no id"),
        ({"1.json": json.dumps([{"id": 1, "schema": "x", "schemaType": "JSON"}])}, AVRO, "has no schema of avro"),
        ({"1.json": OBJECT}, PROTOBUF, "1.json is not an answer of a schema registry"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, files: dict[str, str], kind: str, reason: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    path = tmp_path / next(iter(files)) if next(iter(files)) == "x.json" else tmp_path
    with pytest.raises(InvalidOptionError, match="schema.*" + reason):
        read_schemas(str(path), kind, "schema")


def test_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match=r"the schema is .*/none, and no file is there"):
        read_schemas(str(tmp_path / "none"), AVRO, "the schema")


def doubling(kind: str, levels: int) -> str:
    """Return a schema of few lines that comes to 2^levels fields."""
    if kind == "avro":
        made: dict[str, object] = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
        for n in range(1, levels + 1):
            fields = [{"name": "a", "type": made}, {"name": "b", "type": f"R{n - 1}"}]
            made = {"type": "record", "name": f"R{n}", "fields": fields}
        return json.dumps(made)
    if kind == "protobuf":
        messages = [f"message R{n} {{ R{n - 1} a = 1; R{n - 1} b = 2; }}" for n in range(levels, 0, -1)]
        return "\n".join(['syntax = "proto3";', *messages, "message R0 { int32 x = 1; }"])
    parts: dict[str, object] = {"R0": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    for n in range(1, levels + 1):
        within = {"$ref": f"#/definitions/R{n - 1}"}
        parts[f"R{n}"] = {"type": "object", "properties": {"a": within, "b": within}}
    return json.dumps({"$ref": f"#/definitions/R{levels}", "definitions": parts})


@pytest.mark.parametrize(("kind", "name"), [("avro", "a.avsc"), ("protobuf", "a.proto"), ("json-schema", "a.json")])
def test_schema_of_few_lines_that_comes_to_too_many_fields_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_text(doubling(kind, 8))
    assert make_decoder(parse_decoder(kind, str(tmp_path / name), wire="none")).type.num_fields == 2
    (tmp_path / name).write_text(doubling(kind, 60))
    with pytest.raises(InvalidOptionError, match=rf"{name} has more than 10000 fields, nested ones included"):
        make_decoder(parse_decoder(kind, str(tmp_path / name), wire="none"))
