"""Reads of object stores: requests, time behind a slow wire, and processor time beside a disk.

Partitions by the thousand are in a store in the memory of this process, behind a wire: each answer waits 30 ms, and
bodies share 100 MB a second. Scans are of an S3 server on this machine. A download alone, with nothing done to the
bytes, is the limit that they are compared with.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparklog
from sparklog.storage.looks import one_look
from sparklog.storage.objects import file, wire
from sparklog.storage.registry import locate
from sparklog.topic.places.discovery import discover
from sparklog.topic.places.live import LiveLogs
from tests.storage.objects.stores import new_root, put
from tests.storage.servers.buckets import in_environment, put_folder_into
from tests.storage.servers.server import Server, seaweed

DELAY_SECONDS = 0.03
BYTES_PER_SECOND = 100e6
ROUNDS = 5


class Wire:
    """A wire in front of the stores of this process."""

    def __init__(self) -> None:
        self.requests = 0
        self.free_at = 0.0
        self.lock = threading.Lock()

    def within_time(self, ask: Callable[[], Any]) -> Any:
        self.requests += 1
        time.sleep(DELAY_SECONDS)
        found = ask()
        if isinstance(found, memoryview):
            with self.lock:
                until = self.free_at = max(self.free_at, time.monotonic()) + len(found) / BYTES_PER_SECOND
            time.sleep(max(until - time.monotonic(), 0))
        return found


@contextmanager
def slow_wire() -> Iterator[Wire]:
    found = Wire()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wire, "_within_time", found.within_time)
        yield found


def took(do: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that a call takes, with nothing kept of earlier reads."""
    file._spans = file._Spans()  # type: ignore[misc]
    before = clock()
    do()
    return clock() - before


def median(do: Callable[[], object], clock: Callable[[], float]) -> float:
    return float(np.median([took(do, clock) for _ in range(ROUNDS)]))


def scan(path: str) -> None:
    with sparklog.open_log(path) as log:
        for _ in log.batches():
            pass


def download(url: str) -> None:
    """Fetch all segments of a log, and do nothing with them."""
    storage, path = locate(url)
    room = memoryview(bytearray(4 << 20))
    for each in storage.names(path):
        if each.name.endswith(".log"):
            with storage.open(f"{path}/{each.name}") as opened:
                position = 0
                while count := opened.read_into(position, room):
                    position += count


def large_log(folder: Path, codec: str) -> Path:
    config = sparklog.LogConfig(compression_type=codec, segment_bytes=100 << 20)
    choose = np.random.default_rng(1)
    with sparklog.PartitionLog.open(folder, config) as log:
        for _ in range(40):
            values = [choose.bytes(400) for _ in range(12_000)]
            log.append(pa.table({"value": values}))
    return folder


def scans(server: Server, folder: Path) -> None:
    for codec in ("uncompressed", "lz4"):
        disk = large_log(folder / codec / "events-0", codec)
        url = put_folder_into(server, "s3://bench", disk, f"{codec}/events-0")
        size_bytes = sum(path.stat().st_size for path in disk.glob("*.log"))
        scan(str(disk))
        local, alone, here = (
            median(lambda do=do, path=path: do(path), time.process_time)  # type: ignore[misc]
            for do, path in ((scan, str(disk)), (download, url), (scan, url))
        )
        print(f"{codec}: processor time of a scan / (the same from a disk + a download): {here / (local + alone):.2f}")
        with slow_wire():
            least = size_bytes / BYTES_PER_SECOND
            print(f"{codec}: share of the wire that a scan uses: {least / took(lambda url=url: scan(url)):.2f}")  # type: ignore[misc]


def partitions(folder: Path, count: int) -> None:
    root, one = new_root(), folder / "one" / "events-0"
    with sparklog.PartitionLog.open(one) as log:
        log.append(pa.table({"value": [b"x" * 100] * 100}))
    for number in range(count):
        for path in one.iterdir():
            put(root, f"logs/events-{number}/{path.name}", path.read_bytes())
    url, logs = f"{root}/logs", LiveLogs(is_committed=False)

    def look() -> None:
        with one_look():
            logs.look(discover([url]).partitions)

    def describe() -> None:
        list(sparklog.describe(url, processes=1))

    with slow_wire() as seen:
        for what, do in (
            ("plan", lambda: sparklog.open_topic(url).close()),
            ("describe", describe),
            ("first look of a stream", look),
            ("look of a stream that rests", look),
        ):
            seen.requests = 0
            seconds = took(do)
            print(f"{what} of {count} partitions: {seen.requests / count:.3f} requests a partition, {seconds:.2f} s")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        partitions(Path(folder), 1000)
        with seaweed(Path(folder)) as server, in_environment(server.environment):
            scans(server, Path(folder) / "logs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
