"""Arrays by their buffers are those that pyarrow makes of the same, and no conversion needs pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record.format.arrays import array_of, array_of_texts, bounded, filled, numbers_of, repeated, scalar_of

NUMBERS = [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.float64]


@given(st.lists(st.integers(0, 127)), st.sampled_from(NUMBERS), st.integers(0, 5))
def test_numbers_come_and_go_whatever_their_type_and_offset(
    numbers: list[int], kind: type[np.generic], start: int
) -> None:
    array = array_of(np.array(numbers, kind))
    assert array.equals(pa.array(numbers, pa.from_numpy_dtype(kind)))
    assert numbers_of(array[start:]).tolist() == numbers[start:]
    assert numbers_of(array[start:]).dtype == kind


@given(st.lists(st.booleans()), st.integers(0, 20))
def test_booleans_come_and_go_whatever_their_offset(values: list[bool], start: int) -> None:
    array = array_of(np.array(values, np.bool_))
    assert array.equals(pa.array(values, pa.bool_()))
    assert numbers_of(array[start:]).tolist() == values[start:]
    assert numbers_of(array[start:]).dtype == np.bool_


def test_numbers_that_are_not_one_behind_the_other_are_put_together() -> None:
    assert array_of(np.arange(10)[::3]).to_pylist() == [0, 3, 6, 9]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_are_those_of_pyarrow(texts: list[str]) -> None:
    assert array_of_texts(texts).equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.timestamp("ms", "UTC")])
def test_nulls_are_filled_and_times_are_counted(kind: pa.DataType) -> None:
    array = pa.array([1, None, 3], pa.int64()).cast(kind)
    assert numbers_of(filled(array, -1)).tolist() == [1, -1, 3]
    assert numbers_of(filled(array, -1)[:0]).dtype == (np.int32 if kind == pa.int32() else np.int64)
    assert filled(array[2:], -1).equals(array[2:])


def test_scalars_have_the_type_that_is_asked_for() -> None:
    assert scalar_of("a", pa.large_string()).equals(pa.scalar("a", pa.large_string()))
    assert scalar_of(7, pa.int32()).equals(pa.scalar(7, pa.int32()))


@pytest.mark.parametrize(("value", "kind"), [("a", pa.string()), ("", pa.large_string()), (7, pa.int32())])
def test_repeated_value_is_arrows_own(value: str | int, kind: pa.DataType) -> None:
    for rows in (0, 1, 100):
        assert repeated(value, kind, rows).equals(pa.repeat(pa.scalar(value, kind), rows))


SCRIPT = """
import sys
import numpy as np
import pyarrow as pa
from sparklog.record.format.arrays import array_of, array_of_texts, bounded, filled, numbers_of, repeated, scalar_of

array = array_of(np.arange(3))
numbers_of(filled(pa.concat_arrays([array, pa.nulls(1, pa.int64())]), -1))
scalar_of(1, pa.int32()), scalar_of("a", pa.string()), array_of_texts(["a"]), array_of(np.zeros(3, bool))
repeated(1, pa.int32(), 3), repeated("a", pa.string(), 3)
assert "pandas" not in sys.modules
"""


@given(st.lists(st.lists(st.binary(max_size=40), max_size=6), max_size=5), st.integers(1, 300))
def test_batches_end_before_they_have_more_bytes_but_have_a_row(values: list[list[bytes]], bytes_max: int) -> None:
    tagged = [(n, pa.record_batch({"value": pa.array(each, pa.binary())})) for n, each in enumerate(values)]
    found = list(bounded(iter(tagged), bytes_max))
    every = [value for each in values for value in each]
    rows = [value for _, batch in found for value in batch.column("value").to_pylist()]
    assert rows == every[: len(rows)]
    assert len(rows) >= min(1, len(every))
    assert sum(batch.nbytes for _, batch in found) <= bytes_max or len(rows) == 1
    # One more would be too many; a batch that begins has an offset of its own.
    more = len(every) > len(rows)
    assert not more or sum(batch.nbytes for _, batch in found) + 8 + len(every[len(rows)]) > bytes_max
    assert [batch for _, batch in bounded(iter(tagged), None)] == [batch for _, batch in tagged]


def test_nothing_of_it_imports_pandas() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
