"""A file of a storage as a Python file, for libraries that read formats."""

from __future__ import annotations

import io
from typing import Any

from sparklog.storage.base import ReadableFile


class SeekableFile(io.RawIOBase):
    """Reads an open file; closing this one leaves that one open."""

    def __init__(self, file: ReadableFile) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        view = memoryview(room).cast("B")
        read_bytes = self._file.read_into(self._position, view)
        self._position += read_bytes
        return read_bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes()}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position
