"""``produce`` at the terminal: each line is a record, and none that is no record is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import sparklog
from tests import terminal


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    sparklog.LogManager(tmp_path).create_topic("events")
    return tmp_path


def produce(logs: Path, data: bytes, *options: str) -> Result:
    return terminal.run("produce", logs, "--topic", "events", *options, answer=data)


def records(logs: Path) -> list[tuple[Any, ...]]:
    with sparklog.open_log(logs / "events-0") as log:
        rows = log.read(columns=["key", "value", "headers"]).to_pylist()
    return [
        (row["key"], row["value"], *((each["key"], each["value"]) for each in row["headers"] or ())) for row in rows
    ]


def header(key: str, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "value": value}


def test_each_line_is_a_value_an_empty_one_too(logs: Path) -> None:
    done = produce(logs, b"a\n\nb:c\r\n\xff\tend")
    assert (done.exit_code, done.stdout) == (0, "4 records written to events\n")
    assert records(logs) == [(None, b"a"), (None, b""), (None, b"b:c"), (None, b"\xff\tend")]
    assert produce(logs, b"").stdout == "0 records written to events\n"


def test_keys_headers_and_nulls_are_read_where_it_is_said(logs: Path) -> None:
    options = ("--key-separator", "::", "--null-marker", "NULL", "--parse-headers")
    assert produce(logs, b"h:1,i:NULL\tk::v::w\n\tNULL::v\n\tk::NULL\n", *options).exit_code == 0
    assert records(logs) == [(b"k", b"v::w", ("h", b"1"), ("i", None)), (None, b"v"), (b"k", None)]


@pytest.mark.parametrize(
    ("options", "line", "reason"),
    [
        (("--key-separator", ":"), b"no key", "no ':' ends its key"),
        (("--parse-headers",), b"no headers", "no '\\t' ends its headers"),
        (("--parse-headers",), b"h\tv", "no ':' ends its header"),
        (("--null-marker", "NULL"), b"NULL", "neither"),
        (("--format", "jsonl"), b"{", "Expecting"),
        (("--format", "jsonl"), b"[]", "it is no object"),
        (("--format", "jsonl"), b'{"value": 1}', "its value is no text: 1"),
        (("--format", "jsonl"), b'{"value_base64": "!"}', "base64"),
        (("--format", "jsonl"), b'{"value": "a", "headers": [{}]}', "'key'"),
        (("--format", "jsonl"), b'{"value": "a", "timestamp": -7}', "1970"),
    ],
)
def test_line_that_is_no_record_is_named_and_those_before_it_are_written(
    logs: Path, options: tuple[str, ...], line: bytes, reason: str
) -> None:
    good = b'{"value": "a"}' if "jsonl" in options else b"h:1\ta" if "--parse-headers" in options else b"k:a"
    result = produce(logs, good + b"\n" + line + b"\n" + good, *options)
    assert result.exit_code == 2
    assert "line 2 is no record, and 1 before it are: " in result.stderr
    assert reason in result.stderr
    assert len(records(logs)) == 1


def test_what_dump_prints_is_written_again(logs: Path) -> None:
    rows = {
        "key": [b"k", None, b"\xff"],
        "value": [b"\xc3\xbc", b"", None],
        "headers": [[header("h", b"\xff"), header("i", None)], [], [header("j", b"text")]],
        "timestamp": [1_700_000_000_000 + n for n in range(3)],
    }
    with sparklog.PartitionLog.open(logs / "events-0") as log:
        log.append(rows)
    before = records(logs)
    dumped = terminal.run("dump", logs / "events-0", "--json").stdout
    assert produce(logs, dumped.encode(), "--format", "jsonl").exit_code == 0
    assert records(logs) == [*before, *before]
    with sparklog.open_log(logs / "events-0") as log:
        times = log.read(columns="timestamp")["timestamp"].cast("int64").to_pylist()
    assert times[3:] == times[:3]


def test_topic_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = produce(tmp_path, b"a\n")
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
    assert "are for lines" in produce(tmp_path, b"", "--format", "jsonl", "--null-marker", "x").stderr
