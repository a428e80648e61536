"""Compiled code: hashes keys with murmur2, as Kafka's producer does to choose a partition.

32-bit MurmurHash2 over little-endian blocks of four bytes, with seed 0x9747b28c. Spark's own hash differs: murmur3.
Source: apache/kafka, Utils.java (murmur2).
"""

from __future__ import annotations

import numpy as np
from numba import types

from sparklog.record.kernels.compile import inlined, kernel

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int32, 1, "C", readonly=True)
_LARGE_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)
_HASHES_OUT = types.Array(types.int32, 1, "C")


@inlined
def _murmur2(buffer, position, end):
    """Hash ``buffer[position:end]``; the caller has checked the bounds. Products are cut to 32 bits, as in Java."""
    hashed = _SEED ^ np.uint32(end - position)
    while end - position >= 4:
        block = (
            np.uint32(buffer[position])
            | np.uint32(buffer[position + 1]) << np.uint32(8)
            | np.uint32(buffer[position + 2]) << np.uint32(16)
            | np.uint32(buffer[position + 3]) << np.uint32(24)
        )
        block = np.uint32(block * _MULTIPLIER)
        block = np.uint32((block ^ (block >> np.uint32(24))) * _MULTIPLIER)
        hashed = np.uint32(hashed * _MULTIPLIER) ^ block
        position += 4
    rest = end - position
    if rest == 3:
        hashed ^= np.uint32(buffer[position + 2]) << np.uint32(16)
    if rest >= 2:
        hashed ^= np.uint32(buffer[position + 1]) << np.uint32(8)
    if rest >= 1:
        hashed = np.uint32((hashed ^ np.uint32(buffer[position])) * _MULTIPLIER)
    hashed = np.uint32((hashed ^ (hashed >> np.uint32(13))) * _MULTIPLIER)
    return hashed ^ (hashed >> np.uint32(15))


@kernel(*[types.boolean(_BYTES, offsets, _HASHES_OUT) for offsets in (_OFFSETS, _LARGE_OFFSETS)])
def murmur2(buffer, offsets, out):
    """Hash each of the byte strings of an Arrow array.

    Parameters
    ----------
    buffer : uint8 array
        The bytes of all strings.
    offsets : int32 or int64 array, one longer than ``out``
        String i is ``buffer[offsets[i]:offsets[i + 1]]``; a null is hashed like an empty one.
    out : int32 array
        Written: the hashes, with Java's sign.

    Returns
    -------
    bool
        True if all were hashed; False if there are too few offsets or a string is outside ``buffer``.
    """
    if offsets.shape[0] <= out.shape[0]:
        return False
    for i in range(out.shape[0]):
        start, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        if start < 0 or end < start or end > buffer.shape[0]:
            return False
        out[i] = np.int32(_murmur2(buffer, start, end))
    return True
