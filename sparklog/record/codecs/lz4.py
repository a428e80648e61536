"""lz4: one LZ4 frame of independent blocks.

A frame has the fields of `sparklog.record.format.streams`, and may have more, little-endian:

    byte  size  field
    0     4     magic               0x184D2204
    4     1     flags               0x40 version, 0x20 independent blocks, and of 0x10 block checksums, 0x08 content
                                    size, 0x04 content checksum any; 0x03 must be 0
    5     1     block_size_class    4 to 7 in bits 4 to 6: blocks of at most 64 KiB, 256 KiB, 1 MiB, 4 MiB; else 0
    6     8     content_size        if its flag says so; never compared
          1     header_checksum     the second byte of the xxHash of flags to content size; never compared in magic 0
                blocks              see there; each is followed by its xxHash if the flag says so. A size of 0 ends
                                    them, with or without the highest bit
          4     content_checksum    if its flag says so; it must be there, and is never compared

Bytes after the frame are ignored. Blocks that depend on earlier blocks are refused. So is a compressed block without
content: nobody writes one, and Kafka's reader takes it for the end of the frame unless it is the last block.

Until Kafka 0.10, producers computed the checksum of the header over the frame's magic, too. Frames in messages of magic
0 have this checksum, and old readers require it.

Source: apache/kafka, Lz4BlockInputStream.java, Lz4BlockOutputStream.java; the LZ4 frame format 1.5.1; KAFKA-3160.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final, NamedTuple

import cramjam
import lz4.block
import lz4.frame

from sparklog.record.codecs.table import (
    TARGET_TOO_SMALL,
    CompressInto,
    Functions,
    above_limit,
    copy_into,
    stream_pieces,
    write_into,
)
from sparklog.record.format.streams import (
    LZ4_KAFKA_BLOCK_BYTES,
    LZ4_KAFKA_HEADERS,
    LZ4_MAGIC,
    LZ4_SIZE_MASK,
    LZ4_STORED,
)

FAST_LEVEL: Final = 9
"""The level of the fast compressor, as in Kafka; the other levels belong to lz4's HC."""

_START = struct.Struct("<IBB")
_VERSION, _INDEPENDENT_BLOCKS = 0x40, 0x20
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_CONTENT_SIZE_BYTES: Final = 8
_NOTHING_BYTES: Final = 1
_END: Final = bytes(4)
_UINT32 = struct.Struct("<I")
_HEADER = bytes.fromhex("04224d18604082")  # of a frame with blocks of the size that Kafka's producers choose
assert LZ4_KAFKA_HEADERS[_HEADER] == LZ4_KAFKA_BLOCK_BYTES
_CHECKSUM_AT: Final = 6
_CHECKSUM_OF_MAGIC_0: Final = 0x1A
_BLOCK_ERRORS = (cramjam.DecompressionError, lz4.block.LZ4BlockError)
_RATIO_MAX: Final = 255
_STEP_BYTES: Final = 1 << 17
# The library keeps the content twice if it makes a whole frame at once.
_WHOLE_BYTES_MAX: Final = 1 << 24


def _decompress(data: memoryview, limit_bytes: int, *, checks_header: bool = True) -> bytes | bytearray:
    return _content(_plain(data, _frame(data, checks_header)), limit_bytes)


def _content(frame: memoryview, limit_bytes: int) -> bytes | bytearray:
    if len(frame) * _RATIO_MAX <= min(limit_bytes, _WHOLE_BYTES_MAX):
        return lz4.frame.decompress(frame)  # type: ignore[no-any-return]
    stream, content, fed = lz4.frame.LZ4FrameDecompressor(), bytearray(), frame
    while not stream.eof:
        piece = stream.decompress(fed, max_length=min(limit_bytes - len(content) + 1, _STEP_BYTES))
        if len(content) + len(piece) > limit_bytes:
            raise above_limit(limit_bytes)
        if not piece and stream.needs_input and not stream.eof:
            raise ValueError("the lz4 frame is cut short")
        content += piece
        fed = memoryview(b"")
    return content


