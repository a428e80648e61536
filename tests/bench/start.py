"""What the first use of the kernels costs: compiled once a machine, and loaded by each process after that.

Run it with ``python -m tests.bench.start``. The ratio is to the import of numba alone, which there is no way around.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sparklog

ROUNDS = 5
NUMBA = "import numba, pyarrow"
OURS = "import numba, pyarrow, sparklog.record.columns"


def seconds(code: str, folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        # A copy of the package, in which nothing has been compiled yet.
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(sparklog.__file__).parent, Path(scratch) / "sparklog", ignore=ignore)
        first = seconds(OURS, Path(scratch))
        pairs = [(seconds(NUMBA, Path(scratch)), seconds(OURS, Path(scratch))) for _ in range(ROUNDS)]
    alone = statistics.median(pair[0] for pair in pairs)
    loading = statistics.median(pair[1] - pair[0] for pair in pairs)
    print(f"the import of numba and pyarrow: {alone:.2f} s")
    print(
        f"compiling the kernels, once a machine: {first - alone:.1f} s more, {(first - alone) / alone:.0f} times that"
    )
    print(f"loading them, each process: {loading:.2f} s more, {loading / alone:.1f} times that")


if __name__ == "__main__":
    main()
