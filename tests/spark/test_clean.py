"""Cleanings whose tasks run on Spark leave what those of this machine leave, also beside a stream of the logs."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.inspect.absent import verify_absent
from sparklog.inspect.verify_segment import Finding
from sparklog.jobs.clean.keys import read_keys
from sparklog.log.config import LogConfig
from tests.cleaner.logs import findings
from tests.places import folder_at

CONFIG = LogConfig(segment_bytes=20_000, batch_size=2_000)
AT_ONCE = {"file.delete.delay.ms": "0", "min.cleanable.dirty.ratio": "0"}
KEYS_COUNT = 100_000


def append(folder: Path, keys: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with sparklog.PartitionLog.open(folder, CONFIG) as log:
        log.append(pa.table({"key": keys, "value": [f"value of {key}, {row}" for row, key in enumerate(keys)]}))


def offsets(folder: Path) -> list[int]:
    with sparklog.open_log(folder) as log:
        found: list[int] = log.read(columns=["offset"])["offset"].to_pylist()
    return found


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for partition in range(4):
        append(tmp_path / "logs" / f"events-{partition}", [f"user-{n * 7 % 3000:08}" for n in range(4000)])
    return tmp_path / "logs"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "gone.parquet"
    # Of which 30 are there.
    gone = [f"user-{n:08}" for n in [*range(0, 3000, 100), *range(10_000, 10_000 + KEYS_COUNT - 30)]]
    pyarrow.parquet.write_table(pa.table({"key": gone}), path)
    return path


def both(spark: SparkSession, logs: Path, **options: Any) -> Path:
    """Clean on Spark, and a copy here, and compare what is left; the folder of the logs that Spark cleaned."""
    here = logs.parent / "here"
    shutil.copytree(logs, here)
    of_here = sparklog.clean(here, config=AT_ONCE, processes=1, **options)
    of_spark = sparklog.clean(logs, config=AT_ONCE, spark=spark, task_bytes=1, **options)
    assert of_spark.partitions == of_here.partitions
    assert len(of_spark.changed) == 4
    for partition in range(4):
        folder = logs / f"events-{partition}"
        there = {path.name: path.read_bytes() for path in folder.glob("*.log")}
        assert there == {path.name: path.read_bytes() for path in (here / folder.name).glob("*.log")}
        assert findings(folder) == []
    return logs


def test_a_hundred_thousand_keys_are_erased_as_here(spark: SparkSession, logs: Path, keys: Path) -> None:
    both(spark, logs, erase=str(keys))
    for partition in range(4):
        assert offsets(logs / f"events-{partition}") == [n for n in range(4000) if n * 7 % 3000 % 100]
        events = verify_absent(read_keys(keys), folder_at(logs / f"events-{partition}"))
        assert not [each for each in events if isinstance(each, Finding)]


def test_keys_travel_without_their_hash_table(keys: Path) -> None:
    found = read_keys(keys)
    sent = pickle.dumps(found)
    assert len(sent) < 1.1 * (found.octets.nbytes + found.borders.nbytes)
    again = pickle.loads(sent)
    assert (again.count, again.slots.tobytes()) == (KEYS_COUNT, found.slots.tobytes())


def test_logs_are_compacted_as_here(spark: SparkSession, logs: Path) -> None:
    for partition in range(4):
        append(logs / f"events-{partition}", ["another"] * 500)
    both(spark, logs, cleanup_policy="compact")
    assert len(offsets(logs / "events-0")) < 4000


def key_of(offset: int) -> str:
    return "gone" if offset % 10 == 3 else "same" if offset % 10 > 6 else f"key {offset}"


WAYS: list[dict[str, Any]] = [
    {"cleanup_policy": "compact"},
    {"erase": ["gone"]},
    {"recompress": "zstd"},
    {"erase": ["same"], "blank": "null"},
    {"recompress": "lz4"},
]


def test_stream_beside_cleanings_misses_nothing_that_stays_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of a topic without an id, whose log a stream knows by the batch that it has read last."""
    folder = tmp_path / "logs" / "events-0"
    append(folder, [key_of(n) for n in range(300)])
    rows = spark.readStream.format("seglog").option("startingOffsets", "earliest").load(str(tmp_path / "logs"))
    query = rows.select("offset").writeStream.format("memory").queryName("beside_cleanings").start()
    try:
        end_offset = 300
        for turn in range(2 * len(WAYS)):
            append(folder, [key_of(n) for n in range(end_offset, end_offset + 50)])
            end_offset += 50
            sparklog.clean(tmp_path / "logs", config=AT_ONCE, processes=1, **WAYS[turn % len(WAYS)])
        query.processAllAvailable()
        found = [row["offset"] for row in spark.table("beside_cleanings").collect()]
    finally:
        query.stop()
    assert found == sorted(set(found))
    assert {n for n in range(end_offset) if key_of(n).startswith("key")} <= set(found)
