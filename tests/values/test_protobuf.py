"""Protobuf values: the library's own encoder is the truth, and any bytes are rows or failures."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.values.decoder import ValueDecoder, make_decoder
from sparklog.values.spec import parse_decoder
from tests.values.test_framing import zigzag

SHARED = 'syntax = "proto3"; package shop; message Place { double x = 1; Unit unit = 2; } enum Unit { M = 0; KM = 1; }'
SOURCE = """
syntax = "proto3";
package shop;
import "shared.proto";
import "google/protobuf/timestamp.proto";
message User {
  int32 i32 = 1; sint64 i64 = 2; uint32 u32 = 3; fixed64 u64 = 4; bool ok = 5; float f = 6; double d = 7;
  string name = 8; bytes raw = 9; optional int32 maybe = 10;
  repeated int64 numbers = 11; repeated Place places = 12; map<string, Place> by_name = 13;
  Place home = 14; Unit unit = 15; google.protobuf.Timestamp at = 16;
  oneof choice { string left = 17; int32 right = 18; }
  message Nested { string from = 1; }
  Nested nested = 19;
}
message Other { int32 id = 1; message Inner { message Innermost { int32 id = 1; } } }
message Loop { Loop next = 1; }
message Empty {}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one schema, and what it imports."""
    path = tmp_path_factory.mktemp("schemas")
    (path / "shared.proto").write_text(SHARED)
    (path / "7.proto").write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def decoder(folder: Path) -> ValueDecoder:
    return make_decoder(parse_decoder("protobuf", str(folder), wire="none"))


@pytest.fixture(scope="module")
def classes(folder: Path) -> Any:
    return classes_of(folder, "7.proto")


def compiled(folder: Path, *names: str) -> bytes:
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I.",
        "--include_imports",
        "--descriptor_set_out=set.out",
        *names,
    ]
    subprocess.run(command, cwd=folder, check=True)
    content = (folder / "set.out").read_bytes()
    (folder / "set.out").unlink()
    return content


def classes_of(folder: Path, *names: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled(folder, *names)).file:
        pool.AddSerializedFile(file.SerializeToString())
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_every_kind_of_field_is_typed_and_decoded(decoder: ValueDecoder, classes: Any) -> None:
    user = classes("shop.User")(
        i32=-1, i64=-(2**63), u32=2**32 - 1, u64=2**64 - 1, ok=True, f=1.5, d=2.5, name="é", raw=b"\xff", maybe=0,
        numbers=[1, 2], right=3, unit=1, nested={"from": "here"},
    )  # fmt: skip
    user.places.add(x=1)
    user.by_name["a"].x = 7
    user.home.x = 3
    user.at.seconds, user.at.nanos = 1_700_000_000, 123_456_789
    place = {"x": 1.0, "unit": "M"}
    decoded = decoder.decode(pa.array([user.SerializeToString(), b"", None]))
    first, empty, null = decoded.array.to_pylist()
    assert len(decoded.failures) == 0
    assert first == {
        "i32": -1, "i64": -(2**63), "u32": 2**32 - 1, "u64": Decimal(2**64 - 1), "ok": True, "f": 1.5, "d": 2.5,
        "name": "é", "raw": b"\xff", "maybe": 0, "numbers": [1, 2], "places": [place],
        "by_name": [("a", {"x": 7.0, "unit": "M"})], "home": {"x": 3.0, "unit": "M"}, "unit": "KM",
        "at": datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC), "left": None, "right": 3,
        "nested": {"from": "here"},
    }  # fmt: skip
    absent = {"maybe", "home", "at", "left", "right", "nested"}
    assert {name for name, value in empty.items() if value is None} == absent
    assert (empty["i32"], empty["name"], empty["numbers"], empty["by_name"], empty["unit"]) == (0, "", [], [], "M")
    assert null is None
    assert decoder.type == decoded.array.type


def test_number_of_an_enum_without_a_name_is_the_number(decoder: ValueDecoder, classes: Any) -> None:
    user = classes("shop.User")(unit=99)
    assert decoder.decode(pa.array([user.SerializeToString()])).array.field("unit").to_pylist() == ["99"]


@settings(max_examples=300)
@given(data=st.data())
def test_any_bytes_are_rows_or_failures_whatever_their_neighbours(
    decoder: ValueDecoder, classes: Any, data: st.DataObject
) -> None:
    kind = classes("shop.User")
    users = st.builds(
        lambda **fields: kind(**fields).SerializeToString(),
        i64=st.integers(-(2**63), 2**63 - 1),
        name=st.text(max_size=4),
        numbers=st.lists(st.integers(-5, 5)),
        at=st.fixed_dictionaries({"seconds": st.integers(-(2**63), 2**63 - 1)}),
    )
    values = data.draw(st.lists(st.binary(max_size=30) | users, max_size=4))
    values += [value[: data.draw(st.integers(0, len(value)))] for value in values]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.array.validate(full=True)
    reasons = decoded.failures.by_row()
    for row, value in enumerate(values):
        lone = decoder.decode(pa.array([value]))
        assert str(lone.array) == str(decoded.array[row : row + 1])
        assert (row in reasons) == (len(lone.failures) == 1) == decoded.array[row : row + 1].is_null()[0].as_py()
        try:
            kind.FromString(value)
        except Exception:
            assert row in reasons


def test_time_beyond_all_microseconds_fails_alone(decoder: ValueDecoder, classes: Any) -> None:
    kind = classes("shop.User")
    wrong, good = kind(at={"seconds": 2**62}), kind(i32=1)
    decoded = decoder.decode(pa.array([wrong.SerializeToString(), good.SerializeToString()]))
    assert decoded.failures.rows.tolist() == [0]
    assert decoded.array.field("i32").to_pylist()[1] == 1


def test_prefix_says_which_message_of_which_schema(folder: Path, classes: Any) -> None:
    framed = make_decoder(parse_decoder("protobuf", str(folder)))
    user = classes("shop.User")(i32=5).SerializeToString()
    head = b"\0\0\0\0\7"
    values = [
        head + b"\0" + user,
        head + zigzag(1) + zigzag(0) + user,
        head + zigzag(1) + zigzag(1) + b"",
        head + zigzag(3) + zigzag(1) + zigzag(0) + zigzag(0),
        head + zigzag(1) + zigzag(50),
        head,
        b"\0\0\0\0\x08\0" + user,
        user,
    ]
    decoded = framed.decode(pa.array(values))
    reasons = decoded.failures.by_row()
    assert decoded.array.field("i32").to_pylist()[:2] == [5, 5]
    assert sorted(reasons) == [2, 3, 4, 5, 6, 7]
    assert reasons[2] == "the message is shop.Other, and not shop.User"
    assert reasons[3] == "the message is shop.Other.Inner.Innermost, and not shop.User"
    assert reasons[4] == "the schema 7 has no message with the index [50]"
    assert reasons[6] == "there is no schema with the id 8"
    inner = parse_decoder("protobuf", str(folder), message="shop.Other.Inner.Innermost")
    assert make_decoder(inner).decode(pa.array(values[3:4])).array.to_pylist() == [{"id": 0}]


def test_newer_schemas_read_what_older_ones_wrote(tmp_path: Path) -> None:
    (tmp_path / "1.proto").write_text('syntax = "proto3"; message A { int32 id = 1; string gone = 2; }')
    (tmp_path / "2.proto").write_text('syntax = "proto3"; message Z {} message A { int64 id = 1; string name = 3; }')
    decoder = make_decoder(parse_decoder("protobuf", str(tmp_path), message="A"))
    old = classes_of(tmp_path, "1.proto")("A")(id=1, gone="x").SerializeToString()
    new = classes_of(tmp_path, "2.proto")("A")(id=2**40, name="n").SerializeToString()
    decoded = decoder.decode(pa.array([b"\0\0\0\0\1\0" + old, b"\0\0\0\0\2" + zigzag(1) + zigzag(1) + new]))
    assert decoded.array.to_pylist() == [{"id": 1, "name": ""}, {"id": 2**40, "name": "n"}]


def test_compiled_schema_and_a_registry_s_answer_are_as_good_as_the_source(folder: Path, tmp_path: Path) -> None:
    wanted = make_decoder(parse_decoder("protobuf", str(folder))).type
    (tmp_path / "7.desc").write_bytes(compiled(folder, "7.proto"))
    assert make_decoder(parse_decoder("protobuf", str(tmp_path))).type == wanted
    answer = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message A { int32 id = 1; }'}
    (tmp_path / "8.json").write_text(json.dumps(answer))
    spec = parse_decoder("protobuf", str(tmp_path))
    assert spec.reader_id == 8
    assert make_decoder(spec).type == pa.struct([("id", pa.int32())])


def test_spec_has_all_that_is_needed_and_needs_no_compiler_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(parse_decoder("protobuf", str(folder)))
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    assert pa.types.is_struct(make_decoder(pickle.loads(pickled)).type)
    assert len(pickled) < 10_000


def test_groups_and_required_fields_of_proto2(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text(
        'syntax = "proto2"; message A { required int32 id = 1; optional string s = 2 [default = "d"]; '
        "repeated group G = 3 { optional int32 x = 4; } }"
    )
    decoder = make_decoder(parse_decoder("protobuf", str(tmp_path / "a.proto"), wire="none"))
    message = classes_of(tmp_path, "a.proto")("A")(id=1)
    message.g.add(x=2)
    decoded = decoder.decode(pa.array([message.SerializeToString(), b"\x12\x01\xff"]))
    assert decoded.array[0].as_py() == {"id": 1, "s": None, "g": [{"x": 2}]}


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 4096, 100_000])
def test_many_messages_in_one_value_keep_their_order(decoder: ValueDecoder, classes: Any, count: int) -> None:
    user = classes("shop.User")(places=[{"x": row} for row in range(count)], numbers=range(count))
    rows = decoder.decode(pa.array([b"", user.SerializeToString(), b""])).array
    assert rows.field("numbers").to_pylist() == [[], list(range(count)), []]
    assert [place["x"] for place in rows.field("places")[1].as_py()] == list(range(count))


def test_deep_nesting_in_unknown_fields_fails_or_is_skipped(decoder: ValueDecoder) -> None:
    group = b"\xfb\x07" * 100_000 + b"\xfc\x07" * 100_000
    decoded = decoder.decode(pa.array([group, b"\xfb\x07" * 1000, b""]))
    assert decoded.failures.rows.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("shop.Loop", "the message shop.Loop holds itself, and no column can"),
        ("shop.Usr", "has no message 'shop.Usr': did you mean 'shop.User'"),
    ],
)
def test_message_that_cannot_be_columns_is_refused(folder: Path, message: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        make_decoder(parse_decoder("protobuf", str(folder), message=message))


def test_message_without_fields_is_a_struct_without_fields(folder: Path) -> None:
    decoder = make_decoder(parse_decoder("protobuf", str(folder), message="shop.Empty", wire="none"))
    assert decoder.decode(pa.array([b"", None, b"\xff"])).array.to_pylist() == [{}, None, None]


def test_source_with_an_error_is_refused_with_what_the_compiler_says(tmp_path: Path) -> None:
    (tmp_path / "7.proto").write_text('syntax = "proto3"; message A { int33 id = 1; }')
    with pytest.raises(InvalidOptionError, match=r'7\.proto cannot be compiled: .*"int33" is not defined'):
        parse_decoder("protobuf", str(tmp_path))


def test_set_without_its_imports_is_refused(folder: Path, tmp_path: Path) -> None:
    whole = descriptor_pb2.FileDescriptorSet.FromString(compiled(folder, "7.proto"))
    del whole.file[:-1]
    (tmp_path / "7.desc").write_bytes(whole.SerializeToString())
    with pytest.raises(InvalidOptionError, match="a set of files is made with protoc --include_imports"):
        make_decoder(parse_decoder("protobuf", str(tmp_path)))
    for content in (b"", b"\xff\xff"):
        (tmp_path / "7.desc").write_bytes(content)
        with pytest.raises(InvalidOptionError, match=r"7\.desc is "):
            make_decoder(parse_decoder("protobuf", str(tmp_path)))


@pytest.mark.parametrize(
    ("missing", "package"), [("grpc_tools.protoc", "grpcio-tools"), ("google.protobuf.descriptor_pb2", "protobuf")]
)
def test_missing_library_is_an_error_that_says_how_to_install_it(
    folder: Path, missing: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidOptionError, match=rf'needs the package {package}: pip install "sparklog\[protobuf\]"'):
        make_decoder(parse_decoder("protobuf", str(folder)))


NAMES = """
syntax = "proto3";
enum Kind { option allow_alias = true; NONE = 0; FIRST = 1; SECOND = 1; OTHER = 2; THIRD = 1; NO = 0; }
message M {
  Kind kind = 1; optional string HasField = 2; optional int32 x = 3; optional In inner = 4; repeated Kind kinds = 5;
  optional string FromString = 6; optional string DESCRIPTOR = 7; optional int32 class = 8; optional int32 keys = 9;
}
message In { string HasField = 1; optional int32 y = 2; }
"""


def test_first_name_of_a_number_counts_and_fields_may_be_called_as_methods_are(tmp_path: Path) -> None:
    (tmp_path / "m.proto").write_text(NAMES)
    decoder = make_decoder(parse_decoder("protobuf", str(tmp_path), wire="none"))
    fields = {"HasField": "h", "x": 0, "FromString": "f", "DESCRIPTOR": "d", "class": 3, "keys": 4}
    message = classes_of(tmp_path, "m.proto")("M")(kind=1, kinds=[0, 1, 2, 7], inner={"HasField": "i"}, **fields)
    array, failures = decoder.decode(pa.array([message.SerializeToString(), b""]))
    assert failures.reasons == []
    assert array.to_pylist() == [
        {**fields, "kind": "FIRST", "kinds": ["NONE", "FIRST", "OTHER", "7"], "inner": {"HasField": "i", "y": None}},
        {**dict.fromkeys([*fields, "inner"]), "kind": "NONE", "kinds": []},
    ]
