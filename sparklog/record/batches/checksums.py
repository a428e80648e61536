"""Checks the checksums of whole batches when they are read, and writes them when batches are encoded.

CRC-32C, the checksum of v2 batches, is an instruction of x86 and of ARM. The kernels use the one of x86, and compute
checksums while the bytes are in the processor's cache. On other machines they would need tables, several times slower
than the library ``crc32c``, which uses the instruction of ARM. There each batch costs one call of the library, and the
kernels compute no CRC-32C, except in the search after damage (`sparklog.record.kernels.search`).
"""

from __future__ import annotations

import zlib
from typing import Final

from crc32c import crc32c

from sparklog.record.format import v2
from sparklog.record.format.headers import BATCH_BYTES, CRC, MAGIC, POSITION, BatchHeaders
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import crc as kernels_crc
from sparklog.record.kernels import scan as kernels

IN_KERNELS: bool = kernels_crc.HAS_CRC32C_INSTRUCTION
"""Whether the kernels compute CRC-32C on this machine."""

_LEGACY_CRC_COVERS_FROM: Final = 16
_CRC_POSITION: Final = 17


def first_wrong(buffer: Octets, headers: BatchHeaders) -> tuple[int, int]:
    """Find the first batch whose checksum is wrong.

    Parameters
    ----------
    buffer : uint8 array
        The bytes that the headers were read from.

    Returns
    -------
    (int, int)
        The row of the batch, and the checksum of its bytes, which is -1 if the batch is not in the buffer. The row
        is the number of batches if every checksum is right.
    """
    if IN_KERNELS:
        row, found = kernels.first_wrong_crc(buffer, headers.numbers, headers.origin)
        return int(row), int(found)
    data, numbers = buffer.data, headers.numbers
    columns = (numbers[:, column].tolist() for column in (POSITION, BATCH_BYTES, MAGIC, CRC))
    for row, (position, batch_bytes, magic, crc) in enumerate(zip(*columns, strict=True)):
        start = position - headers.origin
        if start < 0 or batch_bytes < kernels.BATCH_BYTES_MIN or batch_bytes > len(data) - start:
            return row, -1
        end = start + batch_bytes
        is_v2 = magic == 2
        found = (
            crc32c(data[start + v2.CRC_COVERS_FROM : end])
            if is_v2
            else zlib.crc32(data[start + _LEGACY_CRC_COVERS_FROM : end])
        )
        if found != crc:
            return row, found
    return len(headers), 0


def write_missing(out: memoryview, starts: Int64s, ends: Int64s) -> list[int]:
    """Write the checksums of v2 batches if the kernels have not written them.

    Parameters
    ----------
    out : memoryview
        Whole batches; their checksums are written.
    starts, ends : int64 array, shape (n_batches,)
        Positions in ``out`` at which each batch begins and ends.

    Returns
    -------
    list of int
        The checksums.
    """
    crcs = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        crc = crc32c(out[start + v2.CRC_COVERS_FROM : end])
        out[start + _CRC_POSITION : start + v2.CRC_COVERS_FROM] = crc.to_bytes(4, "big")
        crcs.append(crc)
    return crcs
