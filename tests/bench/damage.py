"""How fast a damaged log is read, and how fast the next batch is found after damage.

    python -m tests.bench.damage [--mib N] [--rounds N]

A log with one bad batch in a hundred is read with ``on_damage="skip"``, in turn with a clean read of the same log; and
noise is searched for a whole batch, in turn with the checksum (CRC-32C) of the same bytes. The ratio is the median over
rounds of the processor seconds of the second by those of the first.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from crc32c import crc32c

import sparklog
from sparklog.log.damage import DamageScanner
from tests.bench.logs import overwrite_batches, write_large_partition
from tests.places import LOCAL

DAMAGED_EVERY = 100
DAMAGED_BYTE = 100


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--mib", type=int, default=256, help="of each log, and of noise")
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    logging.getLogger("sparklog").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="damage-"))
    try:
        print(f"{'':10} {'damaged s':>9} {'clean s':>9} {'ratio':>6}")
        for codec in ("none", "lz4"):
            clean, bad = folder / codec / "clean" / "events-0", folder / codec / "bad" / "events-0"
            write_large_partition(clean, given.mib << 20, codec)
            shutil.copytree(clean, bad)
            overwrite_batches(bad, DAMAGED_EVERY, DAMAGED_BYTE, b"\xee")
            measure(codec, partial(read, bad), partial(read, clean), given.rounds)
        noise, octets = folder / "noise.log", np.random.default_rng(7).bytes(given.mib << 20)
        noise.write_bytes(octets)
        measure("noise", lambda: search(noise), lambda: crc32c(octets), given.rounds)
    finally:
        shutil.rmtree(folder)


def read(folder: Path) -> int:
    is_bad = folder.parent.name == "bad"
    with sparklog.open_log(folder) as log:
        return sum(batch.num_rows for batch in log.batches(on_damage="skip" if is_bad else "fail"))


def search(path: Path) -> int:
    with LOCAL.open(str(path)) as file:
        return sum(1 for _ in DamageScanner(file, is_last=True).whole_batches(0, file.size_bytes()))


def measure(name: str, damaged: Callable[[], int], clean: Callable[[], int], rounds: int) -> None:
    costs = [(seconds(damaged), seconds(clean)) for _ in range(rounds + 1)][1:]
    ratio = statistics.median(second / first for first, second in costs)
    first, second = (statistics.median(each) for each in zip(*costs, strict=True))
    print(f"{name:10} {first:9.3f} {second:9.3f} {ratio:6.2f}")


def seconds(work: Callable[[], int]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
