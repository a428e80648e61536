"""Cleaning beside a broker's cleaner: ``python -m tests.bench.clean [compact]``.

Compaction: a real broker and we clean copies of the same log of 100-byte records, first the broker and then we; each
row is the least of the rounds. Wall time of the broker is what its own log says of each cleaning. Processor time, which
a busy machine blurs less, is that of its cleaner's thread, without what the collector of garbage takes beside it. Its
code is warm after the first cleanings. A ratio is of bytes of log a second. The memory is the most that a process takes
more than it had before it began, its offset map of up to 128 MiB among it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import sparklog
from sparklog.cleaner.compaction_pass import compact
from sparklog.cleaner.opened import open_to_clean
from sparklog.cleaner.rewriting import Rewriter
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.record.kernels.warm_up import load_kernels
from sparklog.record.rewrite.offset_map import OffsetMap
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker
from tests.places import folder_at

RECORDS_PER_TURN = 100_000
SEGMENT_BYTES = 8 << 20
MAP_BYTES = 128 << 20
TARGET = 3
START_MS = 1_700_000_000_000
PROCESSED = re.compile(
    r"cleaned log (?P<topic>\S+)-0 \(dirty section.*\n\s*[\d.,]+ MB of log processed in (?P<seconds>[\d.,]+) seconds"
)
BROKER = {"log.cleaner.backoff.ms": 200, "log.cleaner.dedupe.buffer.size": MAP_BYTES}
CLEAN_TIMEOUT_S = 300


@dataclass(frozen=True)
class Seconds:
    """How long a compaction took."""

    wall: float
    processor: float


@dataclass(frozen=True)
class Case:
    """A log: its codec, and how many different keys its records have for each hundred of them."""

    codec: str
    keys_of_100: float

    @property
    def name(self) -> str:
        return f"{self.codec}-{self.keys_of_100:g}".replace(".", "_")


CASES = (Case("uncompressed", 1), Case("uncompressed", 30), Case("lz4", 30), Case("zstd", 30), Case("zstd", 100))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("part", nargs="?", choices=("compact",), default="compact")
    arguments.add_argument("--records", type=int, default=2_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child is not None:
        print(*compacted(given.child))
        return
    with tempfile.TemporaryDirectory() as text:
        measure(Path(text), given.records, given.rounds)


def measure(folder: Path, records: int, rounds: int) -> None:
    table = Table(title=f"Compaction of {records:,} records of 100 bytes")
    titles = (
        "MB",
        "stay",
        "broker, MB/s",
        "sparklog, MB/s",
        "ratio",
        "ratio of processor time",
        "target",
        "memory, MiB",
    )
    for title in ("log", "keys of 100", *titles):
        table.add_column(title, justify="left" if title == "log" else "right")
    for case in CASES:
        write(folder / case.name, case, records)
    with Broker.start(folder / "broker", properties=BROKER) as broker:
        theirs = dict(broker_seconds(broker, folder, rounds))
    for case in CASES:
        size_mb = sum(path.stat().st_size for path in sealed(folder / case.name)) / 1e6
        mine, memory_mb, stay = ours(folder, case, rounds)
        speeds = (size_mb / theirs[case.name].wall, size_mb / mine.wall)
        ratios = (theirs[case.name].wall / mine.wall, theirs[case.name].processor / mine.processor)
        texts = (*(f"{each:.0f}" for each in speeds), *(f"{each:.1f}" for each in ratios))
        table.add_row(
            case.codec,
            f"{case.keys_of_100:g}",
            f"{size_mb:.0f}",
            f"{stay:.0%}",
            *texts,
            f"{TARGET}",
            f"{memory_mb:.0f}",
        )
    Console(width=130).print(table)


def write(folder: Path, case: Case, records: int) -> None:
    """Write a log of several segments, and a small active one behind them."""
    draw = np.random.default_rng(7)
    words = np.array([f"{number:08x}" for number in draw.integers(0, 1 << 32, 2000)])
    config = LogConfig(segment_bytes=SEGMENT_BYTES, compression_type=case.codec)
    keys = max(int(records * case.keys_of_100 / 100), 1)
    with sparklog.PartitionLog.open(str(folder / "log-0"), config) as log:
        for first in range(0, records, RECORDS_PER_TURN):
            picked = words[draw.integers(0, len(words), (RECORDS_PER_TURN, 8))]
            values = [" ".join(row).encode() for row in picked]
            of_turn = [b"user-%09d" % key for key in draw.integers(0, keys, RECORDS_PER_TURN)]
            times = pa.array(range(START_MS + first, START_MS + first + RECORDS_PER_TURN), pa.int64())
            log.append(pa.table({"key": of_turn, "value": values, "timestamp": times.cast(pa.timestamp("ms", "UTC"))}))


def sealed(folder: Path) -> list[Path]:
    return sorted((folder / "log-0").glob("*.log"))[:-1]


def broker_seconds(broker: Broker, folder: Path, rounds: int) -> Iterator[tuple[str, Seconds]]:
    """Have the broker clean copies of each log; yield by name the least seconds that it took."""
    topics = {f"{case.name}.{turn}": case for turn in range(rounds) for case in CASES}
    for topic in topics:
        config = {"cleanup.policy": "compact", "segment.bytes": SEGMENT_BYTES, "min.cleanable.dirty.ratio": 1}
        broker.create_topic(topic, config=config)
    broker.stop()
    with adoption(broker, trust_indexes=True) as adopt:
        for topic, case in topics.items():
            adopt(topic, 0, folder / case.name / "log-0")
    broker.restart()
    processor: dict[str, float] = {}
    for topic in topics:
        began = cleaner_seconds(broker)
        broker.alter_topic(topic, {"min.cleanable.dirty.ratio": 0})
        deadline = time.monotonic() + CLEAN_TIMEOUT_S
        while topic not in said(broker):
            if time.monotonic() > deadline:
                raise SystemExit(f"the broker does not clean {topic}: {broker.log_text()[-2000:]}")
            time.sleep(0.2)
        processor[topic] = cleaner_seconds(broker) - began
    wall = said(broker)
    for case in CASES:
        names = [f"{case.name}.{turn}" for turn in range(rounds)]
        yield case.name, Seconds(min(wall[name] for name in names), min(processor[name] for name in names))


def cleaner_seconds(broker: Broker) -> float:
    """Return the processor time that the broker's cleaner thread has taken so far."""
    found = 0.0
    for task in Path(f"/proc/{broker._running().process.pid}/task").iterdir():
        name, _, numbers = (task / "stat").read_text().rpartition(")")
        if name.partition("(")[2].startswith("kafka-log-clean"):
            user, system = numbers.split()[11:13]
            found += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return found


