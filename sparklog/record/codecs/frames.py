"""Finds where the frames of gzip, lz4 and zstd begin and end, by the rules of the readers that Kafka uses.

The libraries decompress the content; none of them finds these borders as Kafka's consumer does. A gzip stream is a
row of members, little-endian:

    byte  size  field
    0     2     magic               1f 8b
    2     1     method              8
    3     1     flags               2 header checksum, 4 extra field, 8 name, 16 comment; others mean nothing
    4     6     time, extra flags, system
                extra field         uint16 length and bytes
                name, comment       each ends with a zero
                header checksum     the lower half of the CRC-32 of all before it
                content             a raw deflate stream
                crc                 uint32, CRC-32 of the content
                size                uint32, bytes of the content, modulo 2^32

Behind a member, bytes that begin with a whole header are the next member, and any other bytes are ignored. At the end
of its own buffer, the reader of the JDK takes a header in the last bytes of a stream for a member; here such a header
is ignored as well.

An lz4 frame is as in `sparklog.record.format.streams`, and may have more, little-endian:

    byte  size  field
    0     4     magic               0x184D2204
    4     1     flags               0x40 version, 0x20 independent blocks, and of 0x10 block checksums, 0x08 content
                                    size, 0x04 content checksum any; 0x03 must be 0
    5     1     block_size_class    4 to 7 in bits 4 to 6: blocks of at most 64 KiB, 256 KiB, 1 MiB, 4 MiB; else 0
    6     8     content_size        if its flag says so; never compared
          1     header_checksum     the second byte of the xxHash of flags to content size; never compared in magic 0
                blocks              as there; each is followed by its xxHash if the flag says so. A size of 0 ends them,
                                    with or without the highest bit
          4     content_checksum    if its flag says so; it must be there, and is never compared

Bytes behind the frame are ignored. Blocks that depend on the blocks before them are refused. So is a compressed block
without content: nobody writes one, and Kafka's reader takes it for the end of the frame unless it is the last block.

A zstd stream is a row of frames and skippable frames, which must all be whole. Kafka's reader passes over a later frame
that is cut short where its own buffer holds both; nobody writes such a stream, so here it is damage.

Source: java.util.zip.GZIPInputStream of JDK 17; apache/kafka, Lz4BlockInputStream.java, Lz4BlockOutputStream.java;
zstd-jni, ZstdInputStreamNoFinalizer.java; RFC 1952, RFC 8878; the LZ4 frame format 1.5.1.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Final, NamedTuple

import lz4.frame

from sparklog.record.format.streams import LZ4_KAFKA_HEADERS, LZ4_MAGIC, LZ4_SIZE_MASK

_GZIP_START = struct.Struct("<HBB6x")
_GZIP_MAGIC, _GZIP_DEFLATE = 0x8B1F, 8
_GZIP_HEADER_CHECKSUM, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 0x02, 0x04, 0x08, 0x10
_TEXT_BYTES: Final = 256

GZIP_TRAILER: Final = struct.Struct("<II")
GZIP_REST_BYTES_MAX: Final = 18
"""So many bytes behind a member are too few for another one, and are ignored."""

_LZ4_START = struct.Struct("<IBB")
_LZ4_VERSION, _LZ4_INDEPENDENT_BLOCKS = 0x40, 0x20
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_CONTENT_SIZE_BYTES: Final = 8
_LZ4_NOTHING_BYTES: Final = 1
_LZ4_HEADER_BYTES: Final = 7
_LZ4_END: Final = bytes(4)

_ZSTD_MAGIC, _ZSTD_SKIPPABLE_MAGIC = 0xFD2FB528, 0x184D2A50
_ZSTD_SINGLE_SEGMENT, _ZSTD_CHECKSUM = 0x20, 0x04
_ZSTD_RLE: Final = 1

_UINT16 = struct.Struct("<H")
_UINT32 = struct.Struct("<I")


def gzip_content(data: memoryview, position: int) -> int:
    """Return where the content of the gzip member begins whose header is at a position.

    Raises
    ------
    ValueError
        There is no header, it is cut short, or its checksum is wrong.
    """
    at = position + _GZIP_START.size
    if at > len(data):
        raise ValueError("the gzip stream is cut short")
    magic, method, flags = _GZIP_START.unpack_from(data, position)
    if magic != _GZIP_MAGIC or method != _GZIP_DEFLATE:
        raise ValueError("not a gzip stream")
    if flags & _GZIP_EXTRA:
        at += _UINT16.size + int.from_bytes(data[at : at + _UINT16.size], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            at = _after_zero(data, at)
    if flags & _GZIP_HEADER_CHECKSUM:
        if data[at : at + _UINT16.size] != _UINT16.pack(zlib.crc32(data[position:at]) & 0xFFFF):
            raise ValueError("the checksum of a gzip header is wrong")
        at += _UINT16.size
    if at > len(data):
        raise ValueError("the gzip stream is cut short")
    return at


def _after_zero(data: memoryview, position: int) -> int:
    while position < len(data):
        found = bytes(data[position : position + _TEXT_BYTES]).find(0)
        if found >= 0:
            return position + found + 1
        position += _TEXT_BYTES
    raise ValueError("the gzip stream is cut short")


class Lz4Frame(NamedTuple):
    """The borders of an lz4 frame.

    Attributes
    ----------
    block_bytes_max : int
        The most bytes that a block has, compressed or not.
    has_block_checksums : bool
    blocks, blocks_end : int
        Where the first block begins, and where the last one ends. There the size stands that ends the blocks.
    is_plain : bool
        Whether a library that follows the format to the letter reads the same in all the data as Kafka does.
    """

    block_bytes_max: int
    has_block_checksums: bool
    blocks: int
    blocks_end: int
    is_plain: bool


def lz4_frame(data: memoryview, *, checks_header: bool) -> Lz4Frame:
    """Find the borders of the lz4 frame that data begins with.

    Parameters
    ----------
    data : memoryview
    checks_header : bool
        Whether the header's checksum must be right; in magic 0 it need not be.

    Raises
    ------
    ValueError
        The data is not an lz4 frame, has something that Kafka's reader refuses, or is cut short.
    """
    usual_block_bytes = LZ4_KAFKA_HEADERS.get(bytes(data[:_LZ4_HEADER_BYTES]))
    if usual_block_bytes is not None:
        blocks_end = _lz4_blocks_end(data, _LZ4_HEADER_BYTES, usual_block_bytes, 0)
        is_plain = data[blocks_end:] == _LZ4_END
        return Lz4Frame(usual_block_bytes, False, _LZ4_HEADER_BYTES, blocks_end, is_plain)
    if len(data) < _LZ4_START.size:
        raise ValueError("the lz4 frame is cut short")
    magic, flags, size_class = _LZ4_START.unpack_from(data)
    if magic != LZ4_MAGIC:
        raise ValueError("not an lz4 frame")
    if flags & 0xC3 != _LZ4_VERSION or size_class & 0x8F or size_class < 0x40:
        raise ValueError("the header of the lz4 frame is of no known version or block size")
    if not flags & _LZ4_INDEPENDENT_BLOCKS:
        raise ValueError("the blocks of the lz4 frame depend on each other, which Kafka does not read")
    header_end = _LZ4_START.size + (_LZ4_CONTENT_SIZE_BYTES if flags & _LZ4_CONTENT_SIZE else 0)
    if header_end >= len(data):
        raise ValueError("the lz4 frame is cut short")
    is_header_right = data[header_end] == xxh32(bytes(data[4:header_end])) >> 8 & 0xFF
    if checks_header and not is_header_right:
        raise ValueError("the checksum of the lz4 frame's header is wrong")
    block_bytes_max = 1 << 2 * (size_class >> 4) + 8
    checksum_bytes = _UINT32.size if flags & _LZ4_BLOCK_CHECKSUM else 0
    blocks_end = _lz4_blocks_end(data, header_end + 1, block_bytes_max, checksum_bytes)
    frame_end = blocks_end + _UINT32.size + (_UINT32.size if flags & _LZ4_CONTENT_CHECKSUM else 0)
    if frame_end > len(data):
        raise ValueError("the lz4 frame is cut short")
    has_more = flags & (_LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM) or frame_end < len(data)
    is_plain = is_header_right and not has_more and data[blocks_end:] == _LZ4_END
    return Lz4Frame(block_bytes_max, bool(checksum_bytes), header_end + 1, blocks_end, is_plain)


def _lz4_blocks_end(data: memoryview, position: int, block_bytes_max: int, checksum_bytes: int) -> int:
    while position + _UINT32.size <= len(data):
        (size,) = _UINT32.unpack_from(data, position)
        block_bytes = lz4_block_bytes(size, block_bytes_max)
        if not block_bytes:
            return position
        position += _UINT32.size + block_bytes + checksum_bytes
    raise ValueError("the lz4 frame is cut short")


def lz4_block_bytes(size: int, block_bytes_max: int) -> int:
    """Return the size of a block by the field before it, 0 where it ends the frame; raise `ValueError` for none."""
    block_bytes = size & LZ4_SIZE_MASK
    if block_bytes > block_bytes_max:
        raise ValueError("a block of the lz4 frame is longer than its header allows")
    if size == _LZ4_NOTHING_BYTES:
        raise ValueError("a block of the lz4 frame holds nothing")
    return block_bytes


def plain_lz4(data: memoryview, frame: Lz4Frame) -> memoryview:
    """Return a frame with the same blocks and nothing behind them, which any library reads as Kafka's reader does."""
    if frame.is_plain:
        return data
    header = _lz4_header(frame.block_bytes_max, frame.has_block_checksums)
    return memoryview(header + bytes(data[frame.blocks : frame.blocks_end]) + bytes(_UINT32.size))


