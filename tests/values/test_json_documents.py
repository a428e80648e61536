"""JSON documents to columns, held against `json.loads`: a slow oracle, row by row."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Never

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.values.decoder import ValueDecoder, make_decoder
from sparklog.values.rows import DecodedValues
from sparklog.values.spec import parse_decoder

COLUMNS = "id bigint, name string, score double, ok boolean, tags array<string>, place struct<x: int, y: array<float>>"
BAD = object()

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)
PLACES = st.fixed_dictionaries({}, optional={"x": st.integers(-(2**31), 2**31), "y": st.lists(st.floats(width=32))})
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | ANYTHING,
        "name": st.text(max_size=5) | ANYTHING,
        "score": st.floats(allow_nan=False, allow_infinity=False) | ANYTHING,
        "ok": st.booleans() | ANYTHING,
        "tags": st.lists(st.none() | st.text(max_size=3), max_size=3) | ANYTHING,
        "place": PLACES | ANYTHING,
        "unknown": ANYTHING,
    },
)
# Pieces from which hypothesis builds values that try to reach over into their neighbours.
PIECES = st.sampled_from(
    [
        *'{}[],:"\\ \n',
        '{"v":',
        '{"id":1}',
        '"id":2',
        "}\n",
        '"',
        "null",
        "NaN",
        "-Infinity",
        "1",
        '"mark":true',
        "\0",
        "//",
    ]
)
VALUES = (
    st.none()
    | st.binary(max_size=6)
    | st.builds(lambda doc, indent: json.dumps(doc, indent=indent).encode(), DOCUMENTS, st.sampled_from([None, 1]))
    | st.builds(lambda doc: json.dumps(doc, ensure_ascii=False).encode(errors="surrogatepass"), DOCUMENTS)
    | st.lists(PIECES, max_size=8).map("".join).map(str.encode)
)


def decoder_of(schema: str) -> ValueDecoder:
    return make_decoder(parse_decoder("json", schema))


def outcome(decoded: DecodedValues) -> list[Any]:
    """Return each row's value, or BAD."""
    rows: list[Any] = decoded.array.to_pylist()
    for row in decoded.failures.rows.tolist():
        assert rows[row] is None
        rows[row] = BAD
    return rows


