"""Kills of a stream from logs over windows to a log: of its driver, its workers, or all. Each window is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pytest

import sparklog
from tests.processes import kill_all, of_session
from tests.spark.conftest import ROOT
from tests.spark.trigger_limits import WRAPPER, limited
from tests.topic.staged import findings

KILLS: Final = 60
ALIVE_SECONDS_MAX: Final = 3.0
DONE_SECONDS_MAX: Final = 300.0
WINDOW_MS: Final = 10_000
START_MS: Final = 1_700_000_000_000

STREAMING = f"""
import sys
from pyspark.sql import SparkSession, functions as F
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("{WRAPPER}", "true").getOrCreate())
limits = {limited(maxOffsetsPerTrigger=1500)!r} if len(sys.argv) > 2 else {limited(maxOffsetsPerTrigger=150)!r}
rows = (spark.readStream.format("seglog").option("startingOffsets", "earliest").options(**limits)
    .load(sys.argv[1] + "/in"))
counts = (rows.withWatermark("timestamp", "1 hour").groupBy(F.window("timestamp", "{WINDOW_MS} milliseconds"))
    .agg(F.count("*").alias("n"), F.sum(F.col("value").cast("string").cast("bigint")).alias("total")))
query = (counts.select(F.unix_millis("window.start").cast("string").alias("key"),
        F.concat_ws(" ", "n", "total").alias("value"))
    .writeStream.format("seglog").option("checkpointLocation", sys.argv[1] + "/checkpoint")
    .option("numPartitions", 2).trigger(availableNow=len(sys.argv) > 2).start(sys.argv[1] + "/out/counts"))
query.awaitTermination()
"""


def kill_python_driver(session: int) -> None:
    """Kill the driver, unless its stream has failed by then."""
    with suppress(ProcessLookupError):
        os.kill(session, signal.SIGKILL)


def kill_workers(session: int) -> None:
    """Kill the workers; Spark begins others, and runs the tasks again."""
    for process in of_session(session):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in process.cmdline():
                process.kill()


WAYS: Final[tuple[Callable[[int], None], ...]] = (kill_all, kill_workers, kill_python_driver)


def write(folder: Path, written: Counter[int], totals: Counter[int], first: int, count: int) -> None:
    """Append records a second apart to two partitions, as a writer beside the stream."""
    for partition in range(2):
        numbers = range(first + partition, first + count, 2)
        with sparklog.PartitionLog.open(folder / "in" / f"events-{partition}") as log:
            times = pa.array([START_MS + 1000 * number for number in numbers], pa.timestamp("ms", "UTC"))
            log.append(pa.table({"value": [str(number) for number in numbers], "timestamp": times}))
        for number in numbers:
            window = (START_MS + 1000 * number) // WINDOW_MS * WINDOW_MS
            written[window] += 1
            totals[window] += number


def run_killed(folder: Path, chance: random.Random, number: int, meanwhile: Callable[[], None]) -> None:
    """Run the stream until a kill, while the writer appends."""
    with started(folder) as process:
        before, deadline = last_batch(folder), time.monotonic() + DONE_SECONDS_MAX
        while last_batch(folder) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, ALIVE_SECONDS_MAX))
        meanwhile()
        time.sleep(chance.uniform(0.0, 2.0))
        WAYS[number % len(WAYS)](process.pid)
        time.sleep(chance.uniform(0.0, 2.0))
        kill_all(process.pid)


def last_batch(folder: Path) -> int:
    """Return the number of the last batch that the stream has planned; -1 where there is none."""
    return max((int(path.name) for path in (folder / "checkpoint" / "offsets").glob("[0-9]*")), default=-1)


def started(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STREAMING, str(folder), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    )


def kill_streams(folder: Path, kills: int, seed: int) -> None:
    """Kill a stream again and again, let it end, and compare what it wrote with what was written to its logs."""
    chance = random.Random(seed)
    written, totals = Counter[int](), Counter[int]()
    first = 0
    for number in range(kills):
        write(folder, written, totals, first, 200)

        def meanwhile(begin: int = first + 200) -> None:
            write(folder, written, totals, begin, 100)

        run_killed(folder, chance, number, meanwhile)
        first += 300
    # A record of much later closes all windows but its own.
    last = first + 10_000
    write(folder, Counter(), Counter(), last, 2)
    process = started(folder, "to the end")
    try:
        assert process.wait(DONE_SECONDS_MAX) == 0
    finally:
        kill_all(process.pid)
    rows = sparklog.open_topic(folder / "out" / "counts").read(columns=["key", "value"]).to_pylist()
    found = [(int(row["key"]), row["value"].decode()) for row in rows]
    assert sorted(found) == sorted((window, f"{n} {totals[window]}") for window, n in written.items())
    assert findings(folder / "out") == []
    assert [path.name for path in (folder / "out").glob("*.staged")] == []


def test_windows_are_there_once_after_some_kills(tmp_path: Path) -> None:
    kill_streams(tmp_path, 1, 7)


@pytest.mark.fuzz
def test_windows_are_there_once_after_many_kills(tmp_path: Path) -> None:
    kill_streams(tmp_path, KILLS, 1)
