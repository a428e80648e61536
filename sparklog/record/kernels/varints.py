"""Reads the numbers of v2 records, and fields whose length is such a number, as steps of kernels.

Each step returns the position after the bytes it has read; a negative position is a negated status code.
"""

from __future__ import annotations

import numpy as np

from sparklog.record.kernels.compile import apart, inlined
from sparklog.record.kernels.scan import BAD_FIELD_LENGTH, TORN_VARINT

# Numba treats each Python integer as a separate type, and would compile the steps again for each.
_VARINT_BYTES_MAX, _VARLONG_BYTES_MAX = np.int64(5), np.int64(10)


@apart
def _long_number(buffer, position, end, bytes_max):
    """Read a zigzag number of any length: (number as 64 bits, position after it)."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(min(end - position, bytes_max)):
        byte = np.uint64(buffer[position])
        position += 1
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return raw, position
        shift += np.uint64(7)
    return np.uint64(0), np.int64(-TORN_VARINT)


@inlined
def _number(buffer, position, end, bytes_max, mask):
    """Read a zigzag number: (number, position after it). Most have one or two bytes, and are read without a call."""
    raw = np.uint64(0)
    if position < end and buffer[position] < 0x80:
        raw = np.uint64(buffer[position])
        position += 1
    elif position + 1 < end and buffer[position + 1] < 0x80:
        raw = np.uint64(buffer[position] & 0x7F) | np.uint64(buffer[position + 1]) << np.uint64(7)
        position += 2
    else:
        raw, position = _long_number(buffer, position, end, bytes_max)
        raw &= mask
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position


@inlined
def varlong(buffer, position, end):
    """Read a number of 64 bits, in up to ten bytes."""
    return _number(buffer, position, end, _VARLONG_BYTES_MAX, np.uint64(0xFFFFFFFFFFFFFFFF))


@inlined
def varint(buffer, position, end):
    """Read a number of 32 bits, in up to five bytes; bits above the 32nd are dropped, as Java drops them."""
    return _number(buffer, position, end, _VARINT_BYTES_MAX, np.uint64(0xFFFFFFFF))


@inlined
def field(buffer, position, end):
    """Skip a length and as many bytes: (their position, length or -1 for null, position after them)."""
    length, start = varint(buffer, position, end)
    if start < 0:
        return start, length, start
    if length < 0:
        return start, np.int64(-1), start
    if length > end - start:
        return start, length, np.int64(-BAD_FIELD_LENGTH)
    return start, length, start + length
