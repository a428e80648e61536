"""Presents bytes in memory as an open file, so that fetched or captured bytes are read like those on a disk."""

from __future__ import annotations

from typing import Self


class InMemoryFile:
    """Bytes as a `ReadableFile`."""

    def __init__(self, data: memoryview) -> None:
        self.path, self._data = "memory", data

    def size_bytes(self) -> int:
        return len(self._data)

    def modified_ns(self) -> int:
        return 0

    def read(self, position: int, length_bytes: int) -> memoryview:
        return self._data[position : position + length_bytes]

    def read_into(self, position: int, room: memoryview) -> int:
        data = self.read(position, len(room))
        if len(data):
            # An empty ``room`` may be read-only memory.
            room[: len(data)] = data
        return len(data)

    def data_position(self, position: int) -> int | None:
        return position if position < len(self._data) else None

    def close(self) -> None:
        """Do nothing: the bytes are the caller's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
