"""How fast keys are erased, against a plain read of the log and a copy of the segments that change.

    python -m tests.bench.erase [--mib N] [--rounds N] [--keys N]

The ratio is (read + copy) / erasure, of processor seconds of this process and its system calls, each the least of the
rounds, which take turns. Every record has a key of its own; those that are erased are spread evenly over the log.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

import sparklog
from sparklog.cleaner.erasure import Erasure
from sparklog.cleaner.rewriting import Rewriter, Rewritten
from sparklog.jobs.clean.keys import read_keys
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from tests.places import folder_at

CONFIG = LogConfig(file_delete_delay_ms=0)
CODECS = ("uncompressed", "lz4", "zstd")
RECORD_BYTES, ROWS_AT_ONCE = 1000, 1 << 14
WORDS = ("order", "shipped", "customer", "street", "paid", "invoice", "returned", "beans", "grinder", "coffee")
Result = TypeVar("Result")
COLUMNS = ("key", "value", "offset", "timestamp", "headers")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--mib", type=int, default=256)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--keys", type=int, default=100)
    given = arguments.parse_args()
    root = Path(tempfile.mkdtemp(prefix="erase-"))
    rows = (given.mib << 20) // RECORD_BYTES
    print("{:12} {:>8} {:>8} {:>8} {:>8} {:>6}".format("codec", "records", "read s", "copy s", "erase s", "ratio"))
    try:
        for codec in CODECS:
            source = root / codec / "events-0"
            write_log(source, codec, rows)
            measure(codec, source, root / "work" / "events-0", rows, given.rounds, given.keys)
    finally:
        shutil.rmtree(root)


def write_log(folder: Path, codec: str, rows: int) -> None:
    config = LogConfig.from_properties({"compression.type": codec, "segment.bytes": str(64 << 20)})
    words = random.Random(1)
    text = " ".join(words.choice(WORDS) for _ in range(1 << 16)).encode()
    with sparklog.PartitionLog.open(folder, config) as log:
        for first in range(0, rows, ROWS_AT_ONCE):
            numbers = range(first, min(first + ROWS_AT_ONCE, rows))
            starts = [words.randrange(len(text) - RECORD_BYTES) for _ in numbers]
            values = [text[start : start + RECORD_BYTES] for start in starts]
            log.append(pa.table({"key": [key_of(number) for number in numbers], "value": values}))


def key_of(number: int) -> bytes:
    return b"user-%010d" % number


def measure(codec: str, source: Path, work: Path, rows: int, rounds: int, count: int) -> None:
    wanted, erased = read_keys([key_of(number) for number in range(0, rows, rows // count)][:count]), 0
    reads, copies, erasures = [], [], []
    for _ in range(rounds):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source, work)
        took, _ = timed(read, work)
        reads.append(took)
        erasure = Erasure(wanted)
        took, done = timed(erase, work, erasure)
        erasures.append(took)
        erased = len(erasure.erased)
        changed = [source / f"{each.base_offset:020d}.log" for each in done if each.is_changed]
        took, _ = timed(copy, changed, work.parent / "copy")
        copies.append(took)
    ratio = (min(reads) + min(copies)) / min(erasures)
    print(f"{codec:12} {erased:8} {min(reads):8.3f} {min(copies):8.3f} {min(erasures):8.3f} {ratio:6.2f}")


def timed(work: Callable[..., Result], *arguments: object) -> tuple[float, Result]:
    began = time.process_time()
    result = work(*arguments)
    return time.process_time() - began, result


def read(folder: Path) -> int:
    with sparklog.open_log(folder) as log:
        return sum(batch.num_rows for batch in log.batches(columns=COLUMNS))


def erase(folder: Path, erasure: Erasure) -> list[Rewritten]:
    at = folder_at(folder)
    rewriter = Rewriter(at, CONFIG, 0)
    return [rewriter.rewrite((segment,), erasure) for segment in read_layout(at).segments]


def copy(paths: list[Path], target: Path) -> None:
    for path in paths:
        with path.open("rb") as source, target.open("wb") as sink:
            while piece := source.read(1 << 20):
                sink.write(piece)


if __name__ == "__main__":
    main()
