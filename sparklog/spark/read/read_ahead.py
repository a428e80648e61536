"""Reads a task's next batch while Spark takes the last one. Kernels and codecs let other threads run meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def read_ahead(batches: Generator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what a generator yields, and run it in a thread of its own, one batch ahead.

    The thread begins with the second batch: a query that needs only a few rows reads no more than those. It ends with
    this iterator, also where that is closed or the generator raises, and runs nothing then; the generator is closed.

    Parameters
    ----------
    batches : generator of pyarrow.RecordBatch
        It is run by one thread at a time, though not always by the same.

    Yields
    ------
    pyarrow.RecordBatch
        At most one is ready, or in the making, that has not been taken.
    """
    with closing(batches):
        first = next(batches, None)
        if first is None:
            return
        yield first
        del first
        with ThreadPoolExecutor(1, "read ahead") as reader:
            following = reader.submit(next, batches, None)
            while (batch := following.result()) is not None:
                following = reader.submit(next, batches, None)
                yield batch
