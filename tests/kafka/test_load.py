"""A real broker serves what a load wrote into its directory."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparklog
from tests.jobs.loads import HEADERS
from tests.kafka.broker import Broker

pytestmark = pytest.mark.kafka

NOW_MS = 1_760_000_000_000


def row(n: int) -> dict[str, Any]:
    """A row of every shape: what is there, empty and null, headers of all kinds, times in no order."""
    headers = [{"key": "trace", "value": b"%d" % n}, {"key": "trace", "value": None}, {"key": "", "value": b""}]
    return {
        "key": [None, b"", b"k%d" % n][n % 3],
        "value": None if n % 11 == 0 else b"v%d" % n * (n % 50),
        "headers": [None, [], headers][n % 3],
        "timestamp": NOW_MS + (n * 7919) % 1_000_000,
    }


SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS), ("timestamp", pa.timestamp("ms", "UTC"))]
)


def counted(records: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(
        (
            each["key"],
            each["value"],
            tuple((header["key"], header["value"]) for header in each["headers"] or ()),
            each["timestamp"],
        )
        for each in records
    )


def octets(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def test_broker_serves_what_a_load_wrote(tmp_path: Path) -> None:
    rows = [row(n) for n in range(20_000)]
    for number in range(4):
        table = pa.Table.from_pylist(rows[number * 5000 : (number + 1) * 5000], SCHEMA)
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=1000)
    with Broker.start(tmp_path / "_broker") as broker:
        broker.create_topic("loaded", partitions=3, config={"segment.bytes": 1 << 20})
        broker.stop()
        config = {"segment.bytes": 1 << 20, "compression.type": "zstd"}
        found = sparklog.load(tmp_path, broker.log_dir, topic="loaded", config=config, processes=2)
        assert found.records == len(rows)
        logged = len(broker.log_text())
        broker.restart()
        complaints = [line for line in broker.log_text()[logged:].splitlines() if " WARN " in line or " ERROR " in line]
        assert [line for line in complaints if "loaded-" in line or "seglog" in line] == []
        consumed = [
            {
                "key": octets(each["key"]),
                "value": octets(each["value"]),
                "headers": [{"key": name, "value": octets(value)} for name, value in each["headers"]],
                "timestamp": each["timestamp"],
            }
            for each in broker.consume("loaded")
        ]
        assert counted(consumed) == counted(rows)
        ends = {each["partition"]: each["end"] for each in broker.offsets("loaded")}
        assert ends == {each.partition: each.last_offset + 1 for each in found.partitions}
