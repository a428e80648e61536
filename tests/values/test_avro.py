"""Avro values: `fastavro`'s own encoder is the truth, and any bytes are rows or failures."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.values.decoder import ValueDecoder, make_decoder
from sparklog.values.spec import parse_decoder

USER: dict[str, Any] = {
    "type": "record",
    "name": "shop.User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "scores", "type": {"type": "array", "items": "double"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "old", "type": ["Hash", "null"]},
        {"name": "home", "type": {"type": "record", "name": "Home", "fields": [{"name": "x", "type": "float"}]}},
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
    ],
}
USERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(max_size=5),
        "scores": st.lists(st.floats(allow_nan=False), max_size=3),
        "tags": st.dictionaries(st.text(max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=3),
        "color": st.sampled_from(["RED", "GREEN"]),
        "hash": st.binary(min_size=4, max_size=4),
        "old": st.none() | st.binary(min_size=4, max_size=4),
        "home": st.fixed_dictionaries({"x": st.floats(width=32, allow_nan=False)}),
        "ok": st.booleans(),
        "raw": st.binary(max_size=5),
    }
)


def encode(schema: Any, datum: Any) -> bytes:
    file = BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), datum)
    return file.getvalue()


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def alone(schema: Any) -> ValueDecoder:
    """Return the decoder of values without a prefix."""
    return make_decoder(parse_decoder("avro", json.dumps(schema), wire="none"))


@given(st.lists(st.none() | USERS, max_size=5))
def test_what_the_library_encodes_is_decoded(users: list[dict[str, Any] | None]) -> None:
    values = [None if user is None else encode(USER, user) for user in users]
    decoded = alone(USER).decode(pa.array(values, pa.binary()))
    assert len(decoded.failures) == 0
    rows = decoded.array.to_pylist()
    assert [None if row is None else {**row, "tags": dict(row["tags"])} for row in rows] == users


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60) | USERS.map(lambda user: encode(USER, user)), max_size=5), st.data())
def test_any_bytes_are_rows_or_failures_whatever_their_neighbours(values: list[bytes], data: st.DataObject) -> None:
    cut = [value[: data.draw(st.integers(0, len(value)))] for value in values]
    decoder = alone(USER)
    decoded = decoder.decode(pa.array(values + cut, pa.binary()))
    decoded.array.validate(full=True)
    assert len(decoded.array) == len(values + cut)
    reasons = decoded.failures.by_row()
    for row, value in enumerate(values + cut):
        lone = decoder.decode(pa.array([value]))
        # Arrow takes no NaN for another.
        assert repr(lone.array.to_pylist()) == repr(decoded.array[row : row + 1].to_pylist())
        assert (row in reasons) == (len(lone.failures) == 1)
        assert (row in reasons) == decoded.array[row : row + 1].is_null()[0].as_py()


def test_every_truncation_and_every_byte_too_many_fails() -> None:
    user = {"id": 7, "scores": [], "name": "a", "tags": {"t": 1}, "color": "RED"}
    user |= {"hash": b"abcd", "old": None, "home": {"x": 1.5}, "ok": True, "raw": b"r"}
    whole = encode(USER, user)
    values = [whole[:cut] for cut in range(len(whole))] + [whole + b"\0", whole]
    decoded = alone(USER).decode(pa.array(values))
    assert decoded.failures.rows.tolist() == list(range(len(whole) + 1))
    assert decoded.failures.reasons[0] == "the bytes end within the record"
    assert decoded.failures.reasons[-1] == "1 bytes are left behind the record"


def test_logical_types_are_those_of_arrow() -> None:
    kinds = {
        "day": ({"type": "int", "logicalType": "date"}, date(2024, 2, 29)),
        "noon": ({"type": "int", "logicalType": "time-millis"}, time(12)),
        "micro": ({"type": "long", "logicalType": "time-micros"}, time(12, 0, 0, 7)),
        "ms": ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2024, 1, 1, tzinfo=UTC)),
        "us": ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2024, 1, 1, 0, 0, 0, 7, tzinfo=UTC)),
        "local": ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2024, 1, 1)),
        "price": ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, Decimal("-12.50")),
        "maybe": (["null", {"type": "int", "logicalType": "date"}], None),
    }
    schema = {"type": "record", "name": "T", "fields": [{"name": n, "type": t} for n, (t, _) in kinds.items()]}
    datum = {name: value for name, (_, value) in kinds.items()}
    decoded = alone(schema).decode(pa.array([encode(schema, datum)]))
    assert decoded.array.to_pylist() == [datum]


def test_time_that_no_python_has_is_decoded_all_the_same() -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "at", "type": "long"}]}
    typed = {**schema, "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}
    decoded = alone(typed).decode(pa.array([encode(schema, {"at": 2**62})]))
    assert decoded.array.field("at").cast(pa.int64()).to_pylist() == [2**62]


def test_writers_of_several_schemas_are_resolved_to_the_reader_s(tmp_path: Path) -> None:
    versions = {
        1: [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
        2: [{"name": "id", "type": "int"}, {"name": "name", "type": "string", "default": "?"}],
        9: [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
    }
    schemas = {each: {"type": "record", "name": "User", "fields": fields} for each, fields in versions.items()}
    for each, schema in schemas.items():
        (tmp_path / f"{each}.avsc").write_text(json.dumps(schema))
    values = [
        framed(1, encode(schemas[1], {"id": 1, "gone": "x"})),
        framed(2, encode(schemas[2], {"id": 2, "name": "b"})),
        framed(9, encode(schemas[9], {"id": 3, "name": None})),
        framed(5, encode(schemas[9], {"id": 4, "name": None})),
        b"no prefix",
    ]
    newest = make_decoder(parse_decoder("avro", str(tmp_path)))
    assert newest.type == pa.struct([("id", pa.int64()), ("name", pa.string())])
    decoded = newest.decode(pa.array(values))
    expected = [{"id": 1, "name": None}, {"id": 2, "name": "b"}, {"id": 3, "name": None}, None, None]
    assert decoded.array.to_pylist() == expected
    assert decoded.failures.by_row()[3] == "there is no schema with the id 5"
    named = make_decoder(parse_decoder("avro", str(tmp_path), schema_id=2)).decode(pa.array(values[:3]))
    assert named.array.to_pylist()[:2] == [{"id": 1, "name": "?"}, {"id": 2, "name": "b"}]
    # A long is not narrowed to an int.
    assert named.failures.rows.tolist() == [2]


def test_prefix_is_that_of_confluent(tmp_path: Path) -> None:
    """By the rule of their documentation: 0, the id in four bytes, and the datum."""
    payload = bytes.fromhex("00 00000007 0e 02 06 666f6f")
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
    }
    dump = json.dumps([{"subject": "r-value", "version": 1, "id": 7, "schema": json.dumps(schema)}])
    (tmp_path / "schemas.json").write_text(dump)
    decoder = make_decoder(parse_decoder("avro", str(tmp_path / "schemas.json")))
    decoded = decoder.decode(pa.array([payload]))
    assert decoded.array.to_pylist() == [{"id": 7, "name": "foo"}]


@pytest.mark.parametrize(
    ("items", "is_refused"),
    [
        ("null", True),
        ({"type": "record", "name": "E", "fields": []}, True),
        ({"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}, True),
        ({"type": "fixed", "name": "F", "size": 0}, True),
        ({"type": "record", "name": "E", "fields": [{"name": "n", "type": ["null", "int"]}]}, False),
        ("boolean", False),
    ],
)
def test_array_whose_items_take_no_bytes_is_refused(items: Any, is_refused: bool) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    if is_refused:
        with pytest.raises(InvalidOptionError, match="the field 'a' is an array whose items take no bytes"):
            alone(schema)
        return
    # 2^60 items of at least a byte are told from the bytes that are not there.
    decoded = alone(schema).decode(pa.array([b"\x80\x80\x80\x80\x80\x80\x80\x80\x20", b"\0"]))
    assert decoded.failures.by_row() == {0: "the bytes end within the record"}


@pytest.mark.parametrize("field", ["bytes", "string", {"type": "map", "values": "null"}])
def test_length_that_no_memory_has_is_a_failure(field: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": field}]}
    decoded = alone(schema).decode(pa.array([b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"a", b"\x01", b"\0"]))
    assert decoded.failures.rows.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "is not an Avro schema"),
        ('{"type": "recrod"}', "is not an Avro schema"),
        ('["null"]', "the datum is always null"),
        (
            '{"type":"record","name":"R","fields":[{"name":"next","type":["null","R"]}]}',
            "the field 'next' holds itself",
        ),
        ('{"type":"map","values":["null"]}', "the datum is always null"),
        ('{"type":"bytes","logicalType":"decimal","precision":50}', "more than 38 digits"),
    ],
)
def test_schema_that_no_column_stands_for_is_refused(schema: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        make_decoder(parse_decoder("avro", schema, wire="none"))


def test_union_of_several_types_is_a_struct_of_a_field_for_each(tmp_path: Path) -> None:
    """The bytes are those of the specification: the number of the branch, and its datum."""
    decoder = alone(["null", "string", "long"])
    assert decoder.type == pa.struct([("member0", pa.string()), ("member1", pa.int64())])
    decoded = decoder.decode(pa.array([b"\x02\x02a", b"\x04\x06", b"\x00", b"\x02\x04a", b"\x04\x06\x06", None]))
    assert decoded.array.to_pylist() == [
        {"member0": "a", "member1": None},
        {"member0": None, "member1": 3},
        None,
        None,
        None,
        None,
    ]
    assert decoded.failures.by_row() == {
        3: "the bytes end within the record",
        4: "1 bytes are left behind the record",
    }


ADDRESS = {"type": "record", "name": "a.Address", "fields": [{"name": "town", "type": "string"}]}
KIND = {"type": "enum", "name": "a.Kind", "symbols": ["X", "Y"]}


@pytest.mark.parametrize(
    ("union", "value", "member"),
    [
        ([ADDRESS, KIND, "string"], {"town": "B"}, {"member0": {"town": "B"}}),
        ([ADDRESS, KIND, "string"], "Y", {"member1": "Y"}),
        (["int", "long", "null", "bytes"], 2**40, {"member1": 2**40}),
        (["int", {"type": "long", "logicalType": "timestamp-millis"}], -1, {"member0": -1}),
        ([{"type": "array", "items": ["null", "int", "string"]}, "string"], ["a", None, 1], None),
        (
            [{"type": "map", "values": ["boolean", "string"]}, "int"],
            {"k": True},
            {"member0": [("k", {"member0": True})]},
        ),
    ],
)
def test_each_branch_of_a_union_is_told(union: list[Any], value: Any, member: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": union}, {"name": "n", "type": "int"}]}
    decoded = alone(schema).decode(pa.array([encode(schema, {"u": value, "n": 7})]))
    assert not len(decoded.failures.rows)
    (row,) = decoded.array.to_pylist()
    if member is None:
        member = {"member0": [{"member0": None, "member1": "a"}, None, {"member0": 1, "member1": None}]}
    assert row["n"] == 7
    assert without_nulls(row["u"]) == without_nulls(member)


def without_nulls(value: Any) -> Any:
    """Return an object, and those in it, without the fields that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(
    ("written", "value", "member"),
    [
        ("string", "x", {"member0": "x"}),
        ("int", 4, {"member1": 4}),
        (["null", "long"], 5, {"member1": 5}),
        (["null", "long"], None, None),
        (["long", "null", "string"], "y", {"member0": "y"}),
        (["long", "null", "a.Address"], {"town": "B"}, {"member2": {"town": "B", "zip": "?"}}),
        ("boolean", True, "fails"),
        (["boolean", "string"], True, "fails"),
        (["boolean", "string"], "z", {"member0": "z"}),
        (None, None, {"member0": "default"}),
    ],
)
def test_what_a_writer_wrote_becomes_the_branch_that_avro_resolves_it_to(
    tmp_path: Path, written: Any, value: Any, member: Any
) -> None:
    longer = {**ADDRESS, "fields": [*ADDRESS["fields"], {"name": "zip", "type": "string", "default": "?"}]}
    reader_fields = [
        {"name": "home", "type": longer},
        {"name": "u", "type": ["string", "null", "long", "a.Address"], "default": "default"},
    ]
    writer_fields = [{"name": "home", "type": ADDRESS}] + ([] if written is None else [{"name": "u", "type": written}])
    reader, writer = ({"type": "record", "name": "R", "fields": fields} for fields in (reader_fields, writer_fields))
    for each, schema in ((1, writer), (2, reader)):
        (tmp_path / f"{each}.avsc").write_text(json.dumps(schema))
    datum = {"home": {"town": "A"}} | ({} if written is None else {"u": value})
    decoded = make_decoder(parse_decoder("avro", str(tmp_path))).decode(pa.array([framed(1, encode(writer, datum))]))
    assert len(decoded.failures.rows) == (member == "fails")
    (row,) = decoded.array.to_pylist()
    if member != "fails":
        assert without_nulls(row["u"]) == member
        assert row["home"] == {"town": "A", "zip": "?"}


