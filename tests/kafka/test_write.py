"""A real broker adopts what Spark wrote into its directory, and serves it as its own."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

import sparklog
from sparklog.log.layout import read_layout
from tests.kafka.broker import Broker, Record
from tests.kafka.dump import dump_log
from tests.places import folder_at

pytestmark = pytest.mark.kafka

PARTITIONS = 3
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_760_000_000_000
# So small that there are several segments and many index entries.
TOPIC_CONFIG = {"segment.bytes": 1 << 20, "index.interval.bytes": 4096}


def rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    """Rows of every shape: keys and values that are there, empty and null, headers of all kinds, times in no order."""
    n = F.col("id")
    return spark.range(start, end, numPartitions=4).select(
        F.when(n % 7 == 0, None).when(n % 7 == 1, F.lit("")).otherwise(F.concat(F.lit("k"), n)).alias("key"),
        F.when(n % 11 == 0, None)
        .when(n % 11 == 1, F.lit(b""))
        .otherwise(F.sha2(n.cast("string"), 512).cast("binary"))
        .alias("value"),
        F.when(n % 3 == 0, None)
        .when(n % 3 == 1, F.expr("cast(array() as array<struct<key:string,value:binary>>)"))
        .otherwise(
            F.array(
                *(F.struct(F.lit(name).alias("key"), value.alias("value")) for name, value in (
                    ("trace", n.cast("string").cast("binary")),
                    ("trace", F.lit(None).cast("binary")),
                    ("", F.lit(b"")),
                ))
            )
        )
        .alias("headers"),
        F.timestamp_millis(F.lit(NOW_MS) + (n * 7919) % 1_000_000).alias("timestamp"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.start(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def write(frame: DataFrame, broker: Broker, topic: str, **options: str) -> None:
    named = {name: str(value) for name, value in TOPIC_CONFIG.items()} | options
    frame.write.format("seglog").mode("append").options(**named).save(f"{broker.log_dir}/{topic}")


def expected(frame: DataFrame) -> Counter[Any]:
    """Count the records that rows must become."""
    return Counter(
        (
            None if row.key is None else row.key.encode(),
            None if row.value is None else bytes(row.value),
            tuple((name, None if value is None else bytes(value)) for name, value in row.headers or ()),
            row.ms,
        )
        for row in frame.withColumn("ms", F.unix_millis("timestamp")).collect()
    )


def consumed(broker: Broker, topic: str) -> Counter[Any]:
    """Count the records that a real consumer reads."""

    def octets(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return Counter(
        (
            octets(record["key"]),
            octets(record["value"]),
            tuple((name, octets(value)) for name, value in record["headers"]),
            record["timestamp"],
        )
        for record in broker.consume(topic)
    )


@pytest.mark.parametrize("is_clean", [True, False], ids=["trusted", "recovered"])
def test_broker_serves_what_spark_wrote(spark: SparkSession, broker: Broker, is_clean: bool) -> None:
    topics = {codec: f"spark-{codec}-{'clean' if is_clean else 'unclean'}" for codec in CODECS}
    for topic in topics.values():
        broker.create_topic(topic, partitions=PARTITIONS, config=TOPIC_CONFIG)
    broker.stop()
    jobs = [rows(spark, 0, 30_000), rows(spark, 30_000, 30_500)]
    for codec, topic in topics.items():
        for job in jobs:
            write(job, broker, topic, **{"compression.type": codec})
    marker = broker.log_dir / ".kafka_cleanshutdown"
    assert marker.exists()
    if not is_clean:
        marker.unlink()
    ends = {topic: end_offsets(broker, topic) for topic in topics.values()}
    for topic in topics.values():
        check_files(broker, topic)
    logged = len(broker.log_text())
    broker.restart()

    complaints = [line for line in broker.log_text()[logged:].splitlines() if " WARN " in line or " ERROR " in line]
    assert [line for line in complaints if "spark-" in line] == []
    assert [path.name for path in broker.log_dir.iterdir() if path.name.endswith("-stray")] == []
    wanted = expected(jobs[0].union(jobs[1]))
    for topic in topics.values():
        assert consumed(broker, topic) == wanted, topic
        check_offsets(broker, topic, ends[topic])
        check_times(broker, topic)
        check_next_offset(broker, topic, ends[topic])


def end_offsets(broker: Broker, topic: str) -> dict[int, int]:
    return {n: read_layout(folder_at(broker.log_dir / f"{topic}-{n}")).end_offset for n in range(PARTITIONS)}


def check_offsets(broker: Broker, topic: str, ends: dict[int, int]) -> None:
    found = broker.offsets(topic)
    assert {row["partition"]: (row["beginning"], row["end"], row["last_stable"]) for row in found} == {
        partition: (0, end, end) for partition, end in ends.items()
    }


def check_times(broker: Broker, topic: str) -> None:
    """The broker and we find the same offsets for times in the midst of the log, and after it."""
    times = [NOW_MS - 1, *range(NOW_MS, NOW_MS + 1_000_000, 99_991), NOW_MS + 2_000_000]
    queries = [(topic, partition, time) for partition in range(PARTITIONS) for time in times]
    answers = [answer["offset"] for answer in broker.offsets_for_times(queries)]
    ours = []
    for _, partition, time in queries:
        with sparklog.open_log(f"{broker.log_dir}/{topic}-{partition}") as log:
            ours.append(log.offset_for_time(time))
    assert answers == ours
    assert None in ours
    assert len(set(ours)) > 5


def check_next_offset(broker: Broker, topic: str, ends: dict[int, int]) -> None:
    """Producing goes on where the log ends."""
    offsets = broker.produce([Record(topic, b"k", b"next", partition=n, timestamp=NOW_MS) for n in range(PARTITIONS)])
    assert offsets == [ends[n] for n in range(PARTITIONS)]


def check_files(broker: Broker, topic: str) -> None:
    """Kafka's own tool finds nothing wrong with logs and indexes; there are several segments to look at."""
    for partition in range(PARTITIONS):
        folder = broker.log_dir / f"{topic}-{partition}"
        logs, indexes = sorted(folder.glob("*.log")), sorted(folder.glob("*.*index"))
        if "uncompressed" in topic:
            assert len(logs) > 1
        assert "isvalid: false" not in dump_log(logs, root=broker.log_dir, deep=True)
        assert "mismatch" not in dump_log(indexes, root=broker.log_dir, deep=False, verify_index_only=True).lower()
        sanity = dump_log(indexes, root=broker.log_dir, index_sanity_check=True)
        assert sanity.count("passed sanity check") == len(indexes)


def test_running_broker_is_safe(spark: SparkSession, broker: Broker) -> None:
    broker.restart()
    broker.create_topic("guarded", config=TOPIC_CONFIG)
    broker.produce([Record("guarded", b"k", b"v", timestamp=NOW_MS)])
    before = {path: path.read_bytes() for path in sorted((broker.log_dir / "guarded-0").iterdir())}
    with pytest.raises(PySparkException, match="a broker runs on"):
        write(rows(spark, 0, 10), broker, "guarded")
    assert {path: path.read_bytes() for path in sorted((broker.log_dir / "guarded-0").iterdir())} == before
    assert [path.name for path in Path(broker.log_dir).glob("seglog.*")] in ([], ["seglog.commit", "seglog.lock"])
    assert len(broker.consume("guarded")) == 1
