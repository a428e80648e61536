"""A broker starts on what a cleaning left, wherever that was killed, serves the right records, and goes on writing."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.jobs.clean.arguments import clean as clean_directory
from sparklog.log.layout import read_layout
from sparklog.log.reader import IsolationLevel
from sparklog.write.partition import LogWriter
from tests.build import Record as Row
from tests.build import control_batch, v2_batch, write_partition
from tests.cleaner.logs import CONFIG, KeepingSome, clean, findings
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker, Record
from tests.kafka.jars import NEWEST, OLD
from tests.log.logs import batch
from tests.places import folder_at
from tests.storage.crash import CrashingStorage, Stopped

pytestmark = pytest.mark.kafka

LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
MIB = 1 << 20
RETENTION_WAIT_S = 120


def transaction(base_offset: int, sequence: int) -> bytes:
    records = [Row(n, timestamp=1000 + base_offset + n, value=b"aborted %d" % (base_offset + n)) for n in range(10)]
    return v2_batch(
        records, base_offset=base_offset, transactional=True, producer_id=7, producer_epoch=0, base_sequence=sequence
    )


def write(folder: Path) -> None:
    """A log of six segments, of which two hold an aborted transaction, and its marker."""
    batches = [batch(n * 10) for n in range(12)]
    batches[1:5] = [transaction(10, 0), transaction(20, 10), batch(30), control_batch("abort", 40, 7, timestamp=1045)]
    write_partition(folder, batches, segment_bytes=600, with_indexes=False)
    # With all indexes and a snapshot, as a writer leaves it that was closed.
    LogWriter.open(folder, CONFIG).close()


def is_kept(offset: int) -> bool:
    return offset in (10, 20, 40) or offset % 30 == 0


def states(directory: Path) -> dict[str, Path]:
    """Kill a cleaning at each rename and at each sync of the folder, and once not at all; what it left, by a name."""
    found: dict[str, Path] = {}
    stop_at = 1
    while True:
        root = directory / str(stop_at)
        write(root / "events-0")
        storage = CrashingStorage(root, stop_at)
        try:
            clean(root / "events-0", KeepingSome(is_kept), CONFIG, storage)
        except Stopped:
            last = storage.calls[-1]
            if last.startswith(("rename", "sync_folder")):
                found[f"killed-{stop_at}"] = root / "events-0"
            stop_at += 1
        else:
            return {**found, "whole": root / "events-0"}


def ours(folder: Path, level: IsolationLevel) -> list[tuple[int, bytes]]:
    with sparklog.open_log(folder) as log:
        rows = log.read(columns=["offset", "value"], isolation_level=level).to_pylist()
    return [(row["offset"], row["value"]) for row in rows]


@pytest.mark.parametrize("trust_indexes", [True, False], ids=["trusted", "recovered"])
@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_broker_goes_on_from_each_state_that_a_killed_cleaning_leaves(
    tmp_path: Path, version: str, trust_indexes: bool
) -> None:
    left = states(tmp_path / "states")
    wanted = {(topic, level): ours(folder, level) for topic, folder in left.items() for level in LEVELS}
    # Old or new, and both are there.
    assert {len(rows) for rows in wanted.values()} == {110, 90, 70, 50}
    with Broker.start(tmp_path / "broker", version=version) as broker:
        for topic in left:
            broker.create_topic(topic)
        # Their folders are made with their first records at the latest.
        broker.produce([Record(topic, b"k", b"before", partition=0) for topic in left])
        broker.stop()
        with adoption(broker, trust_indexes=trust_indexes) as adopt:
            for topic, folder in left.items():
                adopt(topic, 0, folder)
        logged = len(broker.log_text())
        broker.restart()
        for level in LEVELS:
            served: dict[str, list[tuple[int, bytes]]] = {}
            for row in broker.consume(*left, isolation=level):
                served.setdefault(row["topic"], []).append((row["offset"], base64.b64decode(row["value"])))
            for topic in left:
                assert served[topic] == wanted[topic, level], (topic, level)
        offsets = broker.produce([Record(topic, b"k", b"next", partition=0) for topic in left])
        assert offsets == [120] * len(left)
        broker.stop()
        text = broker.log_text()[logged:]
    # An index that is not there yet is made again, which the old one calls an error.
    errors = [line for line in text.splitlines() if " ERROR " in line and "rebuilding index files" not in line]
    assert errors == []
    for topic in left:
        folder = tmp_path / "broker" / "logs" / f"{topic}-0"
        assert ours(folder, "read_committed") == [*wanted[topic, "read_committed"], (120, b"next")], topic
        assert findings(folder) == [], topic


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_retention_leaves_the_segments_that_a_broker_leaves(tmp_path: Path, version: str) -> None:
    """By age, by size, with a timestamp in the future, and where all is old."""
    now_ms, hour_ms = int(time.time() * 1000), 3_600_000
    topics: dict[str, tuple[list[int], dict[str, object]]] = {
        "by-age": ([9, 8, 7, 3, 2, 1], {"retention.ms": 5 * hour_ms, "retention.bytes": -1}),
        "by-size": ([9, 8, 7, 3, 2, 1], {"retention.ms": -1, "retention.bytes": 2 * MIB + 100_000}),
        "future": ([9, -3, 9, 9], {"retention.ms": 5 * hour_ms, "retention.bytes": -1}),
        "all-old": ([9, 8, 7], {"retention.ms": hour_ms, "retention.bytes": -1}),
    }
    properties = {"log.retention.check.interval.ms": 500, "log.initial.task.delay.ms": 500}
    loose: dict[str, object] = {"segment.bytes": MIB, "message.timestamp.after.max.ms": 10**12}
    if version == OLD:
        properties.pop("log.initial.task.delay.ms")
        loose.pop("message.timestamp.after.max.ms")
    with Broker.start(tmp_path / "broker", version=version, properties=properties) as broker:
        for topic, (hours, _) in topics.items():
            broker.create_topic(topic, config={**loose, "retention.ms": -1})
            for hour in hours:
                # Two batches that fill a segment together.
                for _ in range(2):
                    value = bytes(500_000)
                    broker.produce([Record(topic, b"k", value, partition=0, timestamp=now_ms - hour * hour_ms)])
        broker.stop()
        copy = tmp_path / "copy"
        shutil.copytree(broker.log_dir, copy)
        broker.restart()
        for topic, (_, config) in topics.items():
            broker.alter_topic(topic, config)
        found = {}
        for topic, (_, config) in topics.items():
            said = {name: str(value) for name, value in config.items()}
            clean_directory(copy, topics=topic, config={**said, "file.delete.delay.ms": "0"})
            found[topic] = segments(copy / f"{topic}-0")
        wait_until(lambda: {topic: segments(broker.log_dir / f"{topic}-0") for topic in topics} == found)
        starts = {row["topic"]: row["beginning"] for row in broker.offsets(*topics)}
        broker.stop()
    assert {topic: segments(broker.log_dir / f"{topic}-0") for topic in topics} == found
    assert {topic: read_layout(folder_at(copy / f"{topic}-0")).start_offset for topic in topics} == starts
    assert {topic: starts[topic] > 0 for topic in topics} == dict.fromkeys(topics, True)


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.log"))


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a broker's retention; what it came to is compared afterwards."""
    deadline = time.monotonic() + RETENTION_WAIT_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.2)
