"""What a worker of Spark imports that reads: pandas takes as long as numba, and nothing of a read needs it."""

from __future__ import annotations

import subprocess
import sys

from tests.spark.conftest import ROOT

SCRIPT = """
import sys
from sparklog.spark.source import SeglogDataSource
source = SeglogDataSource({"path": sys.argv[1], "includeHeaders": "true"})
reader = source.reader(source.schema())
assert sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each)) > 0
assert "pandas" not in sys.modules
"""


def test_a_read_does_not_import_pandas() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT, str(ROOT / "examples" / "data")], check=True, cwd=ROOT)
