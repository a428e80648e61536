"""Which partition a record goes to: as Kafka's producer would have it, and never one that is not there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from sparklog.errors import InvalidOptionError
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels import hash as kernels_hash
from sparklog.topic.write.partitioner import (
    DefaultPartitioner,
    RoundRobinPartitioner,
    assign_partitions,
    key_hashes,
    make_partitioner,
    partitions_of_keys,
    row_bytes,
)

# apache/kafka, UtilsTest.testMurmur2; the partitions of ten are computed from them.
VECTORS = [
    (b"21", -973932308, 0),
    (b"foobar", -790332482, 6),
    (b"a-little-bit-long-string", -985981536, 2),
    (b"a-little-bit-longer-string", -1486304829, 9),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 7),
    (b"abc", 479470107, 7),
    (b"", 275646681, 1),
]
BINARY_TYPES = [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()]
KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=40)


def sizes(*row_bytes: int) -> Int64s:
    return np.array(row_bytes, dtype=np.int64)


def alike(rows: int, row_bytes: int = 1) -> Int64s:
    return np.full(rows, row_bytes, dtype=np.int64)


@pytest.mark.parametrize("arrow_type", BINARY_TYPES, ids=str)
def test_murmur2_of_kafkas_own_vectors(arrow_type: pa.DataType) -> None:
    keys = pa.array([key for key, _, _ in VECTORS], pa.binary()).cast(arrow_type)
    assert key_hashes(keys).tolist() == [hashed for _, hashed, _ in VECTORS]
    assert partitions_of_keys(keys, 10).tolist() == [partition for _, _, partition in VECTORS]


@given(keys=st.lists(st.binary(max_size=70), max_size=20))
def test_murmur2_is_that_of_kafka_python(keys: list[bytes]) -> None:
    expected = np.array([kafka_murmur2(key) for key in keys], dtype=np.uint32).astype(np.int32)
    np.testing.assert_array_equal(key_hashes(pa.array(keys, pa.binary())), expected)


@given(keys=KEYS, cut=st.integers(0, 40))
def test_murmur2_of_a_slice_is_that_of_its_keys(keys: list[bytes | None], cut: int) -> None:
    array = pa.array(keys, pa.binary())
    valid = [key is not None for key in keys[cut:]]
    copied = pa.array(keys[cut:], pa.binary())
    np.testing.assert_array_equal(key_hashes(array.slice(cut))[valid], key_hashes(copied)[valid])


def test_keys_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="keys must be binary or string, and are int64"):
        key_hashes(pa.array([1]))


@pytest.mark.parametrize("offsets", [[0, 9], [3, 2], [-1, 2], [0]])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_kernel_refuses_offsets_outside_the_buffer(offsets: list[int], dtype: type[np.signedinteger[Any]]) -> None:
    out = np.zeros(1, dtype=np.int32)
    assert not kernels_hash.murmur2(np.zeros(8, dtype=np.uint8), np.array(offsets, dtype=dtype), out)
    assert out[0] == 0


def test_damaged_arrow_array_is_refused() -> None:
    offsets = pa.py_buffer(np.array([0, 100, 3], dtype=np.int32))
    keys = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(InvalidOptionError, match="not a valid Arrow array"):
        key_hashes(keys)


@given(keys=KEYS, partitions=st.integers(1, 2**31 - 1), seed=st.integers(0, 2**64))
def test_keys_decide_and_null_keys_stay_in_range(keys: list[bytes | None], partitions: int, seed: int) -> None:
    array = pa.array(keys, pa.binary())
    chosen = DefaultPartitioner(seed=seed, batch_bytes=10).partition(array, alike(len(keys), 3), partitions)
    assert chosen.dtype == np.int32
    assert len(chosen) == len(keys)
    assert all(0 <= partition < partitions for partition in chosen)
    expected = partitions_of_keys(array, partitions)
    assert all(chosen[row] == expected[row] for row, key in enumerate(keys) if key is not None)


@given(
    rows=st.lists(st.tuples(st.none() | st.binary(max_size=3), st.integers(0, 30)), max_size=60),
    cuts=st.lists(st.integers(0, 60)),
    batch_bytes=st.integers(0, 40),
    seed=st.integers(0, 9),
)
def test_choice_does_not_depend_on_how_rows_are_cut_into_calls(
    rows: list[tuple[bytes | None, int]], cuts: list[int], batch_bytes: int, seed: int
) -> None:
    keys, row_sizes = pa.array([key for key, _ in rows], pa.binary()), sizes(*(size for _, size in rows))
    whole = DefaultPartitioner(seed=seed, batch_bytes=batch_bytes).partition(keys, row_sizes, 7)
    piecewise = DefaultPartitioner(seed=seed, batch_bytes=batch_bytes)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [
        piecewise.partition(keys.slice(start, end - start), row_sizes[start:end], 7) for start, end in pairwise(bounds)
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@given(
    row_sizes=st.lists(st.integers(0, 30), max_size=60),
    batch_bytes=st.integers(0, 40),
    seed=st.integers(0, 2**32),
)
def test_null_keys_stay_until_the_batch_is_full_and_no_longer(
    row_sizes: list[int], batch_bytes: int, seed: int
) -> None:
    chosen = DefaultPartitioner(seed=seed, batch_bytes=batch_bytes).partition(None, sizes(*row_sizes), 2**31 - 1)
    produced = 0
    for row in range(1, len(row_sizes)):
        produced += row_sizes[row - 1]
        full = produced >= max(1, batch_bytes)
        # Of so many partitions the same one is not drawn twice in a row.
        assert bool(chosen[row] != chosen[row - 1]) == full
        produced = 0 if full else produced


def test_null_keys_reach_every_partition() -> None:
    chosen = DefaultPartitioner(seed=1, batch_bytes=100).partition(None, alike(10_000, 50), 8)
    counts = np.bincount(chosen, minlength=8)
    assert counts.min() > 1000


def test_keyed_rows_do_not_count_towards_the_batch_of_those_without() -> None:
    keys = pa.array([b"k", None] * 50, pa.binary())
    chosen = DefaultPartitioner(seed=3, batch_bytes=51).partition(keys, alike(100), 2**31 - 1)
    assert len(set(chosen[1::2].tolist())) == 1


def test_empty_key_is_hashed_and_null_key_is_not() -> None:
    keys = pa.array([b"", None] * 200, pa.binary())
    chosen = DefaultPartitioner(seed=0, batch_bytes=1).partition(keys, alike(400), 10)
    assert set(chosen[::2].tolist()) == {1}
    assert set(chosen[1::2].tolist()) == set(range(10))


def test_sticky_choice_survives_a_call_with_fewer_partitions() -> None:
    partitioner = DefaultPartitioner(seed=0, batch_bytes=1 << 20)
    partitioner.partition(None, alike(1), 1000)
    assert partitioner.partition(None, alike(5), 2).max() < 2


@given(st.lists(st.integers(0, 20), max_size=10), st.integers(1, 9), st.integers(0, 2**40))
def test_round_robin_goes_on_where_it_stopped(calls: list[int], partitions: int, start: int) -> None:
    partitioner = RoundRobinPartitioner(start=start)
    chosen = [partitioner.partition(None, alike(rows), partitions).tolist() for rows in calls]
    assert list(chain(*chosen)) == [(start + row) % partitions for row in range(sum(calls))]


def test_partition_column_decides_and_its_nulls_are_left_to_the_partitioner() -> None:
    explicit = pa.array([3, None, 0, None], pa.int32())
    keys = pa.array([b"abc", b"foobar", None, b"21"], pa.binary())
    partitioner = DefaultPartitioner(seed=0, batch_bytes=10)
    assert assign_partitions(partitioner, explicit, keys, alike(4), 10).tolist() == [3, 6, 0, 0]


@pytest.mark.parametrize("explicit", [None, pa.nulls(2), pa.nulls(2, pa.int32())])
def test_without_a_partition_column_the_partitioner_decides(explicit: pa.Array | None) -> None:
    keys = pa.array(["abc", "foobar"])
    partitioner = DefaultPartitioner(seed=0, batch_bytes=10)
    assert assign_partitions(partitioner, explicit, keys, alike(2), 10).tolist() == [7, 6]


def test_partition_column_alone_needs_no_keys() -> None:
    explicit = pa.array([1, None], pa.int64())
    assert assign_partitions(RoundRobinPartitioner(), explicit, None, alike(2), 4).tolist() == [1, 0]


@pytest.mark.parametrize(("number", "arrow_type"), [(4, pa.int32()), (-1, pa.int8()), (2**32, pa.int64())])
def test_partition_that_the_topic_has_not_is_refused_with_its_row(number: int, arrow_type: pa.DataType) -> None:
    explicit = pa.array([0, None, number], arrow_type)
    with pytest.raises(
        InvalidOptionError, match=rf"the column partition says {number} in row 2, .* partitions are 0 to 3"
    ):
        assign_partitions(RoundRobinPartitioner(), explicit, None, alike(3), 4)


def test_partition_column_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="must be of integers, and is of double"):
        assign_partitions(RoundRobinPartitioner(), pa.array([1.0]), None, alike(1), 4)


CUSTOM = """
import numpy as np

