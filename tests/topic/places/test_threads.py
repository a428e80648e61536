"""Iterators side by side: order, bounds, errors, early ends and forks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from sparklog.errors import SeglogError
from sparklog.topic.places.threads import merged


def numbers(source: int, count: int, seen: list[int] | None = None) -> Iterator[tuple[int, int]]:
    for n in range(count):
        if seen is not None:
            seen.append(n)
        yield source, n


def workers() -> int:
    return threading.active_count() - 1


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_items_of_each_come_once_and_in_their_order(threads: int) -> None:
    before = workers()
    found = list(merged([numbers(source, 50 * source) for source in range(6)], threads))
    assert sorted(found) == [(source, n) for source in range(6) for n in range(50 * source)]
    for source in range(6):
        assert [n for each, n in found if each == source] == list(range(50 * source))
    assert workers() == before
    if threads == 1:
        assert found == sorted(found)


def test_thread_does_not_run_ahead_of_who_takes_its_items() -> None:
    seen: tuple[list[int], list[int]] = ([], [])
    items = merged([numbers(n, 1000, seen[n]) for n in range(2)], 2)
    next(items)
    time.sleep(0.2)
    # Of each thread two items wait, and one more is in its hand; one was taken.
    assert len(seen[0]) + len(seen[1]) <= 2 * 3 + 1
    items.close()  # type: ignore[attr-defined]


def test_error_is_raised_behind_the_items_before_it_and_ends_the_others() -> None:
    def failing() -> Iterator[tuple[int, int]]:
        yield 7, 0
        raise ValueError("no more")

    before, found = workers(), list[tuple[int, int]]()
    with pytest.raises(ValueError, match="no more"):
        found.extend(merged([failing(), numbers(1, 10_000)], 2))
    assert (7, 0) in found
    assert workers() == before


@pytest.mark.parametrize("how", ["close", "forget", "raise"])
def test_threads_end_with_the_iterator_and_close_what_they_run(how: str) -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    before = workers()
    items = merged([endless(), endless()], 2)
    assert next(items) == 1
    assert workers() > before
    if how == "close":
        items.close()  # type: ignore[attr-defined]
    elif how == "forget":
        del items
    else:
        with pytest.raises(KeyboardInterrupt):
            items.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert workers() == before
    assert closed.is_set()


def test_nothing_runs_before_the_first_item_is_asked_for() -> None:
    seen: list[int] = []
    items = merged([numbers(0, 5, seen), numbers(1, 5, seen)], 2)
    assert not seen
    del items
    assert not seen


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_process_is_told_that_the_threads_are_not_there() -> None:
    items = merged([numbers(0, 1000), numbers(1, 1000)], 2)
    next(items)
    child = os.fork()
    if not child:
        try:
            next(items)
        except SeglogError as error:
            os._exit(0 if "begin one here" in error.message else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(items)) == 1999