@lru_cache(maxsize=8)
def _lz4_header(block_bytes_max: int, has_block_checksums: bool) -> bytes:
    size_class = (block_bytes_max.bit_length() - 9) // 2
    frame = lz4.frame.LZ4FrameCompressor(block_size=size_class, block_linked=False, block_checksum=has_block_checksums)
    return bytes(frame.begin())


@lru_cache(maxsize=64)
def xxh32(data: bytes) -> int:
    """Return the xxHash, of 32 bits and seed 0, of fewer than 16 bytes."""
    mask, primes = 0xFFFFFFFF, (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
    hashed, words_end = primes[4] + len(data), len(data) & ~3
    for at in range(0, words_end, 4):
        hashed = _rotated(hashed + _UINT32.unpack_from(data, at)[0] * primes[2] & mask, 17) * primes[3] & mask
    for byte in data[words_end:]:
        hashed = _rotated(hashed + byte * primes[4] & mask, 11) * primes[0] & mask
    hashed = (hashed ^ hashed >> 15) * primes[1] & mask
    hashed = (hashed ^ hashed >> 13) * primes[2] & mask
    return hashed ^ hashed >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & 0xFFFFFFFF


def check_zstd_frames(data: memoryview) -> None:
    """Check that data is a row of whole zstd frames, as far as their borders tell.

    Raises
    ------
    ValueError
        It is not, or is cut short.
    """
    position = 0
    while not position or position < len(data):
        if position + 2 * _UINT32.size > len(data):
            raise ValueError("the zstd stream is cut short")
        magic, size = struct.unpack_from("<II", data, position)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC:
            position += 2 * _UINT32.size + size
        elif magic == _ZSTD_MAGIC:
            position = _zstd_frame_end(data, position + _UINT32.size)
        else:
            raise ValueError("not a zstd frame")
        if position > len(data):
            raise ValueError("the zstd stream is cut short")


def _zstd_frame_end(data: memoryview, position: int) -> int:
    """Return where a frame ends whose descriptor is at a position; past the data where it is cut short."""
    descriptor = data[position]
    is_single_segment = bool(descriptor & _ZSTD_SINGLE_SEGMENT)
    content_size_bytes = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    position += 1 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
    is_last = 0
    while not is_last:
        if position + 3 > len(data):
            return len(data) + 1
        block = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, block_bytes = block & 1, block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == _ZSTD_RLE else block_bytes)
    return position + (_UINT32.size if descriptor & _ZSTD_CHECKSUM else 0)
