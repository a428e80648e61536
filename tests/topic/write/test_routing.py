"""Rows parted by partition: each once, in order, and copied no more than they must be."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.topic.write.routing import grouped_by_partition

# Numbers on both sides of what 16 bits hold, few enough to recur.
PARTITIONS = st.lists(st.sampled_from([0, 1, 2, 7, 32_767, 32_768, 2**31 - 1]), max_size=60)


def numbered(count: int) -> pa.RecordBatch:
    """Rows of every shape that a record has, whose values say which row they are."""
    return pa.record_batch(
        {
            "key": pa.array([None if n % 3 == 0 else b"k%d" % n for n in range(count)], pa.binary()),
            "value": pa.array([b"%d" % n for n in range(count)], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"%d" % n}] * (n % 3) for n in range(count)]),
        }
    )


def parted(rows: pa.RecordBatch, partitions: list[int]) -> list[tuple[int, pa.RecordBatch]]:
    found = grouped_by_partition(rows, np.array(partitions, dtype=np.int32))
    starts = [0, *found.ends.tolist()]
    return [
        (number, found.rows.slice(start, end - start))
        for number, (start, end) in zip(found.partitions, pairwise(starts), strict=True)
    ]


def addresses(rows: pa.RecordBatch) -> list[int]:
    """Where the bytes of the values are in memory."""
    return [buffer.address for buffer in rows.column("value").buffers() if buffer is not None]


@settings(deadline=None)
@given(PARTITIONS)
def test_rows_of_a_partition_stay_whole_and_in_order(partitions: list[int]) -> None:
    rows = numbered(len(partitions))
    expected: dict[int, list[Any]] = {number: [] for number in sorted(set(partitions))}
    for number, row in zip(partitions, rows.to_pylist(), strict=True):
        expected[number].append(row)
    found = [(number, part.to_pylist()) for number, part in parted(rows, partitions)]
    assert found == list(expected.items())


@settings(deadline=None)
@given(PARTITIONS, st.integers(0, 2000))
def test_portions_are_the_same_rows_and_cut_no_partition(partitions: list[int], bytes_max: int) -> None:
    found = grouped_by_partition(numbered(len(partitions)), np.array(partitions, dtype=np.int32))
    portions = list(found.portions(bytes_max))
    assert [number for each in portions for number in each.partitions] == sorted(set(partitions))
    assert [row for each in portions for row in each.rows.to_pylist()] == found.rows.to_pylist()
    counts = [count for each in portions for count in np.diff(each.ends, prepend=0).tolist()]
    assert counts == [partitions.count(number) for number in sorted(set(partitions))]
    assert len(portions) <= 1 or bytes_max < found.rows.nbytes


@settings(deadline=None)
@given(PARTITIONS.filter(bool), st.integers(0, 5))
def test_slice_gives_its_own_rows(partitions: list[int], start: int) -> None:
    whole = numbered(start + len(partitions) + 2)
    found = [value for _, part in parted(whole.slice(start, len(partitions)), partitions) for value in part["value"]]
    assert sorted(int(value.as_py()) for value in found) == list(range(start, start + len(partitions)))


@pytest.mark.parametrize("partitions", [[4], [4] * 9])
def test_rows_of_one_partition_are_not_copied(partitions: list[int]) -> None:
    rows = numbered(len(partitions))
    ((number, part),) = parted(rows, partitions)
    assert (number, part.num_rows) == (4, len(partitions))
    assert addresses(part) == addresses(rows)


def test_rows_are_copied_once_for_all_partitions() -> None:
    parts = [part for _, part in parted(numbered(9), [2, 0, 1] * 3)]
    assert len(parts) == 3
    assert addresses(parts[0]) == addresses(parts[1]) == addresses(parts[2])


def test_no_rows_are_of_no_partition() -> None:
    assert parted(numbered(0), []) == []
