"""What a user asks for: taken as it is meant, or refused with what to say instead."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError
from sparklog.values.decoder import make_decoder
from sparklog.values.spec import parse_decoder

RECORD = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
OBJECT = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


@pytest.mark.parametrize(
    ("format_name", "schema", "options", "kind"),
    [
        ("raw", "", {}, pa.binary()),
        ("string", "", {}, pa.string()),
        ("json", "id bigint", {}, pa.struct([("id", pa.int64())])),
        ("json", OBJECT, {"wire": "confluent"}, pa.struct([("id", pa.int64())])),
        ("json-schema", OBJECT, {}, pa.struct([("id", pa.int64())])),
        ("avro", RECORD, {"wire": "none"}, pa.struct([("id", pa.int32())])),
        ("avro", '"long"', {"wire": "none"}, pa.int64()),
        ("tests.values.decoders:lengths", "", {}, pa.int32()),
    ],
)
def test_decoder_is_made_from_what_was_pickled(
    format_name: str, schema: str, options: dict[str, Any], kind: pa.DataType
) -> None:
    spec = parse_decoder(format_name, schema, **options)
    again = pickle.loads(pickle.dumps(spec))
    assert again == spec
    assert hash(again) == hash(spec)
    decoder = make_decoder(again)
    assert decoder.type == kind
    nothing = decoder.decode(pa.array([], pa.binary()))
    nulls = decoder.decode(pa.array([None, None], pa.large_binary()))
    assert (nothing.array.type, len(nothing.array), len(nothing.failures)) == (kind, 0, 0)
    assert (nulls.array.type, nulls.array.null_count, len(nulls.failures)) == (kind, 2, 0)


@pytest.mark.parametrize(
    ("format_name", "schema", "options", "reason"),
    [
        ("jsn", "", {}, "no valueFormat 'jsn': did you mean 'json'?"),
        ("AVRO", "x", {}, "no valueFormat 'AVRO': did you mean 'avro'?"),
        ("zzzz", "", {}, "there are raw, string, json, json-schema, avro, protobuf and package.module:function"),
        (":f", "", {}, "no valueFormat ':f'"),
        ("raw", "id int", {}, "valueFormat raw takes no schema, and 'id int' is given"),
        ("string", "", {"wire": "none"}, "valueFormat string takes no wire"),
        ("a.b:c", "", {"message": "M"}, "takes no message"),
        (
            "json",
            " ",
            {},
            "needs a schema: give a JSON Schema, columns such as 'id bigint, name string', or a path, or use",
        ),
        ("avro", "", {}, "valueFormat avro needs a schema: give an Avro schema or a path$"),
        ("json", "id int", {"schema_id": 3}, "takes no schema id, and 3 is given"),
        ("avro", RECORD, {"wire": "confluant"}, "no wire 'confluant' of valueFormat avro: did you mean 'confluent'?"),
        ("avro", RECORD, {"message": "M"}, "valueFormat avro takes no message"),
        ("avro", RECORD, {}, "has no id, and values with Confluent's prefix name theirs"),
        ("avro", RECORD, {"wire": "none", "schema_id": 1}, "valueFormat has no schema with the id 1"),
    ],
)
def test_wrong_request_is_refused_before_a_byte_is_read(
    format_name: str, schema: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidOptionError, match=reason.replace("?", r"\?")):
        parse_decoder(format_name, schema, argument="valueFormat", **options)


def test_importing_the_decoders_imports_no_optional_library() -> None:
    libraries = {"fastavro", "google.protobuf", "grpc_tools"}
    code = f"import sys, sparklog.values.decoder; print(*({libraries} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == ""


def test_several_schemas_without_a_prefix_need_a_choice(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(RECORD)
    (tmp_path / "2.avsc").write_text(RECORD.replace("int", "long"))
    with pytest.raises(InvalidOptionError, match="needs one schema: say which of the ids 1, 2 it is"):
        parse_decoder("avro", str(tmp_path), wire="none")
    spec = parse_decoder("avro", str(tmp_path), wire="none", schema_id=1)
    assert make_decoder(spec).decode(pa.array([b"\x02"])).array.to_pylist() == [{"id": 1}]


def test_highest_id_says_the_columns_of_json(tmp_path: Path) -> None:
    (tmp_path / "9.json").write_text(OBJECT)
    (tmp_path / "10.json").write_text(OBJECT.replace("id", "name").replace("integer", "string"))
    newest, named = (
        parse_decoder("json-schema", str(tmp_path)),
        parse_decoder("json-schema", str(tmp_path), schema_id=9),
    )
    assert make_decoder(newest).type == pa.struct([("name", pa.string())])
    assert make_decoder(named).type == pa.struct([("id", pa.int64())])
