"""The digest of rows: equal for equal rows in any order, and different for any others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record.encode.batches import digest_records
from sparklog.record.encode.intake import take_records
from sparklog.record.format.schema import HEADERS_TYPE

BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=3)
ROW = st.tuples(BYTES, BYTES, HEADERS, st.none() | st.integers(0, 1 << 40), st.integers(-1, 3))
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None, int]
PLAIN: Row = (b"k", b"v", [("h", b"x")], 5, -1)


def digest(rows: list[Row], topic: str = "t") -> int:
    keys, values, headers, times, partitions = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    pairs = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in headers]
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(pairs, HEADERS_TYPE),
        "timestamp": pa.array(times, pa.int64()),
    }
    return digest_records(topic, take_records(columns), np.array(partitions, np.int64))


@given(st.lists(ROW, max_size=12), st.randoms(), st.integers(0, 12))
def test_digest_is_that_of_the_rows_in_any_order_and_in_any_parts(rows: list[Row], random: object, cut: int) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digest(shuffled) == digest(rows)
    assert (digest(shuffled[:cut]) + digest(shuffled[cut:])) % (1 << 64) == digest(rows)


@given(st.lists(ROW, max_size=6), st.lists(ROW, max_size=6))
def test_other_rows_have_another_digest(rows: list[Row], others: list[Row]) -> None:
    def known(row: Row) -> str:
        key, value, headers, time, partition = row
        return repr((key, value, headers or [], -1 if time is None else time, partition))

    is_same = sorted(map(known, rows)) == sorted(map(known, others))
    assert (digest(rows) == digest(others)) is is_same


@pytest.mark.parametrize(
    "other",
    [
        (b"", b"v", [("h", b"x")], 5, -1),
        (None, b"v", [("h", b"x")], 5, -1),
        (b"kv", b"", [("h", b"x")], 5, -1),
        (b"k", None, [("h", b"x")], 5, -1),
        (b"k", b"v", [("hx", b"")], 5, -1),
        (b"k", b"v", [("h", None)], 5, -1),
        (b"k", b"v", [("h", b"x"), ("h", b"x")], 5, -1),
        (b"k", b"v", None, 5, -1),
        (b"k", b"v", [("h", b"x")], 6, -1),
        (b"k", b"v", [("h", b"x")], None, -1),
        (b"k", b"v", [("h", b"x")], 5, 0),
    ],
)
def test_each_field_counts(other: Row) -> None:
    assert digest([PLAIN]) != digest([other])
    # Values that change places between rows are other rows.
    swapped = [(PLAIN[0], *other[1:]), (other[0], *PLAIN[1:])]
    assert (digest([PLAIN, other]) == digest(swapped)) is (PLAIN[0] == other[0] or PLAIN[1:] == other[1:])


def test_topic_counts_and_the_type_of_text_does_not() -> None:
    assert digest([PLAIN]) != digest([PLAIN], "u")
    nobody = np.full(2, -1)
    texts = digest_records("t", take_records({"value": pa.array(["a", "bc"])}), nobody)
    assert texts == digest_records("t", take_records({"value": pa.array([b"bc", b"a"], pa.large_binary())}), nobody)
