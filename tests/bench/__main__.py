"""The measurements that docs/performance.md quotes: ``python -m tests.bench [NAME ...]``, or ``NAME OPTION ...``.

All of them one after the other, which takes about an hour, or the named ones; one alone with its own options.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from itertools import takewhile

MEASUREMENTS = (
    "plan",
    "scale_small",
    "start",
    "decode",
    "encode",
    "threads",
    "filters",
    "erase",
    "stream",
    "spark_read",
    "spark_read --memory",
    "scale_read",
    "spark_write",
    "spark_write --memory",
    "commit",
    "producer",
    "clean",
    "diff",
    "damage",
    "jobs",
    "jobs --many",
    "jobs --memory",
    "scale",
    "connector",
    "stream_connector",
    "jobs_peers",
    "storage",
    "large",
)


def chosen(names: Sequence[str]) -> list[str]:
    """Return the measurements of these names, or all where there is none; exit with an error for any other name.

    A name stands for all that begin with it as a word: ``spark_read`` also for ``spark_read --memory``, and ``scale``
    also for ``scale_read``.
    """
    there = dict.fromkeys(measurement.split()[0] for measurement in MEASUREMENTS)
    for name in names:
        if not any(_is_meant(measurement, name) for measurement in MEASUREMENTS):
            raise SystemExit(f"no measurement {name!r}: there is {', '.join(there)}")
    return [each for each in MEASUREMENTS if not names or any(_is_meant(each, name) for name in names)]


def apart(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that the arguments begin with, and the options after them."""
    names = list(takewhile(lambda each: not each.startswith("-"), arguments))
    return names, list(arguments[len(names) :])


def _is_meant(measurement: str, name: str) -> bool:
    word = measurement.split()[0]
    return word == name or word.startswith(f"{name}_")


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="NAME")
    names, options = apart(sys.argv[1:])
    if len(names) != 1:
        names, options = arguments.parse_args().names, []
    for measurement in chosen(names):
        name, *of_measurement = measurement.split()
        subprocess.run([sys.executable, "-m", f"tests.bench.{name}", *of_measurement, *options], check=True)


if __name__ == "__main__":
    main()
