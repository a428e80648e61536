"""gzip: a sequence of members, each with a checksum.

The library decompresses the content, but does not find the borders of members as Kafka's consumer does. Little-endian:

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

After a member, bytes that begin with a whole header are the next member, and any other bytes are ignored. At the end of
its own buffer, the reader of the JDK takes a header in the last bytes of a stream for a member; here such a header is
ignored as well.

Source: java.util.zip.GZIPInputStream of JDK 17; RFC 1952.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from isal import isal_zlib

from sparklog.record.codecs.table import CompressInto, Functions, above_limit, stream_pieces, write_into

_START = struct.Struct("<HBB6x")
_MAGIC, _DEFLATE = 0x8B1F, 8
_HEADER_CHECKSUM, _EXTRA, _NAME, _COMMENT = 0x02, 0x04, 0x08, 0x10
_UINT16 = struct.Struct("<H")
_TEXT_BYTES: Final = 256
_PLAIN_START = b"\x1f\x8b\x08\0"
_TRAILER = struct.Struct("<II")
# This many bytes after a member are too few for another one, and are ignored.
_REST_BYTES_MAX: Final = 18
_MEMBER_STEP_BYTES: Final = 512
_LEVEL_OF_ISAL: Final = -1


def _decompress(data: memoryview, limit_bytes: int) -> bytes:
    # Nearly all streams are one member without optional header fields: the library checks its trailer as well.
    if len(data) >= _START.size and data[:4] == _PLAIN_START:
        first, position = _inflated(data, 0, 31, len(data), limit_bytes, limit_bytes)
    else:
        first, position = _member(data, _content(data, 0), len(data), limit_bytes, limit_bytes)
    if len(data) - position <= _REST_BYTES_MAX:
        return first
    pieces, left_bytes = [first], limit_bytes - len(first)
    while len(data) - position > _REST_BYTES_MAX:
        try:
            start = _content(data, position)
        except ValueError:
            break
        # A little at a time, since the library copies the input bytes that it does not use.
        member, position = _member(data, start, _MEMBER_STEP_BYTES, left_bytes, limit_bytes)
        left_bytes -= len(member)
        if member:
            pieces.append(member)
    return b"".join(pieces)


def _member(data: memoryview, start: int, step_bytes: int, left_bytes: int, limit_bytes: int) -> tuple[bytes, int]:
    """Decompress the member whose content begins at ``start``; return its content and the position of its end."""
    member, end = _inflated(data, start, -15, step_bytes, left_bytes, limit_bytes)
    if end + _TRAILER.size > len(data):
        raise ValueError("the gzip stream is cut short")
    if _TRAILER.unpack_from(data, end) != (isal_zlib.crc32(member), len(member) & 0xFFFFFFFF):
        raise ValueError("the checksum or size of a gzip member is wrong")
    return member, end + _TRAILER.size


def _inflated(
    data: memoryview, start: int, window_bits: int, step_bytes: int, left_bytes: int, limit_bytes: int
) -> tuple[bytes, int]:
    """Decompress a raw deflate stream (window bits -15) or a gzip member (31); return its content and its end."""
    stream = isal_zlib.decompressobj(window_bits)
    pieces: list[bytes] = []
    while True:
        fed = data[start : start + step_bytes]
        if not fed:
            raise ValueError("the gzip stream is cut short")
        piece = stream.decompress(fed, left_bytes + 1)
        left_bytes -= len(piece)
        if left_bytes < 0:
            raise above_limit(limit_bytes)
        pieces.append(piece)
        start += len(fed) - len(stream.unused_data)
        if stream.eof:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces), start
        step_bytes *= 2


def _content(data: memoryview, position: int) -> int:
    """Return the position of the content of the member at a position; raise `ValueError` if none begins there."""
    at = position + _START.size
    if at > len(data):
        raise ValueError("the gzip stream is cut short")
    magic, method, flags = _START.unpack_from(data, position)
    if magic != _MAGIC or method != _DEFLATE:
        raise ValueError("not a gzip stream")
    if flags & _EXTRA:
        at += _UINT16.size + int.from_bytes(data[at : at + _UINT16.size], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            at = _after_zero(data, at)
    if flags & _HEADER_CHECKSUM:
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


def _compressor(level: int) -> CompressInto:
    library, number = (isal_zlib, isal_zlib.ISAL_DEFAULT_COMPRESSION) if level == _LEVEL_OF_ISAL else (zlib, level)
    return lambda records, target: write_into(library.compress(records, number, 31), target)


FUNCTIONS: Final = Functions(
    _decompress, _compressor, prefix=lambda data, _: stream_pieces(zlib.decompressobj(31), data)
)
