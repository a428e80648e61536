"""Spark reads a bucket: batch, views, streams, jobs, on this machine and on a cluster that shares only the bucket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import sparklog
from tests.spark.standalone import standalone_cluster
from tests.spark.test_cluster import ENVIRONMENT, SETTINGS, SPARK_HOME
from tests.storage.cloud.conftest import DATA, SERVERS, Golden
from tests.storage.servers.buckets import in_environment, make_bucket, put_folder_into

DIRECTORY = "v2-transactions/logs"
PROGRAM = """
import json, sys
import sparklog
from pyspark.sql import SparkSession

master, source, settings = sys.argv[1:]
builder = SparkSession.builder.master(master)
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
sparklog.register(spark)
print("ROWS", spark.read.format("seglog").option("packBytes", "1").load(source).count())
"""


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Golden]]:
    """A server of each kind, whose variables are set together: a session of Spark has those from before its start."""
    with ExitStack() as running:
        found = {}
        for name, serve in SERVERS.items():
            server = running.enter_context(serve(tmp_path_factory.mktemp(name)))
            with in_environment(server.environment):
                url = put_folder_into(server, make_bucket(server, f"golden-{server.port}"), DATA, "data")
            found[name] = Golden(server, url)
        variables = {name: text for each in found.values() for name, text in each.server.environment.items()}
        running.enter_context(in_environment(variables))
        yield found


@pytest.fixture
def there(everywhere: dict[str, Golden], request: pytest.FixtureRequest) -> SparkSession:
    """A session that is made when the variables are set."""
    found: SparkSession = request.getfixturevalue("spark")
    return found


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("seglog").options(**options).load(path)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"isolationLevel": "read_committed", "includeHeaders": "true"},
        {"minPartitions": "9", "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"},
        {"subscribePattern": ".*", "packBytes": "1"},
    ],
)
def test_batch_equals_the_read_of_a_disk(
    everywhere: dict[str, Golden], there: SparkSession, kind: str, options: dict[str, str]
) -> None:
    golden, spark = everywhere[kind], there
    for name in (DIRECTORY, "v2-codecs/logs"):
        found, expected = load(spark, f"{golden.url}/{name}", **options), load(spark, str(DATA / name), **options)
        if "includeHeaders" in options:
            found, expected = (each.selectExpr("*", "to_json(headers) h").drop("headers") for each in (found, expected))
        assert found.count() == expected.count() > 0
        assert found.exceptAll(expected).count() == expected.exceptAll(found).count() == 0


def test_stream_reads_what_is_there_and_what_comes(
    everywhere: dict[str, Golden], there: SparkSession, tmp_path: Path
) -> None:
    s3, spark = everywhere["s3"], there
    for count in (load(spark, f"{s3.url}/{DIRECTORY}").count(), 0):
        query = (
            spark.readStream.format("seglog")
            .option("startingOffsets", "earliest")
            .load(f"{s3.url}/{DIRECTORY}")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == count


def test_job_copies_a_bucket_to_a_disk(everywhere: dict[str, Golden], tmp_path: Path) -> None:
    s3 = everywhere["s3"]
    sparklog.copy(f"{s3.url}/{DIRECTORY}", tmp_path / "logs")
    sparklog.copy(DATA / DIRECTORY, tmp_path / "expected")
    with sparklog.open_topic(tmp_path / "logs") as found, sparklog.open_topic(tmp_path / "expected") as expected:
        assert found.end_offsets == expected.end_offsets
        for at, log in found.logs.items():
            assert log.read().equals(expected.logs[at].read())
    sparklog.export(f"{s3.url}/{DIRECTORY}", tmp_path / "out")
    assert list((tmp_path / "out").rglob("*.parquet"))
    assert not [each for each in sparklog.verify(f"{s3.url}/{DIRECTORY}") if each.severity == "error"]


def test_cluster_whose_workers_share_only_the_bucket_reads_it(everywhere: dict[str, Golden], tmp_path: Path) -> None:
    s3 = everywhere["s3"]
    environment = {**ENVIRONMENT, **s3.server.environment}
    with standalone_cluster(tmp_path, SPARK_HOME, environment) as master:
        arguments = (master, f"{s3.url}/{DIRECTORY}", json.dumps(SETTINGS))
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=300
        )
    with sparklog.open_topic(DATA / DIRECTORY) as topic:
        expected = sum(len(batch) for batch in topic.batches(columns=["offset"]))
    assert f"ROWS {expected}" in done.stdout, done.stderr[-3000:]
