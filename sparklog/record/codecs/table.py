"""The codecs of record batches: the id and name of each, and the functions that compress and decompress with it.

A codec id is the three lowest bits of a batch's attributes. Libraries do the work. This module adds the framing of
Kafka's producers, and sees to it that no stream makes us allocate more than a limit, whatever the stream claims:

- gzip: a gzip stream, members may follow each other.
- snappy: a stream of blocks, see `sparklog.record.format.streams`, or one bare raw block, as librdkafka and others
write.
- lz4: one LZ4 frame. In magic 0 its header checksum was computed over the wrong bytes, so there it is not looked at.
- zstd: zstd frames, without their content size. Only in magic 2.

Where such streams begin and end, what may stand behind them, and which checksums are compared is written in
`sparklog.record.codecs.frames`.

python-snappy is cramjam's snappy behind another interface, and copies its result once more, which takes a tenth to a
half longer up to 256 KiB. So it decompresses blocks that stand alone and need new memory; cramjam does the rest.

Source: apache/kafka, common/compress; the LZ4 frame format 1.5.1; KAFKA-3160 for the checksum.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import cramjam
import lz4.block
import lz4.frame
import snappy
import zstandard
from isal import isal_zlib

from sparklog.errors import CorruptBatchError, DecompressedSizeError, InvalidOptionError
from sparklog.record.codecs.frames import (
    GZIP_REST_BYTES_MAX,
    GZIP_TRAILER,
    check_zstd_frames,
    gzip_content,
    lz4_block_bytes,
    lz4_frame,
    plain_lz4,
)
from sparklog.record.format import limits
from sparklog.record.format.streams import (
    LZ4,
    LZ4_KAFKA_BLOCK_BYTES,
    LZ4_KAFKA_HEADERS,
    LZ4_SIZE_MASK,
    LZ4_STORED,
    SNAPPY,
    XERIAL_MAGIC,
    XERIAL_START,
    snappy_blocks,
)

Decompress = Callable[[memoryview, int], bytes | bytearray]
DecompressInto = Callable[[memoryview, memoryview, int], int]
CompressInto = Callable[[memoryview, memoryview], int]

TARGET_TOO_SMALL: Final = -1
"""Returned in place of a size where the content does not fit the target, or might not."""

DECOMPRESSED_BYTES_MAX: Final = limits.DECOMPRESSED_BYTES_MAX


class _OfThread(threading.local):
    """Decompressors that take longer to make than a batch takes to decompress, and that threads must not share."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()


_of_thread = _OfThread()
_STREAM_STEP_BYTES = 1 << 18
_LZ4_STEP_BYTES = 1 << 17
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct("<I")
_XERIAL_HEADER = XERIAL_START.pack(XERIAL_MAGIC, 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_MEMBER_STEP_BYTES = 512
_GZIP_PLAIN_START = b"\x1f\x8b\x08\0"
_GZIP_HEADER_BYTES = 10
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # of a frame with blocks of the size that Kafka's producers choose
_LZ4_HEADER_BYTES = len(_LZ4_HEADER)
assert LZ4_KAFKA_HEADERS[_LZ4_HEADER] == LZ4_KAFKA_BLOCK_BYTES
_BLOCK_ERRORS = (cramjam.DecompressionError, lz4.block.LZ4BlockError)
_SNAPPY_RATIO_MAX = 64
_LZ4_RATIO_MAX = 255


@dataclass(frozen=True)
class Codec:
    """One codec: its id in the attributes, Kafka's name for it, and the function that decompresses."""

    codec_id: int
    name: str
    decompress: Decompress


def _gzip(data: memoryview, limit_bytes: int) -> bytes:
    # Nearly all streams are of one member, whose header says nothing more: the library checks its trailer as well.
    if len(data) >= _GZIP_HEADER_BYTES and data[:4] == _GZIP_PLAIN_START:
        first, position = _inflated(data, 0, 31, len(data), limit_bytes, limit_bytes)
    else:
        first, position = _gzip_member(data, gzip_content(data, 0), len(data), limit_bytes, limit_bytes)
    if len(data) - position <= GZIP_REST_BYTES_MAX:
        return first
    pieces, left_bytes = [first], limit_bytes - len(first)
    while len(data) - position > GZIP_REST_BYTES_MAX:
        try:
            start = gzip_content(data, position)
        except ValueError:
            break
        # A little at a time, since the library copies the bytes that it is given and does not use.
        member, position = _gzip_member(data, start, _MEMBER_STEP_BYTES, left_bytes, limit_bytes)
        left_bytes -= len(member)
        if member:
            pieces.append(member)
    return b"".join(pieces)


def _gzip_member(data: memoryview, start: int, step_bytes: int, left_bytes: int, limit_bytes: int) -> tuple[bytes, int]:
    """Decompress the member whose content begins at ``start``; return its content and the position of its end."""
    member, end = _inflated(data, start, -15, step_bytes, left_bytes, limit_bytes)
    if end + GZIP_TRAILER.size > len(data):
        raise ValueError("the gzip stream is cut short")
    if GZIP_TRAILER.unpack_from(data, end) != (isal_zlib.crc32(member), len(member) & 0xFFFFFFFF):
        raise ValueError("the checksum or size of a gzip member is wrong")
    return member, end + GZIP_TRAILER.size


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
            raise _too_large(limit_bytes)
        pieces.append(piece)
        start += len(fed) - len(stream.unused_data)
        if stream.eof:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces), start
        step_bytes *= 2


