"""Work in several processes: results in order, errors in their turn, and no process that stays behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.errors import CorruptLogError, SeglogError
from sparklog.inspect.describe import describe_partitions
from sparklog.inspect.side_by_side import side_by_side
from sparklog.inspect.verify import verify_directory, verify_partitions
from tests.build import Record, v2_batch

PROCESSES = 2


def count_to(number: int) -> Iterator[tuple[int, int]]:
    for each in range(number % 7):
        yield number, each


def fail_at_forty(number: int) -> Iterator[int]:
    yield number
    if number == 40:
        raise CorruptLogError("forty", path="x.log", position=1, offset=2)


def kill_itself_at_forty(number: int) -> Iterator[int]:
    if number == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    yield number


def count_without_end(number: int) -> Iterator[int]:
    while True:
        yield number


def test_results_come_in_the_order_of_the_items_whoever_is_done_first() -> None:
    items = list(range(150))
    expected = [result for item in items for result in count_to(item)]
    assert list(side_by_side(count_to, items, PROCESSES)) == list(side_by_side(count_to, items, 1)) == expected
    assert list(side_by_side(count_to, [], PROCESSES)) == []


def test_an_error_comes_in_its_turn_with_its_place() -> None:
    found: list[int] = []
    with pytest.raises(CorruptLogError, match="forty") as caught:
        found.extend(side_by_side(fail_at_forty, range(100), PROCESSES))
    assert found == list(range(41))
    assert (caught.value.path, caught.value.position, caught.value.offset) == ("x.log", 1, 2)


def test_a_process_that_is_killed_is_an_error_and_no_endless_wait() -> None:
    with pytest.raises(SeglogError, match="ended from outside"):
        list(side_by_side(kill_itself_at_forty, range(100), PROCESSES))


def test_no_process_stays_behind_who_stops_early() -> None:
    results = side_by_side(count_without_end, range(100), PROCESSES)
    assert next(results) == 0
    assert len(multiprocessing.active_children()) == PROCESSES
    results.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


def test_processes_describe_and_verify_as_one_does(tmp_path: Path) -> None:
    for number in range(40):
        folder = tmp_path / f"events-{number}"
        folder.mkdir()
        batch = v2_batch([Record(row, 0, b"k", b"v" * number) for row in range(number + 1)], base_offset=0)
        damaged = batch[:-1] + bytes([batch[-1] ^ 1]) if number % 3 == 0 else batch
        (folder / "00000000000000000000.log").write_bytes(damaged + batch[: number % 5])
    folders = [str(path) for path in sorted(tmp_path.iterdir())]
    assert list(describe_partitions(folders, processes=PROCESSES)) == list(describe_partitions(folders))
    assert list(verify_partitions(folders, processes=PROCESSES)) == list(verify_partitions(folders))
    events = list(verify_directory(str(tmp_path), processes=PROCESSES))
    assert events == list(verify_directory(str(tmp_path)))
    assert len(events) > len(folders)
