"""A producer that is killed at any time: what it has acknowledged is there once, and in order."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import sparklog
from sparklog.topic.log_manager import LogManager
from tests.topic.staged import findings

PARTITIONS, THREADS = 3, 4
SECONDS = 120

# Each acknowledgement is one short write to a pipe, which is whole or not there.
_SEND = """
import os, sys, threading, sparklog

path, run = sys.argv[1:]
with sparklog.Producer(path, linger_ms=1, buffer_memory=100_000) as producer:
    def acknowledge(number, found):
        os.write(1, b"%d %d %d\\n" % (found.partition, found.offset, number))

    def send(thread):
        number = thread
        while True:
            value = b"%s-%d" % (run.encode(), number)
            producer.send("events", value, key=b"%d" % thread).add_callback(acknowledge, number)
            number += 4

    threads = [threading.Thread(target=send, args=(thread,), daemon=True) for thread in range(4)]
    for thread in threads:
        thread.start()
    threads[0].join()
"""


def kill_often(path: Path, kills: int, seed: int) -> None:
    """Kill producers again and again, and check after each what it has left; the error tells the seed."""
    rng = random.Random(seed)
    LogManager(path).create_topic("events", PARTITIONS, {"segment.bytes": "200000"})
    acknowledged: dict[tuple[int, int], bytes] = {}
    for run in range(kills):
        acknowledged |= {at: b"%d-%d" % (run, number) for at, number in _killed(path, run, rng.uniform(0.0, 0.25))}
        there = _read(path)
        assert acknowledged.items() <= there.items(), f"seed {seed}, run {run}"
    counts = Counter(there.values())
    assert set(counts.values()) == {1}, f"seed {seed}"
    for thread in range(THREADS):
        for run in range(kills):
            numbers = [_number(there[at], run) for at in sorted(there)]
            mine = [n for n in numbers if n is not None and n % THREADS == thread]
            assert mine == list(range(thread, len(mine) * THREADS + thread, THREADS)), f"seed {seed}, run {run}"
    sparklog.PartitionLog.open(path / "events-0").close()
    assert findings(path) == []


def _killed(path: Path, run: int, seconds: float) -> list[tuple[tuple[int, int], int]]:
    """Kill a producer so long after its first acknowledgement; return what it has acknowledged."""
    command = [sys.executable, "-c", _SEND, str(path), str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
        assert process.wait(SECONDS) == -signal.SIGKILL
    found = [[int(each) for each in line.split()] for line in lines if line.endswith(b"\n")]
    assert found
    return [((partition, offset), number) for partition, offset, number in found]


def _read(path: Path) -> dict[tuple[int, int], bytes]:
    table = sparklog.open_topic(path).read(columns=["partition", "offset", "value"])
    return {(row["partition"], row["offset"]): row["value"] for row in table.to_pylist()}


def _number(value: bytes, run: int) -> int | None:
    of_run, number = value.split(b"-")
    return int(number) if int(of_run) == run else None


def test_what_a_killed_producer_has_acknowledged_is_there_once_in_order(tmp_path: Path) -> None:
    kill_often(tmp_path, 3, seed=16)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(5))
def test_what_many_killed_producers_have_acknowledged_is_there_once_in_order(tmp_path: Path, seed: int) -> None:
    kill_often(tmp_path, 10, seed)
