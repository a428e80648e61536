"""Options reach Spark's planner and its tasks, and no secret among them is shown or kept anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.spark.test_cluster import SPARK_HOME
from tests.storage.cloud.conftest import Golden

ROOT = Path(__file__).parents[3]
# The keys of the server's user.
SECRETS = ("our-key", "our-secret")
PROGRAM = """
import contextlib, io, json, sys
from pyspark.sql import SparkSession

source, folder, options = sys.argv[1], sys.argv[2], json.loads(sys.stdin.read())
builder = SparkSession.builder.master("local[2]").config("spark.eventLog.enabled", "true")
builder = builder.config("spark.eventLog.dir", folder + "/events").config("spark.ui.enabled", "true")
builder = builder.config("spark.ui.port", "0").config("spark.sql.ui.explainMode", "extended")
builder = builder.config("spark.eventLog.compress", "false").config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
rows = spark.read.format("seglog").options(**options).option("packBytes", "1").load(source)
print("ROWS", rows.count(), rows.rdd.getNumPartitions())
for mode in ("simple", "extended", "codegen", "cost", "formatted"):
    rows.explain(mode=mode)
print(rows, rows._jdf.queryExecution().toString())
given = ", ".join(f"`{name}` '{text}'" for name, text in options.items())
spark.sql(f"CREATE TEMPORARY VIEW logs USING seglog OPTIONS (path '{source}', {given})")
print("VIEW", spark.sql("SELECT * FROM logs").count())
stream = spark.readStream.format("seglog").options(**options).option("startingOffsets", "earliest").load(source)
query = stream.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
query = query.trigger(availableNow=True).start(folder + "/table")
query.awaitTermination()
query.explain(True)
print("STREAM", spark.read.parquet(folder + "/table").count(), query.lastProgress, query.status)
for wrong in ({"storage.account_key": options["storage.secret.access_key_id"]}, {"minPartitions": "x"}):
    try:
        spark.read.format("seglog").options(**options).options(**wrong).load(source).count()
    except Exception as error:
        print("ERROR", error)
import urllib.request
page = spark.sparkContext.uiWebUrl.replace(spark.sparkContext.uiWebUrl.split("//")[1].split(":")[0], "127.0.0.1")
with contextlib.suppress(OSError):
    for each in ("sql?details=true&planDescription=true&length=100", "environment", "jobs", "stages"):
        url = f"{page}/api/v1/applications/{spark.sparkContext.applicationId}/{each}"
        print("REST", urllib.request.urlopen(url, timeout=20).read().decode())
    print("PAGE", urllib.request.urlopen(f"{page}/SQL/execution/?id=0", timeout=20).read().decode())
spark.stop()
"""


def test_options_reach_planner_and_tasks_and_no_secret_is_shown(s3: Golden, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    options = {
        "storage.endpoint": f"http://127.0.0.1:{s3.server.port}",
        "storage.allow_http": "true",
        "storage.region": "us-east-1",
        "storage.secret.access_key_id": SECRETS[0],
        "fs.s3a.secret.key": SECRETS[1],
    }
    without = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    environment = without | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(SPARK_HOME)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"{s3.url}/v2-records/logs", str(tmp_path)],
        input=json.dumps(options),
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    counts = {line.split()[0]: int(line.split()[1]) for line in ran.stdout.splitlines() if line[:4] in ("ROWS", "VIEW")}
    assert counts["ROWS"] == counts["VIEW"] > 0
    for word in ("STREAM", "ERROR", "REST", "PAGE"):
        assert f"\n{word} " in ran.stdout, word
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in kept)
    assert any("checkpoint" in path.parts for path in kept)
    texts = {"output": ran.stdout + ran.stderr} | {str(path): path.read_bytes().decode("latin-1") for path in kept}
    for secret in SECRETS:
        assert [name for name, text in texts.items() if secret in text] == []
