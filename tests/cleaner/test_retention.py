"""Which segments a log loses, by Kafka's rules and by those of a policy of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.cleaner.opened import open_to_look
from sparklog.cleaner.retention import KafkaRetention, LogDescription, RetainedSegment, dropped_by
from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from tests.build import Record, v2_batch, write_partition
from tests.cleaner.logs import NOW_MS, write
from tests.places import folder_at

HOUR_MS = 3_600_000


def described(
    *hours_old: float | None, config: LogConfig | None = None, start_offset: int = 0, active_bytes: int = 100
) -> LogDescription:
    """A log of segments of ten offsets and 100 bytes, so many hours old; of None no record has a timestamp."""
    segments = tuple(
        RetainedSegment(
            base_offset=10 * n,
            end_offset=10 * n + 10,
            size_bytes=100,
            first_timestamp=-1,
            largest_timestamp=-1 if hours is None else NOW_MS - int(hours * HOUR_MS),
            modified_ms=NOW_MS - 5 * HOUR_MS,
        )
        for n, hours in enumerate(hours_old)
    )
    last = replace(segments[-1], is_active=True, size_bytes=active_bytes)
    return LogDescription(
        "events", 0, start_offset, 10 * len(segments), (*segments[:-1], last), config or LogConfig(), NOW_MS
    )


def dropped(log: LogDescription) -> list[int]:
    return [each.base_offset for each in dropped_by(KafkaRetention(), log)]


HOURS = LogConfig(retention_ms=2 * HOUR_MS)


def test_segments_that_are_too_old_go_up_to_the_first_that_is_not() -> None:
    assert dropped(described(4, 3, 1, 3, 0, config=HOURS)) == [0, 10]
    assert dropped(described(2, 1, config=HOURS)) == []
    assert dropped(described(2.001, 1, config=HOURS)) == [0]


def test_timestamp_in_the_future_keeps_a_segment_and_those_after_it() -> None:
    assert dropped(described(4, -1, 4, 0, config=HOURS)) == [0]


def test_segment_without_timestamps_goes_by_the_time_of_its_file() -> None:
    assert dropped(described(None, None, 1, config=HOURS)) == [0, 10]
    assert dropped(described(None, 1, config=LogConfig(retention_ms=6 * HOUR_MS))) == []


def test_last_segment_goes_too_where_all_of_a_log_is_old_unless_it_is_empty() -> None:
    assert dropped(described(4, 3, 3, config=HOURS)) == [0, 10, 20]
    assert dropped(described(4, 3, 3, config=HOURS, active_bytes=0)) == [0, 10]


def test_log_stays_at_least_as_large_as_its_limit() -> None:
    assert dropped(described(0, 0, 0, 0, config=LogConfig(retention_bytes=250))) == [0]
    assert dropped(described(0, 0, 0, 0, config=LogConfig(retention_bytes=200))) == [0, 10]
    assert dropped(described(0, 0, 0, 0, config=LogConfig(retention_bytes=0))) == [0, 10, 20, 30]
    assert dropped(described(0, 0, 0, 0, config=LogConfig(retention_bytes=-1))) == []


def test_size_counts_what_is_left_before_the_age_does() -> None:
    config = LogConfig(retention_bytes=200, retention_ms=2 * HOUR_MS)
    assert dropped(described(0, 0, 3, 0, config=config)) == [0, 10, 20]


def test_what_is_before_the_log_start_goes_under_every_policy() -> None:
    for policy in (("compact",), (), ("delete",)):
        assert dropped(described(0, 0, 0, config=LogConfig(cleanup_policy=policy), start_offset=20)) == [0, 10]
    compacted = LogConfig(cleanup_policy=("compact",), retention_ms=2 * HOUR_MS)
    assert dropped(described(4, 4, 4, config=compacted, start_offset=15)) == [0]
    # The last segment has no next one that begins at or before the log start.
    assert dropped(described(0, 0, 0, config=LogConfig(cleanup_policy=("compact",)), start_offset=30)) == [0, 10]


class KeepsTwo:
    """A policy of a user's own."""

    def drop(self, log: LogDescription) -> Iterable[RetainedSegment]:
        return log.segments[:-2]


class LeavesAGap:
    def drop(self, log: LogDescription) -> Iterable[RetainedSegment]:
        return log.segments[1:2]


def test_policy_of_the_users_own_says_what_goes() -> None:
    assert [each.base_offset for each in dropped_by(KeepsTwo(), described(0, 0, 0, 0))] == [0, 10]


def test_policy_that_would_leave_a_gap_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"LeavesAGap would drop segments of events at \[10\]"):
        dropped_by(LeavesAGap(), described(0, 0, 0, 0))


def test_segments_are_described_by_their_indexes_and_ends(tmp_path: Path) -> None:
    write(tmp_path / "events-0")
    found = open_to_look(folder_at(tmp_path / "events-0"), LogConfig(), NOW_MS).describe()
    assert [(each.base_offset, each.end_offset, each.largest_timestamp) for each in found.segments] == [
        (base, base + 20, 1000 + base + 19) for base in range(0, 120, 20)
    ]
    assert [each.first_timestamp for each in found.segments] == [1000 + base for base in range(0, 120, 20)]
    assert [each.is_active for each in found.segments] == [False] * 5 + [True]


@pytest.mark.parametrize("damage", ["gone", "empty", "of another log", "cut"])
def test_largest_timestamp_is_right_whatever_the_time_index_says(tmp_path: Path, damage: str) -> None:
    """A retention that believed it would drop what is young."""
    folder = tmp_path / "events-0"
    times = [5000, 9000, 2000, 3000, 1000]
    write_partition(
        folder,
        [v2_batch([Record(0, timestamp=time, value=b"x" * 100)], base_offset=n) for n, time in enumerate(times)],
        index_interval_bytes=100,
    )
    index = folder / "00000000000000000000.timeindex"
    content = index.read_bytes()
    index.unlink()
    if damage != "gone":
        wrong = {"empty": b"", "of another log": (77).to_bytes(8, "big") + bytes(4), "cut": content[:12]}[damage]
        index.write_bytes(wrong)
    (segment,) = open_to_look(folder_at(folder), LogConfig(), NOW_MS).describe().segments
    assert segment.largest_timestamp == 9000
