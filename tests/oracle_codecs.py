"""Primitives and codecs of the slow decoder in `tests.oracle`.

Each codec takes a whole stream and follows Kafka's own reader of it, which is narrower than the format in places (LZ4:
one frame, no linked blocks) and wider in others (bare snappy, gzip members and zstd frames one after another, bytes
after the end of a gzip or LZ4 stream). A later zstd frame that is cut short is an error here; Java's reader may end in
silence before it. So is an LZ4 block that holds nothing, which Java's reader may take for the end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import lz4.block
import snappy
import zstandard


class OracleError(Exception):
    """The bytes are not what Kafka writes."""


class EndOfBytesError(OracleError):
    """A read ran past the end."""

    def __init__(self) -> None:
        super().__init__("the bytes end early")


class Reader:
    """A position in bytes that never reads past their end."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.remaining:
            raise EndOfBytesError
        self.position += size
        return self.data[self.position - size : self.position]

    def nullable(self, size: int) -> bytes | None:
        return None if size < 0 else self.take(size)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def uvarint(self, bits: int = 32) -> int:
        """Base-128, low bits first, at most 5 bytes (10 for 64 bits); bits that do not fit are lost, as in Java."""
        value = 0
        for shift in range(0, bits + 3, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & ((1 << bits) - 1)
        raise OracleError("a varint is too long")

    def varint(self) -> int:
        value = self.uvarint(32)
        return value >> 1 ^ -(value & 1)

    def varlong(self) -> int:
        value = self.uvarint(64)
        return value >> 1 ^ -(value & 1)


def decompress(codec: str, data: bytes, magic: int) -> bytes:
    """Decompress a whole stream as Kafka's reader does."""
    if codec == "none":
        return data
    streams: dict[str, Callable[[bytes], bytes]] = {"gzip": _gunzip, "snappy": _unsnappy, "zstd": _unzstd}
    try:
        return _unlz4(data, magic) if codec == "lz4" else streams[codec](data)
    except (zlib.error, zstandard.ZstdError, lz4.block.LZ4BlockError, snappy.UncompressError) as err:
        raise OracleError(f"the {codec} stream is damaged") from err


def _gunzip(data: bytes) -> bytes:
    """Read members as java.util.zip.GZIPInputStream of JDK 17 does, whose buffer holds all of the data."""
    out = b""
    reader = Reader(data)
    _gzip_header(reader)
    while True:
        member = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        content = member.decompress(data[reader.position :])
        if not member.eof:
            raise EndOfBytesError
        reader.position = len(data) - len(member.unused_data)
        if reader.take(8) != struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF):
            raise OracleError("the trailer of a gzip member differs")
        out += content
        if reader.remaining + 8 <= 26:
            return out
        try:
            _gzip_header(reader)
        except OracleError:
            return out


def _gzip_header(reader: Reader) -> None:
    start = reader.position
    magic, method, flags = struct.unpack("<HBB", reader.take(4))
    if magic != 0x8B1F or method != 8:
        raise OracleError("not a gzip member")
    reader.take(6)
    if flags & 0x04:
        reader.take(int.from_bytes(reader.take(2), "little"))
    for text in (0x08, 0x10):
        while flags & text and reader.take(1) != b"\0":
            pass
    if flags & 0x02:
        checksum = zlib.crc32(reader.data[start : reader.position]) & 0xFFFF
        if reader.take(2) != struct.pack("<H", checksum):
            raise OracleError("the checksum of a gzip header differs")


def _unzstd(data: bytes) -> bytes:
    out = b""
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        out += frame.decompress(data)
        if not frame.eof:
            raise EndOfBytesError
        data = frame.unused_data
    return out


XERIAL_MAGIC = b"\x82SNAPPY\0"


def _unsnappy(data: bytes) -> bytes:
    if len(data) < 16 or not data.startswith(XERIAL_MAGIC):
        return bytes(snappy.uncompress(data))
    reader = Reader(data)
    out = b""
    while reader.remaining >= 4:
        if data.startswith(XERIAL_MAGIC, reader.position):  # also in the middle: streams may be concatenated
            start = reader.position
            reader.take(8)
            version, _version_min = reader.int32(), reader.int32()
            # xerial's reader asks this of streams behind the first only.
            if version < 1 and start > 0:
                raise OracleError("the version of the snappy stream is unknown")
            continue
        out += bytes(snappy.uncompress(reader.take(reader.int32())))
    return out


LZ4_MAGIC = b"\x04\x22\x4d\x18"


def _unlz4(data: bytes, magic: int) -> bytes:
    """Read one LZ4 frame of the kind that Kafka supports: linked blocks and dictionaries are errors to it."""
    reader = Reader(data)
    if reader.take(4) != LZ4_MAGIC:
        raise OracleError("not an LZ4 frame")
    flags, block_descriptor = reader.take(2)
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise OracleError("the LZ4 frame has a feature that Kafka lacks")
    if block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise OracleError("the block size of the LZ4 frame is invalid")
    has_block_checksum, has_content_size = bool(flags & 0x10), bool(flags & 0x08)
    block_bytes_max = 1 << (2 * (block_descriptor >> 4) + 8)
    if has_content_size:
        reader.take(8)
    descriptor = data[4 : reader.position]
    (header_checksum,) = reader.take(1)
    # Brokers of magic 0 wrote a wrong checksum (KAFKA-3160), so none of theirs is looked at.
    if magic > 0 and header_checksum != xxh32(descriptor) >> 8 & 0xFF:
        raise OracleError("the checksum of the LZ4 frame's header differs")

    out = b""
    while True:
        (size,) = struct.unpack("<I", reader.take(4))
        is_compressed, size = size < 0x80000000, size & 0x7FFFFFFF
        if size == 0:
            # The checksum of the content must be there, and is not looked at.
            reader.take(4 if flags & 0x04 else 0)
            return out
        if size > block_bytes_max:
            raise OracleError("a block of the LZ4 frame is too large")
        if is_compressed and size == 1:
            raise OracleError("a block of the LZ4 frame holds nothing")
        block = reader.take(size)
        if has_block_checksum and reader.take(4) != struct.pack("<I", xxh32(block)):
            raise OracleError("the checksum of an LZ4 block differs")
        out += lz4.block.decompress(block, uncompressed_size=block_bytes_max) if is_compressed else block


def xxh32(data: bytes) -> int:
    """Hash of the xxHash family, 32 bits, seed 0."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393

    def rotate(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    position = 0
    lanes = [(p1 + p2) & 0xFFFFFFFF, p2, 0, -p1 & 0xFFFFFFFF]
    while position + 16 <= len(data):
        words = struct.unpack_from("<4I", data, position)
        lanes = [rotate(lane + word * p2, 13) * p1 & 0xFFFFFFFF for lane, word in zip(lanes, words, strict=True)]
        position += 16
    bits = (1, 7, 12, 18)
    total = sum(map(rotate, lanes, bits)) if position else p5
    total += len(data)
    while position + 4 <= len(data):
        total = rotate(total + struct.unpack_from("<I", data, position)[0] * p3, 17) * p4
        position += 4
    for byte in data[position:]:
        total = rotate(total + byte * p5, 11) * p1
    total &= 0xFFFFFFFF
    total = (total ^ total >> 15) * p2 & 0xFFFFFFFF
    total = (total ^ total >> 13) * p3 & 0xFFFFFFFF
    return total ^ total >> 16
