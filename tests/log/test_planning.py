"""Planning reads names, indexes and the last headers, however large the logs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.log import directory_view
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from tests.bench.logs import RECORDS_PER_BATCH, write_sparse_directory
from tests.build import offset_checkpoint, write_partition
from tests.log.logs import CountingStorage, batches
from tests.places import folder_at


def test_layout_of_a_sparse_directory_reads_a_few_kilobytes_a_partition(tmp_path: Path) -> None:
    partitions = 50
    assert write_sparse_directory(tmp_path, partitions, 2 << 30) == 100 << 30
    storage = CountingStorage()
    for n in range(partitions):
        layout = read_layout(folder_at(tmp_path / f"events-{n}", storage))
        assert (layout.start_offset, layout.end_offset) == (0, 1_000_000 + RECORDS_PER_BATCH)
    assert sum(storage.read_bytes.values()) < partitions * 40_000


def test_log_start_checkpoint_is_parsed_once_a_directory_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, parsed = 20, []

    def counting(data: bytes, path: str) -> dict[TopicPartition, int]:
        parsed.append(path)
        return parse_offset_checkpoint(data, path)

    def start_offsets() -> list[int]:
        return [read_layout(folder_at(tmp_path / f"events-{n}")).start_offset for n in range(partitions)]

    monkeypatch.setattr(directory_view, "parse_offset_checkpoint", counting)
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    for n in range(partitions):
        write_partition(tmp_path / f"events-{n}", batches(3))
    checkpoint.write_text(offset_checkpoint({("events", n): n for n in range(partitions)}))
    assert start_offsets() == list(range(partitions))
    assert parsed == [str(checkpoint)]
    checkpoint.write_text(offset_checkpoint({("events", 3): 7}))
    assert start_offsets() == [7 if n == 3 else 0 for n in range(partitions)]
    assert len(parsed) == 2
