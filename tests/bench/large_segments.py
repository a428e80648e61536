"""Logs of many segments, for `tests.bench.large`."""

from __future__ import annotations

import time
from pathlib import Path

import sparklog
from tests.bench.large_growth import command
from tests.bench.large_logs import batch_at, new_segments, time_of
from tests.bench.large_meter import Meter, check
from tests.bench.large_streams import follow
from tests.build import write_partition


def read_segments(meter: Meter, place: Path, size: int) -> None:
    """Open a log, and read from it."""
    with new_segments(place, size) as logs:
        folder = logs / "events-0"
        for _ in range(3):
            with meter("open_log", size, "segment"):
                log = sparklog.open_log(folder)
            with meter("last stable offset"):
                stable = log.last_stable_offset
            with meter("offset_for_time, in the middle"):
                middle = log.offset_for_time(time_of(size // 2))
            with meter("offset_for_time, none as late"):
                none = log.offset_for_time(time_of(size))
            with meter("offsets_before"):
                log.offsets_before(time.time_ns() // 1_000_000, 10)
            with meter("read of one offset"):
                one = log.read(size // 2, size // 2 + 1)
            log.close()
            check((stable, middle, none, one.num_rows), (size, size // 2, None, 1))
        with sparklog.open_log(folder) as log, meter("read of all offsets", size, "segment"):
            log.read(columns="offset")


def write_segments(meter: Meter, place: Path, size: int) -> None:
    """Open the log to write."""
    with new_segments(place, size) as logs:
        for _ in range(3):
            with meter("PartitionLog.open", size, "segment"):
                log = sparklog.PartitionLog.open(logs / "events-0")
            with meter("append"):
                log.append({"value": [b"x" * 100]})
            log.close()


def follow_segments(meter: Meter, place: Path, size: int) -> None:
    """Follow the log with a stream."""
    with new_segments(place, size) as logs:

        def add(times: int) -> None:
            write_partition(logs / "events-0", [batch_at(size + times)], base_offset=size + times)

        follow(meter, logs, size, "segment", add, "one new record")


def use_commands(meter: Meter, place: Path, size: int) -> None:
    """Run the commands that look at all segments."""
    with new_segments(place, size) as logs:
        for name, arguments in {
            "clean --dry-run --retention-ms 1": ("clean", logs, "--dry-run", "--retention-ms", "1"),
            "verify": ("verify", logs),
            "describe --segments": ("describe", logs, "--segments"),
        }.items():
            with meter(name, size, "segment"):
                command(*arguments)
        for name in ("--last 1", "--follow --last 1 --limit 1"):
            with meter(f"dump {name}"):
                command("dump", logs, *name.split())