def _decompress_into(data: memoryview, target: memoryview, limit_bytes: int) -> int:
    """Decompress a usual frame of Kafka's producers block by block; leave any other to the library's reader."""
    block_bytes_max = LZ4_KAFKA_HEADERS.get(bytes(data[: len(_HEADER)]))
    if block_bytes_max is None or len(target) > limit_bytes:
        return copy_into(_decompress(data, limit_bytes), target)
    position, filled_bytes = len(_HEADER), 0
    while True:
        start = position + _UINT32.size
        if start > len(data):
            raise ValueError("the lz4 frame is cut short")
        (size,) = _UINT32.unpack_from(data, position)
        position = start + _block_bytes(size, block_bytes_max)
        if start == position:
            return filled_bytes
        if position > len(data):
            raise ValueError("the lz4 frame is cut short")
        block = data[start:position]
        if size > LZ4_SIZE_MASK:
            if len(block) > len(target) - filled_bytes:
                return TARGET_TOO_SMALL
            target[filled_bytes : filled_bytes + len(block)] = block
            filled_bytes += len(block)
        else:
            try:
                filled_bytes += _decompress_block(block, target[filled_bytes : filled_bytes + block_bytes_max])
            except _BLOCK_ERRORS:
                # The block is damaged, or longer than the target. The library's reader of whole frames finds out which.
                return TARGET_TOO_SMALL


def _decompress_block(block: memoryview, target: memoryview) -> int:
    # If a block does not fit, cramjam takes its first four bytes for the size of the rest, and returns wrong bytes.
    # It is the faster library, and it is safe if those four bytes are a size that the target cannot hold.
    if int.from_bytes(block[:4], "little") > len(target):
        size: int = cramjam.lz4.decompress_block_into(block, target, len(target))
        return size
    return write_into(lz4.block.decompress(block, uncompressed_size=len(target)), target)


def _compress(records: memoryview, target: memoryview) -> int:
    target[: len(_HEADER)] = _HEADER
    filled_bytes = len(_HEADER)
    for start in range(0, len(records), LZ4_KAFKA_BLOCK_BYTES):
        block, size_at = records[start : start + LZ4_KAFKA_BLOCK_BYTES], filled_bytes
        filled_bytes += _UINT32.size
        block_bytes = cramjam.lz4.compress_block_into(block, target[filled_bytes:], store_size=False)
        size = block_bytes
        if block_bytes >= len(block):
            block_bytes = write_into(block, target[filled_bytes : filled_bytes + len(block)])
            size = block_bytes | LZ4_STORED
        _UINT32.pack_into(target, size_at, size)
        filled_bytes += block_bytes
    _UINT32.pack_into(target, filled_bytes, 0)
    return filled_bytes + _UINT32.size


