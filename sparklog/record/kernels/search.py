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
from sparklog.record.kernels.memory import big_endian_32, load_64
from sparklog.record.kernels.scan import BYTES

NOTHING: Final = 0
FOUND: Final = 1
ASK: Final = 2
GIVEN_UP: Final = 3

_PREFIX_BYTES: Final = 17


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
        position = _skip_zeros(buffer, position, stop)
        if position + _PREFIX_BYTES > stop:
            break
        batch_bytes = _batch_bytes(buffer, position, left_bytes - position)
        if batch_bytes > 0:
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
