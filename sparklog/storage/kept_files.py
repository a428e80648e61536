"""Keeps files open from one read to the next."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Self

from sparklog.storage.base import ReadableFile, Storage

_SMALL_BYTES_MAX: Final = 1 << 14
_OPEN_FILES_MAX: Final = 16
"""A log may have thousands of segments, more than a process may have open files."""


class KeptFiles:
    """Files that stay open until they are closed here, so that several reads of a file open it once.

    Only the last files used stay open.

    Only for the holder of a log directory's lock: nobody else replaces or
    changes a file meanwhile. Before the holder does so, it calls `forget`.
    """

    def __init__(self) -> None:
        self._open: dict[str, KeptFile] = {}

    def open(self, storage: Storage, path: str) -> AbstractContextManager[ReadableFile]:
        """Open a file for a ``with`` block, which leaves it open; raise `PathNotFoundError` if there is none."""
        found = self._open.pop(path, None)
        if found is None:
            if len(self._open) >= _OPEN_FILES_MAX:
                self.forget(next(iter(self._open)))
            found = KeptFile(storage.open(path))
        self._open[path] = found
        return found

    def forget(self, path: str) -> None:
        """Close the file of a path, if it is open."""
        if path in self._open:
            self._open.pop(path).close()

    def close(self) -> None:
        """Close all files."""
        for path in tuple(self._open):
            self.forget(path)


class KeptFile:
    """An open file that does not change meanwhile; see `sparklog.storage.base.ReadableFile`.

    Its size is looked up once, and a small file is read once. If somebody did write to it, this would still take the
    size before the bytes, and both only once: later bytes are not seen, as if they had been written afterwards.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._size_bytes = file.size_bytes()
        self._data: memoryview | None = None

    @property
    def path(self) -> str:
        return self._file.path

    def size_bytes(self) -> int:
        return self._size_bytes

    def modified_ns(self) -> int:
        return self._file.modified_ns()

    def read(self, position: int, length_bytes: int) -> memoryview:
        if self._size_bytes > _SMALL_BYTES_MAX:
            return self._file.read(position, length_bytes)
        if self._data is None:
            self._data = self._file.read(0, self._size_bytes)
        return self._data[position : position + length_bytes]

    def read_into(self, position: int, room: memoryview) -> int:
        if self._size_bytes > _SMALL_BYTES_MAX:
            return self._file.read_into(position, room)
        found = self.read(position, len(room))
        if found:  # An empty ``room`` may be read-only memory.
            room[: len(found)] = found
        return len(found)

    def data_position(self, position: int) -> int | None:
        return self._file.data_position(position)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Leave the file open."""
