"""Makes batches of the records that decode at the beginning of a damaged batch, although its checksum differs.

They are a prefix of its records: each decodes, and has an offset that the batch can have had. Bytes before the damage
are right, and so are the records in them. Records behind its first byte may have wrong values, so that readers mark
all of them:

    none                what follows the first wrong byte may be wrong
    gzip                the same; the records of the first member, up to the fault that the library finds
    lz4, snappy, zstd   blocks are undone one by one: those before the damaged one are right, and that one may be
                        wrong, or not be undone, which ends the records. A raw block of snappy, as librdkafka writes it,
                        is undone as a whole or not at all
    wrappers            the messages inside have checksums of their own, so the first that differs ends the records,
                        and all before it are right. In magic 0 they have their own offsets. In magic 1 these count
                        from 0, and the wrapper has that of the last one: if not all messages are there, with offsets
                        without a gap, nobody knows theirs, and no record is given

An uncompressed message of magic 0 or 1 is a batch of its own, which has nothing else.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Final

import pyarrow as pa
from crc32c import crc32c

from sparklog.errors import CorruptBatchError
from sparklog.record.batches.framing import scan_headers
from sparklog.record.batches.wrappers import wrapped
from sparklog.record.codecs.table import decompressed_prefix, decompressor
from sparklog.record.decode.columns import decode_batches
from sparklog.record.format import legacy, v2

CONTENT_BYTES_MAX: Final = 1 << 26
"""No more of a batch's content is looked at."""

_VARINT_BYTES_MAX: Final = 5
_LENGTH, _CRC, _ATTRIBUTES, _COUNT = slice(8, 12), slice(17, 21), slice(21, 23), slice(57, 61)
_OVERHEAD_BYTES: Final = 12
_MESSAGE_CRC, _MESSAGE_ATTRIBUTES, _MESSAGE_TIME = slice(12, 16), 17, slice(18, 26)


def readable_prefix(
    batch: memoryview, start_offset: int, end_offset: int, limit_bytes: int = CONTENT_BYTES_MAX
) -> bytes | None:
    """Return uncompressed batches with the first records of a damaged one, as many as decode; None if none do.

    Parameters
    ----------
    start_offset, end_offset : int
        The offsets that the batch can have had; its records must have them.
    limit_bytes : int
        The most bytes that the batch may decompress to; records after them are left out.
    """
    limit_bytes = min(limit_bytes, CONTENT_BYTES_MAX)
    if len(batch) < legacy.HEADER_V0.itemsize:
        return None
    if batch[16] < 2:
        messages = _messages(batch, start_offset, end_offset, limit_bytes)
        return messages if _decodes(messages, start_offset, end_offset) else None
    attributes = int.from_bytes(batch[_ATTRIBUTES], "big")
    if len(batch) < v2.HEADER_BYTES or batch[16] != 2 or attributes & v2.CONTROL:
        return None
    records = decompressed_prefix(attributes & v2.CODEC_MASK, 2, batch[v2.HEADER_BYTES :], limit_bytes)
    borders = array("q", _record_ends(records))
    lowest, highest = 0, min(len(borders), max(int.from_bytes(batch[_COUNT], "big", signed=True), 0))
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if _decodes(_made(batch, records[: borders[middle - 1]], middle), start_offset, end_offset):
            lowest = middle
        else:
            highest = middle - 1
    return _made(batch, records[: borders[lowest - 1]], lowest) if lowest else None


