"""A disk with bad sectors: every read of a file that touches one fails, as the operating system says it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from sparklog.storage.local import LocalFile, to_storage_error

SECTOR_BYTES = 512


class Disk:
    """Counts its failed reads."""

    def __init__(self, bad: dict[Path, list[tuple[int, int]]]) -> None:
        self.bad = {str(path): ranges for path, ranges in bad.items()}
        self.failed_reads = 0

    def touch(self, path: str, position: int, length_bytes: int) -> None:
        if any(first < position + length_bytes and position < end for first, end in self.bad.get(path, ())):
            self.failed_reads += 1
            raise to_storage_error(OSError(errno.EIO, os.strerror(errno.EIO)), path)


@contextmanager
def bad_sectors(bad: dict[Path, list[tuple[int, int]]]) -> Iterator[Disk]:
    """Let reads of ranges of files fail in a ``with`` block."""
    disk, read, read_into = Disk(bad), LocalFile.read, LocalFile.read_into

    def failing_read(self: LocalFile, position: int, length_bytes: int) -> memoryview:
        disk.touch(self.path, position, length_bytes)
        return read(self, position, length_bytes)

    def failing_read_into(self: LocalFile, position: int, room: memoryview) -> int:
        disk.touch(self.path, position, len(room))
        return read_into(self, position, room)

    with patch.object(LocalFile, "read", failing_read), patch.object(LocalFile, "read_into", failing_read_into):
        yield disk