def test_unions_of_numbers_are_the_wider() -> None:
    decoder = alone(["int", "null", "long"])
    assert decoder.type == pa.int64()
    assert decoder.decode(pa.array([b"\x00\x02", b"\x02", b"\x04\x04"])).array.to_pylist() == [1, None, 2]


def test_int_of_more_than_its_bits_fails_alone() -> None:
    decoded = alone({"type": "record", "name": "R", "fields": [{"name": "i", "type": "int"}]}).decode(
        pa.array([encode("long", 2**40), encode("long", 5)])
    )
    assert decoded.array.to_pylist() == [None, {"i": 5}]
    assert decoded.failures.rows.tolist() == [0]


def test_missing_library_is_an_error_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(InvalidOptionError, match=r'needs the package fastavro: pip install "sparklog\[avro\]"'):
        alone("int")


INNER: dict[str, Any] = {
    "type": "record",
    "name": "In",
    "fields": [
        {"name": "a", "type": "int", "default": 7},
        {"name": "b", "type": ["null", "string"], "default": None},
        {"name": "c", "type": "bytes", "default": "\u00fe"},
    ],
}
MADE = {"a": 7, "b": None, "c": b"\xfe"}
FIXED = {"type": "fixed", "name": "Fx", "size": 2}
DECIMAL = {"logicalType": "decimal", "precision": 6, "scale": 2}
CHOICE = ["string", "long"]


