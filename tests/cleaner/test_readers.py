"""Readers live beside cleanings: they see all of a log before, between and after the swaps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import DataLossError
from sparklog.log.config import LogConfig
from sparklog.log.reader import LogReader
from sparklog.topic.places.live import LiveLogs
from sparklog.write.partition import LogWriter
from tests.cleaner.logs import ALL, CONFIG, KeepingSome, clean, findings, logs, values, write
from tests.places import folder_at

ROUNDS = 40


def beside(read: Callable[[], None], change: Callable[[int], None], rounds: int = ROUNDS, reads: int = 0) -> int:
    """Read in a thread, again and again, while something is changed, at least so often each; count the reads.

    A change waits for the disk, in which a reader gets on; here no test waits for a disk, and a pause stands for it.
    """
    errors: list[BaseException] = []
    done = threading.Event()
    count = 0

    def again() -> None:
        nonlocal count
        try:
            while not done.is_set():
                read()
                count += 1
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=again)
    reader.start()
    try:
        turn = 0
        while not errors and (turn < rounds or count < reads) and turn < 50 * rounds:
            change(turn)
            time.sleep(0.002)
            turn += 1
    finally:
        done.set()
        reader.join()
    if errors:
        raise errors[0]
    return count


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_reader_sees_all_of_a_log_while_its_segments_are_swapped(tmp_path: Path, delay_ms: int) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    config = replace(CONFIG, file_delete_delay_ms=delay_ms)

    def read() -> None:
        seen = values(folder)
        assert seen == [b"value of %d" % n for n in range(len(seen))]
        assert len(seen) >= 120

    def change(turn: int) -> None:
        # All sealed segments become one, and so it goes on with what is appended.
        config_of = replace(config, segment_bytes=600)
        clean(folder, config=config)
        with LogWriter.open(folder, config_of) as log:
            log.append({"value": [b"value of %d" % (120 + turn)]})

    assert beside(read, change, reads=ROUNDS // 2) >= ROUNDS // 2
    assert findings(folder) == []


def test_log_that_was_opened_before_is_read_after_every_kind_of_swap(tmp_path: Path) -> None:
    """Its layout is of segments that are gone, and of names that other bytes have by now."""
    folder = tmp_path / "events-0"
    write(folder)
    opened = sparklog.open_log(folder)
    half = opened.batches(0, 120, columns=["value"])
    seen = next(half)["value"].to_pylist()
    clean(folder)
    with LogWriter.open(folder, LogConfig(segment_bytes=300)) as log:
        for n in range(120, 160):
            log.append({"value": [b"value of %d" % n]})
    clean(folder)
    assert logs(folder) != [0, 20, 40, 60, 80, 100]
    assert opened.read(columns=["value"])["value"].to_pylist() == ALL
    assert seen + [value for each in half for value in each["value"].to_pylist()] == ALL
    assert opened.offset_for_time(1065) == 65


def test_reader_of_compacted_segments_sees_each_record_once(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    opened = sparklog.open_log(folder)
    clean(folder, KeepingSome(lambda offset: offset % 20 == 0))
    kept = [b"value of %d" % n for n in range(120) if n >= 100 or n // 10 % 2 == 0]
    assert opened.read(columns=["value"])["value"].to_pylist() == kept


def test_retention_is_a_loss_that_is_announced_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    opened = sparklog.open_log(folder)
    sparklog.delete_records(folder, before_offset=50, config=CONFIG)
    with pytest.raises(DataLossError, match=r"offsets \[0, 50\)"):
        opened.read()
    found = [each["value"].to_pylist() for each in opened.batches(columns=["value"], fail_on_data_loss=False)]
    assert [value for each in found for value in each] == ALL[50:]


def test_live_log_has_no_gap_beside_cleanings_but_what_retention_took(tmp_path: Path) -> None:
    """As a stream and ``dump --follow`` look at it: again and again, from where they were."""
    folder = tmp_path / "events-0"
    write(folder)
    live = LiveLogs(is_committed=False)
    seen: list[int] = []
    lost: list[tuple[int, int]] = []

    def read() -> None:
        start = seen[-1] + 1 if seen else 0
        (log,) = live.look([folder_at(folder)]).values()
        if start < log.layout.start_offset:
            lost.append((start, log.layout.start_offset))
            start = log.layout.start_offset
        try:
            for each in LogReader(log.layout).batches(start, log.latest, columns=["offset"]):
                seen.extend(each["offset"].to_pylist())
        except DataLossError:
            # Announced: the next look begins behind it.
            return

    def change(turn: int) -> None:
        with LogWriter.open(folder, replace(CONFIG, segment_bytes=300)) as log:
            end = log.append({"value": [b"x" * 100] * 5})[1] + 1
        clean(folder)
        if turn % 5 == 4:
            sparklog.delete_records(folder, before_offset=end - 40, config=CONFIG)

    beside(read, change)
    read()
    assert seen == sorted(set(seen))
    assert seen[-1] == 120 + 5 * ROUNDS - 1
    gaps = [(before + 1, after) for before, after in pairwise([-1, *seen]) if after != before + 1]
    assert all(any(start <= first and last <= end for start, end in lost) for first, last in gaps)
