"""How much faster the option ``where`` selects 0.1 % of the records than a filter behind a full read does.

    python -m tests.bench.filters [--mib N] [--rounds N] [--master M]

In Spark the same rows are collected by ``option("where", ...)`` and by ``.where(...)`` on all that is read, warm, in
turn; the ratio is the median over rounds of (full read / filtered read). Beside it are the ratio of the shortest times,
which other work on the machine blurs less, and that of processor seconds. In Python, ``LogReader.read(where=...)`` is
compared in the same way with a read of all, filtered by pyarrow. Keys are spread evenly over the log; offsets are its
last ones, so that indexes say where they begin.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import SparkSession

import sparklog
from tests.bench.spark_read import BATCH_BYTES, CODECS, RECORD_BYTES, processor_seconds, session, value, write_log
from tests.build import Record, v2_batch

PARTITIONS, KEYS = 2, 1000
KEY = "user-0000600"
WARM_UPS = 5

Cost = tuple[float, float]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--mib", type=int, default=720, help="of records a partition; there are two")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--master", default="local[2]")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="filters-"))
    rows = (given.mib << 20) // RECORD_BYTES
    try:
        for codec in CODECS:
            for partition in range(PARTITIONS):
                write_log(folder / codec / f"events-{partition}", codec, rows=rows, seed=partition, make=template)
        heading = "full s", "where s", "ratio", "range", "best", "CPU"
        print("{:7} {:6} {:7} {:>8} {:>8} {:>6}  {:>14} {:>6} {:>6}".format("", "codec", "by", *heading))
        spark = session(given.master)
        for codec in CODECS:
            for by, where in {"key": f"key = '{KEY}'", "offset": f"offset >= {rows - rows // 1000}"}.items():
                measure("Spark", codec, by, *in_spark(spark, folder / codec, where), given.rounds, processor_seconds)
        spark.stop()
        for codec in CODECS:
            measure("Python", codec, "key", *in_python(folder / codec / "events-0"), given.rounds, time.process_time)
    finally:
        shutil.rmtree(folder)


def template(rng: random.Random, codec: str) -> tuple[bytes, int]:
    """Encode a batch of about 16 KiB of records of about 100 bytes, of one of `KEYS` keys each."""
    count = BATCH_BYTES // RECORD_BYTES
    keys = [b"user-%07d" % rng.randrange(KEYS) for _ in range(count)]
    records = [Record(row, 1_772_442_000_000 + row, key, value(rng)) for row, key in enumerate(keys)]
    return v2_batch(records, codec=codec), count


def in_spark(spark: SparkSession, path: Path, where: str) -> tuple[Callable[[], int], Callable[[], int]]:
    """Return what collects rows by a filter behind a full read, and by the option."""
    full = spark.read.format("seglog").load(str(path)).where(where)
    filtered = spark.read.format("seglog").option("where", where).load(str(path))
    return lambda: len(full.collect()), lambda: len(filtered.collect())


def in_python(path: Path) -> tuple[Callable[[], int], Callable[[], int]]:
    def full() -> int:
        with sparklog.open_log(path) as log:
            table = log.read()
        return len(table.filter(pc.equal(table["key"], KEY.encode())))

    def filtered() -> int:
        with sparklog.open_log(path) as log:
            return len(log.read(where=f"key = '{KEY}'"))

    return full, filtered


def measure(
    what: str,
    codec: str,
    by: str,
    full: Callable[[], int],
    filtered: Callable[[], int],
    rounds: int,
    spent: Callable[[], float],
) -> None:
    """Print the times of both, which must find the same number of rows, and their ratio."""
    found = [(full(), filtered()) for _ in range(WARM_UPS)]
    assert all(one == other > 0 for one, other in found), found
    costs = [(cost(full, spent), cost(filtered, spent)) for _ in range(rounds)]
    ratios = sorted(slow[0] / fast[0] for slow, fast in costs)
    slow, fast = zip(*costs, strict=True)
    best = [tuple(min(column) for column in zip(*each, strict=True)) for each in (slow, fast)]
    print(
        f"{what:7} {codec:6} {by:7} {statistics.median(each[0] for each in slow):8.3f} "
        f"{statistics.median(each[0] for each in fast):8.3f} {statistics.median(ratios):6.2f}  "
        f"{ratios[0]:6.2f}..{ratios[-1]:6.2f} {best[0][0] / best[1][0]:6.2f} {best[0][1] / best[1][1]:6.2f}",
        flush=True,
    )


def cost(query: Callable[[], Any], spent: Callable[[], float]) -> Cost:
    """Return the seconds that passed, and those that processors spent."""
    started, before = time.perf_counter(), spent()
    query()
    return time.perf_counter() - started, spent() - before


if __name__ == "__main__":
    main()
