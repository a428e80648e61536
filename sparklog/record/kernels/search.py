"""Compiled code: searches for the next whole batch after damage.

The search is linear in the bytes, whatever they are: runs of zeros are skipped a word at a time, and bytes that look
like headers cost no more than the caller's budget for computing checksums. On a machine without the instruction for
CRC-32C the search uses tables: the budget bounds their cost, and it runs only after damage.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from sparklog.record.kernels.compile import inlined, kernel
from sparklog.record.kernels.crc import crc32, crc32c
from sparklog.record.kernels.memory import big_endian_32, big_endian_64, little_endian_64, load_64
from sparklog.record.kernels.scan import BYTES

NOTHING: Final = 0
FOUND: Final = 1
ASK: Final = 2
GIVEN_UP: Final = 3

LARGE_BYTES: Final = 1 << 18
"""More of the header of a longer batch must be as brokers write it: noise that says to be long would cost most."""

_PREFIX_BYTES: Final = 17
_HEADER_BYTES: Final = 61
_RECORD_BYTES_MIN: Final = 7
_CODEC_MAX: Final = 4
# The first bytes of compressed streams. Some writers of snappy begin with the length of the content instead.
_GZIP, _SNAPPY, _LZ4, _ZSTD = 0x1F8B, 0x82534E41, 0x04224D18, 0x28B52FFD
_SNAPPY_EXCESS_BYTES: Final = 128
_INT32_MAX: Final = (1 << 31) - 1

_ONES: Final = np.uint64(0x0101010101010101)
_LOWER: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGHEST: Final = np.uint64(0x8080808080808080)


@inlined
def _skip_zeros(buffer, position, stop):
    """Return the next position at which a batch can begin: none begins where its size would be 0."""
    while position + 40 <= stop:
        words = load_64(buffer, position + 8) | load_64(buffer, position + 16)
        words |= load_64(buffer, position + 24) | load_64(buffer, position + 32)
        if words != np.uint64(0):
            break
        # The four bytes of a size that begins before the next position are all among the 32 zero ones.
        position += 29
    return position


@inlined
def _is_unlikely(buffer, position, above_magic, above_size):
    """Return for eight positions whether no batch begins there, in the highest bit of each byte."""
    magics, sizes = little_endian_64(buffer, position + 16), little_endian_64(buffer, position + 8)
    # No sum carries into the next byte.
    return (magics | sizes | ((magics & _LOWER) + above_magic) | ((sizes & _LOWER) + above_size)) & _HIGHEST


@inlined
def _skip_unlikely(buffer, position, stop, left_bytes):
    """Return the next position at which a batch can begin: its magic, and the first byte of its size, are possible."""
    above_magic = _ONES * np.uint64(127 - 2)
    above_size = _ONES * np.uint64(127 - min(max(left_bytes - position, 0) >> 24, 127))
    while position + 24 <= stop:
        likely = _is_unlikely(buffer, position, above_magic, above_size) ^ _HIGHEST
        if likely:
            # The lowest bit of each byte below the first likely one, and of that one, is counted in the highest byte.
            below = ((likely & (~likely + np.uint64(1))) - np.uint64(1)) & _ONES
            return position + np.int64(below * _ONES >> np.uint64(56)) - 1
        position += 8
        while position + 80 <= stop:
            none = _HIGHEST
            for place in range(position, position + 64, 8):
                none &= _is_unlikely(buffer, place, above_magic, above_size)
            if none != _HIGHEST:
                break
            position += 64
    return position


@inlined
def _batch_bytes(buffer, position, left_bytes):
    """Return the size of the batch whose header seems to be here; 0 if none can be."""
    magic = np.int64(buffer[position + 16])
    if magic > 2:
        return np.int64(0)
    batch_bytes = big_endian_32(buffer, position + 8) + 12
    if batch_bytes < (61 if magic == 2 else 26 + 8 * magic) or batch_bytes > left_bytes:
        return np.int64(0)
    return batch_bytes


@inlined
def _is_laid_out(buffer, position, batch_bytes):
    """Return whether the fields of a batch agree with its length, before its checksum is computed.

    Numbers in a value, which are mostly zeros, look like headers at every fourth byte.
    """
    magic = np.int64(buffer[position + 16])
    if magic == 2:
        return big_endian_32(buffer, position + 23) >= 0 and big_endian_32(buffer, position + 57) >= 0
    at = position + 18 + 8 * magic
    end = position + batch_bytes
    at += 4 + max(big_endian_32(buffer, at), np.int64(0))
    return at + 4 <= end and at + 4 + max(big_endian_32(buffer, at), np.int64(0)) == end


@inlined
def _is_plausible(buffer, position, batch_bytes, stop):
    """Return whether the header of a large batch is as brokers write it, as far as it is in the buffer."""
    magic, attributes = np.int64(buffer[position + 16]), np.int64(buffer[position + 17])
    if magic < 2:
        key_bytes = big_endian_32(buffer, position + 18 + 8 * magic)
        key_bytes_max = -1 if attributes & 7 else batch_bytes
        return attributes & 7 < _CODEC_MAX and attributes < 8 + 8 * magic and -1 <= key_bytes <= key_bytes_max
    codec, count = np.int64(buffer[position + 22]) & 7, big_endian_32(buffer, position + 57)
    # No bit of the upper byte of the attributes is in use. A batch without a producer has -1 in each of its fields.
    producer = min(big_endian_64(buffer, position + 43), big_endian_32(buffer, position + 53))
    producer = min(producer, big_endian_32(buffer, position + 51) >> 16)
    if buffer[position + 21] or codec > _CODEC_MAX or producer < -1:
        return False
    if not 0 <= count <= big_endian_32(buffer, position + 23) + 1:
        return False
    if codec == 0:
        return count * _RECORD_BYTES_MIN <= batch_bytes
    if position + _HEADER_BYTES + 5 > stop:
        return True
    begin = big_endian_32(buffer, position + _HEADER_BYTES) & np.int64(0xFFFFFFFF)
    if codec == 1:
        return begin >> 16 == _GZIP
    if codec > 2:
        return begin == (_LZ4 if codec == 3 else _ZSTD)
    content_bytes = np.int64(0)
    for place in range(5):
        octet = np.int64(buffer[position + _HEADER_BYTES + place])
        content_bytes |= (octet & 0x7F) << (7 * place)
        if octet < 0x80:
            break
    # Content that cannot be compressed grows by a sixth at most.
    return begin == _SNAPPY or 6 * (batch_bytes - _SNAPPY_EXCESS_BYTES) <= 7 * content_bytes <= 7 * _INT32_MAX


@kernel(types.UniTuple(types.int64, 3)(BYTES, types.int64, types.int64, types.int64))
def search(buffer, position, left_bytes, budget_bytes):
    """Find the next whole batch, at any position and with any offset.

    Parameters
    ----------
    buffer : uint8 array
    position : int
        The position in the buffer to begin at.
    left_bytes : int
        Bytes from the beginning of the buffer to the end of the file: a batch must fit.
    budget_bytes : int
        The number of bytes whose checksums may be computed.

    Returns
    -------
    (status, position, budget_bytes)
        FOUND: an intact batch begins at the position. ASK: a batch may begin there, but is not all in the buffer; the
        caller must check it, and continue after the position. NOTHING: no batch begins before the position, the first
        whose header is not all in the buffer. GIVEN_UP: the budget is used up there. The last is the remaining budget.
    """
    stop = np.int64(buffer.shape[0])
    while position + _PREFIX_BYTES <= stop:
        position = _skip_unlikely(buffer, _skip_zeros(buffer, position, stop), stop, left_bytes)
        if position + _PREFIX_BYTES > stop:
            break
        batch_bytes = _batch_bytes(buffer, position, left_bytes - position)
        if batch_bytes > 0:
            if batch_bytes > LARGE_BYTES:
                if position and position + _HEADER_BYTES > stop:
                    break
                if not _is_plausible(buffer, position, batch_bytes, stop):
                    position += 1
                    continue
            if batch_bytes > stop - position:
                return np.int64(ASK), position, budget_bytes
            if not _is_laid_out(buffer, position, batch_bytes):
                position += 1
                continue
            budget_bytes -= batch_bytes
            if budget_bytes < 0:
                return np.int64(GIVEN_UP), position, budget_bytes
            if buffer[position + 16] == 2:
                found = crc32c(buffer, position + 21, position + batch_bytes)
                is_intact = found == big_endian_32(buffer, position + 17) & np.int64(0xFFFFFFFF)
            else:
                found = crc32(buffer, position + 16, position + batch_bytes)
                is_intact = found == big_endian_32(buffer, position + 12) & np.int64(0xFFFFFFFF)
            if is_intact:
                return np.int64(FOUND), position, budget_bytes
        position += 1
    return np.int64(NOTHING), position, budget_bytes
