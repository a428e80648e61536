"""Maps of headers beside a slow twin, and types that Spark does not have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.reads.columns import LOG_SCHEMA
from sparklog.spark.options.arrow_types import headers_map, widened

HEADERS = st.none() | st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.none() | st.binary(max_size=2)))


@given(st.lists(HEADERS), st.integers(0, 3))
def test_last_of_the_headers_with_one_name_counts(records: list[list[tuple[str, bytes]] | None], skipped: int) -> None:
    column = pa.array(
        [None if record is None else [{"key": key, "value": value} for key, value in record] for record in records],
        LOG_SCHEMA.field("headers").type,
    )
    made = headers_map(column[skipped:])
    made.validate(full=True)
    assert made.type == pa.map_(pa.string(), pa.binary())
    found = [None if pairs is None else pairs for pairs in made.to_pylist()]
    expected = [None if record is None else dict(record) for record in records[skipped:]]
    assert [None if pairs is None else dict(pairs) for pairs in found] == expected
    assert all(pairs is None or len(pairs) == len(dict(pairs)) for pairs in found)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.struct([("n", pa.list_(pa.uint8()))]), pa.struct([("n", pa.list_(pa.int16()))])),
        (pa.map_(pa.string_view(), pa.uint32()), pa.map_(pa.string(), pa.int64())),
        (pa.int32(), pa.int32()),
    ],
)
def test_type_that_spark_lacks_becomes_the_next_wider(kind: pa.DataType, expected: pa.DataType) -> None:
    assert widened(kind) == expected
