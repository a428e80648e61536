"""Runs several iterators side by side in threads, and yields their items as they come.

Decoding releases Python's lock for most of its time, so two threads on two cores take little more than half as long as
one. At most `_WAITING_A_THREAD` items per thread wait for the caller; a thread with one more item blocks.
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
    """Yield the items of several iterators; the items of each stay in order.

    Parameters
    ----------
    iterators : sequence of generators
        Each is run and closed by one thread. Iterators that never began are not closed.
    threads : int
        How many run at a time; with 1, or a single iterator, they run one after the other in the caller's thread.

    Yields
    ------
    Item

    Raises
    ------
    SeglogError
        The iteration began in another process, from which this one was forked without its threads. An error of an
        iterator is raised at once, and ends the others.
    """
    threads = min(threads, len(iterators))
    if threads <= 1:
        return (item for iterator in iterators for item in iterator)
    return _side_by_side(iterators, threads)


def _side_by_side(iterators: Sequence[Iterator[Item]], threads: int) -> Iterator[Item]:
    left, process = deque(iterators), process_id()
    done: Queue[Any] = Queue(_WAITING_A_THREAD * threads)
    is_over = threading.Event()
    # A thread that is still running must not keep the interpreter from ending.
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
    """Wait until the threads have ended, and discard the items that they still hand over."""
    for worker in workers:
        while worker.is_alive():
            try:
                done.get(timeout=_LOOKED_EVERY_SECONDS)
            except Empty:
                worker.join(0)
