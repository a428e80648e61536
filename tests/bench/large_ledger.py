"""Exports to a folder of tables with a long ledger, for `tests.bench.large`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import sparklog
from sparklog.jobs.ledger import LedgerEntry, Moved, commits, encode_commit
from sparklog.storage.local import LocalStorage
from tests.bench.large_growth import command
from tests.bench.large_logs import batch_at, new_folder
from tests.bench.large_meter import Meter, check
from tests.build import write_partition


def use_ledger(meter: Meter, place: Path, size: int) -> None:
    """Continue an export, and look at its ledger."""
    with new_folder(place) as folder:
        logs, table = folder / "logs", folder / "table"
        write_partition(logs / "events-0", [batch_at(size - 1)], base_offset=size - 1)
        sparklog.export(logs, table)
        _repeat_commit(table, size)
        write_partition(logs / "events-0", [batch_at(size)], base_offset=size)
        for name, rows in {"export of one new record": 1, "export, nothing new": 0}.items():
            with meter(name):
                found = sparklog.export(logs, table)
            check(found.rows, rows)
        for name, *arguments in (("show",), ("show", "--commits"), ("verify",)):
            with meter(" ".join(("ledger", name, *arguments)), size, "commit"):
                command("ledger", name, table, *arguments)


def _repeat_commit(table: Path, times: int) -> None:
    """Let the ledger have the first commit many times, each time for the next offset and with a file of its own."""
    path = table / "_seglog" / "ledger.jsonl"
    (first,) = commits(LocalStorage(), str(path))
    settings, (moved,) = [each for each in first.entries if not isinstance(each, Moved)], first.moved
    (file,) = moved.files
    data = bytearray()
    for number in range(times):
        # The name of a file has its offsets, and those are compared with the ledger.
        its = file.path.replace(_offsets(times - 1), _offsets(number))
        of_commit = replace(file, path=its, staged=f"{number}-{file.staged}")
        if number < times - 1:
            shutil.copyfile(table / file.path, table / its)
        entry = replace(moved, start_offset=number, end_offset=number + 1, files=(of_commit,))
        entries: list[LedgerEntry] = [*settings, entry] if number == 0 else [entry]
        data += encode_commit(number, first.job, f"{number}", first.time_ms, entries)
    path.write_bytes(data)


def _offsets(first: int) -> str:
    return f"{first:020d}-{first + 1:020d}"
