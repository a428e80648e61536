"""Signals that come in the middle of sends: what a handler sends, and sends that a handler's error ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sparklog

SECONDS = 120

_SENDER = """
import itertools, random, signal, sys, sparklog

class Ended(Exception):
    pass

numbers, sent = itertools.count(), {}

def send(producer):
    number = next(numbers)
    text = b"%d" % number
    sent[number] = producer.send("events", text, text, headers=[("n", text)], partition=number % 2)

def handle(*_):
    send(producer)
    if random.random() < 0.5:
        raise Ended

with sparklog.Producer(sys.argv[1], acks=1, num_partitions=2) as producer:
    send(producer)
    signal.signal(signal.SIGALRM, handle)
    for _ in range(200):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
            for _ in range(200):
                send(producer)
        except Ended:
            pass
    signal.setitimer(signal.ITIMER_REAL, 0)
for number, future in sent.items():
    print(number, future.get().partition, future.get().offset)
"""


def test_records_are_whole_and_the_producer_goes_on_after_signals(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _SENDER, str(tmp_path)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    columns = ["partition", "offset", "key", "value", "headers"]
    there = {
        (row["partition"], row["offset"]): int(row["value"])
        for row in sparklog.open_topic(tmp_path).read(columns=columns).to_pylist()
        if row["key"] == row["value"] and row["headers"] == [{"key": "n", "value": row["value"]}]
    }
    assert all(number % 2 == partition for (partition, _), number in there.items())
    assert len(set(there.values())) == len(there) == sum(end_offsets(tmp_path))
    acknowledged = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]
    assert len(acknowledged) > len(there) // 2
    assert all(there[partition, offset] == number for number, partition, offset in acknowledged)


def end_offsets(directory: Path) -> list[int]:
    return [sparklog.open_log(directory / f"events-{partition}").end_offset for partition in (0, 1)]
