"""``sparklog dump`` against ``kafka-dump-log``: every file of the golden directories, field by field."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden import GoldenSet, golden_sets
from tests.terminal import run

FIELD = re.compile(r"(\w+):? (OptionalLong\[\d+\]|OptionalLong\.empty|\[.*?\]|-?\w+)(?= |$)")
TIMES = ("NoTimestampType", "CreateTime", "LogAppendTime")

Fields = dict[str, str]


def dumped(golden: GoldenSet) -> list[tuple[str, list[str]]]:
    """Return what kafka-dump-log printed of each file: its name and the lines."""
    sections = re.split(r"(?m)^Dumping (.*)$", golden.dump_text)[1:]
    return [(name, text.strip().splitlines()) for name, text in zip(sections[::2], sections[1::2], strict=True)]


def sections(*suffixes: str) -> list[Any]:
    return [
        pytest.param(golden, name, lines, id=f"{golden.name}/{name}")
        for golden in golden_sets()
        for name, lines in dumped(golden)
        if name.endswith(suffixes)
    ]


def rows(golden: GoldenSet, name: str, *options: str) -> list[dict[str, Any]]:
    result = run("dump", golden.log_dir / name, "--json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def fields(line: str) -> Fields:
    return dict(FIELD.findall(line))


def length(row: dict[str, Any], name: str) -> int:
    if f"{name}_base64" in row:
        return len(base64.b64decode(row[f"{name}_base64"]))
    return -1 if row[name] is None else len(row[name].encode())


def our_batch(row: dict[str, Any]) -> Fields:
    horizon = row["delete_horizon_ms"]
    told = {
        "position": row["position"],
        row["timestamp_type"]: row["max_timestamp"],
        "size": row["size_bytes"],
        "magic": row["magic"],
        "compresscodec": row["codec"],
        "crc": row["crc"],
        "isvalid": str(row["is_valid"]).lower(),
    }
    if row["magic"] < 2:
        return {name: str(value) for name, value in ({"offset": row["last_offset"]} | told).items()}
    told |= {
        "baseOffset": row["base_offset"],
        "lastOffset": row["last_offset"],
        "count": row["record_count"],
        "baseSequence": row["base_sequence"],
        "lastSequence": row["last_sequence"],
        "producerId": row["producer_id"],
        "producerEpoch": row["producer_epoch"],
        "partitionLeaderEpoch": row["leader_epoch"],
        "isTransactional": str(row["is_transactional"]).lower(),
        "isControl": str(row["is_control"]).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
    }
    return {name: str(value) for name, value in told.items()}


def our_record(row: dict[str, Any]) -> Fields:
    told: dict[str, Any] = {
        "offset": row["offset"],
        row["timestamp_type"]: row["timestamp"],
        "keySize": length(row, "key"),
        "valueSize": length(row, "value"),
    }
    if row["magic"] == 2:
        told["sequence"] = row["sequence"]
        told["headerKeys"] = "[" + ",".join(each["key"] for each in row["headers"]) + "]"
    return {name: str(value) for name, value in told.items()}


def split(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Give each batch's line and those of its records."""
    batch, records = "", []
    for line in lines:
        if line.startswith("|"):
            records.append(line)
        elif line.startswith(("baseOffset", "offset")):
            if batch:
                yield batch, records
            batch, records = line, []
    if batch:
        yield batch, records


@pytest.mark.parametrize(("golden", "name", "lines"), sections(".log"))
def test_batches_are_those_of_kafka_dump_log(golden: GoldenSet, name: str, lines: list[str]) -> None:
    found = rows(golden, name, "--batches")
    assert [our_batch(row) for row in found] == [fields(batch) for batch, _ in split(lines)]


@pytest.mark.parametrize(("golden", "name", "lines"), sections(".log"))
def test_records_are_those_of_kafka_dump_log(golden: GoldenSet, name: str, lines: list[str]) -> None:
    expected = []
    for batch, records in split(lines):
        if "isControl: true" not in batch:
            expected += [fields(record.partition(" headerKeys:")[0]) | header_keys(record) for record in records]
    for told in expected:
        # The messages of magic 0 and 1 have checksums of their own, which are checked when they are decoded.
        assert told.pop("isValid", "true") == "true"
        told.pop("crc", None)
    assert [our_record(row) for row in rows(golden, name)] == expected


def header_keys(record: str) -> Fields:
    """Return the names of headers, which may hold any character."""
    _, found, keys = record.partition(" headerKeys: ")
    return {"headerKeys": keys} if found else {}


@pytest.mark.parametrize(("golden", "name", "lines"), sections(".log"))
def test_markers_are_those_of_kafka_dump_log(golden: GoldenSet, name: str, lines: list[str]) -> None:
    expected = [
        (found["endTxnMarker"], int(found["coordinatorEpoch"]))
        for found in (fields(line) for line in lines if "endTxnMarker" in line)
    ]
    found = [row for row in rows(golden, name, "--batches") if row["control_type"] in ("ABORT", "COMMIT")]
    assert [(row["control_type"], row["coordinator_epoch"]) for row in found] == expected


@pytest.mark.parametrize(("golden", "name", "lines"), sections(".index", ".timeindex", ".txnindex"))
def test_index_entries_are_those_of_kafka_dump_log(golden: GoldenSet, name: str, lines: list[str]) -> None:
    names = {
        "offset": "offset",
        "position": "position",
        "timestamp": "timestamp",
        "version": "version",
        "producer_id": "producerId",
        "first_offset": "firstOffset",
        "last_offset": "lastOffset",
        "last_stable_offset": "lastStableOffset",
    }
    found = [{names[field]: str(value) for field, value in row.items()} for row in rows(golden, name)]
    assert found == [fields(line) for line in lines if not line.endswith(" is empty.")]


@pytest.mark.parametrize(("golden", "name", "lines"), sections(".snapshot"))
def test_snapshots_are_those_of_kafka_dump_log(golden: GoldenSet, name: str, lines: list[str]) -> None:
    found = []
    for row in rows(golden, name):
        first_offset = row["current_txn_first_offset"]
        told = {
            "producerId": row["producer_id"],
            "producerEpoch": row["producer_epoch"],
            "coordinatorEpoch": row["coordinator_epoch"],
            "currentTxnFirstOffset": "OptionalLong.empty" if first_offset < 0 else f"OptionalLong[{first_offset}]",
            "lastTimestamp": row["timestamp"],
        }
        if row["last_offset"] >= 0:
            told |= {
                "lastSequence": row["last_sequence"],
                "lastOffset": row["last_offset"],
                "offsetDelta": row["offset_delta"],
            }
        found.append({field: str(value) for field, value in told.items()})
    kept = [{k: v for k, v in fields(line).items() if k not in ("firstSequence", "timestamp")} for line in lines]
    assert found == kept