def _messages(wrapper: memoryview, lowest: int, end_offset: int, limit_bytes: int) -> bytes:
    """Return the messages inside a damaged wrapper, up to the first that is wrong, with their offsets in the log."""
    magic, attributes = wrapper[16], wrapper[_MESSAGE_ATTRIBUTES]
    codec_id = attributes & v2.CODEC_MASK
    # In magic 1 nothing may be missing, since the last message has the only offset that is known.
    undone = decompressor(codec_id, 1) if magic else partial(decompressed_prefix, codec_id, 0)
    try:
        stream = wrapped(wrapper)
        is_torn = not codec_id or (magic and len(stream) != len(wrapper) - legacy.MESSAGE_BYTES_MIN[1])
        inside = b"" if is_torn else undone(stream, limit_bytes)
    except Exception:  # Each library raises its own errors.
        return b""
    starts = array("q", _message_starts(inside))
    base, last = 0, len(starts) - 2
    if magic:
        # A damaged size may take the last message into another.
        is_whole = starts[-1] == len(inside) and all(_offset(inside, at) == n for n, at in enumerate(starts[:-1]))
        if not is_whole or last < 0 or not _is_right(inside[starts[last] :], magic):
            return b""
        base = _offset(wrapper, 0) - last
    made = bytearray()
    for start, end in pairwise(starts):
        message, offset = bytearray(inside[start:end]), base + _offset(inside, start)
        if not _is_right(message, magic) or not lowest <= offset < end_offset:
            break
        message[:8] = offset.to_bytes(8, "big")
        if magic and attributes & v2.LOG_APPEND_TIME:
            message[_MESSAGE_ATTRIBUTES] |= v2.LOG_APPEND_TIME
            message[_MESSAGE_TIME] = wrapper[_MESSAGE_TIME]
            message[_MESSAGE_CRC] = zlib.crc32(message[16:]).to_bytes(4, "big")
        made += message
        lowest = offset + 1
    return bytes(made)


def _is_right(message: bytes | bytearray, magic: int) -> bool:
    """Return whether an uncompressed message has a magic and a right checksum."""
    is_plain = message[16] == magic and not message[_MESSAGE_ATTRIBUTES] & v2.CODEC_MASK
    return is_plain and message[_MESSAGE_CRC] == zlib.crc32(message[16:]).to_bytes(4, "big")


def _offset(messages: bytes | bytearray | memoryview, position: int) -> int:
    return int.from_bytes(messages[position : position + 8], "big")


def _message_starts(messages: bytes | bytearray) -> Iterator[int]:
    """Yield where each message begins, as far as their sizes lead, and where the last one ends."""
    end = 0
    yield end
    while end + _OVERHEAD_BYTES + legacy.SIZE_MIN <= len(messages):
        size = int.from_bytes(messages[end + 8 : end + _OVERHEAD_BYTES], "big", signed=True)
        end += _OVERHEAD_BYTES + size
        if size < legacy.SIZE_MIN or end > len(messages):
            return
        yield end


def _record_ends(records: bytearray) -> Iterator[int]:
    """Yield where each record ends, as far as their lengths lead."""
    position = 0
    while position < len(records):
        number = shift = 0
        for _ in range(_VARINT_BYTES_MAX):
            if position >= len(records):
                return
            octet = records[position]
            position += 1
            number |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                break
        length = (number >> 1) ^ -(number & 1)
        if length <= 0 or length > len(records) - position:
            return
        position += length
        yield position


def _made(batch: memoryview, records: bytearray, count: int) -> bytes:
    made = bytearray(batch[: v2.HEADER_BYTES]) + records
    made[_LENGTH] = (len(made) - _OVERHEAD_BYTES).to_bytes(4, "big")
    attributes = int.from_bytes(batch[_ATTRIBUTES], "big") & ~v2.CODEC_MASK
    made[_ATTRIBUTES] = attributes.to_bytes(2, "big")
    made[_COUNT] = count.to_bytes(4, "big")
    made[_CRC] = crc32c(bytes(made[v2.CRC_COVERS_FROM :])).to_bytes(4, "big")
    return bytes(made)


def _decodes(batch: bytes, start_offset: int, end_offset: int) -> bool:
    """Return whether all records of a batch decode, at offsets of a range."""
    headers = scan_headers(batch)
    try:
        found = list(decode_batches(memoryview(batch), headers, columns=("offset",)))
    except CorruptBatchError:
        return False
    offsets = pa.chunked_array([each.column(0) for each in found], pa.int64())
    return len(offsets) > 0 and start_offset <= offsets[0].as_py() and offsets[-1].as_py() < end_offset
