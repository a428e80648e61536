"""How much planning and seeking read: bytes against the size of the logs, and the time of planning a large directory.

Run it with ``python -m tests.bench.plan``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sparklog.log.layout import read_layout
from sparklog.log.reader import LogReader
from tests.bench.logs import RECORDS_PER_BATCH, START_MS, write_large_partition, write_sparse_directory
from tests.log.logs import CountingStorage
from tests.places import folder_at

PARTITIONS, PARTITION_BYTES = 1_000, (100 << 30) // 1_000
SEGMENT_BYTES = 1 << 30


def plan_sparse(folder: Path) -> tuple[str, int, int, str]:
    total_bytes = write_sparse_directory(folder, PARTITIONS, PARTITION_BYTES)
    storage = CountingStorage()
    started = time.perf_counter()
    for n in range(PARTITIONS):
        read_layout(folder_at(folder / f"events-{n}", storage))
    took = time.perf_counter() - started
    return f"plan {PARTITIONS:,} partitions", total_bytes, sum(storage.read_bytes.values()), f"{took:.1f} s"


def seek(folder: Path) -> list[tuple[str, int, int, str]]:
    end_offset = write_large_partition(folder, SEGMENT_BYTES - (1 << 20))
    total_bytes = sum(path.stat().st_size for path in folder.iterdir())
    storage = CountingStorage()
    rows = []
    layout = read_layout(folder_at(folder, storage))
    rows.append(("find the end offset", total_bytes, sum(storage.read_bytes.values()), ""))
    storage.read_bytes.clear()
    wanted = end_offset * 2 // 3
    with layout.segments[0].open() as log:
        log.first_batch_from(wanted)
    rows.append(("find one offset", total_bytes, sum(storage.read_bytes.values()), ""))
    storage.read_bytes.clear()
    LogReader(layout).offset_for_time(START_MS + RECORDS_PER_BATCH - 1)
    rows.append(("find one time", total_bytes, sum(storage.read_bytes.values()), ""))
    return rows


def main() -> None:
    table = Table("planning and seeking", "in", "reads", "share", "takes")
    with tempfile.TemporaryDirectory() as scratch:
        for what, total_bytes, read_bytes, took in [
            plan_sparse(Path(scratch) / "sparse"),
            *seek(Path(scratch) / "seek-0"),
        ]:
            share = f"1 in {total_bytes // max(read_bytes, 1):,}"
            table.add_row(what, f"{total_bytes / (1 << 30):.1f} GiB", f"{read_bytes / 1024:,.0f} KiB", share, took)
    Console().print(table)


if __name__ == "__main__":
    main()