def said(broker: Broker) -> dict[str, float]:
    """Return how many seconds each cleaning took, as the broker's own log says."""
    found = PROCESSED.finditer(broker.log_text())
    return {each["topic"]: float(each["seconds"].replace(",", "")) for each in found}


def ours(folder: Path, case: Case, rounds: int) -> tuple[Seconds, float, float]:
    """Compact copies of a log, each in a process of its own: least seconds, most memory in MiB, what stays."""
    results = []
    for turn in range(rounds):
        copy = folder / f"{case.name}-{turn}" / "log-0"
        shutil.copytree(folder / case.name / "log-0", copy)
        command = [sys.executable, "-m", "tests.bench.clean", "--child", str(copy)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results.append(tuple(float(number) for number in done.stdout.split()))
        shutil.rmtree(copy.parent)
    wall, processor, memory, stay = zip(*results, strict=True)
    return Seconds(min(wall), min(processor)), max(memory), stay[0]


def compacted(folder: Path) -> tuple[float, float, float, float]:
    """Compact a log: wall and processor seconds, MiB of memory that it took, and the part of its records that stays."""
    at = folder_at(folder)
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES, min_cleanable_dirty_ratio=0)
    log = open_to_clean(at, config, wall_clock_ms())
    # A broker's code is warm, and kernels that are there are loaded in tenths of a second.
    for _ in load_kernels():
        pass
    # The most memory so far was that of loading kernels.
    Path("/proc/self/clear_refs").write_text("5")
    began_mb, began, began_processor = memory_mb("VmRSS"), time.perf_counter(), time.process_time()
    result = compact(log, Rewriter(at, config, log.now_ms), OffsetMap(MAP_BYTES), None)
    seconds = time.perf_counter() - began, time.process_time() - began_processor
    return *seconds, memory_mb("VmHWM") - began_mb, 1 - result.removed_records / result.clean_offset


def memory_mb(name: str) -> float:
    """Return what the kernel says of this process's memory: VmRSS now, VmHWM the most since it was reset, MiB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    main()
