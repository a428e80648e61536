"""Walks a buffer of a ``.log`` file batch by batch, over all three record formats.

Every batch begins alike: int64 offset, int32 size of the rest, and, at byte 16, the magic, which gives the layout of
the rest (`sparklog.record.format.v2`, `sparklog.record.format.legacy`). Walking needs the sizes only; the headers are
then read from the buffer all at once. No record is decoded, no checksum is checked, and nothing slow is imported:
planning a read runs this on the driver.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from sparklog.record.format import legacy, v2
from sparklog.record.format.headers import HEADERS_DTYPE, TABLE_FIELDS, BatchHeaders

OVERHEAD_BYTES: Final = 12
"""The bytes of offset and size, which come before the bytes that the size counts."""

BATCH_PREFIX_BYTES: Final = 17
"""The bytes needed to recognise a batch: offset, size and, last, the magic."""

HEADER_BYTES_MAX: Final = v2.HEADER_BYTES

BATCHES_MAX: Final = 1 << 13
"""The number of batches scanned together. With more, headers leave the processor's cache before records are decoded."""

_MODERN: Final = struct.Struct(v2.LEAD.format + v2.COVERED.format[1:])
_MODERN_SIZE_MIN: Final = v2.HEADER_BYTES - OVERHEAD_BYTES
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_ROW = struct.Struct(f"={TABLE_FIELDS}q")
assert _ROW.size == HEADERS_DTYPE.itemsize
_LAYOUTS = {0: legacy.HEADER_V0, 1: legacy.HEADER_V1, 2: v2.HEADER}
_BATCH_BYTES_MIN = (*legacy.MESSAGE_BYTES_MIN.values(), v2.HEADER_BYTES)


def scan_headers(buffer: memoryview | bytes, origin: int = 0, *, batches_max: int = sys.maxsize) -> BatchHeaders:
    """Find the whole batches at the beginning of a buffer.

    Parameters
    ----------
    buffer : bytes-like, shape (n_bytes,)
        Bytes of a ``.log`` file, from a batch boundary on.
    origin : int
        Position of the first byte in the file.
    batches_max : int, optional
        The largest number of batches to find.

    Returns
    -------
    BatchHeaders
        All whole batches, up to ``batches_max``. ``fault`` and ``next_batch_bytes`` describe the bytes after them, if
        any; they are never an error here, since a log may end anywhere while it is written.
    """
    # Imported here: planning a read needs single headers only (`first_header`), and should not wait for numba.
    from sparklog.record.kernels.scan import scan

    view, octets = memoryview(buffer), np.frombuffer(buffer, dtype=np.uint8)
    tables: list[np.ndarray[Any, Any]] = []
    # Most batches of a log are about as long as its first; unused rows cost nothing.
    first_bytes = int.from_bytes(view[8:OVERHEAD_BYTES], "big") + OVERHEAD_BYTES
    position, found, capacity = 0, 0, 16 + 5 * len(octets) // (4 * max(first_bytes, _BATCH_BYTES_MIN[0]))
    while True:
        capacity = min(capacity, batches_max - found)
        numbers = np.empty((capacity, TABLE_FIELDS), dtype=np.int64)
        rows, position = scan(octets, position, origin, numbers)
        tables.append(numbers[:rows])
        found += rows
        if rows < capacity or found == batches_max:
            break
        capacity *= 4
    numbers = tables[0] if len(tables) == 1 else np.concatenate(tables)
    return _ended(numbers.reshape(-1).view(HEADERS_DTYPE), view, origin, position)


def scan_pieces(buffer: memoryview, origin: int) -> Iterator[tuple[memoryview, BatchHeaders]]:
    """Yield the whole batches at the beginning of a buffer, `BATCHES_MAX` at a time.

    Yields
    ------
    (memoryview, BatchHeaders)
        The buffer from the first of the batches on, and the result of `scan_headers` for it. The last piece may have no
        batch; its ``fault`` and ``next_batch_bytes`` describe the bytes after all batches.
    """
    position = 0
    while True:
        piece = buffer[position:]
        headers = scan_headers(piece, origin + position, batches_max=BATCHES_MAX)
        yield piece, headers
        if len(headers) < BATCHES_MAX:
            return
        position += headers.valid_bytes


def first_header(buffer: memoryview | bytes, origin: int = 0) -> BatchHeaders:
    """Find the batch at the beginning of a buffer; its first `HEADER_BYTES_MAX` bytes are enough.

    Returns
    -------
    BatchHeaders
        One batch or none, as from `scan_headers`; but the batch need not be whole in the buffer, and ``valid_bytes``,
        the position of its end, may be past the buffer.
    """
    view = memoryview(buffer)
    magic = view[16] if len(view) >= BATCH_PREFIX_BYTES else 3
    layout = _LAYOUTS.get(magic)
    if layout is None or len(view) < layout.itemsize:
        return _ended(np.zeros(0, dtype=HEADERS_DTYPE), view, origin, 0)
    batch_bytes = _batch_bytes(view, 0)
    fields = _modern_fields(view) if magic == 2 else _legacy_fields(view, layout)
    # Nearly all headers are sound ones of magic 2. Only the others are read again, to find their fault.
    if magic < 2 or fields is None:
        fault = _size_fault(view, 0) or _header_fault(view, 0)
        if fault or fields is None:
            return BatchHeaders(np.zeros(0, dtype=HEADERS_DTYPE), origin, 0, batch_bytes, fault)
    # A size near the largest of 32 bits exceeds them once `OVERHEAD_BYTES` are added.
    table = np.frombuffer(bytearray(_ROW.pack(origin, batch_bytes, magic, *fields, 0)), dtype=HEADERS_DTYPE)
    return _ended(table, view, origin, batch_bytes)


