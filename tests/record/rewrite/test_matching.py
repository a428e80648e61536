"""Which records have one of many keys, or pass a filter, compared with Python's own sets and the slow filter."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.log.filters.where_parser import parse_where
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.where_program import program_of
from sparklog.record.rewrite.matching import AnyOf, KeySet, Matcher, Passing, is_data, key_set
from sparklog.record.rewrite.spans import record_spans
from tests import build
from tests.build import Record

KEYS = st.none() | st.binary(max_size=20) | st.builds(bytes, st.integers(0, 40))


def matched(data: bytes, matcher: Matcher) -> list[int]:
    """Return the places of the records that are meant."""
    found: list[bool] = []
    for spans in record_spans(memoryview(data), scan_headers(data)):
        mask = matcher.matches(spans)
        mask = np.zeros(len(spans.table), np.bool_) if mask is None else mask
        found += mask.tolist()
    return [place for place, is_meant in enumerate(found) if is_meant]


@given(
    st.lists(KEYS, max_size=30), st.lists(st.binary(max_size=20) | st.builds(bytes, st.integers(0, 40)), max_size=30)
)
def test_keys_are_matched_as_by_a_set_of_pythons(keys: list[bytes | None], wanted: list[bytes]) -> None:
    data = build.v2_batch([Record(n, 0, key) for n, key in enumerate(keys)], codec="lz4")
    found = matched(data, key_set(pa.array(wanted, pa.binary())))
    assert found == [n for n, key in enumerate(keys) if key is not None and key in set(wanted)]


def test_a_million_keys_are_a_set() -> None:
    keys = pa.array([b"user-%d" % n for n in range(0, 2_000_000, 2)])
    wanted = key_set(keys)
    assert wanted.count == 1_000_000
    data = build.v2_batch([Record(n, 0, b"user-%d" % (1_999_000 + n)) for n in range(1000)])
    assert matched(data, wanted) == list(range(0, 1000, 2))


def test_keys_of_any_binary_type_and_slice_are_the_same_set() -> None:
    data = build.v2_batch([Record(n, 0, key) for n, key in enumerate((b"a", b"b", "é".encode(), b""))])
    texts = ["b", "é", "", "b", "zz"]
    arrays = [pa.array(texts, kind) for kind in (pa.string(), pa.large_string())]
    arrays += [pa.array([text.encode() for text in texts], kind) for kind in (pa.binary(), pa.large_binary())]
    arrays += [pa.chunked_array([["b"], ["é", ""]]), pa.chunked_array([], pa.string()), pa.array(["a", *texts])[1:]]
    assert [matched(data, key_set(each)) for each in arrays] == [*[[1, 2, 3]] * 5, [], [1, 2, 3]]
    again: KeySet = pickle.loads(pickle.dumps(key_set(arrays[0])))
    assert matched(data, again) == [1, 2, 3]


def test_null_and_numbers_are_no_keys() -> None:
    with pytest.raises(InvalidOptionError, match="a key is null"):
        key_set(pa.array([b"a", None]))
    with pytest.raises(InvalidOptionError, match="must be binary or text, not int64"):
        key_set(pa.array([1]))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_filter_tests_keys_headers_values_offsets_and_times(magic: int) -> None:
    records = [Record(n, 1000 + n, b"k%d" % n, b"v", [("tenant", b"x")] * (n % 2)) for n in range(6)]
    data = (
        build.v2_batch(records, base_offset=10)
        if magic == 2
        else build.legacy_wrapper(records, base_offset=10, magic=magic)
    )
    for text, wanted in (
        ("key = 'k2'", [2]),
        ("headers['tenant'] = 'x'", [1, 3, 5] if magic == 2 else []),
        ("offset >= 14", [4, 5]),
        ("timestamp < 1002", [0, 1] if magic else list(range(6))),
        ("timestampType = 0", list(range(6)) if magic else []),
        ("key = 'k0' OR value != 'v'", [0]),
        ("key = 'none'", []),
    ):
        program = program_of(parse_where(text).of_partition("t", 0).tree)
        assert matched(data, Passing(program)) == wanted, text
    either = AnyOf((key_set(pa.array([b"k5"])), Passing(program_of(parse_where("offset = 10").tree))))
    assert matched(data, either) == [0, 5]


def test_markers_are_no_data() -> None:
    data = build.v2_batch([Record(0), Record(1)]) + build.control_batch("commit", 2, 7) + build.empty_batch(3, 3)
    (spans,) = record_spans(memoryview(data), scan_headers(data))
    assert is_data(spans).tolist() == [True, True, False]
