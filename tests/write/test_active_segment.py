"""What appending makes of the end of a log: compared batch by batch with an obvious loop, and with brokers' indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.config import LogConfig
from sparklog.log.files import OFFSET_INDEX, TIME_INDEX
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY, read_entries
from sparklog.log.segment import Segment
from sparklog.log.segment_listing import list_segments
from sparklog.storage.local import LocalStorage
from sparklog.write.active_segment import (
    ActiveSegmentState,
    BatchRun,
    append_run,
    fits,
    new_segment,
    rows_before_roll,
    seal,
)
from sparklog.write.policy import NextBatch, should_roll
from tests.golden import golden_set
from tests.places import folder_at

CONFIG = LogConfig(segment_bytes=4000, segment_index_bytes=120, index_interval_bytes=500, segment_ms=1000)
NOW_MS = 10_000
BATCHES = st.lists(
    st.tuples(st.integers(61, 900), st.integers(1, 30), st.sampled_from([-1, *range(5000, 7000, 250)])),
    min_size=1,
    max_size=30,
)


def run_of(batches: list[tuple[int, int, int]], base_offset: int = 0) -> BatchRun:
    sizes, counts, times = (np.array(column, dtype=np.int64) for column in zip(*batches, strict=True))
    return BatchRun(sizes, base_offset - 1 + np.cumsum(counts), times)


def obvious(batches: list[tuple[int, int, int]], interval_bytes: int) -> tuple[list[tuple[int, int]], ...]:
    """Kafka's append, a batch at a time."""
    offsets, times = [], []
    position = since = offset = 0
    latest, latest_offset, last_entry = -1, -1, -1
    for size, count, timestamp in batches:
        last = offset + count - 1
        if timestamp > latest:
            latest, latest_offset = timestamp, last
        if since > interval_bytes:
            offsets.append((last, position))
            if latest > last_entry:
                times.append((latest, latest_offset))
                last_entry = latest
            since = 0
        position, since, offset = position + size, since + size, last + 1
    closing = [(latest, latest_offset)] if latest > last_entry else []
    return offsets, times, closing


@given(BATCHES, st.integers(0, 30))
def test_entries_are_those_of_an_append_at_a_time(batches: list[tuple[int, int, int]], cut: int) -> None:
    """However a run is cut into appends."""
    offsets, times, closing = obvious(batches, CONFIG.index_interval_bytes)
    tail, run = new_segment(0, NOW_MS), run_of(batches)
    found_offsets = found_times = b""
    for part in (run[:cut], run[cut:]):
        tail, more_offsets, more_times = append_run(tail, part, CONFIG)
        found_offsets, found_times = found_offsets + more_offsets, found_times + more_times
    assert np.frombuffer(found_offsets, OFFSET_ENTRY).tolist() == offsets
    assert np.frombuffer(found_times, TIME_ENTRY).tolist() == times
    assert np.frombuffer(seal(tail)[1], TIME_ENTRY).tolist() == closing
    assert seal(seal(tail)[0])[1] == b""
    assert tail.end_offset == sum(count for _, count, _ in batches)
    assert tail.segment.size_bytes == sum(size for size, _, _ in batches)
    assert (tail.offset_index_bytes, tail.time_index_bytes) == (len(found_offsets), len(found_times))
    assert tail.segment.first_timestamp == batches[0][2]


@given(BATCHES, BATCHES)
def test_run_is_rolled_before_the_batch_that_would_roll_it_alone(
    before: list[tuple[int, int, int]], batches: list[tuple[int, int, int]]
) -> None:
    start, _, _ = append_run(new_segment(0, NOW_MS), run_of(before), CONFIG)
    run = run_of(batches, start.end_offset)
    rows = rows_before_roll(start, run, CONFIG, NOW_MS)
    tail = start
    for row in range(rows):
        assert not should_roll(tail.segment, batch_of(run, row), CONFIG, NOW_MS)
        tail, _, _ = append_run(tail, run[row : row + 1], CONFIG)
    assert rows == len(run) or should_roll(tail.segment, batch_of(run, rows), CONFIG, NOW_MS)
    assert not fits(start, run, CONFIG, NOW_MS) or rows == len(run)


def batch_of(run: BatchRun, row: int) -> NextBatch:
    return NextBatch(int(run.batch_bytes[row]), int(run.last_offsets[row]), int(run.max_timestamps[row]))


def test_empty_segment_takes_a_batch_that_a_new_one_would_not_take_better() -> None:
    run = run_of([(CONFIG.segment_bytes + 1, 1, -1), (100, 1, -1)])
    assert rows_before_roll(new_segment(0, NOW_MS), run, CONFIG, NOW_MS) == 1


def test_segment_far_behind_the_offset_is_rolled() -> None:
    assert rows_before_roll(new_segment(0, NOW_MS), run_of([(100, 1, -1)], 1 << 31), CONFIG, NOW_MS) == 1
    one = ActiveSegmentState(new_segment(0, NOW_MS).segment, 1 << 31)
    assert rows_before_roll(one, run_of([(100, 1, -1)], 1 << 31), CONFIG, NOW_MS) == 0


def test_indexes_of_the_newest_broker_are_made_again_byte_by_byte() -> None:
    """It appends a batch at a time, and these topics have index.interval.bytes of 768."""
    logs = golden_set("v2-codecs").log_dir
    folders = sorted(path for path in logs.iterdir() if path.is_dir() and not path.name.startswith("__"))
    assert sum(entries_again(segment) for folder in folders for segment in segments(folder)) > 20


def segments(folder: Path) -> tuple[Segment, ...]:
    return list_segments(folder_at(folder))


def entries_again(segment: Segment) -> int:
    """Compare the indexes of a segment with those made from its batches; how many entries there are."""
    tail, offsets, times = new_segment(segment.base_offset, NOW_MS), b"", b""
    config = LogConfig(index_interval_bytes=768)
    with segment.open() as log:
        for window in log.windows(log.start):
            tail, more_offsets, more_times = append_run(tail, BatchRun.from_headers(window.headers), config)
            offsets, times = offsets + more_offsets, times + more_times
    assert entries(segment, OFFSET_INDEX, OFFSET_ENTRY) == offsets
    assert entries(segment, TIME_INDEX, TIME_ENTRY) == times + seal(tail)[1]
    return tail.segment.offset_index_entries


def entries(segment: Segment, suffix: str, layout: np.dtype[Any]) -> bytes:
    with LocalStorage().open(segment.path(suffix)) as index:
        return read_entries(index, layout).tobytes()
