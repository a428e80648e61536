"""Keys and values as typed columns, and what becomes of those that do not decode."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.errors import InvalidOptionError, ValueDecodeError
from sparklog.jobs.check.ledger import verify_ledger
from tests.build import Record, v2_batch, write_partition
from tests.jobs.tables import append, files, moved_to, rows

JSON = {"value_format": "json", "value_options": {"schema": "id bigint, name string"}}
VALUES = (b'{"id": 1, "name": "a"}', b"no JSON", None, b'{"id": 2}', b"")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    records = [Record(at, 1000 + at, key=b"\xff" if at == 3 else b"k", value=value) for at, value in enumerate(VALUES)]
    write_partition(tmp_path / "logs" / "a-0", [v2_batch(records)])
    append(tmp_path / "logs" / "b-0", '{"id": 3, "name": "c"}')
    return tmp_path / "logs"


def values(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in rows(path)]


def test_values_become_one_column_or_one_for_each_field(tmp_path: Path, logs: Path) -> None:
    moved_to(tmp_path / "one", source=logs, **JSON, on_decode_error="null")
    first, last = {"id": 1, "name": "a"}, {"id": 3, "name": "c"}
    expected = [(0, first), (1, None), (2, None), (3, {"id": 2, "name": None}), (4, None), (0, last)]
    assert values(tmp_path / "one", "offset", "value") == expected
    moved_to(tmp_path / "each", source=logs, **JSON, on_decode_error="null", unnests_value=True)
    assert values(tmp_path / "each", "id", "name") == [
        (1, "a"), (None, None), (None, None), (2, None), (None, None), (3, "c")
    ]  # fmt: skip
    schema = pq.ParquetFile(tmp_path / "each" / files(tmp_path / "each")[0]).schema_arrow
    assert schema.names == ["key", "id", "name", "offset", "timestamp", "timestampType", "headers"]


def test_what_does_not_decode_is_set_aside_with_its_bytes(tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "out"
    summary = moved_to(out, source=logs, **JSON, key_format="string", on_decode_error="dead_letter", columns="value")
    sound = [{"id": 1, "name": "a"}, None, {"id": 2, "name": None}, {"id": 3, "name": "c"}]
    assert [value for (value,) in values(out, "value")] == sound
    assert summary.rows == 6
    (moved, _) = summary.moved
    (file,) = moved.dead_letters
    assert file.path == f"_dead_letter/a-0-{0:020}-{5:020}.parquet"
    letters = pq.ParquetFile(out / file.path).read().to_pylist()
    assert [(row["offset"], row["field"], row["key"], row["value"]) for row in letters] == [
        (1, "value", b"k", b"no JSON"),
        (4, "value", b"k", b""),
    ]
    assert all(row["reason"] and (row["topic"], row["partition"]) == ("a", 0) for row in letters)
    assert list(verify_ledger(out)) == []


def test_a_key_that_does_not_decode_is_named(tmp_path: Path, logs: Path) -> None:
    summary = moved_to(tmp_path / "out", source=logs, key_format="string", on_decode_error="dead_letter")
    (file,) = summary.moved[0].dead_letters
    (letter,) = pq.ParquetFile(tmp_path / "out" / file.path).read().to_pylist()
    assert (letter["offset"], letter["field"], letter["key"]) == (3, "key", b"\xff")


def test_an_error_names_partition_offset_and_reason_and_other_partitions_are_moved(tmp_path: Path, logs: Path) -> None:
    with pytest.raises(ValueDecodeError, match=r"the value of offset 1 of a-0 does not decode: .+on_decode_error"):
        moved_to(tmp_path / "out", source=logs, **JSON)
    assert values(tmp_path / "out", "value") == [({"id": 3, "name": "c"},)]


def test_a_table_keeps_the_types_of_its_values(tmp_path: Path, logs: Path) -> None:
    moved_to(tmp_path / "out", source=logs, value_format="string")
    with pytest.raises(InvalidOptionError, match=r"value string.*value binary"):
        moved_to(tmp_path / "out", source=logs)


def test_lines_of_json_have_every_record(tmp_path: Path, logs: Path) -> None:
    moved_to(tmp_path / "out", source=logs, format="jsonl", partition_by=["topic"])
    texts = [(tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    assert [line["value"] for line in lines] == [
        None if value is None else value.decode() for value in (*VALUES, b'{"id": 3, "name": "c"}')
    ]
    assert lines[3]["key_base64"] == "/w=="
    assert lines[0]["headers"] == []
    assert lines[0]["timestamp"] == 1000
    assert list(verify_ledger(tmp_path / "out")) == []


@pytest.mark.parametrize(
    ("key_format", "keys"),
    [("base64", ["aw==", "/w=="]), ("hex", ["6b", "ff"]), (None, ["k"])],
)
def test_csv_has_bytes_by_rule(tmp_path: Path, logs: Path, key_format: str | None, keys: list[str]) -> None:
    given: dict[str, Any] = {"source": logs, "format": "csv", "topics": "a", "on_decode_error": "dead_letter"}
    moved_to(tmp_path / "out", **given, key_format=key_format)
    (name,) = files(tmp_path / "out")
    with (tmp_path / "out" / name).open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(dict.fromkeys(line["key"] for line in lines)) == keys
    assert list(lines[0]) == ["key", "value", "offset", "timestamp", "timestampType"]
    assert [line["value"] for line in lines][:3] == [VALUES[0].decode(), "no JSON", ""]
    assert list(verify_ledger(tmp_path / "out")) == []


def decode_upper(values: pa.Array) -> pa.Array:
    return pa.compute.utf8_upper(values.cast(pa.string()))


def test_a_function_of_a_user_decodes(tmp_path: Path) -> None:
    append(tmp_path / "logs" / "a-0", "a", "b")
    moved_to(tmp_path / "out", source=tmp_path / "logs", value_format="tests.jobs.export.test_decoding:decode_upper")
    assert values(tmp_path / "out", "value") == [("A",), ("B",)]
