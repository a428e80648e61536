"""A broker of the last line that writes formats 0 and 1 adopts logs of these formats, and serves them as its own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.log.config import LogConfig
from tests.kafka.broker import Broker, Record
from tests.kafka.dump import dump_log
from tests.kafka.jars import OLD
from tests.topic import staged

pytestmark = pytest.mark.kafka

VERSIONS = {0: "0.9.0", 1: "0.10.2"}
CODECS = ("uncompressed", "gzip", "snappy", "lz4")
START_MS = staged.NOW_MS
RECORDS = 4000
WRITES = 2
# So small that there are several segments and many index entries.
SMALL = {"segment.bytes": 60_000, "index.interval.bytes": 1000}


def ways() -> Iterator[tuple[str, int, str]]:
    """Yield the ways to write, with the formats and codecs that each has."""
    for codec in CODECS:
        yield "append", 0, codec
        yield "append", 1, codec
        yield "commit", 1, codec
    yield "commit", 0, "uncompressed"


def rows(number: int, magic: int) -> pa.RecordBatch:
    """Rows with null and empty keys and values, and times in no order where the format has some."""
    ids = range(number * RECORDS, (number + 1) * RECORDS)
    columns: dict[str, Any] = {
        "key": pa.array([[None, b"", b"k%d" % n][n % 3] for n in ids]),
        "value": pa.array([None if n % 7 == 0 else b"value %d" % (n * 7919) * (n % 5) for n in ids]),
    }
    if magic:
        columns["timestamp"] = pa.array([START_MS + n * 7919 % 1_000_003 for n in ids])
    return pa.RecordBatch.from_pydict(columns)


def write(log_dir: Path, topic: str, way: str, config: LogConfig) -> None:
    for number in range(WRITES):
        if way == "commit":
            staged.write(log_dir, [rows(number, config.magic)], topic=topic, partitions=1, config=config)
        else:
            with sparklog.PartitionLog.open(
                log_dir / f"{topic}-0", config, clock=lambda: START_MS, rng=lambda: 0
            ) as log:
                log.append(rows(number, config.magic))


@pytest.mark.parametrize("is_clean", [True, False], ids=["trusted", "recovered"])
def test_old_broker_serves_what_was_written_in_its_formats(tmp_path: Path, is_clean: bool) -> None:
    topics = {f"{way}-{magic}-{codec}": (way, magic, codec) for way, magic, codec in ways()}
    with Broker.start(tmp_path / "broker", version=OLD) as broker:
        for topic, (_, magic, codec) in topics.items():
            broker.create_topic(
                topic, config={**SMALL, "message.format.version": VERSIONS[magic], "compression.type": codec}
            )
        # Their folders are made with their first records at the latest.
        broker.produce([Record(topic, None, b"before", partition=0, timestamp=START_MS) for topic in topics])
        broker.stop()
        for topic, (way, magic, codec) in topics.items():
            properties = {**SMALL, "message.format.version": VERSIONS[magic], "compression.type": codec}
            write(broker.log_dir, topic, way, LogConfig.from_properties(properties))
            check_files(broker, topic)
        marker = broker.log_dir / ".kafka_cleanshutdown"
        assert marker.exists()
        if not is_clean:
            marker.unlink()
        logged = len(broker.log_text())
        broker.restart()
        served: dict[str, list[dict[str, Any]]] = {}
        for record in broker.consume(*topics):
            served.setdefault(record["topic"], []).append(record)
        for topic, (_, magic, _) in topics.items():
            assert [each(record) for record in served[topic]] == expected(magic), topic
            if magic:
                check_times(broker, topic)
        offsets = broker.produce([Record(topic, b"k", b"next", partition=0, timestamp=START_MS) for topic in topics])
        assert offsets == [WRITES * RECORDS + 1] * len(topics)
        complaints = [line for line in broker.log_text()[logged:].splitlines() if " WARN " in line or " ERROR " in line]
        assert [line for line in complaints if "append-" in line or "commit-" in line] == []


def each(record: dict[str, Any]) -> tuple[Any, ...]:
    key, value = (None if text is None else base64.b64decode(text) for text in (record["key"], record["value"]))
    return record["offset"], key, value, record["timestamp"]


def expected(magic: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [(0, None, b"before", START_MS if magic else -1)]
    for number in range(WRITES):
        for row in rows(number, magic).to_pylist():
            found.append((len(found), row["key"], row["value"], row.get("timestamp", -1)))
    return found


def check_files(broker: Broker, topic: str) -> None:
    """Kafka's own tool and ours find nothing wrong with logs and indexes; there are several segments to look at."""
    folder = broker.log_dir / f"{topic}-0"
    logs, indexes = sorted(folder.glob("*.log")), sorted(folder.glob("*.*index"))
    assert len(logs) > 1
    assert "isvalid: false" not in dump_log(logs, root=broker.log_dir, deep=True)
    assert "mismatch" not in dump_log(indexes, root=broker.log_dir, deep=False, verify_index_only=True).lower()
    # A segment of one batch has an empty index.
    sanity = dump_log(indexes, root=broker.log_dir, index_sanity_check=True)
    assert sanity.count("passed sanity check") + sanity.count("is empty") == len(indexes)
    assert sanity.count("passed sanity check") > len(indexes) / 2


def check_times(broker: Broker, topic: str) -> None:
    """The broker and we find the same offsets for times in the midst of the log, and after it."""
    times = [START_MS - 1, *range(START_MS, START_MS + 1_000_000, 99_991), START_MS + 2_000_000]
    answers = [answer["offset"] for answer in broker.offsets_for_times([(topic, 0, time) for time in times])]
    with sparklog.open_log(f"{broker.log_dir}/{topic}-0") as log:
        assert answers == [log.offset_for_time(time) for time in times]
