"""Presents files, one after the other, as one open file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import Self

from sparklog.storage.base import ReadableFile


class JoinedFile:
    """Open files as one `ReadableFile`. Their sizes are looked up once; closing it closes them."""

    def __init__(self, path: str, files: Sequence[ReadableFile], modified_ns: int) -> None:
        self.path, self._files, self._modified_ns = path, files, modified_ns
        self._starts = [0, *accumulate(each.size_bytes() for each in files)]

    def size_bytes(self) -> int:
        return self._starts[-1]

    def modified_ns(self) -> int:
        return self._modified_ns

    def read(self, position: int, length_bytes: int) -> memoryview:
        length_bytes = max(min(length_bytes, self.size_bytes() - position), 0)
        row = self._row(position)
        if length_bytes and position + length_bytes <= self._starts[row + 1]:
            return self._files[row].read(position - self._starts[row], length_bytes)
        room = memoryview(bytearray(length_bytes))
        return room[: self.read_into(position, room)]

    def read_into(self, position: int, room: memoryview) -> int:
        filled = 0
        for row in range(self._row(position), len(self._files)):
            at = position + filled
            wanted = min(len(room) - filled, self._starts[row + 1] - at)
            found = self._files[row].read_into(at - self._starts[row], room[filled : filled + wanted])
            filled += found
            if found < wanted or filled == len(room):
                break
        return filled

    def _row(self, position: int) -> int:
        """Return the number of the file that has the byte at a position; at the end, one more than there are."""
        return bisect_right(self._starts, position) - 1

    def data_position(self, position: int) -> int | None:
        return position if position < self.size_bytes() else None

    def close(self) -> None:
        with ExitStack() as closed:
            for each in self._files:
                closed.callback(each.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
