"""Runs several iterators side by side in threads, and gives what they give as it comes.

Decoding leaves Python's lock alone for most of its time, so that two threads on two cores take little more than half
as long as one. At most `_WAITING_A_THREAD` items wait for the caller per thread; a thread that has another one waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any, Final, TypeVar

from sparklog.errors import SeglogError
from sparklog.storage.process import process_id

Item = TypeVar("Item")

_WAITING_A_THREAD: Final = 2
_LOOKED_EVERY_SECONDS: Final = 0.05


@dataclass(frozen=True)
class _End:
    """The end of a thread, and the error that ended it."""

    error: BaseException | None = None


def merged(iterators: Sequence[Iterator[Item]], threads: int) -> Iterator[Item]:
    """Give the items of several iterators, those of each in their order.

    Parameters
    ----------
    iterators : sequence of generators
        Each is run and closed by one thread. Those that were never begun are closed by nobody.
    threads : int
        How many run at a time; with 1, or with a single iterator, one after the other, while the caller asks.

    Yields
    ------
    Item

    Raises
    ------
    SeglogError
        Another process began to iterate, and this one was forked from it: its threads are not here. What an iterator
        raises is raised at once, after which the others are ended.
    """
    threads = min(threads, len(iterators))
    if threads <= 1:
        return (item for iterator in iterators for item in iterator)
    return _side_by_side(iterators, threads)


def _side_by_side(iterators: Sequence[Iterator[Item]], threads: int) -> Iterator[Item]:
    left, process = deque(iterators), process_id()
    done: Queue[Any] = Queue(_WAITING_A_THREAD * threads)
    is_over = threading.Event()
    # What is left of a thread when the interpreter ends must not keep it from ending.
    workers = [threading.Thread(target=_work, args=(left, done, is_over), daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        while threads:
            if process != process_id():
                raise SeglogError(f"process {process} began this read, and its threads are there: begin one here")
            item = done.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                threads -= 1
    finally:
        is_over.set()
        if process == process_id():
            _end(workers, done)


def _work(left: deque[Iterator[Any]], done: Queue[Any], is_over: threading.Event) -> None:
    error: BaseException | None = None
    try:
        while not is_over.is_set():
            try:
                iterator = left.popleft()
            except IndexError:
                break
            with closing(iterator):  # type: ignore[type-var]
                for item in iterator:
                    done.put(item)
                    if is_over.is_set():
                        return
    except BaseException as raised:
        error = raised
    finally:
        done.put(_End(error))


def _end(workers: list[threading.Thread], done: Queue[Any]) -> None:
    """Wait until threads have ended that were told to; what they wait to hand over is thrown away."""
    for worker in workers:
        while worker.is_alive():
            try:
                done.get(timeout=_LOOKED_EVERY_SECONDS)
            except Empty:
                worker.join(0)
