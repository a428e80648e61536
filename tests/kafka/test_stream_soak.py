"""Streams beside a broker that compacts and deletes, for long: no gap, nothing twice, no memory or file kept."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pyarrow.parquet as pq
import pytest

from tests.kafka.broker import Broker, Producer, Record
from tests.kafka.content import segment_bytes
from tests.kafka.stream_soak import LAST, LEVELS
from tests.processes import kill_all, of_session

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

ROOT: Final = Path(__file__).parents[2]
MINUTES: Final = float(os.environ.get("SOAK_MINUTES", "20"))
WARM_UP_SECONDS: Final = 120.0
"""Until then what is measured is not counted: processes are begun, and code is loaded."""
TURN_SECONDS: Final = 2.0
SETTLING_SECONDS_MAX: Final = 300.0
BROKER: Final[dict[str, object]] = {
    "log.retention.check.interval.ms": 1000,
    "log.initial.task.delay.ms": 1000,
    "log.cleaner.backoff.ms": 1000,
}
SEGMENT_BYTES, BATCH_BYTES = 1 << 16, 1 << 14
RETENTION_BYTES: Final = 2 << 20
EVENTS_PARTITIONS: Final = 3
TABLE_KEYS: Final = 40
MEMORY_GROWTH_MAX: Final = 1.10

At = tuple[str, int, int]
Content = tuple[bytes | None, bytes | None]


class Writer:
    """Produces to the three topics, and knows what is where.

    Attributes
    ----------
    written : dict
        By topic, partition and offset the key and the value of all records.
    undone : set
        Where records of aborted transactions are.
    """

    def __init__(self, broker: Broker) -> None:
        self._plain: Producer = broker.producer(compression_type="lz4", batch_size=BATCH_BYTES)
        self._transactional: Producer = broker.producer(transactional_id="payments", batch_size=BATCH_BYTES)
        self.written: dict[At, Content] = {}
        self.undone: set[At] = set()
        self._random = random.Random(1)
        self._turn = 0

    @property
    def table_bytes(self) -> int:
        """The bytes of the values that were written to the table."""
        return sum(len(value or b"") for (topic, _, _), (_, value) in self.written.items() if topic == "table")

    def turn(self, events: int = 30) -> None:
        """Send some records to each topic; every third transaction is aborted."""
        self._turn += 1
        self._send(self._plain, [self._record("events", n % EVENTS_PARTITIONS, n) for n in range(3 * events)])
        self._send(self._plain, [self._record("table", n % 2, n, b"%d" % (n * 7 % TABLE_KEYS)) for n in range(40)])
        self._transactional.begin()
        places = self._send(self._transactional, [self._record("payments", 0, n) for n in range(20)])
        if self._turn % 3:
            self._transactional.commit()
        else:
            self._transactional.abort()
            self.undone.update(places)

    def _record(self, topic: str, partition: int, number: int, key: bytes | None = None) -> Record:
        return Record(topic, key, b"%d of turn %d " % (number, self._turn) + self._random.randbytes(300), partition)

    def _send(self, producer: Producer, records: list[Record]) -> list[At]:
        offsets = producer.send(records)
        places = [(each.topic, each.partition or 0, offset) for each, offset in zip(records, offsets, strict=True)]
        self.written.update({place: (each.key, each.value) for place, each in zip(places, records, strict=True)})
        return places


def measure(session: int, log_dir: Path) -> dict[str, float]:
    """Return memory (MiB) and open files of the planners and of the workers of a Spark, and files of the broker."""
    found: defaultdict[str, float] = defaultdict(float)
    for process in of_session(session):
        try:
            command = " ".join(process.cmdline())
            kind = (
                "planner" if "streaming_source_runner" in command else "worker" if "pyspark.daemon" in command else ""
            )
            if not kind:
                continue
            memory, files = process.memory_info().rss / (1 << 20), process.num_fds()
            opened = sum(each.path.startswith(str(log_dir)) for each in process.open_files())
        except psutil.Error:
            continue
        found[f"{kind} MiB"] = max(found[f"{kind} MiB"], memory)
        found[f"{kind} files"] = max(found[f"{kind} files"], files)
        if kind == "planner":
            found["planner's files of the broker"] += opened
    return dict(found)


def thirds(samples: list[dict[str, float]], name: str) -> tuple[float, float, float]:
    """Return the median of each third of the samples."""
    values = [sample[name] for sample in samples if name in sample]
    size = len(values) // 3
    first, second, third = (statistics.median(values[n * size : (n + 1) * size]) for n in range(3))
    return first, second, third


def rows_of(folder: Path) -> Iterator[tuple[At, Content]]:
    # Spark's own list of what was committed is not needed: no task fails here.
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            yield (row["topic"], row["partition"], row["offset"]), (row["key"], row["value"])


def check_rows(rows: list[tuple[At, Content]], writer: Writer, level: str) -> dict[str, int]:
    """Check what a stream has read; return how many rows of each topic it was."""
    found = dict(rows)
    assert len(found) == len(rows), "an offset was read twice"
    assert all(writer.written[place] == content for place, content in rows)
    undone = writer.undone if level == "read_committed" else set()
    assert not found.keys() & undone
    for topic, partition in {place[:2] for place in writer.written}:
        wanted = {place for place in writer.written if place[:2] == (topic, partition)} - undone
        seen = {place for place in found if place[:2] == (topic, partition)}
        if topic != "table":
            # Retention took some before the stream began, and nothing behind its first record may be missing.
            first = min(seen)
            assert seen == {place for place in wanted if place >= first}
            assert first > min(wanted) or topic != "events"
            continue
        last = {writer.written[place][0]: place for place in sorted(wanted)}
        assert set(last.values()) <= seen
        assert {writer.written[place][0]: place for place in sorted(seen)} == last
    return {topic: sum(place[0] == topic for place in found) for topic in ("events", "payments", "table")}


def create_topics(broker: Broker) -> None:
    small = {**segment_bytes(broker, SEGMENT_BYTES), "file.delete.delay.ms": 500}
    deleted = {**small, "cleanup.policy": "delete", "retention.bytes": RETENTION_BYTES}
    cleaned = {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
    broker.create_topic("events", partitions=EVENTS_PARTITIONS, config=deleted)
    broker.create_topic("payments", config={**deleted, "retention.bytes": 4 * RETENTION_BYTES})
    broker.create_topic("table", partitions=2, config=cleaned)


def first_offset(broker: Broker, folder: str) -> int:
    return min(int(path.stem) for path in (broker.log_dir / folder).glob("*.log"))


def test_streams_beside_a_broker_that_compacts_and_deletes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with Broker.start(tmp_path / "broker", properties=BROKER) as broker:
        create_topics(broker)
        writer = Writer(broker)
        while not all(first_offset(broker, f"events-{n}") for n in range(EVENTS_PARTITIONS)):
            writer.turn(1000)
        # A stream that begins at the earliest would else be overtaken before it has read it.
        broker.alter_topic("events", {"retention.bytes": 2 * RETENTION_BYTES})
        starts = {f"events-{n}": first_offset(broker, f"events-{n}") for n in range(EVENTS_PARTITIONS)}
        samples: list[dict[str, float]] = []
        with (out / "log").open("w") as log:
            command = [sys.executable, "-m", "tests.kafka.stream_soak", str(broker.log_dir), str(out)]
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        try:
            warm = time.monotonic() + WARM_UP_SECONDS
            while time.monotonic() < warm + 60 * MINUTES and process.poll() is None:
                writer.turn()
                time.sleep(TURN_SECONDS)
                if time.monotonic() > warm:
                    samples.append(measure(process.pid, broker.log_dir))
            (out / LAST).touch()
            printed, _ = process.communicate(timeout=SETTLING_SECONDS_MAX)
            assert process.returncode == 0, (out / "log").read_text()[-3000:]
        finally:
            kill_all(process.pid)
        ends = {folder: first_offset(broker, folder) for folder in starts}
        table_bytes = sum(path.stat().st_size for path in broker.log_dir.glob("table-*/*.log"))
    print(f"batches: {printed.split()}; records written: {len(writer.written)}; bytes of the table: {table_bytes}")
    # The broker has deleted and compacted meanwhile.
    assert all(ends[folder] > starts[folder] for folder in starts)
    assert table_bytes < writer.table_bytes / 2
    for level in LEVELS:
        print(level, check_rows(list(rows_of(out / level)), writer, level))
    for name in sorted({name for sample in samples for name in sample}):
        first, second, third = thirds(samples, name)
        print(f"{name}: {first:.1f}, {second:.1f}, {third:.1f}")
        if name.endswith("MiB"):
            assert third <= MEMORY_GROWTH_MAX * first
        else:
            assert third <= first
    assert thirds(samples, "planner's files of the broker") == (0, 0, 0)
