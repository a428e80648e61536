"""Crafted batches are read as Kafka's own classes read them, or refused for a reason that is written down here."""

from __future__ import annotations

import functools
import re

import pytest

from sparklog.errors import CorruptBatchError
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import decode_batches
from tests.kafka.verdicts import Verdict, verdicts
from tests.oracle import OracleError, decode_log
from tests.record.decode.test_columns import table_rows

VERDICTS = verdicts()
KINDS = sorted({re.split(r"[ ,]", verdict.name)[0] for verdict in VERDICTS})

STRICTER = {
    "a later frame of zstd that is cut short: Kafka's reader ends before it, where its buffer holds both": (
        r"zstd, .*(second frame cut to|skippable cut)"
    ),
    "a block that holds nothing: Kafka's reader stops at it, unless it is the last": r"lz4.*, a block of nothing$",
    "a snappy stream behind another whose magic is wrong in its second half, at which Kafka's reader does not look": (
        r"snappy, another magic in the middle"
    ),
    "offsets that do not ascend: Kafka's consumer passes over what is not above the record before": (
        r"records .*, (disorder|overlap)"
    ),
    "a message cut short inside a wrapper: Kafka's reader ends before it, and shifts the others": (
        r"wrapper .*, inner cut short"
    ),
    "messages inside a wrapper that do not ascend": r"wrapper .*, inner twice",
    "a wrapper of magic 0 whose offset, under no checksum, is not that of the last message inside": (
        r"wrapper of magic 0, .*(instead of 45|offset 0|below the last inside)"
    ),
}
"""What Kafka reads and sparklog refuses: why, and the names of the cases."""

LAXER = {
    "18 bytes or fewer behind a member, a header among them: JDK 17 takes it for one where its buffer ends, and the "
    "records before it are whole": r"gzip, at the buffer's end -?\d+, a header",
    "a batch that was emptied has nothing to decompress, whatever codec it names": r"records .*, none, and",
}
"""What Kafka refuses and sparklog reads."""


def named(table: dict[str, str], name: str) -> bool:
    return any(re.match(pattern, name) for pattern in table.values())


@functools.cache
def told(data: bytes) -> list[tuple[int, int, int, bytes | None, bytes | None]] | None:
    """Decode; None where that is an error."""
    columns = ("base_offset", "offset", "timestamp", "key", "value")
    headers = scan_headers(data)
    if headers.valid_bytes < len(data):
        return None
    try:
        rows = table_rows(data, columns=columns)
    except CorruptBatchError:
        return None
    return [(row["base_offset"], row["offset"], row["timestamp"], row["key"], row["value"]) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_crafted_batches_are_read_as_kafka_reads_them(kind: str) -> None:
    differing = []
    for verdict in VERDICTS:
        if not verdict.name.startswith(kind):
            continue
        found, expected = told(verdict.data), None if verdict.error else verdict.rows
        is_excepted = (found is None and named(STRICTER, verdict.name)) or (
            expected is None and named(LAXER, verdict.name)
        )
        if found != expected and not is_excepted:
            differing.append((verdict.name, found, verdict.error or verdict.rows))
    assert differing == []


@pytest.mark.parametrize("reason", [*STRICTER, *LAXER])
def test_every_exception_is_one(reason: str) -> None:
    pattern = STRICTER.get(reason) or LAXER[reason]
    differing = [
        verdict
        for verdict in VERDICTS
        if re.match(pattern, verdict.name) and (told(verdict.data) is None) != (verdict.error is not None)
    ]
    assert differing


def judge_by_oracle(verdict: Verdict) -> list[tuple[int, int, int, bytes | None, bytes | None]] | None:
    try:
        batches = decode_log(verdict.data)
    except OracleError:
        return None
    return [
        (batch.base_offset, record.offset, record.timestamp, record.key, record.value)
        for batch in batches
        for record in batch.records
    ]


def test_the_oracle_says_the_same_but_for_what_it_leaves_to_kafka() -> None:
    for verdict in VERDICTS:
        found = judge_by_oracle(verdict)
        if found is None and told(verdict.data) is not None:
            raise AssertionError(f"{verdict.name}: only the oracle refuses it")
        if found is not None and told(verdict.data) is None:
            assert named(STRICTER, verdict.name), verdict.name
        if found is not None and told(verdict.data) is not None:
            assert found == told(verdict.data), verdict.name


@pytest.mark.parametrize("columns", [(), ("offset",), ("producer_id",), ("key",), ("value",)])
def test_rows_are_counted_alike_whatever_columns_are_asked_for(columns: tuple[str, ...]) -> None:
    for verdict in VERDICTS:
        headers = scan_headers(verdict.data)
        if headers.valid_bytes < len(verdict.data):
            continue
        expected = told(verdict.data)
        try:
            pieces = list(decode_batches(memoryview(verdict.data), headers, columns=columns))
        except CorruptBatchError:
            assert expected is None, verdict.name
        else:
            assert expected is not None, verdict.name
            assert sum(piece.num_rows for piece in pieces) == len(expected), verdict.name