def _snappy_into(data: memoryview, target: memoryview, limit_bytes: int) -> int:
    filled_bytes = 0
    for block in snappy_blocks(data):
        claimed = _claimed(block, filled_bytes, limit_bytes)
        end = filled_bytes + claimed
        if end > len(target):
            return TARGET_TOO_SMALL
        if cramjam.snappy.decompress_raw_into(block, target[filled_bytes:end]) != claimed:
            raise ValueError("a snappy block ends early")
        filled_bytes = end
    return filled_bytes


def _snappy(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    claimed = 0
    blocks = snappy_blocks(data)
    for block in blocks:
        claimed += _claimed(block, claimed, limit_bytes)
    if len(blocks) == 1:
        return _snappy_block(blocks[0])
    records = bytearray(claimed)
    _snappy_into(data, memoryview(records), limit_bytes)
    return records


def _snappy_block(block: memoryview) -> bytes:
    """Decompress one raw block, of which `_claimed` has checked how much it may hold."""
    try:
        return snappy.uncompress(block)  # type: ignore[no-any-return]
    except snappy.UncompressError as error:
        raise ValueError(f"a snappy block is damaged: {error.__cause__}") from error


def _claimed(block: memoryview, before_bytes: int, limit_bytes: int) -> int:
    """Return how many bytes a raw snappy block says that it holds; raise where it cannot, or above the limit."""
    claimed: int = cramjam.snappy.decompress_raw_len(block)
    if claimed > limit_bytes - before_bytes:
        raise _too_large(limit_bytes)
    if claimed > len(block) * _SNAPPY_RATIO_MAX:
        raise ValueError("a snappy block claims more than it can hold")
    return claimed


def _lz4(data: memoryview, limit_bytes: int) -> bytes:
    return _decompress_lz4_frame(plain_lz4(data, lz4_frame(data, checks_header=True)), limit_bytes)


def _lz4_of_magic_0(data: memoryview, limit_bytes: int) -> bytes:
    return _decompress_lz4_frame(plain_lz4(data, lz4_frame(data, checks_header=False)), limit_bytes)


def _decompress_lz4_frame(frame: memoryview, limit_bytes: int) -> bytes:
    if len(frame) * _LZ4_RATIO_MAX <= limit_bytes:
        return lz4.frame.decompress(frame)  # type: ignore[no-any-return]
    stream = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    left_bytes, fed = limit_bytes, frame
    while not stream.eof:
        piece = stream.decompress(fed, max_length=min(left_bytes + 1, _LZ4_STEP_BYTES))
        left_bytes -= len(piece)
        if left_bytes < 0:
            raise _too_large(limit_bytes)
        if not piece and stream.needs_input and not stream.eof:
            raise ValueError("the lz4 frame is cut short")
        pieces.append(piece)
        fed = memoryview(b"")
    return b"".join(pieces)


def _lz4_into(data: memoryview, target: memoryview, limit_bytes: int) -> int:
    """Decompress a frame as Kafka's producers write it block by block; leave any other to the library's reader."""
    block_bytes_max = LZ4_KAFKA_HEADERS.get(bytes(data[:_LZ4_HEADER_BYTES]))
    if block_bytes_max is None or len(target) > limit_bytes:
        return copy_into(_lz4(data, limit_bytes), target)
    position, filled_bytes = _LZ4_HEADER_BYTES, 0
    while True:
        start = position + _UINT32.size
        if start > len(data):
            raise ValueError("the lz4 frame is cut short")
        (size,) = _UINT32.unpack_from(data, position)
        position = start + lz4_block_bytes(size, block_bytes_max)
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
                filled_bytes += _decompress_lz4_block(block, target[filled_bytes : filled_bytes + block_bytes_max])
            except _BLOCK_ERRORS:
                # The block is damaged, or longer than the target. The library's reader of whole frames tells which.
                return TARGET_TOO_SMALL


def _decompress_lz4_block(block: memoryview, target: memoryview) -> int:
    # Where a block does not fit, cramjam takes the first four bytes for the size of the rest, and returns wrong bytes.
    # It is the faster library, and it is safe where those four bytes say more than the target can hold.
    if int.from_bytes(block[:4], "little") > len(target):
        size: int = cramjam.lz4.decompress_block_into(block, target, len(target))
        return size
    piece = lz4.block.decompress(block, uncompressed_size=len(target))
    return _put(piece, target)


def _zstd_into(data: memoryview, target: memoryview, limit_bytes: int) -> int:
    try:
        size: int = cramjam.zstd.decompress_into(data, target)
    except cramjam.DecompressionError:
        # The data is damaged, or longer than the target. Reading it as a stream tells which.
        return TARGET_TOO_SMALL
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    return size


def _zstd(data: memoryview, limit_bytes: int) -> bytes:
    # The library's reader of streams does not notice that one is cut short.
    check_zstd_frames(data)
    stream = _of_thread.zstd.stream_reader(data, read_across_frames=True)
    pieces: list[bytes] = []
    read_bytes = 0
    while piece := stream.read(min(max(_STREAM_STEP_BYTES, 8 * len(data)), limit_bytes - read_bytes) + 1):
        pieces.append(piece)
        read_bytes += len(piece)
        if read_bytes > limit_bytes:
            raise _too_large(limit_bytes)
    return b"".join(pieces)


def copy_into(data: bytes | bytearray | memoryview, target: memoryview) -> int:
    """Copy data that is not compressed; return its size, or `TARGET_TOO_SMALL`."""
    size = len(data)
    if size > len(target):
        return TARGET_TOO_SMALL
    target[:size] = data
    return size


def _too_large(limit_bytes: int) -> DecompressedSizeError:
    return DecompressedSizeError(
        f"the batch decompresses to more than {limit_bytes} bytes",
        hint="Raise max.decompressed.message.bytes if its producer is trusted",
    )


CODECS: Final = {
    codec.codec_id: codec
    for codec in (
        Codec(0, "none", lambda data, _: bytes(data)),
        Codec(1, "gzip", _gzip),
        Codec(SNAPPY, "snappy", _snappy),
        Codec(LZ4, "lz4", _lz4),
        Codec(4, "zstd", _zstd),
    )
}

LZ4_FAST_LEVELS: Final = (None, 9)
"""The levels of lz4 that mean the fast compressor, as Kafka's own level 9 does; the others are those of lz4's HC."""

CODEC_IDS: Final = {codec.name: codec.codec_id for codec in CODECS.values()}


def compressor(name: str, level: int | None = None) -> CompressInto:
    """Return the function that compresses the records of a v2 batch, framed as Kafka's producers frame them.

    Parameters
    ----------
    name : str
        Kafka's name of the codec.
    level : int, optional
        gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22; the other codecs have no levels. The default is a fast level: for
        gzip the default of ISA-L, for lz4 (9) and zstd (3) Kafka's own.

    Returns
    -------
    callable of (records, target)
        It returns how many bytes it has written at the beginning of ``target``, which should have the size that
        `compressed_bytes_max` returns.
    """
    if name == "none":
        return _put
    if name == "snappy":
        return _compress_snappy
    if name == "lz4" and level in LZ4_FAST_LEVELS:
        return _compress_lz4
    compress = _library_compressor(name, level)
    return lambda records, target: _put(compress(records), target)


def compressed_bytes_max(records_bytes: int) -> int:
    """Return a size that is enough for the compressed form of so many bytes, whatever the codec and the bytes.

    Snappy can grow the most: a block by a sixth and 32 bytes, with its length before it, behind the stream's header.
    """
    blocks = records_bytes // _XERIAL_BLOCK_BYTES + 1
    return records_bytes + records_bytes // 6 + 36 * blocks + 256


def _put(data: bytes | memoryview, target: memoryview) -> int:
    target[: len(data)] = data  # raises where the target is too small
    return len(data)


def _library_compressor(name: str, level: int | None) -> Callable[[memoryview], bytes]:
    if name == "gzip":
        if level is None or level == -1:
            return lambda records: isal_zlib.compress(records, isal_zlib.ISAL_DEFAULT_COMPRESSION, 31)
        return lambda records: zlib.compress(records, level, 31)
    if name == "lz4":
        return lambda records: lz4.frame.compress(
            records,
            compression_level=level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    if name == "zstd":
        context = zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False)
        return context.compress
    raise InvalidOptionError(f"unknown codec {name!r}; there are {', '.join(CODEC_IDS)}")


def _compress_snappy(records: memoryview, target: memoryview) -> int:
    target[: XERIAL_START.size] = _XERIAL_HEADER
    filled_bytes = XERIAL_START.size
    for start in range(0, len(records), _XERIAL_BLOCK_BYTES):
        block = records[start : start + _XERIAL_BLOCK_BYTES]
        block_bytes = cramjam.snappy.compress_raw_into(block, target[filled_bytes + 4 :])
        _INT32.pack_into(target, filled_bytes, block_bytes)
        filled_bytes += 4 + block_bytes
    return filled_bytes


def _compress_lz4(records: memoryview, target: memoryview) -> int:
    target[: len(_LZ4_HEADER)] = _LZ4_HEADER
    filled_bytes = len(_LZ4_HEADER)
    for start in range(0, len(records), LZ4_KAFKA_BLOCK_BYTES):
        block, size_at = records[start : start + LZ4_KAFKA_BLOCK_BYTES], filled_bytes
        filled_bytes += _UINT32.size
        block_bytes = cramjam.lz4.compress_block_into(block, target[filled_bytes:], store_size=False)
        size = block_bytes
        if block_bytes >= len(block):
            block_bytes = _put(block, target[filled_bytes : filled_bytes + len(block)])
            size = block_bytes | LZ4_STORED
        _UINT32.pack_into(target, size_at, size)
        filled_bytes += block_bytes
    _UINT32.pack_into(target, filled_bytes, 0)
    return filled_bytes + _UINT32.size


def codec_name(codec_id: int) -> str:
    """Return Kafka's name of a codec, or ``unknown-<id>``."""
    return CODECS[codec_id].name if codec_id in CODECS else f"unknown-{codec_id}"


def decompressor(codec_id: int, magic: int) -> Decompress:
    """Return the function that decompresses what a codec has compressed.

    Parameters
    ----------
    codec_id : int
        The lowest three bits of the attributes.
    magic : int
        Of the batch; it decides which codecs are legal, and how lz4 is framed.

    Returns
    -------
    callable of (data, limit_bytes)
        ``data`` is the records of a v2 batch or the value of a wrapper. The function never allocates more than
        ``limit_bytes`` for the content. Pass what it raises to `to_corrupt_error`.
    """
    codec = CODECS.get(codec_id)
    if codec is None or (magic < 2 and codec_id > 3):
        return _illegal(codec_id, magic)
    return _lz4_of_magic_0 if magic == 0 and codec_id == LZ4 else codec.decompress


def decompressor_into(codec_id: int, magic: int) -> DecompressInto:
    """Return the function that decompresses into memory which the caller has allocated.

    Returns
    -------
    callable of (data, target, limit_bytes)
        As of `decompressor`; it returns how many bytes it has written at the beginning of ``target``, or
        `TARGET_TOO_SMALL` where the function of `decompressor` must be called instead.
    """
    decompress = decompressor(codec_id, magic)
    if codec_id in _INTO and decompress is CODECS[codec_id].decompress:
        return _INTO[codec_id]
    return lambda data, target, limit_bytes: copy_into(decompress(data, limit_bytes), target)


_INTO: Final[dict[int, DecompressInto]] = {
    0: lambda data, target, _: copy_into(data, target),
    SNAPPY: _snappy_into,
    LZ4: _lz4_into,
    4: _zstd_into,
}


def to_corrupt_error(error: Exception, codec_id: int) -> CorruptBatchError:
    """Turn an error of a codec's library into one of ours, which does not name a file and position yet."""
    if isinstance(error, CorruptBatchError):
        return error
    return CorruptBatchError(f"the {codec_name(codec_id)} stream cannot be decompressed: {error}")


def _illegal(codec_id: int, magic: int) -> Decompress:
    def refuse(data: memoryview, limit_bytes: int) -> bytes:  # noqa: ARG001
        raise CorruptBatchError(f"unknown codec {codec_id} in a batch of magic {magic}")

    return refuse
