"""Work that changes nothing: what it finds comes in order, errors in their turn, and no worker stays behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sparklog.errors import CorruptLogError, SeglogError
from sparklog.jobs.run.job import Amount, Report, Unwatched, found_by
from sparklog.jobs.run.local import LocalRunner


@dataclass(frozen=True)
class Count:
    """Counts to a number, and then does what it is told."""

    number: int
    does: str = "well"
    size_bytes: int = 10
    follows: int | None = None

    @property
    def name(self) -> str:
        return f"count to {self.number}"


@dataclass(frozen=True)
class Counts:
    tasks: tuple[Count, ...]
    threads_bytes_max: int = 0

    def plan(self) -> tuple[Count, ...]:
        return self.tasks

    def run(self, task: Count, report: Report) -> Iterator[tuple[int, int]]:
        for each in range(task.number):
            report(Amount(1, 1))
            yield task.number, each
        if task.does == "slow":
            time.sleep(0.5)
        if task.does == "damaged":
            raise CorruptLogError("forty", path="x.log", position=1, offset=2)
        if task.does == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if task.does == "pid":
            yield os.getpid(), 0
        if task.does == "hangs":
            time.sleep(60)


class Tally(Unwatched):
    def __init__(self) -> None:
        self.planned_bytes = self.records = 0

    def planned(self, tasks: int, size_bytes: int) -> None:  # noqa: ARG002
        self.planned_bytes += size_bytes

    def advanced(self, name: str, more: Amount) -> None:
        assert name.startswith("count to ")
        self.records += more.records


def found(processes: int, *tasks: Count, watch: Tally | None = None) -> Iterator[tuple[int, int]]:
    return found_by(Counts(tasks), LocalRunner(processes), watch)


@pytest.mark.parametrize("processes", [1, 3])
def test_what_is_found_comes_in_the_order_of_the_plan_whoever_is_done_first(processes: int) -> None:
    tasks = [Count(number % 7, "slow" if number == 3 else "well") for number in range(40)]
    watch = Tally()
    expected = [(task.number, each) for task in tasks for each in range(task.number)]
    assert list(found(processes, *tasks, watch=watch)) == expected
    assert (watch.planned_bytes, watch.records) == (400, len(expected))
    assert list(found(processes)) == []


def test_work_in_this_thread_gives_what_it_finds_at_once() -> None:
    assert next(found(1, Count(2, "hangs"))) == (2, 0)


@pytest.mark.parametrize("processes", [1, 2])
def test_error_comes_in_its_turn_with_its_place(processes: int) -> None:
    before: list[tuple[int, int]] = []
    tasks = [Count(number, "damaged" if number == 4 else "well") for number in range(9)]
    with pytest.raises(CorruptLogError, match="forty") as caught:
        before.extend(found(processes, *tasks))
    assert before[:6] == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert all(number <= 4 for number, _ in before)
    assert (caught.value.path, caught.value.position, caught.value.offset) == ("x.log", 1, 2)
    assert caught.value.__notes__ == ["in count to 4"]


def test_process_that_is_killed_is_an_error_and_no_endless_wait() -> None:
    # The first task is given to a process of its own, the second to a thread of this one.
    with pytest.raises(SeglogError, match="ended before its time") as caught:
        list(found(2, Count(3, "killed"), Count(1), Count(2)))
    assert caught.value.__notes__ == ["in count to 3"]


def test_no_process_stays_behind_who_stops_early() -> None:
    results = found(3, Count(0, "pid"), Count(0, "hangs"), Count(0), Count(0, "hangs"))
    pid, _ = next(results)
    assert pid != os.getpid()
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
