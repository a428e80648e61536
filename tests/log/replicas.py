"""Log directories with replicas of one partition, made batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sparklog
from tests.build import Record, leader_epoch_checkpoint, offset_checkpoint, v2_batch, write_partition

TOPIC_ID = "Q2TYVrXaSDWPZ5lUZtm3Jg"
AT = ("events", 0)
FOLDER = "events-0"


def batch(offset: int, epoch: int = 0, size: int = 3, padding: int = 200) -> bytes:
    """Make a batch whose records say their offsets and their epoch."""
    records = [
        Record(row, 1000 + offset + row, None, f"{offset + row}@{epoch}:".encode() + b"x" * padding)
        for row in range(size)
    ]
    return v2_batch(records, base_offset=offset, leader_epoch=epoch, producer_id=7, producer_epoch=0)


def run(start: int, end: int, epoch: int = 0, size: int = 3) -> list[bytes]:
    """Make the batches of a range of offsets."""
    return [batch(offset, epoch, min(size, end - offset)) for offset in range(start, end, size)]


@dataclass
class Copy:
    """One replica on its broker's disk."""

    batches: Sequence[bytes]
    epochs: Sequence[tuple[int, int]] | None = ((0, 0),)
    high_watermark: int | None = None
    log_start: int | None = None
    topic_id: str | None = TOPIC_ID
    segment_bytes: int | None = None
    base_offset: int = 0
    with_indexes: bool = True
    compacted_to: int | None = None
    extra: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> Path:
        folder = directory / FOLDER
        write_partition(
            folder,
            self.batches,
            base_offset=self.base_offset,
            segment_bytes=self.segment_bytes,
            with_indexes=self.with_indexes,
            index_interval_bytes=1024,
        )
        if self.epochs is not None:
            (folder / "leader-epoch-checkpoint").write_text(leader_epoch_checkpoint(self.epochs))
        if self.topic_id is not None:
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {self.topic_id}")
        for name, offset in (
            ("replication-offset-checkpoint", self.high_watermark),
            ("log-start-offset-checkpoint", self.log_start),
            ("cleaner-offset-checkpoint", self.compacted_to),
        ):
            if offset is not None:
                (directory / name).write_text(offset_checkpoint({AT: offset}))
        return directory


def written(tmp_path: Path, *copies: Copy) -> list[Path]:
    """Write each replica to a directory of its own."""
    return [copy.write(tmp_path / f"broker-{number}") for number, copy in enumerate(copies)]


def merged(directories: Sequence[Path], replicas_min: int | None = None) -> list[tuple[int, str]]:
    """Read the merged log: offsets, and the records' own "offset@epoch"."""
    with sparklog.open_topic(directories, replicas="merge", replicas_min=replicas_min) as topic:
        table = topic.read(columns=["offset", "value"])
    values = [value.split(b":")[0].decode() for value in table.column("value").to_pylist()]
    return list(zip(table.column("offset").to_pylist(), values, strict=True))


def expected(*runs: tuple[int, int, int]) -> list[tuple[int, str]]:
    """Return what `merged` returns of ranges of (start, end, epoch)."""
    return [(offset, f"{offset}@{epoch}") for start, end, epoch in runs for offset in range(start, end)]
