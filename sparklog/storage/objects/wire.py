"""Sends requests to object stores by `obstore`, from one thread of this process, each with a deadline.

The library's calls are awaited in an event loop of our own, so that a request can be given up, and so that many can be
under way at a time. After a fork the library hangs for ever: a process that was forked after its parent had sent a
request gets a `StorageError` at its first own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from sparklog.errors import InvalidOptionError, StorageError
from sparklog.storage.process import in_forked_child

_R = TypeVar("_R")

_ANSWER_SECONDS_MAX: Final = 300.0
"""More than the library takes for a request with all retries."""


class _Loop:
    """The event loop of this process, made when it is first needed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_inherited = False

    def running(self) -> asyncio.AbstractEventLoop:
        if self.is_inherited:
            raise StorageError(
                "this process was forked from one that has read from an object store, and connections do not survive "
                "that: start processes by spawn (multiprocessing.get_context('spawn')), or fork before the first read"
            )
        with self.lock:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                threading.Thread(target=self.loop.run_forever, name="sparklog-wire", daemon=True).start()
            return self.loop

    def begin_in_child(self) -> None:
        self.is_inherited = self.is_inherited or self.loop is not None
        self.lock, self.loop = threading.Lock(), None


_loop: Final = _Loop()
in_forked_child(_loop.begin_in_child)


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


def send(ask: Callable[[], Coroutine[Any, Any, _R]]) -> Future[_R]:
    """Begin a request, and return what its answer will be."""
    loop = _loop.running()
    return asyncio.run_coroutine_threadsafe(_within_time(ask), loop)


def answer(ask: Callable[[], Coroutine[Any, Any, _R]]) -> _R:
    """Send a request and wait for its answer; raise `TimeoutError` if there is none in time."""
    return send(ask).result(_ANSWER_SECONDS_MAX + 10)


async def _within_time(ask: Callable[[], Coroutine[Any, Any, _R]]) -> _R:
    return await asyncio.wait_for(ask(), _ANSWER_SECONDS_MAX)
