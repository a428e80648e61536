"""Writes a producer into batches of magic 2 that were encoded without one.

The producer's id, its epoch and the sequence number are 14 bytes of a batch's header, and the checksum covers them.
Computing it again would take reading the whole batch, and is not needed. CRC-32C is linear: if two batches of the same
length differ in some bytes only, their checksums differ by the checksum of the difference, moved over as many zero
bytes as follow it. Moving a checksum over n zero bytes is a linear map too, and takes one step for each bit of n.

A batch copied from another cluster gets another producer id in the same way: every cluster gives out ids from 0 on, and
a broker would take a new batch of its own producer 0 for a repetition of a copied one.

Source: apache/kafka, DefaultRecordBatch.java; zlib, crc32.c (crc32_combine).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from sparklog.record.format import v2

CRC_AT: Final = 17
PRODUCER_AT: Final = 43
CRC: Final = struct.Struct(">I")
PRODUCER: Final = struct.Struct(">qhi")
"""The producer's id, its epoch, and the sequence number of the batch's first record."""
FIRST_OWN_PRODUCER_ID: Final = 1 << 62
"""The first producer id of the block that no cluster reaches; the block ends with 2**63 - 1."""
_ID: Final = struct.Struct(">q")
_NOBODY: Final = crc32c(PRODUCER.pack(-1, -1, -1))
_ALL_BITS: Final = 0xFFFFFFFF

_Column = np.ndarray[Any, np.dtype[Any]]
Checksums = np.ndarray[Any, np.dtype[np.uint32]]


class TransactionProducer(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    producer_epoch: int


def stamp_in_memory(data: bytearray, start: int, end: int, stamp: bytes) -> None:
    """Write a stamp (packed by `PRODUCER`), and the checksum that it makes, into a batch in memory."""
    data[start + PRODUCER_AT : start + PRODUCER_AT + PRODUCER.size] = stamp
    with memoryview(data) as view:
        crc = crc32c(view[start + v2.CRC_COVERS_FROM : end])
    CRC.pack_into(data, start + CRC_AT, crc)


def checksums_with(stamps: list[bytes], crcs: _Column, batch_bytes: _Column) -> list[int]:
    """Return the checksums of batches with stamps (packed by `PRODUCER`), from those without a producer.

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


def producer_id_elsewhere(producer_id: int, source: str) -> int:
    """Return the id that a producer of a source gets in the logs of another cluster; it is always the same."""
    digest = blake2b(f"{source}\n{producer_id}".encode(), digest_size=8).digest()
    return FIRST_OWN_PRODUCER_ID + (int.from_bytes(digest) >> 2)


def replace_producer_ids(data: _Column, table: _Column, source: str) -> None:
    """Replace the producer ids of batches with `producer_id_elsewhere`; epochs and sequence numbers stay.

    Parameters
    ----------
    data : uint8 array, shape (n_bytes,)
        The batches; ids and checksums are written.
    table : structured array of `sparklog.record.format.headers.HEADERS_DTYPE`, length n_batches
        Their headers, with positions in ``data``; ids and checksums are changed here too.
    source : str
        A name of the logs that the producers' ids come from.
    """
    rows = np.flatnonzero((table["magic"] == 2) & (table["producer_id"] >= 0))
    if not len(rows):
        return
    ids, which = np.unique(table["producer_id"][rows], return_inverse=True)
    others = [producer_id_elsewhere(each, source) for each in ids.tolist()]
    pairs = zip(ids.tolist(), others, strict=True)
    differences = np.array([crc32c(_ID.pack(old)) ^ crc32c(_ID.pack(new)) for old, new in pairs], dtype=np.uint32)
    distances = table["batch_bytes"][rows] - (PRODUCER_AT + _ID.size)
    crc_bytes = table["position"][rows, None] + CRC_AT + np.arange(CRC.size)
    # Not from the table: a batch that was compressed again has another checksum.
    crcs = data[crc_bytes].view(">u4")[:, 0].astype(np.uint32) ^ _moved(differences[which], distances)
    table["crc"][rows], table["producer_id"][rows] = crcs, np.array(others, dtype=np.int64)[which]
    data[crc_bytes] = crcs.astype(">u4").view(np.uint8).reshape(-1, CRC.size)
    id_bytes = table["position"][rows, None] + PRODUCER_AT + np.arange(_ID.size)
    data[id_bytes] = table["producer_id"][rows].astype(">i8").view(np.uint8).reshape(-1, _ID.size)


def _moved(checksums: Checksums, distances: _Column) -> Checksums:
    """Move each checksum, begun at 0, over as many zero bytes as its distance."""
    for bit in range(int(distances.max(initial=0)).bit_length()):
        is_chosen = distances >> bit & 1 != 0
        checksums = np.where(is_chosen, _mapped(_over_zeros(bit), checksums), checksums)
    return checksums


@lru_cache(maxsize=64)
def _over_zeros(bit: int) -> Checksums:
    """Return the table, shape (4, 256), that moves each byte of a checksum over ``2**bit`` zero bytes."""
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
