"""zstd: a sequence of frames, written without their content size.

A stream consists of frames and skippable frames, which must all be whole. Kafka's reader skips a truncated later frame
if its own buffer holds both; nobody writes such a stream, so here it is damage.

Source: zstd-jni, ZstdInputStreamNoFinalizer.java; RFC 8878.
"""

from __future__ import annotations

import struct
import threading
from typing import Final

import cramjam
import zstandard

from sparklog.record.codecs.table import (
    TARGET_TOO_SMALL,
    CompressInto,
    Functions,
    above_limit,
    stream_pieces,
    write_into,
)

_MAGIC, _SKIPPABLE_MAGIC = 0xFD2FB528, 0x184D2A50
_SINGLE_SEGMENT, _CHECKSUM = 0x20, 0x04
_RLE: Final = 1
_UINT32 = struct.Struct("<I")
_STREAM_STEP_BYTES: Final = 1 << 18


class _OfThread(threading.local):
    """A decompressor for each thread: threads must not share one, and making one takes longer than using it once."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()


_of_thread = _OfThread()


def _decompress_into(data: memoryview, target: memoryview, limit_bytes: int) -> int:
    try:
        size: int = cramjam.zstd.decompress_into(data, target)
    except cramjam.DecompressionError:
        # The data is damaged, or longer than the target. Reading it as a stream shows which.
        return TARGET_TOO_SMALL
    if size > limit_bytes:
        raise above_limit(limit_bytes)
    return size


def _decompress(data: memoryview, limit_bytes: int) -> bytearray:
    # The library's reader of streams does not notice a truncated one.
    _check_frames(data)
    stream = _of_thread.zstd.stream_reader(data, read_across_frames=True)
    content = bytearray()
    while piece := stream.read(min(_STREAM_STEP_BYTES, limit_bytes - len(content)) + 1):
        if len(content) + len(piece) > limit_bytes:
            raise above_limit(limit_bytes)
        content += piece
    return content


def _check_frames(data: memoryview) -> None:
    """Raise `ValueError` if data is not a sequence of whole frames, as far as their borders show."""
    position = 0
    while not position or position < len(data):
        if position + 2 * _UINT32.size > len(data):
            raise ValueError("the zstd stream is cut short")
        magic, size = struct.unpack_from("<II", data, position)
        if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
            position += 2 * _UINT32.size + size
        elif magic == _MAGIC:
            position = _frame_end(data, position + _UINT32.size)
        else:
            raise ValueError("not a zstd frame")
        if position > len(data):
            raise ValueError("the zstd stream is cut short")


def _frame_end(data: memoryview, position: int) -> int:
    """Return the end of the frame whose descriptor is at a position; past the data if the frame is truncated."""
    descriptor = data[position]
    is_single_segment = bool(descriptor & _SINGLE_SEGMENT)
    content_size_bytes = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    position += 1 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
    is_last = 0
    while not is_last:
        if position + 3 > len(data):
            return len(data) + 1
        block = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, block_bytes = block & 1, block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == _RLE else block_bytes)
    return position + (_UINT32.size if descriptor & _CHECKSUM else 0)


def _compressor(level: int) -> CompressInto:
    context = zstandard.ZstdCompressor(level=level, write_content_size=False)
    return lambda records, target: write_into(context.compress(records), target)


FUNCTIONS: Final = Functions(
    _decompress,
    _compressor,
    _decompress_into,
    prefix=lambda data, _: stream_pieces(_of_thread.zstd.decompressobj(), data),
)
