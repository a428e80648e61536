"""The measurements that the README quotes: ``python -m tests.bench [NAME ...]``.

All of them one after the other, which takes a quarter of an hour, or those that are named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

MEASUREMENTS = (
    "plan",
    "scale_small",
    "start",
    "decode",
    "encode",
    "spark_read",
    "spark_read --memory",
    "scale_read",
    "spark_write",
    "spark_write --memory",
    "commit",
    "scale",
    "connector",
)


def chosen(names: Sequence[str]) -> list[str]:
    """Return the measurements of these names, or all where there is none; exit with an error for any other name.

    A name stands for all measurements that begin with it as a word: ``spark_read`` also for ``spark_read --memory``.
    """
    there = dict.fromkeys(measurement.split()[0] for measurement in MEASUREMENTS)
    unknown = [name for name in names if name not in there]
    if unknown:
        raise SystemExit(f"no measurement {unknown[0]!r}: there is {', '.join(there)}")
    return [measurement for measurement in MEASUREMENTS if not names or measurement.split()[0] in names]


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="NAME")
    for measurement in chosen(arguments.parse_args().names):
        name, *options = measurement.split()
        subprocess.run([sys.executable, "-m", f"tests.bench.{name}", *options], check=True)


if __name__ == "__main__":
    main()
