"""A broker adopts logs that were erased from, blanked, recompressed and converted, and serves what we read of them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.jobs.clean.arguments import clean
from tests.build import Record as Row
from tests.build import control_batch, v2_batch, write_partition
from tests.cleaner.logs import findings
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker, Record
from tests.kafka.jars import NEWEST, OLD

pytestmark = pytest.mark.kafka

KEYS = [b"k%d" % n for n in range(0, 120, 7)]
CHANGES: dict[str, dict[str, Any]] = {
    "erased": {"erase": KEYS},
    "all-erased": {"erase_where": "offset >= 0"},
    "blanked": {"erase": KEYS, "blank": "null"},
    "recompressed": {"recompress": "gzip"},
    # Without the last record, a consumer would wait behind the last message until the next one is written.
    "format-1": {"format": 1, "lossy": True, "erase": KEYS[:-1]},
    "format-0": {"format": 0, "lossy": True, "recompress": "lz4"},
}


def write(folder: Path) -> None:
    """A log of six segments, with an aborted transaction and its marker."""
    aborted: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    batches = [
        v2_batch(
            [Row(n, 1000 + first + n, b"k%d" % (first + n), b"value", [("h", b"x")]) for n in range(10)],
            base_offset=first,
            codec="lz4",
            **(aborted if first == 20 else {}),
        )
        for first in range(0, 120, 10)
    ]
    batches[3] = control_batch("abort", 30, 7, timestamp=1030)
    write_partition(folder, batches, segment_bytes=600, index_interval_bytes=300)


def ours(folder: Path) -> list[tuple[int, bytes | None]]:
    with sparklog.open_log(folder) as log:
        rows = log.read(columns=["offset", "value"], isolation_level="read_committed").to_pylist()
    return [(row["offset"], row["value"]) for row in rows]


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_broker_serves_what_is_left_and_goes_on_writing(tmp_path: Path, version: str) -> None:
    logs = {topic: tmp_path / "logs" / f"{topic}-0" for topic in CHANGES}
    for topic, folder in logs.items():
        write(folder)
        clean(folder, config={"file.delete.delay.ms": "0"}, processes=1, **CHANGES[topic])
    wanted = {topic: ours(folder) for topic, folder in logs.items()}
    counts = {topic: len(rows) for topic, rows in wanted.items()}
    assert counts == {
        "erased": 85,
        "all-erased": 0,
        "blanked": 100,
        "recompressed": 100,
        "format-1": 86,
        "format-0": 100,
    }
    with Broker.start(tmp_path / "broker", version=version) as broker:
        for topic in logs:
            broker.create_topic(topic)
        broker.stop()
        with adoption(broker) as adopt:
            for topic, folder in logs.items():
                adopt(topic, 0, folder)
        logged = len(broker.log_text())
        broker.restart()
        served: dict[str, list[tuple[int, bytes | None]]] = {topic: [] for topic in logs}
        for row in broker.consume(*logs, isolation="read_committed"):
            value = None if row["value"] is None else base64.b64decode(row["value"])
            served[row["topic"]].append((row["offset"], value))
        assert served == wanted
        assert broker.produce([Record(topic, b"k", b"next", partition=0) for topic in logs]) == [120] * len(logs)
        broker.stop()
        text = broker.log_text()[logged:]
    assert [line for line in text.splitlines() if " ERROR " in line] == []
    for topic in logs:
        assert findings(tmp_path / "broker" / "logs" / f"{topic}-0") == [], topic
