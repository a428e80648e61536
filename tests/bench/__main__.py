"""Every measurement that the README quotes, one after the other: ``python -m tests.bench``. Takes some minutes."""

from __future__ import annotations

import subprocess
import sys

MEASUREMENTS = (
    "plan",
    "scale_small",
    "start",
    "decode",
    "encode",
    "threads",
    "spark_read",
    "spark_read --memory",
    "spark_write",
    "spark_write --memory",
    "commit",
    "connector",
)

for measurement in MEASUREMENTS:
    name, *options = measurement.split()
    subprocess.run([sys.executable, "-m", f"tests.bench.{name}", *options], check=True)
