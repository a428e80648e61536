"""Sorts rows by the partition that they go to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def grouped(rows: pa.RecordBatch, partitions: npt.NDArray[np.int32]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each partition, in the order that they have.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        The rows, which are copied once unless all go to one partition.
    partitions : int32 array, shape (n_rows,)
        The partition that each row goes to.

    Yields
    ------
    (int, pyarrow.RecordBatch)
        Partitions ascending; none without rows.
    """
    if not len(partitions):
        return
    if (partitions == partitions[0]).all():
        yield int(partitions[0]), rows
        return
    # numpy sorts numbers of 16 bits by their digits, which is many times as fast.
    narrow = partitions.astype(np.int16) if partitions.max() <= np.iinfo(np.int16).max else partitions
    order = np.argsort(narrow, kind="stable")
    arranged = rows.take(pa.array(order))
    ends = np.flatnonzero(np.diff(partitions[order], append=-1)) + 1
    start = 0
    for end in ends.tolist():
        yield int(partitions[order[start]]), arranged.slice(start, end - start)
        start = end
