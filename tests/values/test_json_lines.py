"""Rows as JSON lines: of every type, with nulls, and of batches that are slices."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sparklog.values.json_text import json_lines

DAY = datetime.date(2020, 1, 2)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ALL_TYPES = pa.RecordBatch.from_pydict(
    {
        "key": pa.array([None, b'a"\n', b"\xff"], pa.binary()),
        "timestamp": pa.array([0, 1_700_000_000_000, None], pa.timestamp("ms", "UTC")),
        "headers": pa.array([[{"key": "k", "value": b"\xff"}, {"key": "l", "value": None}], [], None], HEADERS),
        "float": pa.array([1.5, float("nan"), None]),
        "more": pa.array([float("inf"), float("-inf"), 1e300]),
        "struct": pa.array([{"a": 1, "b": [1, None]}, None, {"a": None, "b": None}]),
        "map": pa.array([[("x", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "time": pa.array([datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)] * 3, pa.timestamp("us", "UTC")),
        "date": pa.array([DAY, None, DAY]),
        'odd "name"': pa.nulls(3),
        "empty": pa.array([{}, None, {}], pa.struct([])),
        "decimal": pa.array([Decimal("1.50"), None, Decimal(-2)], pa.decimal128(10, 2)),
        "flag": pa.array([True, False, None]),
        "bytes": pa.array([[b"\xff"], [], None], pa.list_(pa.binary())),
    }
)
EXPECTED: list[dict[str, Any]] = [
    {
        "key": None,
        "timestamp": 0,
        "headers": [{"key": "k", "value_base64": "/w=="}, {"key": "l", "value": None}],
        "float": 1.5,
        "more": "Infinity",
        "struct": {"a": 1, "b": [1, None]},
        "map": {"x": 1},
        "time": "2020-01-02T00:00:00.000000Z",
        "date": "2020-01-02",
        'odd "name"': None,
        "empty": {},
        "decimal": 1.5,
        "flag": True,
        "bytes": ["/w=="],
    },
    {
        "key": 'a"\n',
        "timestamp": 1_700_000_000_000,
        "headers": [],
        "float": "NaN",
        "more": "-Infinity",
        "struct": None,
        "map": None,
        "time": "2020-01-02T00:00:00.000000Z",
        "date": None,
        'odd "name"': None,
        "empty": None,
        "decimal": None,
        "flag": False,
        "bytes": [],
    },
    {
        "key_base64": "/w==",
        "timestamp": None,
        "headers": [],
        "float": None,
        "more": 1e300,
        "struct": {},
        "map": {},
        "time": "2020-01-02T00:00:00.000000Z",
        "date": "2020-01-02",
        'odd "name"': None,
        "empty": {},
        "decimal": -2.0,
        "flag": None,
        "bytes": None,
    },
]


def parsed(batch: pa.RecordBatch) -> list[object]:
    return [json.loads(line) for line in bytes(json_lines(batch)).splitlines()]


def test_every_type_is_written() -> None:
    assert parsed(ALL_TYPES) == EXPECTED
    for name in ALL_TYPES.schema.names:
        of_one = [{key: value for key, value in row.items() if key in (name, f"{name}_base64")} for row in EXPECTED]
        assert parsed(ALL_TYPES.select([name])) == of_one


def test_slices_are_written_as_they_are() -> None:
    for start in range(4):
        for end in range(start, 4):
            assert parsed(ALL_TYPES.slice(start, end - start)) == EXPECTED[start:end]
