"""Runs quickstart.py, and leaves a harmless traceback of PySpark out of its stderr.

Spark starts a Python process that lists the data sources and makes one, and closes the connection as soon as it has
the answer. If the process has not ended by then, its last flush fails and it prints a BrokenPipeError.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

BEGIN, END = "Traceback (most recent call last):\n", "BrokenPipeError: [Errno 32] Broken pipe\n"


def without_hang_ups(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without the tracebacks of a BrokenPipeError whose frames are all in PySpark's daemon."""
    held: list[str] = []
    for line in lines:
        if held and (line.startswith("    ") or (line.startswith('  File "') and "/pyspark/daemon.py" in line)):
            held.append(line)
            continue
        if line != END or len(held) < 2:
            yield from held
            held = [line] if line == BEGIN else []
            if not held:
                yield line
        else:
            held = []
    yield from held


def main() -> int:
    program = str(Path(__file__).with_name("quickstart.py"))
    with subprocess.Popen([sys.executable, program, *sys.argv[1:]], stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        for line in without_hang_ups(demo.stderr):
            sys.stderr.write(line)
        return demo.wait()


if __name__ == "__main__":
    sys.exit(main())
