"""Reads the content of a compressed message of magic 0 or 1, as far as that needs no compiled code.

The layout of a message is written in `sparklog.record.legacy`.
"""

from __future__ import annotations

import struct
from typing import Final

from sparklog.errors import CorruptBatchError
from sparklog.record.compression import DECOMPRESSED_BYTES_MAX, decompressor
from sparklog.record.legacy import SIZE_MIN
from sparklog.record.v2 import CODEC_MASK

_LEAD: Final = struct.Struct(">qi")


def wrapped(message: memoryview) -> memoryview:
    """Return the value of a compressed wrapper: the stream that the messages inside are in."""
    field = 26 if message[16] == 1 else 18
    key_bytes = int.from_bytes(message[field : field + 4], "big", signed=True)
    field += 4 + max(key_bytes, 0)
    value_bytes = int.from_bytes(message[field : field + 4], "big", signed=True)
    value = message[field + 4 :]
    if not 0 <= value_bytes <= len(value):
        raise CorruptBatchError("a compressed wrapper's value is null or runs past it")
    return value[:value_bytes]


def last_offset_inside(message: memoryview) -> int | None:
    """Return the offset field of the last message inside a wrapper; None where it cannot be read.

    Parameters
    ----------
    message : memoryview
        The whole wrapper, whose checksum is right.
    """
    try:
        inside = memoryview(
            decompressor(message[17] & CODEC_MASK, message[16])(wrapped(message), DECOMPRESSED_BYTES_MAX)
        )
    except Exception:
        # Each library has errors of its own. They are raised again when the batch is read.
        return None
    position, last_offset = 0, None
    while position + _LEAD.size <= len(inside):
        last_offset, size = _LEAD.unpack_from(inside, position)
        if size < SIZE_MIN:
            return None
        position += _LEAD.size + size
    return last_offset if position == len(inside) else None
