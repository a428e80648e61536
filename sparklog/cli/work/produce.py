"""``produce``: writes each line of the input as a record, as ``kafka-console-producer`` does."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.cli.output import render
from sparklog.cli.output.text import counted
from sparklog.clients.producer import Producer
from sparklog.errors import InputFileError


def write_lines(paths: Sequence[str], topic: str, lines: LineOptions | None) -> None:
    """Write each line of the input as a record, and print the number of records.

    Parameters
    ----------
    lines : LineOptions or None
        The form of the lines; None for JSON lines.

    Raises
    ------
    InputFileError
        A line is not a record; the lines before it are written.
    """
    record_of = _of_json if lines is None else lines.record
    count, failed = 0, list[BaseException]()
    with Producer(paths, allow_auto_create_topics=False) as producer:
        for count, line in enumerate(sys.stdin.buffer, 1):
            try:
                record = record_of(line.removesuffix(b"\n").removesuffix(b"\r"))
                producer.send(topic, **record).add_errback(failed.append)
            except (ValueError, TypeError, LookupError) as error:
                producer.flush()
                raise InputFileError(f"line {count} is no record, and {count - 1} before it are: {error}") from error
            if failed:
                break
        producer.flush()
    if failed:
        raise failed[0]
    render.say(f"{counted(count, 'record')} written to {topic}")


@dataclass(frozen=True)
class LineOptions:
    """The options for lines that are not JSON, by their names."""

    key_separator: str | None
    null_marker: str | None
    parse_headers: bool

    def record(self, line: bytes) -> dict[str, Any]:
        headers, key, value = b"", None, line
        if self.parse_headers:
            headers, value = _parted(value, "\t", "headers")
        if self.key_separator is not None:
            key, value = _parted(value, self.key_separator, "key")
        pairs = [_parted(each, ":", "header") for each in headers.split(b",") if headers]
        named = [(name.decode(), self._data(data)) for name, data in pairs]
        return {"key": self._data(key), "value": self._data(value), "headers": named}

    def _data(self, data: bytes | None) -> bytes | None:
        return None if self.null_marker is not None and data == self.null_marker.encode() else data


def _parted(data: bytes, separator: str, what: str) -> tuple[bytes, bytes]:
    first, found, rest = data.partition(separator.encode())
    if not found:
        raise ValueError(f"no {separator!r} ends its {what}")
    return first, rest


def _of_json(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("it is no object")
    record = {"key": _field(row, "key"), "value": _field(row, "value"), "timestamp_ms": row.get("timestamp")}
    return {**record, "headers": [(each["key"], _field(each, "value")) for each in row.get("headers") or ()]}


def _field(row: dict[str, Any], name: str) -> bytes | None:
    """Return the bytes of a field: text, or base64 in a field with the suffix ``_base64``."""
    encoded = f"{name}_base64"
    if encoded in row:
        return base64.b64decode(row[encoded], validate=True)
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"its {name} is no text: {value!r}")
    return None if value is None else value.encode()
