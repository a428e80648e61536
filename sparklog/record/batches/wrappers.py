"""Reads and makes compressed messages of magic 0 or 1 (wrappers), without compiled code.

For the layout of a message see `sparklog.record.format.legacy`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from sparklog.errors import CorruptBatchError
from sparklog.record.codecs.table import (
    CODEC_IDS,
    DECOMPRESSED_BYTES_MAX,
    compressed_bytes_max,
    compressor,
    decompressor,
)
from sparklog.record.format.legacy import SIZE_MIN
from sparklog.record.format.v2 import CODEC_MASK, LOG_APPEND_TIME

_LEAD: Final = struct.Struct(">qi")
_COVERED_V0: Final = struct.Struct(">bbi")
_COVERED_V1: Final = struct.Struct(">bbqi")


def wrapped(message: memoryview) -> memoryview:
    """Return the value of a wrapper: the compressed stream of the messages inside."""
    field = 26 if message[16] == 1 else 18
    key_bytes = int.from_bytes(message[field : field + 4], "big", signed=True)
    field += 4 + max(key_bytes, 0)
    value_bytes = int.from_bytes(message[field : field + 4], "big", signed=True)
    value = message[field + 4 :]
    if not 0 <= value_bytes <= len(value):
        raise CorruptBatchError("a compressed wrapper's value is null or runs past it")
    return value[:value_bytes]


def last_offset_inside(message: memoryview) -> int | None:
    """Return the offset field of the last message inside a wrapper; None if it cannot be read.

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
        # Each library raises its own errors. They are raised again when the batch is read.
        return None
    position, last_offset = 0, None
    while position + _LEAD.size <= len(inside):
        last_offset, size = _LEAD.unpack_from(inside, position)
        if size < SIZE_MIN:
            return None
        position += _LEAD.size + size
    return last_offset if position == len(inside) else None


def wrapper(
    messages: memoryview,
    *,
    magic: int,
    codec: str,
    level: int | None,
    offset: int,
    timestamp: int,
    is_append_time: bool,
) -> memoryview:
    """Make the compressed message of magic 0 or 1 that holds other messages.

    Parameters
    ----------
    messages : memoryview
        The messages inside, with offsets as the magic requires: absolute in magic 0, relative in magic 1.
    codec : str
        Kafka's name of a codec that the magic has, other than none.
    offset : int
        The offset of the last message inside.
    timestamp : int
        The latest timestamp inside, or the append time of all, in ms. Unused in magic 0.

    Returns
    -------
    memoryview
        The whole message.
    """
    stream = memoryview(bytearray(compressed_bytes_max(len(messages))))
    stream = stream[: compressor(codec, level, magic)(messages, stream)]
    attributes = CODEC_IDS[codec]
    if magic == 0:
        covered = _COVERED_V0.pack(0, attributes, -1)
    else:
        covered = _COVERED_V1.pack(1, attributes | (LOG_APPEND_TIME if is_append_time else 0), timestamp, -1)
    covered += len(stream).to_bytes(4, "big") + stream
    crc = zlib.crc32(covered).to_bytes(4, "big")
    return memoryview(_LEAD.pack(offset, len(crc) + len(covered)) + crc + covered)
