"""What grows with partitions, segments, groups and commits: ``python -m tests.bench large [--only TABLE ...]``.

Each table has rows of work in directories of several sizes. Figures are processor seconds of the process and its
children; also the calls of the storage, and the peak memory. The cost of one piece of a row's work at the last size is
printed as a multiple of that at the first: about 1, and at most 1.3, where nothing costs more than its work.

    consumer      a consumer in directories of many partitions
    producer      a producer, a transaction and a cleaning over many partitions, also under ulimit -n 1024
    properties    a transaction beside many lines of topics.properties
    logs          logs opened to write, new topics, first sends, in directories of many partitions
    groups        commits of one of many groups
    growth        commands, jobs and streams in directories of many partitions
    spark         queries of Spark over many partitions
    segments      one log of many segments
    ledger        an export with a ledger of many commits

All tables take about half an hour on two idle cores, most of it for growth, spark and segments. With --sizes 1000,50000
the tables consumer, logs, growth and spark take about an hour, and 500,000 files; 50,000 commits of a ledger take some
minutes. A row that takes more than --row-seconds is ended, and its larger sizes are left out: they have a "-".
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.bench import large_clients, large_growth, large_ledger, large_segments, large_spark, large_writes
from tests.bench.large_logs import RECORDS
from tests.bench.large_meter import Step, Work, measured

_ROW_SECONDS: Final = 60.0
_WIDTH: Final = 170


@dataclass(frozen=True)
class LargeTable:
    """Works that are measured at the same sizes.

    Attributes
    ----------
    unit : str
        The name of that of which there are ``sizes``.
    """

    title: str
    unit: str
    sizes: tuple[int, ...]
    works: tuple[Work, ...]


_PARTITIONS: Final = (1_000, 10_000)
TABLES: Final = {
    "consumer": LargeTable(
        "A consumer",
        "partitions",
        _PARTITIONS,
        (large_clients.subscribe, large_clients.poll_rows, large_clients.assign),
    ),
    "producer": LargeTable(
        "A producer, a transaction and a cleaning over all",
        "partitions",
        (100, 300, 1_000),
        (
            large_clients.produce,
            large_clients.produce_with_few_files,
            large_clients.transact,
            large_clients.transact_with_few_files,
            large_growth.clean_with_few_files,
        ),
    ),
    "properties": LargeTable(
        "A transaction beside topics.properties",
        "lines",
        (0, 300, 1_000, 10_000),
        (large_clients.transact_beside_properties,),
    ),
    "logs": LargeTable(
        "Logs and topics of a directory",
        "partitions",
        _PARTITIONS,
        (large_writes.open_logs, large_writes.create_topics, large_writes.delete_topics, large_writes.send_first),
    ),
    "groups": LargeTable(
        "Offsets of groups of 100 partitions", "groups", (10, 100, 1_000), (large_clients.commit_offsets,)
    ),
    "growth": LargeTable(
        f"Directories of logs with {RECORDS} records each",
        "partitions",
        _PARTITIONS,
        (
            large_growth.load,
            large_growth.read,
            large_growth.look,
            large_growth.commit,
            large_growth.export,
            large_growth.copy,
            large_growth.stream,
        ),
    ),
    "spark": LargeTable(
        "Queries of Spark on local[2]", "partitions", _PARTITIONS, (large_spark.count, large_spark.write)
    ),
    "segments": LargeTable(
        "One log",
        "segments",
        (100, 2_000, 20_000),
        (
            large_segments.read_segments,
            large_segments.write_segments,
            large_segments.follow_segments,
            large_segments.use_commands,
        ),
    ),
    "ledger": LargeTable("An export with a ledger", "commits", (1_000, 10_000), (large_ledger.use_ledger,)),
}


def main(given: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        prog="python -m tests.bench large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--only", nargs="+", choices=TABLES, metavar="TABLE", help="the tables, by default all")
    arguments.add_argument("--sizes", type=_sizes, help="of each table instead of its own, such as 1000,3000,10000")
    arguments.add_argument(
        "--row-seconds", type=float, default=_ROW_SECONDS, help="processor seconds that end a row; else %(default)s"
    )
    options = arguments.parse_args(given)
    errors: list[str] = []
    for name in options.only or TABLES:
        with tempfile.TemporaryDirectory(prefix="large-") as scratch:
            table = TABLES[name]
            errors += show(table, options.sizes or table.sizes, Path(scratch), options.row_seconds)
    if errors:
        sys.exit("\n".join(errors))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def show(table: LargeTable, sizes: Sequence[int], scratch: Path, row_seconds: float) -> list[str]:
    """Measure and print a table; return the errors that ended works."""
    columns: list[dict[str, Step]] = []
    errors, late = [], set[Work]()
    for size in sizes:
        columns.append({})
        for work in table.works:
            if work in late:
                continue
            steps, error = measured(work, scratch, size, row_seconds)
            columns[-1] |= steps
            if error:
                errors.append(f"{work.__name__} at {size:,} {table.unit}: {error}")
            if any(step.figure is None for step in steps.values()):
                late.add(work)
    Console(width=_WIDTH).print(_printed(table, sizes, columns))
    return errors


def _printed(table: LargeTable, sizes: Sequence[int], columns: Sequence[dict[str, Step]]) -> Table:
    printed = Table(title=table.title)
    printed.add_column(table.unit)
    last = f"{sizes[-1]:,} / {sizes[0]:,}"
    heads = [f"{size:,}" for size in sizes]
    for head in (*heads, f"cost of one, {last}", "of a", f"calls, {heads[0]}", heads[-1], f"of one, {last}", "peak MB"):
        printed.add_column(head, justify="right")
    for name in dict.fromkeys(name for column in columns for name in column):
        steps = [column.get(name) for column in columns]
        first, at_last = steps[0], steps[-1]
        calls = [_number(None if step is None else step.calls) for step in (first, at_last)]
        printed.add_row(
            name,
            *map(_figure, steps),
            _ratio(first, at_last, "figure"),
            next(step.of for step in steps if step is not None),
            *calls,
            _ratio(first, at_last, "calls"),
            _number(None if at_last is None or at_last.peak_bytes is None else at_last.peak_bytes >> 20),
        )
    return printed


def _figure(step: Step | None) -> str:
    """Return the text of a figure; "-" if it was not measured, since a smaller size took too long."""
    if step is None:
        return "-"
    if step.figure is None:
        return step.note
    digits = 0 if step.unit == "bytes" else 2 if step.figure >= 10 else 4
    return f"{step.figure:,.{digits}f} {step.unit}" + (f"\n{step.note}" if step.note else "")


def _ratio(first: Step | None, last: Step | None, field: str) -> str:
    """Return the cost of one piece of work at the last size as a multiple of that at the first."""
    costs = [_cost(step, field) for step in (last, first)]
    return "" if costs[0] is None or not costs[1] else f"{costs[0] / costs[1]:.2f}"


def _cost(step: Step | None, field: str) -> float | None:
    value = None if step is None or step.note else getattr(step, field)
    return None if step is None or value is None else float(value) / step.count


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


if __name__ == "__main__":
    main()
