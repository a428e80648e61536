"""Writes a producer into batches of magic 2 that were encoded without one.

The producer's id, its epoch and the sequence number are 14 bytes of a batch's header, and the checksum covers them. It
need not be computed anew, which would take reading the whole batch. CRC-32C is linear: where two batches of the same
length differ in some bytes only, their checksums differ by that of the difference, moved on by as many zero bytes as
follow it. Moving a checksum over n zero bytes is a linear map too, and takes one step for each bit of n.

Source: apache/kafka, DefaultRecordBatch.java; zlib, crc32.c (crc32_combine).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from sparklog.record import v2

CRC_AT: Final = 17
PRODUCER_AT: Final = 43
CRC: Final = struct.Struct(">I")
PRODUCER: Final = struct.Struct(">qhi")
"""The producer's id, its epoch, and the sequence number of the batch's first record."""
_NOBODY: Final = crc32c(PRODUCER.pack(-1, -1, -1))
_ALL_BITS: Final = 0xFFFFFFFF

Column = np.ndarray[Any, np.dtype[Any]]
Checksums = np.ndarray[Any, np.dtype[np.uint32]]


class TransactionProducer(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    producer_epoch: int


def stamp_in_memory(data: bytearray, start: int, end: int, stamp: bytes) -> None:
    """Write a stamp of `PRODUCER` into a batch that lies in memory, and its checksum."""
    data[start + PRODUCER_AT : start + PRODUCER_AT + PRODUCER.size] = stamp
    with memoryview(data) as view:
        crc = crc32c(view[start + v2.CRC_COVERS_FROM : end])
    CRC.pack_into(data, start + CRC_AT, crc)


def checksums_with(stamps: list[bytes], crcs: Column, batch_bytes: Column) -> list[int]:
    """Return the checksums of batches with stamps of `PRODUCER`, by those that they have without a producer.

    Parameters
    ----------
    stamps : list of bytes, length n_batches
    crcs : unsigned array, shape (n_batches,)
        The checksums that the batches have with a producer, an epoch and a sequence number of -1.
    batch_bytes : integer array, shape (n_batches,)
        The sizes of the batches.
    """
    differences = np.array([crc32c(stamp) ^ _NOBODY for stamp in stamps], dtype=np.uint32)
    distances = batch_bytes.astype(np.int64) - (PRODUCER_AT + PRODUCER.size)
    found: list[int] = (crcs.astype(np.uint32) ^ _moved(differences, distances)).tolist()
    return found


def _moved(checksums: Checksums, distances: Column) -> Checksums:
    """Move checksums, begun at 0, over as many zero bytes as each distance says."""
    for bit in range(int(distances.max(initial=0)).bit_length()):
        is_chosen = distances >> bit & 1 != 0
        checksums = np.where(is_chosen, _mapped(_over_zeros(bit), checksums), checksums)
    return checksums


@lru_cache(maxsize=64)
def _over_zeros(bit: int) -> Checksums:
    """Return what each byte of a checksum, shape (4, 256), becomes over two to the power of ``bit`` zero bytes."""
    if bit:
        half = _over_zeros(bit - 1)
        return _mapped(half, half)
    one = np.array([crc32c(bytes([byte]), _ALL_BITS) ^ _ALL_BITS for byte in range(256)], dtype=np.uint32)
    octets = np.arange(256, dtype=np.uint32)
    return np.stack([one, octets, octets << np.uint32(8), octets << np.uint32(16)])


def _mapped(table: Checksums, checksums: Checksums) -> Checksums:
    parts = [table[place][checksums >> np.uint32(8 * place) & np.uint32(0xFF)] for place in range(4)]
    found: Checksums = parts[0] ^ parts[1] ^ parts[2] ^ parts[3]
    return found
