"""Presents a part of an open file as a file of its own."""

from __future__ import annotations

from typing import Self

from sparklog.storage.base import ReadableFile


class PartOfFile:
    """A range of bytes of another file as a `sparklog.storage.base.ReadableFile`; closing it leaves that open.

    Parameters
    ----------
    owner : object
        Closes the other file when nobody refers to it any more.
    """

    def __init__(
        self, path: str, owner: object, file: ReadableFile, start: int, size_bytes: int, modified_ns: int
    ) -> None:
        self.path, self._owner, self._file, self._start = path, owner, file, start
        self._size_bytes, self._modified_ns = size_bytes, modified_ns

    def size_bytes(self) -> int:
        return self._size_bytes

    def modified_ns(self) -> int:
        return self._modified_ns

    def read(self, position: int, length_bytes: int) -> memoryview:
        return self._file.read(self._start + position, self._within(position, length_bytes))

    def read_into(self, position: int, room: memoryview) -> int:
        length_bytes = self._within(position, len(room))
        return self._file.read_into(self._start + position, room[:length_bytes]) if length_bytes else 0

    def _within(self, position: int, length_bytes: int) -> int:
        return max(min(length_bytes, self._size_bytes - position), 0)

    def data_position(self, position: int) -> int | None:
        return position if position < self._size_bytes else None

    def close(self) -> None:
        """Do nothing: other parts of the file are read as well."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
