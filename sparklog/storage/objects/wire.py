"""Sends requests to object stores by `obstore`, from threads of this process, each with a deadline.

The library's calls block; they run in threads of our own, so that many can be under way, and so that one that gets no
answer can be given up. The library's asynchronous calls are not used: a request that ends while the interpreter does
would abort the process. After a fork the library hangs for ever: a process that was forked after its parent had sent a
request gets a `StorageError` at its first own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from sparklog.errors import InvalidOptionError, StorageError
from sparklog.storage.process import at_exit, in_forked_child

_R = TypeVar("_R")

_ANSWER_SECONDS_MAX: Final = 300.0
"""More than the library takes for a request with all retries."""
_END_SECONDS_MAX: Final = 5.0
_THREADS_MAX: Final = 64


class _Threads:
    """The threads of this process that send requests, made when they are first needed.

    They are daemons: a request without an answer keeps no process from ending.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self.count = self.busy = 0
        self.is_inherited = False

    def send(self, ask: Callable[[], _R]) -> Future[_R]:
        if self.is_inherited:
            raise StorageError(
                "this process was forked from one that has read from an object store, and connections do not survive "
                "that: start processes by spawn (multiprocessing.get_context('spawn')), or fork before the first read"
            )
        coming: Future[_R] = Future()
        with self.lock:
            self.busy += 1
            if self.busy > self.count and self.count < _THREADS_MAX:
                self.count += 1
                threading.Thread(target=self._work, name="sparklog-wire", daemon=True).start()
        self.asked.put((coming, ask))
        return coming

    def _work(self) -> None:
        while True:
            coming, ask = self.asked.get()
            try:
                if coming.set_running_or_notify_cancel():
                    coming.set_result(_within_time(ask))
            except BaseException as error:
                coming.set_exception(error)
            finally:
                with self.lock:
                    self.busy -= 1
                # Otherwise this thread would keep the answer until the next request comes.
                del coming, ask

    def begin_in_child(self) -> None:
        is_inherited = self.is_inherited or self.count > 0
        self.__init__()  # type: ignore[misc]
        self.is_inherited = is_inherited

    def end(self) -> None:
        """Wait for requests under way: one that ends together with the interpreter would abort the process."""
        deadline = time.monotonic() + _END_SECONDS_MAX
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.005)


_threads: Final = _Threads()
in_forked_child(_threads.begin_in_child)
at_exit(_threads.end)


def library() -> Any:
    """Return `obstore`; raise `InvalidOptionError` if it is not installed."""
    try:
        # Optional, and not needed for directories of this machine.
        import obstore
        import obstore.exceptions
        import obstore.store
    except ModuleNotFoundError as error:
        raise InvalidOptionError(
            "a path in an object store needs the library obstore: pip install 'sparklog[cloud]'"
        ) from error
    return obstore


def send(ask: Callable[[], _R]) -> Future[_R]:
    """Begin a request, and return what its answer will be."""
    return _threads.send(ask)


def answer(ask: Callable[[], _R]) -> _R:
    """Send a request and wait for its answer; raise `TimeoutError` if there is none in time."""
    return send(ask).result(_ANSWER_SECONDS_MAX)


def _within_time(ask: Callable[[], _R]) -> _R:
    """Send a request in this thread; tests put a slow wire here."""
    return ask()
