"""Writes a file that a task stages: once, from its beginning to its end, and computes its checksum on the way."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from crc32c import crc32c

from sparklog.errors import SeglogError
from sparklog.storage.base import ReadableFile, WritableStorage

_WINDOW_BYTES: Final = 1 << 22
_SYNC_BEGINS_BYTES: Final = 1 << 23
"""The disk begins to write after each such number of bytes, so that a sync only waits for the rest."""


def crc32c_of(file: ReadableFile) -> int:
    """Read a whole file, and return its CRC-32C."""
    checksum = position = 0
    while window := file.read(position, _WINDOW_BYTES):
        checksum, position = crc32c(window, checksum), position + len(window)
    return checksum


class StagedFile:
    """A file object for a writer of a format. If an error leaves the ``with`` block, its file is removed.

    Attributes
    ----------
    size_bytes, crc32c : int
        The size and the checksum of the bytes written so far.
    """

    def __init__(self, storage: WritableStorage, path: str) -> None:
        self._storage, self.path = storage, path
        self._file = storage.create(path)
        self.size_bytes = self.crc32c = self._begun_bytes = 0
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.closed:
            return
        self.closed = True
        self._file.close()
        with suppress(SeglogError):
            self._storage.remove(self.path)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.append(view)
        self.crc32c = crc32c(view, self.crc32c)
        self.size_bytes += len(view)
        if self.size_bytes - self._begun_bytes >= _SYNC_BEGINS_BYTES:
            self._file.begin_sync(self._begun_bytes)
            self._begun_bytes = self.size_bytes
        return len(view)

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def finish(self) -> None:
        """Close the file after its last byte; the caller syncs it."""
        self._file.close()
        self.closed = True

    def close(self) -> None:
        """Do nothing: closing a writer ends its format, and `finish` ends the file."""
