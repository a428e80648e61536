"""Offsets by time: each look finds what a walk through all records finds, and reads only what is new."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError
from sparklog.log.reader import open_log
from tests.build import Record, offset_checkpoint, v2_batch, write_partition
from tests.growth import Work, counted_work

BATCH_BYTES = len(v2_batch([Record(0, 1000, None, b"v")] * 2))
TIMES = st.integers(1000, 1012)


def batch(base_offset: int, times: tuple[int, ...]) -> bytes:
    records = [Record(row, timestamp, None, b"v") for row, timestamp in enumerate(times)]
    return v2_batch(records, base_offset=base_offset)


def write_log(folder: Path, times: list[tuple[int, int]], per_segment: int = 2, base_offset: int = 0) -> None:
    """Write batches of two records each, some in a segment, and let all of it be old."""
    batches = [batch(base_offset + 2 * row, pair) for row, pair in enumerate(times)]
    write_partition(
        folder, batches, base_offset=base_offset, segment_bytes=per_segment * BATCH_BYTES, index_interval_bytes=1
    )
    age(folder)


def age(folder: Path) -> None:
    """Let what has just been written be old, each change of a file with a time of its own."""
    for each in [*folder.iterdir(), folder]:
        found = each.stat()
        if time.time() - found.st_mtime < 30:
            os.utime(each, ns=(found.st_atime_ns, found.st_mtime_ns - 60_000_000_000))


def walked(folder: Path, time_ms: int) -> int | None:
    with open_log(folder) as log:
        rows = log.read(columns=["offset", "timestamp"]).to_pylist()
    return next((row["offset"] for row in rows if round(row["timestamp"].timestamp() * 1000) >= time_ms), None)


def looked(folder: Path, time_ms: int) -> int | None:
    with open_log(folder) as log:
        found = log.offset_for_time(time_ms)
        # A filter begins its read by the same knowledge.
        wanted = log.read(columns=["offset"], where=f"timestamp >= '{datetime.fromtimestamp(time_ms / 1000, UTC)}'")
    assert min(wanted["offset"].to_pylist(), default=None) == found
    return found


def sealed(folder: Path, row: int = 0) -> Path:
    return sorted(folder.glob("*.log"))[row]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "clean", "regrow", "again", "start", "no index", "bad index", "look"]),
        st.integers(0, 5),
        st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=6),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(STEPS, st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=12), st.lists(TIMES, min_size=2, max_size=4))
def test_every_look_finds_what_a_walk_finds(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, list[tuple[int, int]]]],
    times: list[tuple[int, int]],
    asked: list[int],
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    folder = directory / "t-0"
    write_log(folder, times)
    for step, number, added in steps:
        segments = sorted(folder.glob("*.log"))
        chosen = segments[number % len(segments)]
        if step == "append":
            with open_log(folder) as log:
                end = log.end_offset
            write_log(folder, added, base_offset=end + end % 2)
        elif step == "clean" and len(segments) > 1:
            # A cleaner replaces a sealed segment by one without its first batch.
            rest = segments[0].read_bytes()[BATCH_BYTES:]
            for each in folder.glob(f"{segments[0].stem}.*"):
                each.unlink()
            segments[0].write_bytes(rest)
        elif step == "regrow":
            # Cut back to the chosen segment, which then grows to the same size with other records.
            size = chosen.stat().st_size
            for each in folder.iterdir():
                if each.stem >= chosen.stem and each != chosen:
                    each.unlink()
            base = int(chosen.stem)
            with chosen.open("r+b") as log_file:
                log_file.truncate(0)
                for row in range(size // BATCH_BYTES):
                    log_file.write(batch(base + 2 * row, added[row % len(added)]))
            with open_log(folder) as log:
                write_log(folder, added, base_offset=log.end_offset)
        elif step == "again":
            shutil.rmtree(folder)
            write_log(folder, added)
        elif step == "start":
            with open_log(folder) as log:
                start = min(number, log.end_offset)
            (directory / "log-start-offset-checkpoint").write_text(offset_checkpoint({("t", 0): start}))
        elif step == "no index":
            chosen.with_suffix(".timeindex").unlink(missing_ok=True)
        elif step == "bad index" and chosen.with_suffix(".timeindex").exists():
            data = bytearray(chosen.with_suffix(".timeindex").read_bytes())
            if data:
                data[number % len(data)] ^= 1 << number
            chosen.with_suffix(".timeindex").write_bytes(data)
        age(folder)
        for time_ms in asked:
            assert looked(folder, time_ms) == walked(folder, time_ms)


def _cleaned(folder: Path) -> None:
    cleaned = sealed(folder).with_suffix(".log.cleaned")
    cleaned.write_bytes(batch(0, (50, 1)) + batch(2, (1, 1)))
    cleaned.rename(sealed(folder))


def _regrown(folder: Path) -> None:
    with sealed(folder).open("r+b") as log:
        log.truncate(0)
        log.write(batch(0, (50, 1)) + batch(2, (1, 1)))


def _made_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    write_log(folder, [(50, 1), (1, 1), *[(1, 1)] * 8])


def _restored(folder: Path) -> None:
    older = sealed(folder).with_suffix(".bak")
    older.write_bytes(batch(0, (50, 1)) + batch(2, (1, 1)))
    os.utime(older, ns=(0, sealed(folder).stat().st_mtime_ns - 10**15))
    older.rename(sealed(folder))


@pytest.mark.parametrize("change", [_cleaned, _regrown, _made_anew, _restored], ids=lambda change: change.__name__)
def test_largest_time_of_a_file_that_was_replaced_is_forgotten(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, [(1, 1)] * 10)
    size = sealed(folder).stat().st_size
    assert [looked(folder, each) for each in (2, 1, 50)] == [None, 0, None]
    change(folder)
    for suffix in (".index", ".timeindex"):
        sealed(folder).with_suffix(suffix).unlink(missing_ok=True)
    assert sealed(folder).stat().st_size == size
    assert looked(folder, 50) == 0
    age(folder)
    assert [looked(folder, each) for each in (2, 1, 50)] == [0, 0, 0]


def test_young_file_is_looked_at_again(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, [(1, 1)] * 10)
    stamp = sealed(folder).stat().st_mtime_ns + 60_000_000_000
    os.utime(sealed(folder), ns=(stamp, stamp))
    assert looked(folder, 50) is None
    sealed(folder).with_suffix(".timeindex").unlink()
    sealed(folder).write_bytes(batch(0, (50, 1)) + batch(2, (1, 1)))
    # The clock of the file system has not ticked since.
    os.utime(sealed(folder), ns=(stamp, stamp))
    assert looked(folder, 50) == 0


def test_segment_with_a_cut_end_is_refused_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, [(1, 1)] * 10, per_segment=4)
    os.truncate(sealed(folder), 3 * BATCH_BYTES)
    age(folder)
    for _ in range(2):
        with pytest.raises(CorruptBatchError, match="batches are missing at its end"):
            looked(folder, 50)


@pytest.mark.parametrize("time_ms", [40, 50])
def test_second_look_up_works_the_same_in_a_log_of_many_segments(tmp_path: Path, time_ms: int) -> None:
    found = list[Work]()
    for count in (10, 30, 90):
        folder = tmp_path / f"t-{count}"
        write_log(folder, [*[(1, 1)] * 2 * count, (1, 40), (1, 1), (1, 1)])
        with open_log(folder) as log:
            log.offset_for_time(time_ms)
        with open_log(folder) as log, counted_work() as work:
            assert log.offset_for_time(time_ms) == (4 * count + 1 if time_ms == 40 else None)
        found.append(work)
    assert found[0] == found[1] == found[2]


def test_look_up_reads_only_segments_that_none_has_read(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, [(1, 1)] * 100)
    with open_log(folder) as log, counted_work() as first:
        log.offset_for_time(50)
    write_log(folder, [(1, 1)] * 4, base_offset=200)
    with open_log(folder) as log, counted_work() as second:
        assert log.offset_for_time(50) is None
    assert second.calls * 10 < first.calls
