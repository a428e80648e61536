"""Makes columns of what was sent, record by record or as a table, and tells where each record went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.clients.accumulator import Rows
from sparklog.clients.futures import NO_OFFSET, Int64s, Written
from sparklog.record.format.arrays import array_of, filled, numbers_of
from sparklog.record.format.schema import HEADERS_TYPE

NO_SIZE: Final = -1


def columns_of(rows: Rows) -> tuple[pa.RecordBatch, pa.Array | None]:
    """Return the columns of records, and the partitions that they name, if any does."""
    columns: dict[str, pa.Array] = {
        "value": pa.array(rows.values, pa.binary()),
        "timestamp": array_of(np.array(rows.timestamps, np.int64)),
    }
    keys = pa.array(rows.keys, pa.binary())
    if keys.null_count < len(keys):
        columns["key"] = keys
    if rows.headers:
        columns["headers"] = _headers(rows)
    explicit = pa.array(map(rows.partitions.get, range(len(rows))), pa.int32()) if rows.partitions else None
    return pa.RecordBatch.from_pydict(columns), explicit


def _headers(rows: Rows) -> pa.Array:
    pairs: list[Any] = [None] * len(rows)
    for number, headers in rows.headers.items():
        pairs[number] = [{"key": name, "value": data} for name, data in headers]
    return pa.array(pairs, HEADERS_TYPE)


class Outcomes:
    """What becomes of the rows of a delivery, as their partitions are written one after the other.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        The columns of the records.
    partitions : int array, shape (n_rows,)
        Where each goes.
    """

    def __init__(self, rows: pa.RecordBatch, partitions: Int64s) -> None:
        self._rows, self._partitions = rows, partitions
        self._offsets = np.full(len(partitions), NO_OFFSET, np.int64)
        self._append_ms: Int64s | None = None
        self.errors: dict[int, Exception] = {}

    def wrote(self, numbers: Int64s, first_offset: int, append_ms: int | None) -> None:
        """Note that rows were written one behind the other; ``append_ms`` is their time under LogAppendTime."""
        self._offsets[numbers] = np.arange(first_offset, first_offset + len(numbers))
        if append_ms is not None:
            if self._append_ms is None:
                self._append_ms = np.full(len(self._partitions), NO_OFFSET, np.int64)
            self._append_ms[numbers] = append_ms

    def failed(self, numbers: Int64s, error: Exception) -> None:
        """Note that rows were not written."""
        self.errors.update(dict.fromkeys(numbers.tolist(), error))

    def written(self) -> Written:
        """Return what became of all rows."""
        times = numbers_of(self._rows.column("timestamp"))
        if self._append_ms is not None:
            times = np.where(self._append_ms >= 0, self._append_ms, times)
        return Written(
            self._partitions.astype(np.int64),
            self._offsets,
            times,
            _sizes(self._rows, "key"),
            _sizes(self._rows, "value"),
            _header_sizes(self._rows),
            self.errors,
        )

    def extents(self) -> Mapping[int, tuple[int, int]]:
        """Return the first and the last offset of the rows in each partition."""
        found = {}
        for partition in np.unique(self._partitions).tolist():
            offsets = self._offsets[self._partitions == partition]
            found[partition] = (int(offsets.min()), int(offsets.max()))
        return found


def _sizes(rows: pa.RecordBatch, name: str) -> Int64s:
    if name not in rows.schema.names:
        return np.full(rows.num_rows, NO_SIZE, np.int64)
    return numbers_of(filled(pc.binary_length(rows.column(name)), NO_SIZE)).astype(np.int64)


def _header_sizes(rows: pa.RecordBatch) -> Int64s:
    sizes = np.full(rows.num_rows, NO_SIZE, np.int64)
    if "headers" in rows.schema.names:
        for number, headers in enumerate(rows.column("headers").to_pylist()):
            if headers:
                sizes[number] = sum(len(each["key"].encode()) + len(each["value"] or b"") for each in headers)
    return sizes
