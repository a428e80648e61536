"""The demo shows what goes wrong in it, and not that a process of PySpark's was hung up on."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DEMO = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "demo.py"))
HANG_UP = """Traceback (most recent call last):
  File "/venv/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/venv/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""
OF_OURS = HANG_UP.replace("/venv/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", "/venv/sparklog/log/reader.py")
CUT = HANG_UP.removesuffix("BrokenPipeError: [Errno 32] Broken pipe\n")
OTHER = HANG_UP.replace("BrokenPipeError: [Errno 32] Broken pipe", "OSError: [Errno 28] No space left on device")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a\nb\n", "a\nb\n"),
        (f"a\n{HANG_UP}b\n{HANG_UP}", "a\nb\n"),
        (HANG_UP + HANG_UP, ""),
        (OF_OURS, OF_OURS),
        (f"{OTHER}{HANG_UP}{OF_OURS}", f"{OTHER}{OF_OURS}"),
        ("BrokenPipeError: [Errno 32] Broken pipe\n", "BrokenPipeError: [Errno 32] Broken pipe\n"),
        ("Traceback (most recent call last):\n", "Traceback (most recent call last):\n"),
        (CUT, CUT),
    ],
)
def test_only_hang_ups_are_left_out(said: str, shown: str) -> None:
    assert "".join(DEMO["without_hang_ups"](said.splitlines(keepends=True))) == shown
