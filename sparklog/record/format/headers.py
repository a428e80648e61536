"""Keeps the headers of batches of all three record formats in a table, one row for each batch.

`sparklog.record.batches.framing` fills the table when it scans a buffer. All decisions about batches are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparklog.record.format import v2
from sparklog.record.format.streams import Int64s

HEADERS_DTYPE: Final = np.dtype(
    [
        ("position", "i8"),
        ("batch_bytes", "i8"),
        ("magic", "i8"),
        ("attributes", "i8"),
        ("crc", "i8"),
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("base_timestamp", "i8"),
        ("max_timestamp", "i8"),
        ("producer_id", "i8"),
        ("producer_epoch", "i8"),
        ("base_sequence", "i8"),
        ("leader_epoch", "i8"),
        ("record_count", "i8"),
        ("lowest_offset", "i8"),
    ]
)
TABLE_FIELDS: Final = 15
(
    POSITION,
    BATCH_BYTES,
    MAGIC,
    ATTRIBUTES,
    CRC,
    BASE_OFFSET,
    LAST_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    LEADER_EPOCH,
    RECORD_COUNT,
    LOWEST_OFFSET,
) = range(TABLE_FIELDS)
assert HEADERS_DTYPE.itemsize == 8 * TABLE_FIELDS


@dataclass(frozen=True)
class BatchHeaders:
    """The headers of consecutive batches as a table, and how the scan that found them ended.

    Attributes
    ----------
    table : structured array of `HEADERS_DTYPE`, length n_batches
        ``position`` is the position in the file. Fields that a format does not have are -1. A compressed wrapper of
        magic 0 or 1 has no base offset; the last offset stands for it, and the record count is -1. ``lowest_offset``
        is no field of a header: the batches before this one in the log allow no record of it below that; 0 if unknown.
    origin : int
        Position in the file of the first byte of the buffer.
    valid_bytes : int
        The number of bytes that whole batches fill, from the beginning of the buffer.
    next_batch_bytes : int
        The size, by its size field, of the next batch, which is not whole in this buffer or has a fault; 0 if the size
        field is not there or is less than any batch's.
    fault : str or None
        Why the bytes after the whole batches cannot be a batch; None if the buffer ends before that shows.
    """

    table: np.ndarray[Any, np.dtype[Any]]
    origin: int
    valid_bytes: int
    next_batch_bytes: int = 0
    fault: str | None = None

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: slice) -> BatchHeaders:
        return BatchHeaders(self.table[rows], self.origin, self.valid_bytes, self.next_batch_bytes, self.fault)

    def where(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> BatchHeaders:
        """Return the batches for which ``chosen``, shape (n_batches,), is true."""
        if chosen.all():
            return self
        return BatchHeaders(self.table[chosen], self.origin, self.valid_bytes, self.next_batch_bytes, self.fault)

    def before(self, position: int) -> BatchHeaders:
        """Return the batches that begin before a position in the file, at which a batch begins."""
        rows = int(np.searchsorted(self.table["position"], position))
        return BatchHeaders(self.table[:rows], self.origin, position - self.origin)

    @property
    def numbers(self) -> Int64s:
        """The table as int64, shape (n_batches, TABLE_FIELDS), for compiled code."""
        return self.table.view(np.int64).reshape(-1, TABLE_FIELDS)

    def column(self, name: str) -> Int64s:
        """Return one column of the table, int64, length n_batches."""
        return self.table[name]

    @property
    def codec_ids(self) -> Int64s:
        return self.table["attributes"] & v2.CODEC_MASK

    @property
    def is_control(self) -> np.ndarray[Any, Any]:
        return self._has(v2.CONTROL)

    @property
    def is_transactional(self) -> np.ndarray[Any, Any]:
        return self._has(v2.TRANSACTIONAL)

    def _has(self, bit: int) -> np.ndarray[Any, Any]:
        chosen: np.ndarray[Any, Any] = self.table["attributes"] & bit != 0
        if chosen.any():
            chosen &= self.table["magic"] == 2
        return chosen

    @property
    def timestamp_types(self) -> Int64s:
        """The timestamp type of each batch: -1 none (magic 0), 0 create time, 1 log append time."""
        append_time = (self.table["attributes"] & v2.LOG_APPEND_TIME != 0).astype(np.int64)
        return np.where(self.table["magic"] == 0, -1, append_time)
