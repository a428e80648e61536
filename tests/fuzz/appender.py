"""A process that appends until it is killed: ``python -m tests.fuzz.appender`` takes orders, forks a child for each.

The parent has loaded all that is slow, so a kill costs milliseconds. An order is a line of JSON: ``folder``, ``seed``,
and ``stop_at``, the storage call at which the child kills itself (None: it is killed from outside). Lines come back:

    pid 4711          the child has begun
    open 120          the log is open, and ends there
    try 7 3           append 7, of 3 records, begins
    ack 7 120 122     it has got these offsets
    closed
    end               the child is dead
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sparklog.log.config import LogConfig
from sparklog.write.partition import LogWriter
from tests.storage.crash import CrashingStorage, Stopped

APPENDS: Final = 6
CONFIG: Final = LogConfig.from_properties(
    {
        "compression.type": "uncompressed",
        "batch.size": "300",
        "segment.index.bytes": "64",
        "index.interval.bytes": "100",
    }
)
ATOMIC_RECORDS: Final = 2
"""An append of so few records fits one batch of `CONFIG`."""


class KillingStorage(CrashingStorage):
    """Storage that kills its process at its n-th change: before it, or, torn, with half of what it writes."""

    def __init__(self, root: Path, stop_at: int, *, is_torn: bool) -> None:
        super().__init__(root, stop_at)
        self._is_torn, self._dies_at_half = is_torn, False

    def step(self, name: str, path: str) -> None:
        try:
            super().step(name, path)
        except Stopped:
            if not (self._is_torn and name.startswith("append")):
                os.kill(os.getpid(), signal.SIGKILL)
            self._dies_at_half = True

    def tear(self) -> None:
        if self._dies_at_half:
            os.kill(os.getpid(), signal.SIGKILL)


def value(seed: int, append: int, row: int) -> bytes:
    return f"{seed}/{append}/{row} ".encode().ljust(60, b"x")


def records(seed: int, append: int) -> list[bytes]:
    """Return the values of an append: one batch, some batches, or so many that the log rolls."""
    count = random.Random(f"{seed}/{append}").choice((1, 2, 2, 7, 30, 80))
    return [value(seed, append, row) for row in range(count)]


def told(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def append_until_killed(order: Mapping[str, Any]) -> None:
    """Open, append, now and then flush, close, and again, until the process dies or so many appends are done."""
    seed, stop_at, folder = order["seed"], order["stop_at"], Path(order["folder"])
    rng, append = random.Random(seed), 0
    storage = None if stop_at is None else KillingStorage(folder.parent, stop_at, is_torn=order["is_torn"])
    while append < (APPENDS if stop_at is not None else 10_000):
        with LogWriter.open(folder, CONFIG, storage=storage) as log:
            told(f"open {log.end_offset}")
            for _ in range(rng.choice((1, 3, 6))):
                rows = records(seed, append)
                told(f"try {append} {len(rows)}")
                first, last = log.append(pa.table({"value": rows}))
                told(f"ack {append} {first} {last}")
                append += 1
                if rng.random() < 0.2:
                    log.flush()
        told("closed")


def load() -> None:
    """Have all that is slow to load be loaded, compiled code above all."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with LogWriter.open(Path(folder) / "load-0", CONFIG) as log:
                log.append(pa.table({"value": records(0, 0)}))


def main() -> None:
    load()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            told(f"pid {os.getpid()}")
            try:
                append_until_killed(order)
            except Stopped:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        os.waitpid(pid, 0)
        told("end")


if __name__ == "__main__":
    main()
