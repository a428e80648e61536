"""A process that does jobs as it is told, a line each, here or on Spark, and says how each ended: to be killed.

A line is JSON: the name of the job, its arguments, and its options. Given ``spark``, the process runs them there.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import sparklog
import sparklog.jobs.load.job
from sparklog.errors import SeglogError
from tests.jobs.tables import EXAMPLES


def session() -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        # Before the first job Spark does little for seconds, in which nothing of interest is killed.
        sparklog.export(EXAMPLES, folder, spark=spark)
    return spark


def main(where: str) -> None:
    runner = {"spark": session()} if where == "spark" else {"processes": 2}
    # So that small files are some tasks.
    sparklog.jobs.load.plan._TASK_BYTES_MIN = 1 << 14  # type: ignore[misc]
    print("ready", flush=True)
    for line in sys.stdin:
        job, arguments, options = json.loads(line)
        print("begun", flush=True)
        try:
            getattr(sparklog, job)(*arguments, **options, **runner)
        except SeglogError as error:
            print(json.dumps(["failed", str(error)]), flush=True)
        else:
            print('["done", ""]', flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