class Last:
    def __init__(self, *, seed, batch_bytes):
        self.made_with = seed, batch_bytes
    def partition(self, keys, row_bytes, partitions):
        return np.full(len(row_bytes), partitions - 1)

class Past(Last):
    def partition(self, keys, row_bytes, partitions):
        return np.full(len(row_bytes), partitions)

class Short(Last):
    def partition(self, keys, row_bytes, partitions):
        return [0]

class Fractions(Last):
    def partition(self, keys, row_bytes, partitions):
        return np.zeros(len(row_bytes))

class NoMethod:
    def __init__(self, *, seed, batch_bytes): ...

class NoArguments: ...

constant = 5
"""


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "users_partitioners.py").write_text(CUSTOM)
    (tmp_path / "users_broken.py").write_text("raise RuntimeError('at import')")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("users_partitioners", None)


@pytest.mark.usefixtures("custom")
def test_partitioner_of_the_users_own_is_imported_and_made() -> None:
    made: Any = make_partitioner("users_partitioners:Last", seed=5, batch_bytes=6)
    assert made.made_with == (5, 6)
    chosen = assign_partitions(made, None, None, alike(2), 4)
    assert chosen.tolist() == [3, 3]
    assert chosen.dtype == np.int32


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Past", "the partitioner Past says 4 in row 0, and the topic's partitions are 0 to 3"),
        ("Short", r"Short must return an integer for each of 2 rows, and returned .* shape \(1,\)"),
        ("Fractions", "must return an integer for each of 2 rows, and returned an array of float64"),
    ],
)
def test_wrong_choice_of_the_users_own_is_refused(name: str, message: str) -> None:
    made = make_partitioner(f"users_partitioners:{name}", seed=0, batch_bytes=1)
    with pytest.raises(InvalidOptionError, match=message):
        assign_partitions(made, None, None, alike(2), 4)


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("roundrobin", "no partitioner 'roundrobin': did you mean 'roundRobin'?"),
        ("murmur3", "no partitioner 'murmur3': say default, roundRobin, or package.module:Name"),
        ("", "no partitioner ''"),
        (":Last", "no partitioner ':Last'"),
        ("users_partitioners:", "no partitioner 'users_partitioners:'"),
        ("users_nowhere:Last", "cannot be imported: ModuleNotFoundError.*users_nowhere"),
        ("users_broken:Last", "cannot be imported: RuntimeError.*at import"),
        ("users_partitioners:Lost", "'Lost' is not in .*users_partitioners.py"),
        ("users_partitioners:constant", "'constant' cannot be called"),
        ("users_partitioners:NoArguments", "cannot be made with seed and batch_bytes: TypeError"),
        ("users_partitioners:NoMethod", "has no method partition"),
    ],
)
def test_partitioner_that_cannot_be_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        make_partitioner(name, seed=0, batch_bytes=1)


def test_built_in_partitioners_have_names() -> None:
    assert isinstance(make_partitioner("default", seed=0, batch_bytes=1), DefaultPartitioner)
    round_robin = make_partitioner("roundRobin", seed=6, batch_bytes=1)
    assert round_robin.partition(None, alike(3), 4).tolist() == [2, 3, 0]


def test_rows_are_as_large_as_their_columns() -> None:
    keys, values = pa.array([b"ab", None, b""]), pa.array(["\u00e9", "xyz", None], pa.large_string())
    assert row_bytes([keys, values], 3).tolist() == [4, 3, 0]
    assert row_bytes([], 2).tolist() == [0, 0]
