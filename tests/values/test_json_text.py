"""Bytes as digits, of arrays that are slices."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.values.json_text import hex_of


@given(st.lists(st.none() | st.binary()), st.integers(0, 3))
def test_digits_of_bytes(values: list[bytes | None], start: int) -> None:
    expected = [None if value is None else value.hex().encode() for value in values]
    assert hex_of(pa.array(values, pa.binary())[start:]).to_pylist() == expected[start:]
