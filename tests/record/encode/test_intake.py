"""Columns on their way in: each type is taken as it is meant, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError
from sparklog.record.encode import intake
from sparklog.record.encode.batches import BatchSettings, encode_batches
from sparklog.record.encode.intake import take_records
from sparklog.record.format.schema import HEADERS_TYPE
from tests.oracle import OracleRecord, decode_log

VALUES = pa.array([b"a", b"b"])


def table(**columns: pa.Array) -> pa.Table:
    return pa.table({"value": VALUES, **columns})


def records(given: pa.Table) -> list[OracleRecord]:
    data = bytes(encode_batches(take_records(given), BatchSettings()).data)
    return [record for batch in decode_log(data) for record in batch.records]


def times(column: pa.Array) -> list[int]:
    return [record.timestamp for record in records(table(timestamp=column))]


FRAMES: dict[str, Callable[[Any], Any]] = {
    "table": lambda rows: rows,
    "batch": lambda rows: rows.to_batches()[0],
    "reader": lambda rows: rows.to_reader(max_chunksize=1),
    "struct": lambda rows: pa.RecordBatch.from_struct_array(rows.to_struct_array().chunk(0)),
    "polars": polars.DataFrame,
    "pandas": lambda rows: rows.to_pandas(),
    "duckdb": lambda rows: duckdb.from_arrow(rows),
    "array": lambda rows: OnlyArray(rows.to_batches()[0]),
    "columns": lambda rows: rows.to_pydict(),
}


class OnlyArray:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("name", FRAMES)
def test_rows_of_any_library_that_speaks_arrow_are_taken(name: str) -> None:
    at = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    given = pa.table(
        {
            "key": pa.array(["k", None]),
            "value": pa.array([b"a", b"\xff"]),
            "timestamp": pa.array([at, at], pa.timestamp("us", "UTC")),
            "more": pa.array([1, 2]),
        }
    )
    found = records(FRAMES[name](given))
    assert [(record.key, record.value) for record in found] == [(b"k", b"a"), (None, b"\xff")]
    assert [record.timestamp for record in found] == [int(at.timestamp() * 1000)] * 2


def test_keys_and_values_in_lists_are_text_or_bytes_or_both() -> None:
    found = records({"key": ["k\u00e9", None], "value": [b"a", "b"]})
    assert [(record.key, record.value) for record in found] == [("k\u00e9".encode(), b"a"), (None, b"b")]


def test_time_without_a_zone_is_one_of_utc() -> None:
    naive = datetime(1970, 1, 1, 0, 0, 1)
    assert [record.timestamp for record in records({"value": ["a"], "timestamp": [naive]})] == [1000]


def refusal(given: Any) -> str:
    with pytest.raises(InvalidOptionError) as raised:
        take_records(given)
    return raised.value.message


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 1], pa.date32()),
        pa.array([0, 1], pa.date64()),
        pa.array(["1", "2"]),
        pa.array([True, False]),
        pa.array([1, 2], pa.duration("ms")),
        pa.array([1, 2], pa.time64("us")),
        pa.array([1, 2], pa.uint64()),
        pa.array([1, 2], pa.int32()),
        pa.array([1.0, 2.0]),
        pa.nulls(2),
    ],
    ids=lambda column: str(column.type),
)
def test_timestamp_of_a_type_that_is_no_time_is_refused(column: pa.Array) -> None:
    assert refusal(table(timestamp=column)) == (
        f"timestamp attribute unsupported type {column.type}. "
        "timestamp must be a(n) timestamp, or an int64 of milliseconds since 1970"
    )
    with pytest.raises(InvalidOptionError, match="timestamp attribute unsupported type"):
        encode_batches(table(timestamp=column).to_batches()[0], BatchSettings())


@pytest.mark.parametrize("kind", [pa.uint64(), pa.int64(), pa.bool_(), pa.float64(), pa.list_(pa.binary())])
@pytest.mark.parametrize("name", ["key", "value"])
def test_key_and_value_that_are_no_bytes_are_refused(name: str, kind: pa.DataType) -> None:
    message = refusal(pa.table({"value": VALUES, name: pa.nulls(2, kind)}))
    assert message == f"{name} attribute unsupported type {kind}. {name} must be a(n) string or binary"


@pytest.mark.parametrize("name", ["key", "value", "headers", "timestamp"])
def test_column_that_is_there_twice_is_named_with_its_types(name: str) -> None:
    twice = pa.table([VALUES, VALUES, pa.array([1, 2])], names=["value" if name != "value" else "key", name, name])
    assert refusal(twice) == f"there are 2 columns '{name}', of types binary and int64: one is wanted"
    with pytest.raises(InvalidOptionError, match="there are 2 columns"):
        encode_batches(twice.to_batches()[0], BatchSettings())


def test_other_columns_may_be_there_twice() -> None:
    twice = pa.table([VALUES, VALUES, VALUES], names=["value", "x", "x"])
    assert [record.value for record in records(twice)] == [b"a", b"b"]


def test_no_value_and_what_is_no_table_are_refused() -> None:
    assert refusal(pa.table({"key": VALUES})) == "Required attribute 'value' not found"
    assert refusal([{"value": b"a"}]) == (
        "records come as a table, batch or reader of pyarrow, a frame of pandas or polars, or anything else with "
        "__arrow_c_stream__, not as list"
    )
    assert "a dict, are not rows of Arrow" in refusal({"value": [b"a"], "key": [b"a", b"b"]})
    assert "a ChunkedArray, are not rows of Arrow" in refusal(pa.chunked_array([VALUES]))


@pytest.mark.parametrize(
    ("unit", "numbers", "wanted"),
    [
        ("s", [0, 9_223_372_036_854_775], [0, 9_223_372_036_854_775_000]),
        ("ms", [0, 5], [0, 5]),
        ("us", [999, 1000], [0, 1]),
        ("ns", [999_999, 1_000_001], [0, 1]),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_times_of_every_unit_and_zone_are_rounded_down(
    unit: str, numbers: list[int], wanted: list[int], zone: str | None
) -> None:
    assert times(pa.array(numbers, pa.timestamp(unit, zone))) == wanted


def test_seconds_beyond_what_kafka_holds_are_refused_and_not_written_as_0() -> None:
    assert refusal(table(timestamp=pa.array([1, 2**62], pa.timestamp("s")))) == (
        "timestamp of row 1 is 4611686018427387904 s, and Kafka's int64 of milliseconds holds no more than "
        "9223372036854775 s"
    )


@pytest.mark.parametrize(
    ("unit", "number", "ms"),
    [
        ("us", -1500, -2),
        ("us", -2000, -2),
        ("us", -1001, -2),
        ("ns", -1_000_001, -2),
        ("ms", -2, -2),
        ("s", -1, -1000),
        ("us", -(2**63), -9_223_372_036_854_776),
    ],
)
def test_times_before_1970_are_refused_by_their_rounded_ms(unit: str, number: int, ms: int) -> None:
    message = refusal(table(timestamp=pa.array([None, number], pa.timestamp(unit))))
    assert message == f"timestamp of row 1 is {ms} ms: Kafka has none before 1970"


def test_seconds_far_before_1970_are_refused_too() -> None:
    assert "Kafka has none before 1970" in refusal(table(timestamp=pa.array([0, -(2**63)], pa.timestamp("s"))))


@pytest.mark.parametrize(
    ("unit", "number"), [("ms", -1), ("us", -1000), ("us", -500), ("us", -1), ("ns", -1), ("ns", -1_000_000)]
)
def test_time_that_comes_to_the_number_for_no_timestamp_is_refused(unit: str, number: int) -> None:
    message = refusal(table(timestamp=pa.array([0, number], pa.timestamp(unit, "UTC"))))
    assert message.startswith("timestamp of row 1 is in the last millisecond before 1970, which is -1 ms")
    assert "make it null" in message


def test_no_timestamp_is_said_by_minus_1_as_a_number() -> None:
    assert times(pa.array([-1, 5])) == [-1, 5]
    assert refusal(table(timestamp=pa.array([5, -2]))) == "timestamp of row 1 is -2 ms: Kafka has none before 1970"


def test_nulls_stay_nulls_in_every_unit() -> None:
    for kind in (pa.int64(), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))):
        taken = take_records(table(timestamp=pa.array([None, 0], kind)))
        assert taken.column("timestamp").to_pylist() == [None, 0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, ""]),
        pa.array(["a", None, ""], pa.large_string()),
        pa.array([b"a", None, b""], pa.large_binary()),
        pa.array(["a", None, ""], pa.string_view()),
        pa.array([b"a", None, b""], pa.binary_view()),
        pa.array(["a", None, ""]).dictionary_encode(),
        pa.array([b"a", None, b""], pa.large_binary()).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(["a", None, ""])),
    ],
    ids=lambda column: str(column.type),
)
def test_byte_strings_of_every_type_are_the_same_bytes(column: pa.Array) -> None:
    given = pa.table({"key": column, "value": column})
    for each in (given, given.slice(0), pa.concat_tables([given.slice(0, 1), given.slice(1)])):
        found = [(record.key, record.value) for record in records(each)]
        assert found == [(b"a", b"a"), (None, None), (b"", b"")]
    assert [record.value for record in records(given.slice(1))] == [None, b""]


def test_fixed_size_binary_and_nulls_are_taken() -> None:
    given = pa.table({"key": pa.nulls(2), "value": pa.array([b"ab", None], pa.binary(2)), "headers": pa.nulls(2)})
    assert [(record.key, record.value, record.headers) for record in records(given)] == [
        (None, b"ab", []),
        (None, None, []),
    ]


def test_empty_tables_are_checked_too() -> None:
    assert take_records(table().slice(0, 0)).num_rows == 0
    empty = pa.table({"value": pa.chunked_array([], pa.string()), "timestamp": pa.chunked_array([], pa.timestamp("s"))})
    assert take_records(empty).schema.names == ["value", "timestamp"]
    assert "unsupported type bool" in refusal(pa.table({"value": pa.chunked_array([], pa.bool_())}))


def test_chunks_that_are_too_long_together_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow puts no more than 2 GiB of bytes into one piece; here that is a few."""
    monkeypatch.setattr(intake, "_ARROW_BYTES_MAX", 4)
    given = pa.table({"value": pa.chunked_array([[b"abc"], [b"def"], [b"ghi"]])})
    assert take_records(given).schema.field("value").type == pa.large_binary()
    assert [record.value for record in records(given)] == [b"abc", b"def", b"ghi"]


