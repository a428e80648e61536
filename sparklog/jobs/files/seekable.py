"""Wraps a file of a storage as a Python file object, for libraries that read formats."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from sparklog.storage.base import ReadableFile


class SeekableFile(io.RawIOBase):
    """A file object that reads an open file, and leaves that file open when it is closed.

    Parameters
    ----------
    on_read : callable, optional
        Called with the number of bytes after each read.
    """

    def __init__(self, file: ReadableFile, on_read: Callable[[int], None] | None = None) -> None:
        self._file, self._on_read, self._position = file, on_read, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> Any:
        if size is None or size < 0:
            size = max(self._file.size_bytes() - self._position, 0)
        data = self._file.read(self._position, size)
        self._position += len(data)
        if self._on_read is not None:
            self._on_read(len(data))
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes()}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position
