"""Planning reads names, indexes and the last headers, however large the logs are."""

from __future__ import annotations

from pathlib import Path

from sparklog.log.layout import read_layout
from tests.bench.logs import RECORDS_PER_BATCH, write_sparse_directory
from tests.log.logs import CountingStorage


def test_layout_of_a_sparse_directory_reads_a_few_kilobytes_a_partition(tmp_path: Path) -> None:
    partitions = 50
    assert write_sparse_directory(tmp_path, partitions, 2 << 30) == 100 << 30
    storage = CountingStorage()
    for n in range(partitions):
        layout = read_layout(str(tmp_path / f"events-{n}"), storage)
        assert (layout.start_offset, layout.end_offset) == (0, 1_000_000 + RECORDS_PER_BATCH)
    assert sum(storage.read_bytes.values()) < partitions * 40_000