PAIR = {"key": "k", "value": b"v"}


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=str,
)
def test_headers_of_types_that_mean_the_same_are_taken(kind: pa.DataType) -> None:
    pair: Any = {name: "v" if name == "value" and "value: string" in str(kind) else PAIR[name] for name in PAIR}
    row = [("k", b"v")] if pa.types.is_map(kind) else [pair]
    if "key: binary" in str(kind):
        row = [{"key": b"k", "value": b"v"}]
    given = table(headers=pa.array([row, None], kind))
    assert [record.headers for record in records(given)] == [[("k", b"v")], []]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("key", pa.string())])),
        pa.list_(pa.struct([("key", pa.string()), ("val", pa.binary())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("more", pa.binary())])),
        pa.list_(pa.struct([("key", pa.int64()), ("value", pa.binary())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())])),
        pa.list_(pa.string()),
        pa.map_(pa.int32(), pa.binary()),
        pa.struct([("key", pa.string()), ("value", pa.binary())]),
        pa.string(),
    ],
    ids=str,
)
def test_headers_of_which_a_cast_would_lose_or_make_up_something_are_refused(kind: pa.DataType) -> None:
    assert refusal(table(headers=pa.nulls(2, kind))) == (
        f"headers attribute unsupported type {kind}. headers must be an array<struct<key:string,value:binary>>"
    )


def test_header_names_that_are_not_utf_8_are_refused() -> None:
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    message = refusal(table(headers=pa.array([[{"key": b"\xff", "value": b""}], None], kind)))
    assert message.startswith(f"headers of type {kind} cannot be read as an array<struct<key:string,value:binary>>")


@pytest.mark.parametrize("nameless", [{"key": None, "value": b""}, None])
def test_header_with_no_name_is_refused_with_its_row(nameless: Any) -> None:
    headers = pa.array([[PAIR], [], [PAIR, nameless]], HEADERS_TYPE)
    given = pa.table({"value": pa.array([b""] * 3), "headers": headers})
    with pytest.raises(InvalidOptionError, match="a header of row 2 has no key"):
        records(given)
