"""snappy: a stream of blocks (`sparklog.record.format.streams`), or one raw block, as librdkafka writes.

python-snappy wraps cramjam's snappy and copies its result once more. For a small block that is faster than new memory
of our own; cramjam does the rest.

Source: apache/kafka, SnappyCompression.java; xerial/snappy-java, SnappyOutputStream.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cramjam
import snappy

from sparklog.record.codecs.table import SNAPPY_BLOCK_BYTES, TARGET_TOO_SMALL, Functions, above_limit
from sparklog.record.format.streams import XERIAL_MAGIC, XERIAL_START, snappy_stream_blocks

_INT32 = struct.Struct(">i")
_HEADER = XERIAL_START.pack(XERIAL_MAGIC, 1, 1)
_RATIO_MAX: Final = 64


def _decompress_into(data: memoryview, target: memoryview, limit_bytes: int) -> int:
    filled_bytes = 0
    for block in snappy_stream_blocks(data):
        claimed = _claimed(block, filled_bytes, limit_bytes)
        end = filled_bytes + claimed
        if end > len(target):
            return TARGET_TOO_SMALL
        if cramjam.snappy.decompress_raw_into(block, target[filled_bytes:end]) != claimed:
            raise ValueError("a snappy block ends early")
        filled_bytes = end
    return filled_bytes


def _decompress(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    claimed = 0
    blocks = list(snappy_stream_blocks(data))
    for block in blocks:
        claimed += _claimed(block, claimed, limit_bytes)
    if len(blocks) == 1 and claimed <= SNAPPY_BLOCK_BYTES:
        return _small(blocks[0])
    records = bytearray(claimed)
    _decompress_into(data, memoryview(records), limit_bytes)
    return records


def _small(block: memoryview) -> bytes:
    """Decompress a small raw block; `_claimed` has checked its size."""
    try:
        return snappy.uncompress(block)  # type: ignore[no-any-return]
    except snappy.UncompressError as error:
        raise ValueError(f"a snappy block is damaged: {error.__cause__}") from error


def _claimed(block: memoryview, before_bytes: int, limit_bytes: int) -> int:
    """Return the size that a raw snappy block claims for its content; raise if it is impossible or above the limit."""
    claimed: int = cramjam.snappy.decompress_raw_len(block)
    if claimed > limit_bytes - before_bytes:
        raise above_limit(limit_bytes)
    if claimed > len(block) * _RATIO_MAX:
        raise ValueError("a snappy block claims more than it can hold")
    return claimed


def _compress(records: memoryview, target: memoryview) -> int:
    target[: XERIAL_START.size] = _HEADER
    filled_bytes = XERIAL_START.size
    for start in range(0, len(records), SNAPPY_BLOCK_BYTES):
        block = records[start : start + SNAPPY_BLOCK_BYTES]
        block_bytes = cramjam.snappy.compress_raw_into(block, target[filled_bytes + 4 :])
        _INT32.pack_into(target, filled_bytes, block_bytes)
        filled_bytes += 4 + block_bytes
    return filled_bytes


def _prefix(data: memoryview, limit_bytes: int) -> Iterator[bytearray]:
    for block in snappy_stream_blocks(data):
        content = bytearray(_claimed(block, 0, limit_bytes))
        cramjam.snappy.decompress_raw_into(block, memoryview(content))
        yield content


FUNCTIONS: Final = Functions(_decompress, lambda _: _compress, _decompress_into, prefix=_prefix)