def _modern_fields(view: memoryview) -> tuple[int, ...] | None:
    """Return the fields of the header of a batch of magic 2, in the order of `HEADERS_DTYPE` from ``attributes`` on.

    None if it has a fault: `_size_fault` or `_header_fault` returns which.
    """
    base_offset, size, leader_epoch, _, crc, attributes, delta, base_timestamp, max_timestamp, *of_producer, count = (
        _MODERN.unpack_from(view)
    )
    last_offset = base_offset + delta
    if size < _MODERN_SIZE_MIN or base_offset < 0 or delta < 0 or last_offset >= 1 << 63 or count < 0:
        return None
    return (
        attributes & 0xFF,
        crc,
        base_offset,
        last_offset,
        base_timestamp,
        max_timestamp,
        *of_producer,
        leader_epoch,
        count,
    )


def _legacy_fields(view: memoryview, layout: np.dtype[Any]) -> tuple[int, ...]:
    """Return these fields of a message of magic 0 or 1; -1 for those it does not have."""
    raw = dict(zip(layout.names or (), np.frombuffer(view, dtype=layout, count=1)[0].tolist(), strict=True))
    timestamp, attributes = raw.get("timestamp", -1), raw["attributes"] & 0xFF
    record_count = -1 if attributes & v2.CODEC_MASK else 1
    return (
        attributes,
        raw["crc"],
        raw["offset"],
        raw["offset"],
        timestamp,
        timestamp,
        -1,
        -1,
        -1,
        -1,
        record_count,
    )


def _ended(table: np.ndarray[Any, Any], view: memoryview, origin: int, walked: int) -> BatchHeaders:
    """Make the headers from a table, and judge the bytes after its last batch."""
    if walked + OVERHEAD_BYTES > len(view):
        return BatchHeaders(table, origin, walked)
    fault = _size_fault(view, walked)
    next_batch_bytes = _batch_bytes(view, walked)
    if fault is None and walked + next_batch_bytes <= len(view):
        fault = _header_fault(view, walked)
    return BatchHeaders(table, origin, walked, next_batch_bytes, fault)


def _batch_bytes(view: memoryview, position: int) -> int:
    (size,) = _INT32.unpack_from(view, position + 8)
    return int(size) + OVERHEAD_BYTES if size >= legacy.SIZE_MIN else 0


def _size_fault(view: memoryview, position: int) -> str | None:
    """Return why no batch can have the size or magic at a position; None if one can, or they are not all there."""
    if not _batch_bytes(view, position):
        return f"batch size {_INT32.unpack_from(view, position + 8)[0]} is less than any batch's"
    if position + BATCH_PREFIX_BYTES > len(view):
        return None
    magic = view[position + 16]
    if magic > 2:
        return f"unknown magic {magic}"
    if _batch_bytes(view, position) < _BATCH_BYTES_MIN[magic]:
        return f"batch size {_batch_bytes(view, position) - OVERHEAD_BYTES} is less than a header of magic {magic}"
    return None


def _header_fault(view: memoryview, position: int) -> str | None:
    """Return why no broker writes the header at a position, which is all there; None if one may.

    `sparklog.record.kernels.scan.scan` stops at a batch in which this or `_size_fault` finds a fault.
    """
    (base_offset,) = _INT64.unpack_from(view, position)
    if base_offset < 0:
        return f"negative offset {base_offset}"
    if view[position + 16] == 2:
        (last_offset_delta,) = _INT32.unpack_from(view, position + 23)
        (record_count,) = _INT32.unpack_from(view, position + 57)
        if last_offset_delta < 0 or base_offset + last_offset_delta >= 1 << 63:
            return "last offset is below the base offset"
        if record_count < 0:
            return f"negative record count {record_count}"
    return None


def checksum_fault(batch: memoryview) -> str | None:
    """Return the fault of the checksum of one whole batch of any magic; None if it is right."""
    if len(batch) < BATCH_PREFIX_BYTES or batch[16] > 2:
        return "not a batch"
    name, found, said = "CRC-32C", 0, int.from_bytes(batch[17:21], "big")
    if batch[16] == 2:
        found = crc32c(batch[v2.CRC_COVERS_FROM :])
    else:
        name, found, said = "CRC-32", zlib.crc32(batch[16:]), int.from_bytes(batch[12:16], "big")
    return None if found == said else f"{name} is {found:08x}, the batch says {said:08x}"


def is_intact(batch: memoryview) -> bool:
    """Return whether the checksum of one whole batch of any magic is right."""
    return checksum_fault(batch) is None


class RunningChecksum:
    """Computes the checksum of a batch from pieces of its bytes, so that it need not be in memory as a whole.

    Parameters
    ----------
    prefix : memoryview
        The first bytes of the batch, `CHECKSUM_PREFIX_BYTES` at least; `add` takes those from ``covers_from`` on again.
    """

    def __init__(self, prefix: memoryview) -> None:
        # An unknown magic is taken for 2: the checksum of magic 2 does not cover it.
        self._is_v2 = prefix[16] >= 2
        self.covers_from = v2.CRC_COVERS_FROM if self._is_v2 else 16
        self._said = int.from_bytes(prefix[17:21] if self._is_v2 else prefix[12:16], "big")
        self._crc = 0

    def add(self, data: memoryview | bytes) -> None:
        """Take in the next bytes; the first call begins at ``covers_from``."""
        self._crc = crc32c(data, self._crc) if self._is_v2 else zlib.crc32(data, self._crc)

    @property
    def is_right(self) -> bool:
        """Whether the batch's checksum matches the bytes so far."""
        return self._crc == self._said


CHECKSUM_PREFIX_BYTES: Final = v2.CRC_COVERS_FROM
"""The bytes at the beginning of a batch that contain its checksum, and show which bytes it covers."""
