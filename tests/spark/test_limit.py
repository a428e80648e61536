"""A query that takes a few rows of many: the traceback that PySpark prints then is of any Python data source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.conftest import ROOT

SCRIPT = f"""
import time
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        for _ in range(1000):
            yield pa.RecordBatch.from_pydict({{"id": pa.array(range(1000), pa.int64())}})

class Trivial(DataSource):
    def schema(self):
        return "id bigint"
    def reader(self, schema):
        return Reader()

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Trivial)
print(spark.read.format("Trivial").load().limit(3).collect(), flush=True)
time.sleep(3)
print("then", spark.read.format("seglog").load({str(ROOT / "examples" / "data")!r}).limit(3).count(), flush=True)
"""


def test_traceback_of_a_limit_is_pysparks_with_a_source_that_has_nothing_of_ours(tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[Row(id=0), Row(id=1), Row(id=2)]\nthen 3\n"
    assert "BrokenPipeError" in ran.stderr
    assert f"{ROOT}/sparklog/" not in ran.stderr
