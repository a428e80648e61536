"""What the first use of the kernels costs: compiled once a machine, and loaded by each process after that.

Run it with ``python -m tests.bench.start``. A process reads a small log, or writes one, where nothing has been compiled
yet, and then others do so again, beside processes that only import numba and pyarrow, which there is no way around.
The first query of a Spark session is timed where nothing has been compiled, and again where everything is.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
LOG = Path(__file__).parents[2] / "examples/data/shop-events-0"
LIBRARIES = "import numba, pyarrow"
USES = {
    "read": f"import sparklog\nwith sparklog.open_log({str(LOG)!r}) as log: log.read()",
    "append": "import pyarrow, sparklog, tempfile\nfolder = tempfile.mkdtemp(dir='.')\n"
    "with sparklog.PartitionLog.open(folder + '/events-0') as log: log.append(pyarrow.table({'value': ['a']}))",
}
QUERY = f"""
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.format("seglog").load({str(LOG.parent)!r}).select("key", "value").collect()
"""


def seconds(code: str, folder: Path) -> float:
    started = time.perf_counter()
    environment = {**os.environ, "SPARKLOG_CACHE_DIR": str(folder / "kernels")}
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)
    return time.perf_counter() - started


def main() -> None:
    for name, code in USES.items():
        with tempfile.TemporaryDirectory() as scratch:
            first = seconds(code, Path(scratch))
            pairs = [(seconds(LIBRARIES, Path(scratch)), seconds(code, Path(scratch))) for _ in range(ROUNDS)]
        alone = statistics.median(pair[0] for pair in pairs)
        later = statistics.median(pair[1] - pair[0] for pair in pairs)
        print(f"{name}: the import of numba and pyarrow takes {alone:.2f} s;", end=" ")
        print(
            f"the first, once a machine, {first - alone:.1f} s more, {(first - alone) / alone:.0f} times that;", end=" "
        )
        print(f"each process after it {later:.2f} s more, {later / alone:.1f} times that")
    with tempfile.TemporaryDirectory() as scratch:
        first = seconds(QUERY, Path(scratch))
        later = statistics.median(seconds(QUERY, Path(scratch)) for _ in range(ROUNDS))
    print(
        f"Spark's first query, session included, takes {first:.1f} s, {first / later:.1f} times that of later sessions"
    )


if __name__ == "__main__":
    main()
