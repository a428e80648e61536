"""Describes the streams of blocks in which Kafka's producers frame data compressed with snappy and lz4.

A snappy stream has the format of xerial's library, big-endian:

    byte  size  field
    0     8     magic               82 "SNAPPY" 00
    8     4     version             1 or more; ignored in the first of several streams
    12    4     compatible_version  the oldest that reads it; ignored
    16    4     block_bytes         then as many bytes, a raw snappy block; both repeat for each further block

An lz4 stream is an LZ4 frame of independent blocks, without checksums and sizes of content, little-endian:

    0     4     magic               0x184D2204
    4     1     flags               0x60
    5     1     block_size_class
    6     1     header_checksum
    7     4     block_bytes         then as many bytes, an LZ4 block; both repeat for each further block. With the
                                    highest bit, the block is stored uncompressed; 0 ends the frame.

Source: apache/kafka, common/compress; xerial/snappy-java, SnappyOutputStream.java; the LZ4 frame format 1.5.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]

XERIAL_MAGIC: Final[bytes] = b"\x82SNAPPY\x00"
XERIAL_START: Final = struct.Struct(">8sii")
LZ4_MAGIC: Final = 0x184D2204
LZ4_KAFKA_HEADERS: Final = {
    bytes.fromhex("04224d18604082"): 64 << 10,
    bytes.fromhex("04224d186050fb"): 256 << 10,
    bytes.fromhex("04224d18606051"): 1 << 20,
    bytes.fromhex("04224d18607073"): 4 << 20,
}
"""All headers of such frames, with their checksums, and the largest block that each allows."""

LZ4_KAFKA_BLOCK_BYTES: Final = 64 << 10
LZ4_STORED: Final = 0x80000000
LZ4_SIZE_MASK: Final = LZ4_STORED - 1

_BLOCK_BYTES = struct.Struct(">i")


def snappy_stream_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of snappy data: one raw block, or the blocks of consecutive streams of xerial's."""
    end = len(data)
    if end < XERIAL_START.size or XERIAL_START.unpack_from(data)[0] != XERIAL_MAGIC:
        yield data
        return
    position = XERIAL_START.size
    # As in xerial's reader, fewer bytes at the end than a length has are ignored.
    while position + _BLOCK_BYTES.size <= end:
        (block_bytes,) = _BLOCK_BYTES.unpack_from(data, position)
        if block_bytes < 0 and data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            if position + XERIAL_START.size > end or XERIAL_START.unpack_from(data, position)[1] < 1:
                raise ValueError("the header of a snappy stream is cut short or of an unknown version")
            position += XERIAL_START.size
            continue
        position += _BLOCK_BYTES.size
        if not 0 <= block_bytes <= end - position:
            raise ValueError("a snappy block runs past its batch")
        yield data[position : position + block_bytes]
        position += block_bytes
