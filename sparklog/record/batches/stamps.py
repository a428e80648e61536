"""Writes the fields that a log gives to a batch and no checksum covers: offsets, and in magic 2 the leader epoch.

A batch of magic 2 begins with its base offset, the size of the rest, and the leader epoch. A message of magic 0 or 1
begins with its offset, which for a compressed wrapper is that of its last message. The messages inside a wrapper of
magic 1 have offsets relative to it, and so move with it; inside a wrapper of magic 0 they have absolute offsets, and do
not.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from sparklog.record.format.streams import Int64s, Octets

STAMP: Final = struct.Struct(">qii")
"""Base offset, size and leader epoch: the beginning of a batch of magic 2."""
OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH_AT: Final = 12


def stamp_batches(
    octets: Octets, starts: Int64s, magics: Int64s, base_offsets: Int64s, last_offsets: Int64s, leader_epoch: int
) -> None:
    """Write offsets and a leader epoch into batches.

    Parameters
    ----------
    octets : uint8 array
        Whole batches; their offsets and epochs are written.
    starts : int64 array, shape (n_batches,)
        The position in ``octets`` at which each batch begins.
    magics, base_offsets, last_offsets : integer array, shape (n_batches,)
        The magic of each batch, and the offsets that it gets.
    """
    is_modern = magics == 2
    offsets = np.where(is_modern, base_offsets, last_offsets).astype(">i8").view(np.uint8).reshape(-1, OFFSET.size)
    octets[starts[:, None] + np.arange(OFFSET.size)] = offsets
    epoch = np.frombuffer(leader_epoch.to_bytes(4, "big", signed=True), np.uint8)
    octets[starts[is_modern, None] + np.arange(_LEADER_EPOCH_AT, _LEADER_EPOCH_AT + len(epoch))] = epoch


def fixes_offsets(magic: int | Int64s, codec_id: int | Int64s) -> bool | np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which batches cannot get other offsets: wrappers of magic 0, whose messages have absolute ones."""
    return (magic == 0) & (codec_id != 0)
