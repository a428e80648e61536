"""The lines of docs/storage.md are run on an S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.golden import EXAMPLES
from tests.storage.cloud.conftest import Golden
from tests.storage.servers.buckets import put_folder_into
from tests.test_readme import DOCS, ENVIRONMENT, FENCED, IN_BUCKET, ROOT, WRITTEN

SESSION = """
from pyspark.sql import SparkSession
import sparklog
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
sparklog.register(spark)
"""


def test_lines_of_the_page_run(s3: Golden, tmp_path: Path) -> None:
    put_folder_into(s3.server, IN_BUCKET, EXAMPLES, "kafka-logs")
    environment = {**os.environ, **ENVIRONMENT, **s3.server.environment}
    blocks = FENCED.findall((DOCS / "storage.md").read_text())
    python = "\n".join(text for kind, text in blocks if kind == "python").replace(WRITTEN, f"{tmp_path}/")
    lines = [line for kind, text in blocks if kind == "bash" for line in text.splitlines() if IN_BUCKET in line]
    for command in ([sys.executable, "-c", SESSION + python], *(["bash", "-c", line] for line in lines)):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout
