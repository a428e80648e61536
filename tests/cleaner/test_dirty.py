"""Which part of a log is dirty, and when it is cleaned."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.cleaner.dirty import DirtySection, dirty_section, legacy_tombstones_end_ms
from sparklog.cleaner.retention import RetainedSegment
from sparklog.log.config import LogConfig

NOW_MS = 1_000_000


def segment(base_offset: int, size_bytes: int, first: int, largest: int, modified_ms: int = 0) -> RetainedSegment:
    return RetainedSegment(base_offset, base_offset + 100, size_bytes, first, largest, modified_ms)


# Four segments of 100 offsets each; the last one is active.
SEGMENTS = [segment(100 * i, 1000 + i, 10_000 * (i + 1), 10_000 * (i + 1) + 9000) for i in range(4)]


def section(checkpoint: int | None = None, stable_offset: int = 350, **config: Any) -> DirtySection:
    return dirty_section(SEGMENTS, 0, 350, stable_offset, checkpoint, LogConfig(**config), NOW_MS)


def test_log_that_was_never_cleaned_is_dirty_up_to_its_active_segment() -> None:
    found = section()
    assert (found.start_offset, found.end_offset) == (0, 300)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (0, 3003, 1.0)


def test_what_was_cleaned_is_not_dirty() -> None:
    found = section(checkpoint=200)
    assert (found.start_offset, found.end_offset) == (200, 300)
    assert (found.clean_bytes, found.dirty_bytes) == (2001, 1002)
    assert found.dirty_ratio == 1002 / 3003


def test_segment_that_the_section_begins_inside_of_counts_for_both() -> None:
    found = section(checkpoint=150)
    assert (found.start_offset, found.clean_bytes, found.dirty_bytes) == (150, 2001, 2003)


@pytest.mark.parametrize("checkpoint", [49, 401, -1])
def test_checkpoint_outside_of_the_log_is_none(checkpoint: int) -> None:
    found = dirty_section(SEGMENTS, 50, 400, 400, checkpoint, LogConfig(), NOW_MS)
    assert (found.start_offset, found.end_offset) == (50, 300)


@pytest.mark.parametrize(("checkpoint", "is_due"), [(300, False), (350, False), (200, True)])
def test_log_without_a_sealed_segment_behind_the_checkpoint_is_not_cleaned(checkpoint: int, is_due: bool) -> None:
    assert section(checkpoint, min_cleanable_dirty_ratio=0.0).is_due(LogConfig(min_cleanable_dirty_ratio=0)) == is_due


@pytest.mark.parametrize(("stable_offset", "end"), [(99, 0), (100, 100), (250, 200), (299, 200), (300, 300)])
def test_nothing_from_the_segment_of_an_open_transaction_on_is_cleaned(stable_offset: int, end: int) -> None:
    assert section(stable_offset=stable_offset).end_offset == end


def test_open_transaction_before_the_checkpoint_leaves_nothing_to_clean() -> None:
    found = section(checkpoint=250, stable_offset=120)
    assert not found.is_due(LogConfig(min_cleanable_dirty_ratio=0))
    assert found.end_offset <= found.start_offset


@pytest.mark.parametrize(
    ("lag_ms", "end"), [(0, 300), (1, 300), (NOW_MS - 39_000, 300), (NOW_MS - 38_999, 200), (NOW_MS, 0)]
)
def test_segment_with_a_young_record_waits_and_so_do_those_behind_it(lag_ms: int, end: int) -> None:
    young = [SEGMENTS[0], SEGMENTS[1], segment(200, 1002, 30_000, 39_000), SEGMENTS[3]]
    found = dirty_section(young, 0, 350, 350, None, LogConfig(min_compaction_lag_ms=lag_ms), NOW_MS)
    assert found.end_offset == end


def test_young_record_in_the_cleaned_part_does_not_matter() -> None:
    young = [segment(0, 1000, 0, NOW_MS), *SEGMENTS[1:]]
    config = LogConfig(min_compaction_lag_ms=1000)
    assert dirty_section(young, 0, 350, 350, 100, config, NOW_MS).end_offset == 300
    assert dirty_section(young, 0, 350, 350, 99, config, NOW_MS).is_due(config) is False


def test_dirty_ratio_must_be_above_the_least() -> None:
    found = section(checkpoint=200)
    assert not found.is_due(LogConfig(min_cleanable_dirty_ratio=found.dirty_ratio))
    assert found.is_due(LogConfig(min_cleanable_dirty_ratio=found.dirty_ratio - 0.001))


@pytest.mark.parametrize(("lag_ms", "is_due"), [(NOW_MS - 30_000, False), (NOW_MS - 30_001, True)])
def test_record_that_has_been_dirty_for_too_long_is_cleaned_whatever_the_ratio(lag_ms: int, is_due: bool) -> None:
    config = LogConfig(max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=1)
    assert section(200, max_compaction_lag_ms=lag_ms).is_due(config) == is_due


def test_batch_without_a_timestamp_is_never_overdue() -> None:
    timeless = [segment(each.base_offset, each.size_bytes, -1, -1) for each in SEGMENTS]
    found = dirty_section(timeless, 0, 350, 350, None, LogConfig(max_compaction_lag_ms=1), NOW_MS)
    assert not found.is_overdue


def test_empty_log_is_never_due() -> None:
    found = dirty_section([], 7, 7, 7, None, LogConfig(), NOW_MS)
    assert (found.end_offset, found.dirty_ratio, found.is_due(LogConfig(min_cleanable_dirty_ratio=0))) == (7, 0, False)


def test_segment_without_timestamps_is_as_old_as_its_file() -> None:
    config = LogConfig(min_compaction_lag_ms=100)
    for modified_ms, end in ((NOW_MS, 100), (NOW_MS - 100, 300)):
        timeless = [SEGMENTS[0], segment(100, 0, -1, -1, modified_ms), *SEGMENTS[2:]]
        assert dirty_section(timeless, 0, 350, 350, None, config, NOW_MS).end_offset == end


def test_old_tombstones_go_by_the_time_of_the_last_cleaned_file() -> None:
    timed = [segment(100 * i, 1000, 1, 1, at) for i, at in enumerate((1000, 3000, 2000, 9000))]
    assert legacy_tombstones_end_ms(timed, section(), 10) == 0
    assert legacy_tombstones_end_ms(timed, section(checkpoint=200), 10) == 2990
    assert legacy_tombstones_end_ms(timed, section(checkpoint=201), 10) == 1990
