"""JSON of rows is what a parser of JSON reads as the same values."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.values.json_text import json_rows

NOON = dt.datetime(2026, 1, 31, 12, 30, tzinfo=dt.UTC)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), texts),
    (pa.large_string(), texts),
    (pa.string_view(), texts),
    (pa.dictionary(pa.int32(), pa.string()), texts),
    (pa.list_(pa.string()), st.lists(st.none() | texts, max_size=3)),
    (pa.large_list(pa.list_(pa.int32())), st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=2), max_size=2)),
    (pa.list_(pa.int8(), 2), st.lists(st.integers(-9, 9), min_size=2, max_size=2)),
]


def wanted(value: Any) -> Any:
    """Return what a value is read as, nulls in objects left out."""
    if isinstance(value, dict):
        return {name: wanted(each) for name, each in value.items() if each is not None}
    return [wanted(each) for each in value] if isinstance(value, list) else value


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 5))
    names = draw(st.lists(texts, max_size=4, unique=True))
    columns = []
    for _ in names:
        kind, values = draw(st.sampled_from(KINDS))
        column = pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind)
        if draw(st.booleans()):
            column = pa.StructArray.from_arrays([column, pa.nulls(rows)], ["in\n", "none"])
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names) if names else pa.record_batch({"a": pa.nulls(rows)})


@given(batches(), st.integers(0, 3))
def test_rows_are_read_back(rows: pa.RecordBatch, start: int) -> None:
    rows = rows.slice(start)
    made = json_rows(rows.schema.names, rows.columns, rows.num_rows)
    made.validate(full=True)
    assert [json.loads(each) for each in made.to_pylist()] == [wanted(row) for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([float("nan")]), '"NaN"'),
        (pa.array([float("-inf")]), '"-Infinity"'),
        (pa.array([np.float16(1.5)], pa.float16()), "1.5"),
        (pa.array([Decimal("-1.10")]), "-1.10"),
        (pa.array([b"\xff\x00"]), '"/wA="'),
        (pa.array([b"ab"], pa.binary(2)), '"YWI="'),
        (pa.array([dt.date(2026, 1, 31)]), '"2026-01-31"'),
        (pa.array([dt.time(12, 30)], pa.time32("s")), '"12:30:00"'),
        (pa.array([NOON], pa.timestamp("ms", "UTC")), '"2026-01-31T12:30:00.000Z"'),
        (pa.array([NOON], pa.timestamp("s", "Asia/Tokyo")), '"2026-01-31T12:30:00Z"'),
        (pa.array([NOON], pa.timestamp("us")), '"2026-01-31T12:30:00.000000"'),
        (pa.array([17], pa.duration("ms")), "17"),
        (pa.array([[("a", 1), ('"', None)]], pa.map_(pa.string(), pa.int32())), '{"a":1,"\\"":null}'),
        (pa.array([[(7, "x")]], pa.map_(pa.int32(), pa.string())), '{"7":"x"}'),
        (pa.array([[]], pa.map_(pa.int32(), pa.string())), "{}"),
        (pa.array(['"\\\n\r\t\b\f\x00\x1f/é\u2028']), '"\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001f/é\u2028"'),
    ],
)  # fmt: skip
def test_text_of_each_kind(column: pa.Array, text: str) -> None:
    assert json_rows(["c"], [column], 1).to_pylist() == [f'{{"c":{text}}}'.encode()]


def test_binary_comes_back_from_base64() -> None:
    (made,) = json_rows(["b"], [pa.array([bytes(range(256))])], 1).to_pylist()
    assert base64.b64decode(json.loads(made)["b"]) == bytes(range(256))


def test_a_type_without_json_is_refused_by_its_column() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(InvalidOptionError, match=r"column 'u' has type sparse_union.*cast it"):
        json_rows(["u"], [union], 1)


@pytest.mark.parametrize(
    ("unit", "time", "text"),
    [
        ("s", 971_890_963_200, "32768-01-01T00:00:00"),
        ("ms", (1 << 63) - 1, "292278994-08-17T07:12:55.807"),
        ("us", (1 << 63) - 1, "294247-01-10T04:00:54.775807"),
        ("ns", (1 << 63) - 1, "2262-04-11T23:47:16.854775807"),
        ("ms", -(1 << 62), "-146136543-09-08T08:23:32.096"),
    ],
)
def test_times_of_years_that_arrow_has_no_text_of_have_these_years(unit: str, time: int, text: str) -> None:
    times = pa.array([0, time, None], pa.int64()).view(pa.timestamp(unit, "UTC"))
    found = json_rows(["t"], [times], 3).to_pylist()
    assert [json.loads(each).get("t") for each in found][1:] == [f"{text}Z", None]
    assert json.loads(found[0])["t"].startswith("1970-01-01T00:00:00")
