"""What a send costs, beside kafka-python and a real broker: ``python -m tests.bench.producer [--broker HOST:PORT]``.

There are 100,000 records, or with ``--records`` as many thousands as are asked for: of a million, nothing is left of
what a producer costs once.

kafka-python's part is its accumulator alone: records are put into batches that nobody sends. Ours are written to a log,
compressed with lz4, with ``acks=1`` and ``acks=all``. CPU time is that of the whole process, all threads; each number
is the least of some runs, in turn. With ``--broker``, confluent-kafka's ``produce`` into a topic of a broker that runs
on this machine; the broker's own work is not in the CPU time. The last line is how long it takes from the beginning of
an append to the end of the ``poll`` that returns its record in another process.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.structs import TopicPartition
from rich.console import Console
from rich.table import Table

import sparklog

RUNS, POLLS = 5, 200
KEYS, VALUE = [b"key-%d" % n for n in range(1000)], b"x" * 100
NOW_MS = 1_700_000_000_000


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--broker", help="host:port of a broker on this machine; needs confluent-kafka")
    arguments.add_argument("--records", type=int, default=100_000, help="a multiple of 1000")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="producer-"))
    try:
        measure(folder, given.records, given.broker)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, records: int, broker: str | None) -> None:
    rows = pa.table({"value": [VALUE] * records, "key": KEYS * (records // 1000)})
    ways: dict[str, Callable[[], None]] = {
        "kafka-python, its accumulator alone": lambda: accumulate(records),
        "send, acks=1": lambda: send(folder, records, 1),
        "send, acks=all": lambda: send(folder, records, "all"),
        "send_table, acks=all": lambda: send_table(folder, rows),
    }
    if broker is not None:
        ways["confluent-kafka, produce to a broker"] = lambda: produce(broker, records)
    cpu = {name: float("inf") for name in ways}
    wall = dict(cpu)
    for _ in range(RUNS):
        for name, way in ways.items():
            cpu_begun, wall_begun = time.process_time(), time.perf_counter()
            way()
            cpu[name] = min(cpu[name], time.process_time() - cpu_begun)
            wall[name] = min(wall[name], time.perf_counter() - wall_begun)
    first = next(iter(ways))
    table = Table(title=f"{records:,} records of {len(VALUE)} bytes")
    for title in ("way", "us of CPU a record", "as fast", "us a record", "as fast"):
        table.add_column(title, justify="left" if title == "way" else "right")
    for name in ways:
        table.add_row(
            name,
            f"{cpu[name] / records * 1e6:.2f}",
            f"{cpu[first] / cpu[name]:.1f}",
            f"{wall[name] / records * 1e6:.2f}",
            f"{wall[first] / wall[name]:.1f}",
        )
    Console(width=100).print(table)
    delays = sorted(seen_ms(folder / "seen"))
    print(
        f"seen by a poll in another process after {statistics.median(delays):.2f} ms in the middle, "
        f"{delays[len(delays) * 99 // 100]:.2f} ms of 99 in 100"
    )


def accumulate(records: int) -> None:
    accumulator = RecordAccumulator(
        message_version=2, compression_attrs=0, batch_size=16_384, linger_ms=0, delivery_timeout_ms=120_000,
        request_timeout_ms=30_000,
    )  # fmt: skip
    partition = TopicPartition("events", 0)
    for n in range(records):
        accumulator.append(partition, NOW_MS, KEYS[n % 1000], VALUE, [])


def send(folder: Path, records: int, acks: Any) -> None:
    with sparklog.Producer(folder / "send", acks=acks) as producer:
        for n in range(records):
            producer.send("events", VALUE, KEYS[n % 1000])


def send_table(folder: Path, table: pa.Table) -> None:
    with sparklog.Producer(folder / "table") as producer:
        producer.send_table("events", table).get()


def produce(broker: str, records: int) -> None:
    from confluent_kafka import Producer  # type: ignore[import-not-found]

    producer = Producer({"bootstrap.servers": broker, "linger.ms": 5, "queue.buffering.max.messages": records + 1})
    for n in range(records):
        producer.produce("bench-events", VALUE, KEYS[n % 1000])
        producer.poll(0)
    producer.flush()


def seen_ms(folder: Path) -> list[float]:
    """Return how long each of some records took to be returned by a poll of another process."""
    sparklog.LogManager(folder).create_topic("events")
    run = [sys.executable, "-c", _POLL, str(folder), str(POLLS)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with sparklog.PartitionLog.open(folder / "events-0") as log:
            for _ in range(POLLS):
                log.append({"value": [b"%d" % time.time_ns()]})
                time.sleep(0.02)
        return [float(line) for line in process.stdout.read().split()]


_POLL = """
import sys, time, sparklog
with sparklog.Consumer(sys.argv[1], "events", auto_offset_reset="earliest") as consumer:
    consumer.poll(0)
    print("ready", flush=True)
    delays = []
    while len(delays) < int(sys.argv[2]):
        for records in consumer.poll(1000).values():
            delays += [(time.time_ns() - int(each.value)) / 1e6 for each in records]
print(*delays)
"""


if __name__ == "__main__":
    main()
