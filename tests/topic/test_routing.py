"""Rows sorted by partition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.topic.routing import grouped


@given(st.lists(st.integers(0, 5) | st.integers(0, 100_000), max_size=50))
def test_rows_of_each_partition_keep_their_order(partitions: list[int]) -> None:
    rows = pa.record_batch({"n": pa.array(range(len(partitions)), pa.int64())})
    found = {partition: part["n"].to_pylist() for partition, part in grouped(rows, np.array(partitions, np.int32))}
    wanted: dict[int, list[int]] = {}
    for n, partition in enumerate(partitions):
        wanted.setdefault(partition, []).append(n)
    assert found == wanted
    assert list(found) == sorted(found)


def test_rows_of_one_partition_are_not_copied() -> None:
    rows = pa.record_batch({"n": [1, 2]})
    ((_, part),) = grouped(rows, np.array([3, 3], np.int32))
    assert part is rows
