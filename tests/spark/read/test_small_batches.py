"""Small batches are joined, and their rows stay in order; a query that needs a few rows waits for few."""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice

import pyarrow as pa
import pytest

from sparklog.spark.read.batches import joined_batches

MIB = 1 << 20


def batch(first: int, rows: int, value_bytes: int = 1) -> pa.RecordBatch:
    values = pa.array([bytes(value_bytes)] * rows, pa.binary())
    return pa.RecordBatch.from_arrays([pa.array(range(first, first + rows), pa.int64()), values], ["offset", "value"])


def made(*batches: pa.RecordBatch) -> Generator[pa.RecordBatch]:
    yield from batches


def test_many_small_batches_become_few_with_all_rows_in_order() -> None:
    found = list(joined_batches(made(*(batch(10 * number, 10) for number in range(1_000)))))

    assert len(found) < 15
    assert pa.Table.from_batches(found).column("offset").to_pylist() == list(range(10_000))


def test_large_batches_are_yielded_as_they_are() -> None:
    large = [batch(0, 1, MIB), batch(1, 1, 3 * MIB), batch(2, 1, MIB)]

    assert [id(each) for each in joined_batches(made(*large))] == [id(each) for each in large]


def test_joined_batches_are_no_larger_than_a_mebibyte_and_one_batch() -> None:
    found = list(joined_batches(made(*(batch(number, 1, MIB // 3) for number in range(40)))))

    assert max(each.nbytes for each in found) < MIB + MIB // 2
    assert sum(each.num_rows for each in found) == 40


def test_first_rows_wait_for_no_more_than_the_first_batch() -> None:
    taken: list[int] = []

    def source() -> Generator[pa.RecordBatch]:
        for number in range(1_000):
            taken.append(number)
            yield batch(10 * number, 10)

    rows = [each.num_rows for each in islice(joined_batches(source()), 3)]

    assert (rows, len(taken)) == ([10, 10, 20], 4)


def test_source_is_closed_with_what_joins_it() -> None:
    is_closed = False

    def source() -> Generator[pa.RecordBatch]:
        nonlocal is_closed
        try:
            yield batch(0, 10)
            yield batch(10, 10)
        finally:
            is_closed = True

    batches = joined_batches(source())
    next(batches)
    batches.close()

    assert is_closed


def test_nothing_to_join_is_nothing() -> None:
    assert list(joined_batches(made())) == []


def test_an_error_of_the_source_is_raised() -> None:
    def source() -> Generator[pa.RecordBatch]:
        yield batch(0, 10)
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        list(joined_batches(source()))