def beside(schema: Any, default: Any) -> dict[str, Any]:
    """Return the schema of a reader with a field that no writer has."""
    fields = [{"name": "id", "type": "int"}, {"name": "n", "type": schema, "default": default}]
    return {"type": "record", "name": "R", "fields": fields}


def decode_without(tmp_path: Path, schema: Any, default: Any) -> list[Any]:
    (tmp_path / "1.avsc").write_text(json.dumps({**beside("int", 0), "fields": beside("int", 0)["fields"][:1]}))
    (tmp_path / "2.avsc").write_text(json.dumps(beside(schema, default)))
    decoder = make_decoder(parse_decoder("avro", schema=str(tmp_path), schema_id=2))
    array, failures = decoder.decode(pa.array([b"\0\0\0\0\1\2"]))
    assert failures.reasons == []
    return [row["n"] for row in array.to_pylist()]


@pytest.mark.parametrize(
    ("schema", "default", "expected"),
    [
        ("bytes", "\u00ff\u0000a", b"\xff\x00a"),
        (FIXED, "\u00ff\u0001", b"\xff\x01"),
        (FIXED, "a", b"a\x00"),
        ({"type": "bytes", **DECIMAL}, "\u00ff8", Decimal("-2.00")),
        ({"type": "fixed", "name": "Fd", "size": 3, **DECIMAL}, "\u0000\u00ff8", Decimal("653.36")),
        (INNER, {}, MADE),
        (INNER, {"a": 9, "c": "\u00ff"}, {**MADE, "a": 9, "c": b"\xff"}),
        ({"type": "array", "items": "bytes"}, ["\u00ff", ""], [b"\xff", b""]),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        ({"type": "array", "items": INNER}, [{}, {"a": 1}], [MADE, {**MADE, "a": 1}]),
        ({"type": "array", "items": ["null", *CHOICE]}, [None, "x", 5], [None, ("x", None), (None, 5)]),
        ({"type": "map", "values": CHOICE}, {"a": "x", "b": 5}, [("a", ("x", None)), ("b", (None, 5))]),
        (["bytes", "null"], "\u00ff", b"\xff"),
        (["null", "bytes"], "\u00ff", b"\xff"),
        (CHOICE, 5, (None, 5)),
        (["long", "string", "null"], None, None),
        ([INNER, "string"], {}, (MADE, None)),
        (["string", INNER], {"a": 3}, (None, {**MADE, "a": 3})),
        (["null", FIXED, "string"], "ab", (b"ab", None)),
        ([{"type": "array", "items": CHOICE}, "null"], ["x", 5], [("x", None), (None, 5)]),
        ("double", 1, 1.0),
        (["boolean", "int"], True, (True, None)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ([{"type": "int", "logicalType": "date"}, "string"], 3, (date(1970, 1, 4), None)),
        (
            {**INNER, "name": "O", "fields": [{"name": "i", "type": INNER, "default": {"a": 1}}]},
            {},
            {"i": {**MADE, "a": 1}},
        ),
        (
            {**INNER, "name": "P", "fields": [{"name": "i", "type": INNER}, {"name": "j", "type": "In"}]},
            {"i": {}, "j": {"a": 5}},
            {"i": MADE, "j": {**MADE, "a": 5}},
        ),
    ],
)  # fmt: skip
def test_default_of_a_field_that_the_writer_has_not_is_the_datum_that_avro_makes_of_it(
    tmp_path: Path, schema: Any, default: Any, expected: Any
) -> None:
    """What is expected is what org.apache.avro 1.12.0 reads, where a union is a tuple of its branches."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            made = {name: plain(each) for name, each in value.items()}
            return tuple(made.values()) if "member0" in made else made
        if isinstance(value, (list, tuple)):
            return type(value)(plain(each) for each in value)
        return value

    assert [plain(each) for each in decode_without(tmp_path, schema, default)] == [expected]


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ("bytes", "\u0100"),
        (["null", "bytes"], 5),
        ({**INNER, "fields": [{"name": "a", "type": "int"}]}, {}),
        (INNER, {"a": "x"}),
    ],
)  # fmt: skip
def test_default_that_is_none_of_its_type_is_refused(tmp_path: Path, schema: Any, default: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"2.avsc"):
        decode_without(tmp_path, schema, default)


def test_default_of_a_writer_counts_for_nothing(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "int"}, {"name": "n", "type": "string", "default": "x"}]
    (tmp_path / "1.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    (tmp_path / "2.avsc").write_text(json.dumps(beside(CHOICE, "y")))
    decoder = make_decoder(parse_decoder("avro", schema=str(tmp_path), schema_id=2))
    array, _ = decoder.decode(pa.array([b"\0\0\0\0\1\2\2z"]))
    assert array.to_pylist() == [{"id": 1, "n": {"member0": "z", "member1": None}}]
