"""Sorts rows by partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.record.format.arrays import array_of


class GroupedRows(NamedTuple):
    """The rows of some partitions, one partition after the other.

    Attributes
    ----------
    rows : pyarrow.RecordBatch
        All rows.
    partitions : list of int
        The partitions that have rows, ascending.
    ends : int64 array, shape (n_partitions,)
        For each partition, the row after its last one.
    """

    rows: pa.RecordBatch
    partitions: list[int]
    ends: npt.NDArray[np.int64]

    def portions(self, bytes_max: int) -> Iterator[GroupedRows]:
        """Yield the rows in portions of whole partitions, about ``bytes_max`` each."""
        rows_max = self.rows.num_rows * bytes_max // max(self.rows.nbytes, 1)
        first = start = 0
        while first < len(self.partitions):
            last = max(int(np.searchsorted(self.ends, start + rows_max, side="right")), first + 1)
            end = int(self.ends[last - 1])
            yield GroupedRows(
                self.rows.slice(start, end - start), self.partitions[first:last], self.ends[first:last] - start
            )
            first, start = last, end


def grouped_by_partition(rows: pa.RecordBatch, partitions: npt.NDArray[np.int32]) -> GroupedRows:
    """Put the rows of each partition together, keeping their order.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        The rows, which are copied once unless all go to one partition.
    partitions : int32 array, shape (n_rows,)
        The partition that each row goes to.
    """
    if not len(partitions) or (partitions == partitions[0]).all():
        return GroupedRows(rows, partitions[:1].tolist(), np.array([len(partitions)][: len(partitions)], np.int64))
    # numpy uses radix sort for 16-bit numbers, which is many times as fast.
    narrow = partitions.astype(np.int16) if partitions.max() <= np.iinfo(np.int16).max else partitions
    order = np.argsort(narrow, kind="stable")
    ends = np.flatnonzero(np.diff(partitions[order], append=-1)) + 1
    return GroupedRows(rows.take(array_of(order)), partitions[order][ends - 1].tolist(), ends)
