"""Two threads beside one, and beside two processes: ``python -m tests.bench.threads``.

Four partitions of batches of about 16 KiB are read whole, in turn by one thread, by two threads of `open_topic`, and
by two processes that have two partitions each. Processes share nothing but the machine, so that their ratio is the
most that threads can reach here. All are measured in turn within one run, several times over, and the fastest of each
count, since other work on the machine only ever makes one slower. Nothing is asserted about time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sparklog.log.reader import open_log
from sparklog.topic.reader import open_topic
from tests.bench.logs import write_large_partition

PARTITIONS = 4
CODECS = ("none", "lz4", "snappy", "zstd", "gzip")
TOPIC = "events"


def in_threads(topic: Path, threads: int) -> int:
    return sum(batch.num_rows for batch in open_topic(topic, threads=threads).batches())


def serve(directory: Path, mine: tuple[int, ...], asked: Connection) -> None:
    """Read some partitions each time that one asks for a codec, and say so when they are read."""
    while codec := asked.recv():
        logs = [open_log(directory / codec / f"{TOPIC}-{n}") for n in mine]
        asked.send(sum(batch.num_rows for log in logs for batch in log.batches()))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measured(directory: Path, codec: str, servers: list[Connection], rounds: int) -> list[float]:
    """Return the least seconds of one thread, of two threads, and of two processes."""

    def in_processes() -> int:
        for each in servers:
            each.send(codec)
        return sum(each.recv() for each in servers)

    topic = directory / codec / TOPIC
    ways: list[Callable[[], int]] = [lambda: in_threads(topic, 1), lambda: in_threads(topic, 2), in_processes]
    assert len({way() for way in ways}) == 1
    return [min(column) for column in zip(*([seconds(way) for way in ways] for _ in range(rounds)), strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=40, help="of each partition")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    table = Table("codec", "two threads", "two processes", title="times as fast as one thread")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        directory, servers = Path(folder), []
        for first in range(2):
            ours, theirs = context.Pipe()
            mine = tuple(range(first, PARTITIONS, 2))
            context.Process(target=serve, args=(directory, mine, theirs), daemon=True).start()
            servers.append(ours)
        for codec in CODECS:
            for n in range(PARTITIONS):
                write_large_partition(directory / codec / f"{TOPIC}-{n}", given.mebibytes << 20, codec)
            one, threads, processes = measured(directory, codec, servers, given.rounds)
            table.add_row(codec, f"{one / threads:.2f}", f"{one / processes:.2f}")
        for each in servers:
            each.send("")
    Console().print(table)


if __name__ == "__main__":
    main()
