"""How fast copies of a log are compared, beside reading the same bytes of the same files.

    python -m tests.bench.diff [--mib N] [--rounds N]

Both read all bytes of two copies, in turn; the ratio is the median over rounds of (seconds of processor for reading /
for comparing). Files are read in windows of a reader's size, and nothing is done with the bytes. Three pairs: equal
copies; equal copies with segments of other lengths; and copies that differ in every hundredth batch.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sparklog.inspect.diff import DiffRow, diff_copies
from sparklog.log.windows import WINDOW_BYTES
from tests.bench.logs import overwrite_batches, write_large_partition
from tests.places import LOCAL, folder_at

CHANGED_EVERY = 100
PAGE_BYTES = 1 << 12


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--mib", type=int, default=1024, help="of each copy")
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="diff-"))
    try:
        one, same, other, changed = (folder / name / "events-0" for name in ("one", "same", "other", "changed"))
        write_large_partition(one, given.mib << 20)
        shutil.copytree(one, same)
        write_large_partition(other, given.mib << 20, segment_bytes=100_000_000)
        shutil.copytree(one, changed)
        overwrite_batches(changed, CHANGED_EVERY, 12, b"\0\0\0\7")  # another leader epoch
        print(f"{'':10} {'read s':>8} {'diff s':>8} {'ratio':>6}  rows")
        for name, copy in (("equal", same), ("segments", other), ("changed", changed)):
            measure(name, [one, copy], given.rounds)
    finally:
        shutil.rmtree(folder)


def measure(name: str, copies: list[Path], rounds: int) -> None:
    costs = [(seconds(lambda: read(copies)), seconds(lambda: compare(copies))) for _ in range(rounds + 1)][1:]
    ratio = statistics.median(reading / comparing for reading, comparing in costs)
    reading, comparing = (statistics.median(each) for each in zip(*costs, strict=True))
    print(f"{name:10} {reading:8.3f} {comparing:8.3f} {ratio:6.2f}  {compare(copies)}")


def seconds(work: Callable[[], int]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def read(copies: list[Path]) -> int:
    # From a page on: the system fills other memory at half the speed.
    memory = np.empty(WINDOW_BYTES + PAGE_BYTES, np.uint8)
    begin, size_bytes = -memory.ctypes.data % PAGE_BYTES, 0
    window = memory.data[begin : begin + WINDOW_BYTES]
    for path in (path for copy in copies for path in sorted(copy.glob("*.log"))):
        with LOCAL.open(str(path)) as file:
            position = 0
            while count := file.read_into(position, window):
                position += count
            size_bytes += position
    return size_bytes


def compare(copies: list[Path]) -> int:
    return sum(isinstance(each, DiffRow) for each in diff_copies([folder_at(copy) for copy in copies]))


if __name__ == "__main__":
    main()
