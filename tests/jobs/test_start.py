"""What a process imports that does tasks: pandas takes a third of its start, and nothing of a plain job needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import HERE
from tests.jobs.loads import strings, write_parquet

SCRIPT = """
import sys
import sparklog
job, source, target = sys.argv[1:]
options = {"topic": "t", "num_partitions": 2} if job == "load" else {}
getattr(sparklog, job)(source, target, processes=1, **options)
assert "pandas" not in sys.modules
"""


@pytest.mark.parametrize("job", ["export", "copy", "load"])
def test_a_plain_job_does_not_import_pandas(tmp_path: Path, job: str) -> None:
    source = HERE.parent / "examples" / "data"
    if job == "load":
        source = tmp_path / "in.parquet"
        times = pa.array([1, None, 3], pa.timestamp("ms", "UTC"))
        write_parquet(source, strings(["1", "2", "3"], key=["a", None, "c"], timestamp=times))
    subprocess.run([sys.executable, "-c", SCRIPT, job, str(source), str(tmp_path / "out")], check=True, cwd=HERE.parent)