def _compressor(level: int) -> CompressInto:
    if level == FAST_LEVEL:
        return _compress
    settings = {"compression_level": level, "block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False}
    return lambda records, target: write_into(lz4.frame.compress(records, store_size=False, **settings), target)


def _compressor_of_magic_0(level: int) -> CompressInto:
    compress = _compressor(level)

    def compress_magic_0(records: memoryview, target: memoryview) -> int:
        size = compress(records, target)
        target[_CHECKSUM_AT] = _CHECKSUM_OF_MAGIC_0
        return size

    return compress_magic_0


class _Frame(NamedTuple):
    """The borders of a frame. The size that ends the blocks is at ``blocks_end``."""

    block_bytes_max: int
    has_block_checksums: bool
    blocks: int
    blocks_end: int
    # Whether a library that follows the format strictly reads the same from all the data as Kafka does.
    is_plain: bool


def _frame(data: memoryview, checks_header: bool) -> _Frame:
    """Find the borders of the frame at the beginning of data; raise `ValueError` if Kafka's reader refuses it."""
    usual_block_bytes = LZ4_KAFKA_HEADERS.get(bytes(data[: len(_HEADER)]))
    if usual_block_bytes is not None:
        blocks_end = _blocks_end(data, len(_HEADER), usual_block_bytes, 0)
        is_plain = data[blocks_end:] == _END
        return _Frame(usual_block_bytes, False, len(_HEADER), blocks_end, is_plain)
    if len(data) < _START.size:
        raise ValueError("the lz4 frame is cut short")
    magic, flags, size_class = _START.unpack_from(data)
    if magic != LZ4_MAGIC:
        raise ValueError("not an lz4 frame")
    if flags & 0xC3 != _VERSION or size_class & 0x8F or size_class < 0x40:
        raise ValueError("the header of the lz4 frame is of no known version or block size")
    if not flags & _INDEPENDENT_BLOCKS:
        raise ValueError("the blocks of the lz4 frame depend on each other, which Kafka does not read")
    header_end = _START.size + (_CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE else 0)
    if header_end >= len(data):
        raise ValueError("the lz4 frame is cut short")
    is_header_right = data[header_end] == _xxh32(bytes(data[4:header_end])) >> 8 & 0xFF
    if checks_header and not is_header_right:
        raise ValueError("the checksum of the lz4 frame's header is wrong")
    block_bytes_max = 1 << 2 * (size_class >> 4) + 8
    checksum_bytes = _UINT32.size if flags & _BLOCK_CHECKSUM else 0
    blocks_end = _blocks_end(data, header_end + 1, block_bytes_max, checksum_bytes)
    frame_end = blocks_end + _UINT32.size + (_UINT32.size if flags & _CONTENT_CHECKSUM else 0)
    if frame_end > len(data):
        raise ValueError("the lz4 frame is cut short")
    has_more = flags & (_CONTENT_SIZE | _CONTENT_CHECKSUM) or frame_end < len(data)
    is_plain = is_header_right and not has_more and data[blocks_end:] == _END
    return _Frame(block_bytes_max, bool(checksum_bytes), header_end + 1, blocks_end, is_plain)


def _blocks_end(data: memoryview, position: int, block_bytes_max: int, checksum_bytes: int) -> int:
    while position + _UINT32.size <= len(data):
        (size,) = _UINT32.unpack_from(data, position)
        block_bytes = _block_bytes(size, block_bytes_max)
        if not block_bytes:
            return position
        position += _UINT32.size + block_bytes + checksum_bytes
    raise ValueError("the lz4 frame is cut short")


def _block_bytes(size: int, block_bytes_max: int) -> int:
    """Return a block's size from the field before it, 0 if that ends the frame; raise `ValueError` if it is no size."""
    block_bytes = size & LZ4_SIZE_MASK
    if block_bytes > block_bytes_max:
        raise ValueError("a block of the lz4 frame is longer than its header allows")
    if size == _NOTHING_BYTES:
        raise ValueError("a block of the lz4 frame holds nothing")
    return block_bytes


def _plain(data: memoryview, frame: _Frame) -> memoryview:
    """Return a frame with the same blocks and nothing after them; any library reads it as Kafka's reader does."""
    if frame.is_plain:
        return data
    header = _header(frame.block_bytes_max, frame.has_block_checksums)
    return memoryview(header + bytes(data[frame.blocks : frame.blocks_end]) + bytes(_UINT32.size))


@lru_cache(maxsize=8)
def _header(block_bytes_max: int, has_block_checksums: bool) -> bytes:
    size_class = (block_bytes_max.bit_length() - 9) // 2
    frame = lz4.frame.LZ4FrameCompressor(block_size=size_class, block_linked=False, block_checksum=has_block_checksums)
    return bytes(frame.begin())


@lru_cache(maxsize=64)
def _xxh32(data: bytes) -> int:
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


def _prefix(data: memoryview, _: int) -> Iterator[bytes]:
    # The checksum of the usual header may be damaged, or be that of magic 0.
    is_usual = data[:_CHECKSUM_AT] == _HEADER[:_CHECKSUM_AT]
    frame = memoryview(_HEADER + bytes(data[len(_HEADER) :])) if is_usual else data
    return stream_pieces(lz4.frame.LZ4FrameDecompressor(), frame)


_IN_MAGIC_0: Final = Functions(partial(_decompress, checks_header=False), _compressor_of_magic_0, prefix=_prefix)
FUNCTIONS: Final = Functions(_decompress, _compressor, _decompress_into, _IN_MAGIC_0, _prefix)
