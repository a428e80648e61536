"""The offset map against a dict, and the hash against the vectors of those who made it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import offset_map as kernels
from sparklog.record.rewrite.offset_map import OffsetMap

# vectors.h of https://github.com/veorq/SipHash: the message is 0, 1, 2, ... and so is the key.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
}
KEYS = st.one_of(st.none(), st.binary(max_size=3), st.binary(max_size=40))


@njit
def hash_key(octets: Any, first: Any, second: Any) -> Any:
    """Make the step one that a test can call."""
    return kernels.siphash(octets, np.int64(0), np.int64(octets.shape[0]), first, second)


def laid_out(keys: list[bytes | None], behind: bytes = b"") -> tuple[Octets, Int64s, Int64s]:
    """Return keys one behind the other, where each begins, and how long it is."""
    lengths = np.array([-1 if key is None else len(key) for key in keys], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(np.maximum(lengths, 0))))[:-1].astype(np.int64)
    octets = np.frombuffer(b"".join(key or b"" for key in keys) + behind, dtype=np.uint8)
    return octets, starts, lengths


def found_in(offset_map: OffsetMap, keys: list[bytes | None]) -> list[int]:
    found = np.empty(len(keys), dtype=np.int64)
    offset_map.find(*laid_out(keys), found)
    return [int(each) for each in found]


@pytest.mark.parametrize("length", VECTORS)
@pytest.mark.parametrize("behind", [0, 32])
def test_hash_is_siphash_of_128_bits(length: int, behind: int) -> None:
    first, second = np.frombuffer(bytes(range(16)), dtype="<u8").tolist()
    octets = np.frombuffer(bytes(range(length + behind)), dtype=np.uint8)
    if not behind:
        hashed = hash_key(octets, np.uint64(first), np.uint64(second))
        assert np.array(hashed, dtype="<u8").tobytes().hex() == VECTORS[length]
    # Whatever stands behind a key, its last bytes are read otherwise and its hash is the same.
    alone = OffsetMap(4096)
    alone.put(octets[:length].copy(), np.array([0]), np.array([length]), np.array([7]))
    found = np.empty(1, dtype=np.int64)
    alone.find(octets, np.array([0]), np.array([length]), found)
    assert found[0] == 7


@given(st.lists(KEYS, max_size=300), st.lists(KEYS, max_size=60), st.integers(0, 40))
def test_map_has_the_last_offset_of_each_key(keys: list[bytes | None], others: list[bytes | None], start: int) -> None:
    offset_map = OffsetMap(400 * kernels.SLOT_BYTES)
    offsets = np.arange(0, 3 * len(keys), 3, dtype=np.int64)
    assert offset_map.put(*laid_out(keys), offsets, start) == len(keys)
    pairs = zip(keys, offsets.tolist(), strict=True)
    expected = {key: offset for key, offset in pairs if key is not None and offset >= start}
    asked = [*keys, *others]
    assert found_in(offset_map, asked) == [-1 if key is None else expected.get(key, -1) for key in asked]
    assert offset_map.size == len(expected)


@given(st.integers(3, 40), st.lists(st.integers(0, 60), max_size=200), st.floats(0.7, 1.0))
def test_full_map_stops_at_the_record_that_it_has_no_room_for(slots: int, numbers: list[int], load: float) -> None:
    offset_map = OffsetMap(slots * kernels.SLOT_BYTES, load)
    keys: list[bytes | None] = [b"%d" % number for number in numbers]
    done = offset_map.put(*laid_out(keys), np.arange(len(keys), dtype=np.int64))
    expected: dict[bytes | None, int] = {}
    for row, key in enumerate(keys):
        if len(expected) == offset_map.size_max:
            assert done == row
            break
        expected[key] = row
    else:
        assert done == len(keys)
    assert found_in(offset_map, [b"%d" % number for number in range(61)]) == [
        expected.get(b"%d" % number, -1) for number in range(61)
    ]
    assert offset_map.is_full == (len(expected) == offset_map.size_max)


def test_many_puts_into_a_nearly_full_map_keep_every_key() -> None:
    count = 50_000
    keys: list[bytes | None] = [b"key %d" % number for number in range(count)]
    offset_map = OffsetMap(-(-count * 10 // 9) * kernels.SLOT_BYTES)
    octets, starts, lengths = laid_out(keys)
    for begin in range(0, count, 777):
        offsets = rows = np.arange(begin, min(begin + 777, count))
        assert offset_map.put(octets, starts[rows], lengths[rows], offsets) == len(rows)
    assert offset_map.is_full
    assert offset_map.size == count
    assert found_in(offset_map, keys) == list(range(count))
    assert found_in(offset_map, [b"other %d" % number for number in range(1000)]) == [-1] * 1000


def test_map_takes_no_more_memory_than_its_keys_need() -> None:
    offset_map = OffsetMap(1 << 30)
    keys: list[bytes | None] = [b"%d" % number for number in range(100_000)]
    columns = laid_out(keys)
    grown = []
    for begin in range(0, len(keys), 10_000):
        part = slice(begin, begin + 10_000)
        rows = np.arange(begin, begin + 10_000)
        assert offset_map.put(columns[0], columns[1][part], columns[2][part], rows) == 10_000
        grown.append(offset_map._slots.nbytes)
    assert grown[0] < 1 << 19
    assert grown[-1] < 10 * 24 * len(keys)
    assert found_in(offset_map, keys) == list(range(len(keys)))


def test_cleared_map_has_nothing_and_takes_as_much_again() -> None:
    offset_map = OffsetMap(10 * kernels.SLOT_BYTES)
    keys: list[bytes | None] = [b"%d" % number for number in range(20)]
    assert offset_map.put(*laid_out(keys), np.arange(20, dtype=np.int64)) == 9
    offset_map.latest_offset = 8
    offset_map.clear()
    assert (offset_map.size, offset_map.latest_offset, found_in(offset_map, keys)) == (0, -1, [-1] * 20)
    assert offset_map.put(*laid_out(keys[5:]), np.arange(5, 20, dtype=np.int64)) == 9


def test_seeds_differ() -> None:
    """With the same seed, the one map would have its keys in the same slots as the other."""
    keys: list[bytes | None] = [b"%d" % number for number in range(100)]
    maps = [OffsetMap(1000 * kernels.SLOT_BYTES) for _ in range(2)]
    for each in maps:
        each.put(*laid_out(keys), np.arange(100, dtype=np.int64))
    assert not np.array_equal(maps[0]._slots, maps[1]._slots)


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (5, 0), (0, 5), (2, 3), (0, 1 << 62), (1 << 62, 1)])
def test_key_outside_of_the_bytes_is_an_error(start: int, length: int) -> None:
    offset_map, octets = OffsetMap(1 << 12), np.zeros(4, dtype=np.uint8)
    columns = octets, np.array([start]), np.array([length])
    with pytest.raises(CorruptBatchError, match="key is not in the bytes"):
        offset_map.put(*columns, np.array([0]))
    with pytest.raises(CorruptBatchError, match="key is not in the bytes"):
        offset_map.find(*columns, np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize(("size", "load"), [(0, 0.9), (2 * kernels.SLOT_BYTES, 1.0), (2400, 0.0), (2400, 1.1)])
def test_map_without_room_is_refused(size: int, load: float) -> None:
    with pytest.raises(InvalidOptionError, match=r"log\.cleaner"):
        OffsetMap(size, load)


RECORDS = st.lists(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-1, 60)), max_size=6), min_size=1, max_size=12
)


@given(RECORDS, st.integers(-1, 70), st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_records_are_judged_by_the_rule_of_their_batch(
    batches: list[list[tuple[bool, bool, int]]], latest: int, rules: list[int]
) -> None:
    rows = [row for batch in batches for row in batch]
    has_key, has_value, found = zip(*rows, strict=True) if rows else ((), (), ())
    expected: list[bool] = []
    counts: list[list[int]] = []
    offset = 0
    for batch, rule in zip(batches, rules, strict=False):
        kept = tombstones = 0
        for keyed, valued, known in batch:
            is_latest = keyed and offset >= known and (valued or rule != kernels.KEEP_LATEST_VALUES)
            stays = rule == kernels.KEEP_ALL or (rule != kernels.KEEP_NONE and (offset > latest or is_latest))
            expected.append(stays)
            kept += stays
            tombstones += stays and not valued
            offset += 1
        counts.append([kept, tombstones])
    keep = np.zeros(len(rows), dtype=np.uint8)
    told = np.zeros((len(batches), kernels.COUNTS), dtype=np.int64)
    assert kernels.judge_records(
        np.arange(len(rows), dtype=np.int64),
        np.array(has_key, dtype=np.int64) - 1,
        np.array(has_value, dtype=np.int64) - 1,
        np.array(found, dtype=np.int64),
        np.cumsum([len(batch) for batch in batches], dtype=np.int64),
        np.array(rules[: len(batches)], dtype=np.uint8),
        latest,
        keep,
        told,
    )
    assert keep.tolist() == expected
    assert told.tolist() == counts
