"""Joins small batches of rows: one batch costs Spark as much as some thousand rows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final

import pyarrow as pa

_JOINED_BYTES: Final = 1 << 20


def joined(batches: Generator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    """Yield the rows of batches in order, those of small batches joined to batches of about 1 MiB.

    The first batch is yielded as it is, and batches are joined only until they are as large as all that was yielded
    before them: a query that needs only a few rows waits for few.

    Parameters
    ----------
    batches : generator of pyarrow.RecordBatch
        All in one schema. It is closed with this generator.
    """
    small: list[pa.RecordBatch] = []
    small_bytes = yielded_bytes = 0
    with closing(batches):
        for batch in batches:
            small.append(batch)
            small_bytes += batch.nbytes
            if small_bytes >= min(yielded_bytes, _JOINED_BYTES):
                yield _as_one(small)
                yielded_bytes += small_bytes
                small, small_bytes = [], 0
        if small:
            yield _as_one(small)


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
