"""Reads the indexes of a segment, which lead to an offset, a time or an aborted transaction.

All are runs of fixed entries, big-endian, without a checksum: an entry is a hint, checked against the log.

Offset index (``.index``), the byte position of the batch that ends with an offset; both fields ascend:

    byte  size  field
    0     4     relative_offset   last offset of the batch - base offset of the segment
    4     4     position          where that batch begins in the .log file, bytes

Time index (``.timeindex``); both fields ascend:

    0     8     timestamp         ms; the largest of all records up to relative_offset
    8     4     relative_offset   last offset of the first batch that has it - base offset of the segment

Transaction index (``.txnindex``), aborted transactions only:

    0     2     version           0
    2     8     producer_id
    10    8     first_offset
    18    8     last_offset       of the abort marker
    26    8     last_stable_offset

The first batch of a segment has no entry. While a segment is active, its offset and time indexes have their full size,
with zeros after the entries; after a crash they keep it. Older brokers wrote an entry for each append, not each batch:
its offset is the last one of several batches and its position is the first one's.

Source: apache/kafka, OffsetIndex.java, TimeIndex.java, AbortedTxn.java.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from sparklog.storage.base import ReadableFile

OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TRANSACTION_ENTRY: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
POSITION_MAX: Final = (1 << 31) - 1
"""The last position that an offset index can hold. No broker starts on a directory with a longer segment."""

assert OFFSET_ENTRY.itemsize == 8
assert TIME_ENTRY.itemsize == 12
assert TRANSACTION_ENTRY.itemsize == 34

# The same, to read one entry.
_OFFSET_FIELDS: Final = struct.Struct(">ii")
_TIME_FIELDS: Final = struct.Struct(">qi")
assert (_OFFSET_FIELDS.size, _TIME_FIELDS.size) == (OFFSET_ENTRY.itemsize, TIME_ENTRY.itemsize)

Entries = np.ndarray[Any, np.dtype[Any]]


class OffsetEntry(NamedTuple):
    """A batch that ends with ``offset``, or with an earlier one, begins at ``position``."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No record up to ``offset`` has a timestamp above ``timestamp``."""

    timestamp: int
    offset: int


def floor_offset(index: ReadableFile, base_offset: int, offset: int) -> OffsetEntry | None:
    """Find the last entry at or before an offset, reading no more of the index than a binary search does."""
    return _floor_entry(index, base_offset, offset, _OFFSET)


def floor_position(index: ReadableFile, base_offset: int, position: int) -> OffsetEntry | None:
    """Find the last entry whose batch begins at or before a position, as `floor_offset` does."""
    return _floor_entry(index, base_offset, position, _POSITION)


def _floor_entry(index: ReadableFile, base_offset: int, target: int, field: int) -> OffsetEntry | None:
    base = base_offset if field == _OFFSET else 0

    def key(fields: tuple[int, ...]) -> int:
        # A blank entry ends the written ones.
        return base + fields[field] if fields != (0, 0) else _BEYOND

    found = _floor(index, _OFFSET_FIELDS, key, target)
    return None if found is None else OffsetEntry(base_offset + found[_OFFSET], found[_POSITION])


def floor_time(index: ReadableFile, base_offset: int, timestamp: int) -> TimeEntry | None:
    """Find the last entry before a time (ms), reading no more of the index than a binary search does."""

    def key(fields: tuple[int, ...]) -> int:
        return fields[0] if fields != (0, 0) else _BEYOND

    found = _floor(index, _TIME_FIELDS, key, timestamp - 1)
    return None if found is None else TimeEntry(found[0], base_offset + found[1])


def read_entries(index: ReadableFile, layout: np.dtype[Any]) -> Entries:
    """Read every written entry of an index, without blank entries and an incomplete one at its end."""
    data = index.read(0, index.size_bytes())
    whole_bytes = len(data) - len(data) % layout.itemsize
    # A blank entry is all zeros. Comparing entries field by field takes many times as long.
    written_bytes = len(bytes(data[:whole_bytes]).rstrip(b"\0"))
    return np.frombuffer(data, dtype=layout, count=-(-written_bytes // layout.itemsize))


_BEYOND = 1 << 64
_OFFSET, _POSITION = 0, 1
_BLOCK_BYTES: Final = 1 << 12


class _Block:
    """Some entries of an index, read together; blank if the index has been trimmed meanwhile."""

    def __init__(self, index: ReadableFile, fields: struct.Struct, first: int, rows: int) -> None:
        data = index.read(first * fields.size, rows * fields.size)
        self._data = data if len(data) == rows * fields.size else bytes(data).ljust(rows * fields.size, b"\0")
        self._fields, self._rows = fields, rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> tuple[int, ...]:
        return self._fields.unpack_from(self._data, row * self._fields.size)


def _floor(
    index: ReadableFile, fields: struct.Struct, key: Callable[[tuple[int, ...]], int], target: int
) -> tuple[int, ...] | None:
    """Find the last entry whose key is at most a target; None if even the first is above it.

    Most indexes have few entries, even those that a broker has preallocated with 10 MiB: the first block is
    read at once.
    """
    rows, rows_max = index.size_bytes() // fields.size, _BLOCK_BYTES // fields.size
    if not rows:
        return None
    block = _Block(index, fields, 0, min(rows, rows_max))
    if key(block[0]) > target:
        return None
    if rows > rows_max and key(block[rows_max - 1]) <= target:
        last = _Block(index, fields, rows - 1, 1)[0]
        if key(last) <= target:
            # A search for the end of a log asks for the last entry.
            return last
        firsts = range(0, rows, rows_max)
        nearest = bisect_right(firsts, target, lo=1, key=lambda first: key(_Block(index, fields, first, 1)[0])) - 1
        if nearest:
            block = _Block(index, fields, firsts[nearest], min(rows_max, rows - firsts[nearest]))
    return block[bisect_right(block, target, lo=1, key=key) - 1]
