"""Small logs for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.reader import LogReader
from sparklog.storage.local import LocalFile, LocalStorage
from tests.build import Record, v2_batch, write_partition
from tests.places import folder_at

RECORDS_PER_BATCH = 10


def batch(base_offset: int, count: int = RECORDS_PER_BATCH, **fields: Any) -> bytes:
    """One batch whose values name their offsets, with timestamps of 1000 + offset."""
    records = [
        Record(n, timestamp=1000 + base_offset + n, key=b"k", value=b"value of %d" % (base_offset + n))
        for n in range(count)
    ]
    return v2_batch(records, base_offset=base_offset, **fields)


def idempotent(base_offset: int, producer_id: int, base_sequence: int = 0, epoch: int = 0) -> bytes:
    return batch(base_offset, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)


def batches(count: int, base_offset: int = 0, **fields: Any) -> list[bytes]:
    return [batch(base_offset + n * RECORDS_PER_BATCH, **fields) for n in range(count)]


def write(folder: Path, count: int = 12, **options: Any) -> list[bytes]:
    """Write a partition of ``count`` batches, indexed densely; its batches."""
    written = batches(count)
    write_partition(folder, written, **{"index_interval_bytes": 300, **options})
    return written


def only_log(folder: Path) -> Path:
    (path,) = folder.glob("*.log")
    return path


def offsets(log: LogReader, start: int | None = None, end: int | None = None) -> list[int]:
    found: list[int] = log.read(start, end, ["offset"])["offset"].to_pylist()
    return found


class Counting(Protocol):
    """Whatever keeps such a count."""

    read_bytes: dict[str, int]


class CountingFile(LocalFile):
    """Counts the bytes that are read, in its storage."""

    def __init__(self, path: str, storage: Counting) -> None:
        super().__init__(path)
        self._storage = storage

    def read(self, position: int, length_bytes: int) -> memoryview:
        data = super().read(position, length_bytes)
        self._count(len(data))
        return data

    def read_into(self, position: int, room: memoryview) -> int:
        read_bytes = super().read_into(position, room)
        self._count(read_bytes)
        return read_bytes

    def _count(self, read_bytes: int) -> None:
        name = Path(self.path).suffix
        self._storage.read_bytes[name] = self._storage.read_bytes.get(name, 0) + read_bytes


class CountingStorage(LocalStorage):
    """Storage of this machine that counts the bytes read, by file suffix."""

    def __init__(self) -> None:
        self.read_bytes: dict[str, int] = {}

    def open(self, path: str) -> LocalFile:
        return CountingFile(path, self)


def counted(folder: Path) -> tuple[PartitionLayout, CountingStorage]:
    """Read a layout whose files count what is read from them."""
    layout = read_layout(folder_at(folder, storage := CountingStorage()))
    storage.read_bytes.clear()
    return layout, storage
