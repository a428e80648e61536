"""When to roll, to sync and to index: each boundary, on both its sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.config import LogConfig
from sparklog.write import policy
from sparklog.write.policy import ActiveSegment, NextBatch

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
INT_MAX = 2**31 - 1

CONFIG = LogConfig(segment_bytes=1000, segment_ms=DAY_MS, segment_index_bytes=120)
SEGMENT = ActiveSegment(
    base_offset=50,
    size_bytes=400,
    created_ms=NOW_MS,
    first_timestamp=NOW_MS,
    offset_index_entries=3,
    time_index_entries=3,
)
BATCH = NextBatch(batch_bytes=100, last_offset=60, max_timestamp=NOW_MS)

Part = TypeVar("Part", ActiveSegment, NextBatch, LogConfig)


def rolls(**changed: Any) -> bool:
    """Decide with the names given changed, wherever they belong; nothing rolls without."""
    now_ms = changed.pop("now_ms", NOW_MS)
    segment, batch, config = taking(SEGMENT, changed), taking(BATCH, changed), taking(CONFIG, changed)
    assert not changed
    return policy.should_roll(segment, batch, config, now_ms)


def taking(part: Part, changed: dict[str, Any]) -> Part:
    return replace(part, **{name: changed.pop(name) for name in list(changed) if hasattr(part, name)})


def test_nothing_rolls_a_young_small_segment() -> None:
    assert not rolls()


@pytest.mark.parametrize(
    ("last_kept", "first_rolled"),
    [
        pytest.param({"size_bytes": 900}, {"size_bytes": 901}, id="size"),
        pytest.param({"batch_bytes": 600}, {"batch_bytes": 601}, id="size with a large batch"),
        pytest.param({"size_bytes": 0, "batch_bytes": 1000}, {"size_bytes": 0, "batch_bytes": 1001}, id="empty"),
        pytest.param(
            {"max_timestamp": NOW_MS + DAY_MS}, {"max_timestamp": NOW_MS + DAY_MS + 1}, id="time between batches"
        ),
        pytest.param(
            {"max_timestamp": NOW_MS + DAY_MS - 7, "roll_jitter_ms": 7},
            {"max_timestamp": NOW_MS + DAY_MS - 6, "roll_jitter_ms": 7},
            id="time less jitter",
        ),
        pytest.param(
            {"first_timestamp": -1, "now_ms": NOW_MS + DAY_MS},
            {"first_timestamp": -1, "now_ms": NOW_MS + DAY_MS + 1},
            id="clock, where the first batch has no timestamp",
        ),
        pytest.param(
            {"first_timestamp": 0, "max_timestamp": DAY_MS},
            {"first_timestamp": 0, "max_timestamp": DAY_MS + 1},
            id="a timestamp of 0 is one",
        ),
        pytest.param(
            {"cleanup_policy": ("compact",), "max_compaction_lag_ms": 10, "max_timestamp": NOW_MS + 10},
            {"cleanup_policy": ("compact",), "max_compaction_lag_ms": 10, "max_timestamp": NOW_MS + 11},
            id="time of a compacted log",
        ),
        pytest.param({"offset_index_entries": 14}, {"offset_index_entries": 15}, id="offset index full"),
        pytest.param({"time_index_entries": 8}, {"time_index_entries": 9}, id="time index full but for its last entry"),
        pytest.param({"last_offset": 50 + INT_MAX}, {"last_offset": 50 + INT_MAX + 1}, id="relative offset"),
        pytest.param({"last_offset": 50}, {"last_offset": 49}, id="offset below the base"),
    ],
)
def test_segment_rolls_one_past_the_boundary_and_not_at_it(
    last_kept: dict[str, Any], first_rolled: dict[str, Any]
) -> None:
    assert not rolls(**last_kept)
    assert rolls(**first_rolled)


def test_empty_segment_does_not_roll_for_its_age() -> None:
    old = {"first_timestamp": -1, "now_ms": NOW_MS + 10 * DAY_MS}
    assert rolls(**old)
    assert not rolls(**old, size_bytes=0)


def test_clock_does_not_roll_a_segment_whose_batches_have_timestamps() -> None:
    assert not rolls(now_ms=NOW_MS + 10 * DAY_MS)


def test_batch_without_or_with_an_old_timestamp_does_not_roll_by_time() -> None:
    assert not rolls(max_timestamp=-1)
    assert not rolls(max_timestamp=NOW_MS - 10 * DAY_MS)


def test_compaction_lag_rolls_compacted_logs_only() -> None:
    config = LogConfig(segment_ms=DAY_MS, max_compaction_lag_ms=10)
    assert policy.roll_after_ms(config) == DAY_MS
    assert policy.roll_after_ms(replace(config, cleanup_policy=("delete", "compact"))) == 10
    assert policy.roll_after_ms(replace(config, cleanup_policy=("compact",), segment_ms=9)) == 9


def test_index_with_no_room_for_an_entry_rolls_at_every_batch() -> None:
    assert rolls(segment_index_bytes=4, offset_index_entries=0, time_index_entries=0)


NUMBERS = st.integers(0, 2**63 - 1)


@given(segment_ms=st.integers(1, 2**63 - 1), jitter_ms=NUMBERS, number=NUMBERS)
def test_jitter_is_below_both_its_own_bound_and_the_roll_time(segment_ms: int, jitter_ms: int, number: int) -> None:
    config = LogConfig(segment_ms=segment_ms, segment_jitter_ms=jitter_ms)
    jitter = policy.roll_jitter_ms(config, number)
    assert 0 <= jitter < max(1, min(segment_ms, jitter_ms))


@pytest.mark.parametrize(
    ("unflushed_records", "waited_ms", "flushes"),
    [
        (0, 0, False),
        (0, 10**9, False),
        (9, 499, False),
        (10, 0, True),
        (11, 0, True),
        (1, 500, True),
        (1, -5, False),
    ],
)
def test_log_is_synced_after_so_many_records_or_so_long(unflushed_records: int, waited_ms: int, flushes: bool) -> None:
    config = LogConfig(flush_messages=10, flush_ms=500)
    assert policy.should_flush(unflushed_records, NOW_MS, config, NOW_MS + waited_ms) is flushes


def test_log_is_left_to_the_operating_system_by_default() -> None:
    assert not policy.should_flush(10**12, 0, LogConfig(), NOW_MS)


def test_index_entry_comes_after_more_than_the_interval() -> None:
    def rows(sizes: list[int], since: int, interval: int) -> tuple[list[int], int]:
        found, after = policy.index_entry_rows(np.array(sizes, dtype=np.int64), since, interval)
        return found.tolist(), after

    assert rows([100], 0, 4096) == ([], 100)
    assert rows([100], 4096, 4096) == ([], 4196)
    assert rows([100], 4097, 4096) == ([0], 100)
    assert rows([4096, 1, 5000, 1], 0, 4096) == ([2, 3], 1)
    assert rows([1, 1, 1], 0, 0) == ([1, 2], 1)