class Pairs(dict[str, Any]):
    """An object, and the names that it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.twice = {name for name in names if names.count(name) > 1}


class Number(str):
    __slots__ = ()


class Whole(Number):
    __slots__ = ()


def refuse(name: str) -> Never:
    raise ValueError(name)


def expected(value: bytes | None, kind: pa.DataType) -> Any:
    """Decode one value slowly."""
    if value is None:
        return None
    try:
        text = value.decode()
        found = json.loads(text, object_pairs_hook=Pairs, parse_constant=refuse, parse_int=Whole, parse_float=Number)
        return shaped(found, kind)
    except ValueError:
        return BAD


def shaped(found: Any, kind: pa.DataType) -> Any:
    if found is None:
        return None
    if pa.types.is_struct(kind):
        names = {field.name for field in kind}
        if not isinstance(found, Pairs) or found.twice & names:
            raise ValueError("no object")
        return {field.name: shaped(found.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(found, list):
            raise ValueError("no list")
        return [shaped(each, kind.value_type) for each in found]
    if pa.types.is_integer(kind):
        if not isinstance(found, Whole) or not -(2 ** (kind.bit_width - 1)) <= int(found) < 2 ** (kind.bit_width - 1):
            raise ValueError("no integer")
        return int(found)
    if pa.types.is_floating(kind):
        number = float(found) if isinstance(found, Number) else math.nan
        if kind == pa.float32():
            number = pa.array([number]).cast(pa.float32())[0].as_py()
        if not math.isfinite(number):
            raise ValueError("no number")
        return number
    if pa.types.is_boolean(kind):
        if found is not True and found is not False:
            raise ValueError("not true or false")
        return found
    if type(found) is not str:
        raise ValueError("no text")
    found.encode()  # fails for a surrogate that is no pair
    return found


@settings(max_examples=600)
@given(st.lists(VALUES, max_size=6))
@example([b'{"id":1}\n{"id"', b":2}"])
@example([b'{"id":1},"x":{}', b'{"id":2}'])
@example([b'{"id":1}},{"v":{"id":7}', b""])
@example([b'{"id":1,"x":', b"1}"])
@example([b'{"x":[NaN]}', b'{"id":2}'])
@example([b'{"x":"NaN"}', b'{"x":"[NaN]","id":3}'])
@example([b'{"id":1}}\0', b'{"x":1}'])
@example([b'{"x":1}]}{"v":[{"id":5}', b'{"id":2}'])
@example([b'{"x":1},{"id":1}],"w":[{}', b'{"id":2}'])
def test_each_row_is_what_the_slow_oracle_says(values: list[bytes | None]) -> None:
    decoder = decoder_of(COLUMNS)
    assert outcome(decoder.decode(pa.array(values, pa.binary()))) == [expected(each, decoder.type) for each in values]


@settings(max_examples=200)
@given(st.lists(VALUES, max_size=6), st.sampled_from(["array<bigint>", "string", "double", "boolean"]))
def test_documents_that_are_no_objects_are_what_the_slow_oracle_says(values: list[bytes | None], kind: str) -> None:
    types = {
        "array<bigint>": '{"type": "array", "items": {"type": "integer"}}',
        "string": '{"type": "string"}',
        "double": '{"type": "number"}',
        "boolean": '{"type": "boolean"}',
    }
    decoder = decoder_of(types[kind])
    assert outcome(decoder.decode(pa.array(values, pa.binary()))) == [expected(each, decoder.type) for each in values]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Expecting value"),
        (b" \n ", "Expecting value"),
        (b'\xef\xbb\xbf{"id":1}', "BOM"),
        (b'{"id":1}{"id":2}', "Extra data"),
        (b'{"id":1}\n{"id":2}', "Extra data"),
        (b'{"id":1,"id":1}', "specified twice"),
        (b'{"id":9223372036854775808}', "couldn't parse"),
        (b'{"id":1.0}', "id is a number, and not of the type int64"),
        (b'{"id":"1"}', "id is text"),
        (b'{"tags":{}}', "tags is an object"),
        (b'{"score":NaN}', "NaN"),
        (b'{"score":1e999}', "too big"),
        (b'{"place":{"y":[1e39]}}', "more than its type holds"),
        (b'{"name":"\xc3"}', "not UTF-8"),
        (b'{"name":"\\ud800"}', "surrogate"),
        (b"[]", "the document is a list"),
        (b'{"id":' + b"1" * 5000 + b"}", "couldn't parse"),
        (b"[" * 100_000, ""),
    ],
)
def test_value_that_is_not_one_document_of_the_schema_fails_alone(value: bytes, reason: str) -> None:
    good = b'{\n  "id": 7,\n  "name": "a"\n}'
    decoded = decoder_of(
        "id bigint, name string, score double, tags array<string>, place struct<y: array<float>>"
    ).decode(pa.array([good, value, None, good]))
    assert decoded.failures.rows.tolist() == [1]
    assert reason in decoded.failures.reasons[0]
    assert "\n" not in decoded.failures.reasons[0]
    assert [None if each is None else each["id"] for each in decoded.array.to_pylist()] == [7, None, None, 7]


def test_unknown_field_may_be_nested_as_deeply_as_it_likes() -> None:
    deep = b'{"id":1,"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    decoded = decoder_of("id int").decode(pa.array([deep, b"{", deep]))
    assert decoded.array.to_pylist() == [{"id": 1}, None, {"id": 1}]
    assert decoded.failures.rows.tolist() == [1]


def test_document_that_is_no_object_and_nested_too_deeply_fails() -> None:
    decoded = decoder_of('{"type": "array", "items": {"type": "string"}}').decode(
        pa.array([b"[" * 200_000 + b"]" * 200_000, b'["a"]'])
    )
    assert decoded.array.to_pylist() == [None, ["a"]]
    assert decoded.failures.reasons == ["the value is nested too deeply"]


def test_times_dates_and_decimals_are_typed() -> None:
    columns = "at timestamp, local timestamp_ntz, day date, price decimal(6, 2), days array<date>"
    value = (
        b'{"at":"2024-02-29T23:30:00.5+01:00","local":"2024-02-29T23:30:00","day":"2024-02-29","price":12.5,'
        b'"days":["2024-01-01",null]}'
    )
    decoded = decoder_of(columns).decode(
        pa.array([value, b'{"day":"2023-02-29"}', b'{"price":1.234}', b'{"at":"soon"}'])
    )
    assert decoded.array[0].as_py() == {
        "at": datetime(2024, 2, 29, 22, 30, 0, 500_000, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 23, 30),
        "day": date(2024, 2, 29),
        "price": Decimal("12.50"),
        "days": [date(2024, 1, 1), None],
    }
    assert decoded.failures.rows.tolist() == [1, 2, 3]


def test_many_blocks_keep_their_rows() -> None:
    values = [b'{"id":%d%s}' % (row, b',"x":1' if row % 3 == 0 else b"") for row in range(40_000)]
    values[20_001] = b'{"id":1.5}'
    values[33_000] = b"{"
    decoded = decoder_of("id bigint").decode(pa.array(values))
    assert decoded.failures.rows.tolist() == [20_001, 33_000]
    ids = decoded.array.field("id").to_pylist()
    assert [row for row in range(40_000) if ids[row] != row] == [20_001, 33_000]


def test_text_of_an_infinity_in_a_slice_and_large_binary() -> None:
    values = pa.array([b"{", b'{"name":"-Infinity: NaN"}', b'{"name":"a","x":[-Infinity]}'], pa.large_binary())[1:]
    decoded = decoder_of("name string").decode(values)
    assert decoded.array.to_pylist() == [{"name": "-Infinity: NaN"}, None]


@given(st.lists(st.binary(max_size=12) | VALUES.filter(lambda value: value is not None), max_size=6))
def test_prefix_of_confluent_is_taken_off_first(values: list[bytes]) -> None:
    plain = decoder_of(COLUMNS)
    framed = make_decoder(parse_decoder("json-schema", COLUMNS))
    decoded = framed.decode(pa.array([b"\0\0\0\0\7" + each for each in values] + [b"", b"\1\0\0\0\7{}"], pa.binary()))
    assert outcome(decoded) == [*outcome(plain.decode(pa.array(values, pa.binary()))), BAD, BAD]
