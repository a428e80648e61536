"""A look: a span of time in which a remote storage may answer again what it was asked before.

Planning a read asks a storage again and again for the names in the same folders. On a disk that costs microseconds; a
remote storage takes tens of milliseconds for each answer. So whoever looks at many logs begins a look, in which a
remote storage remembers its listings; they are forgotten where the look ends, and the next one lists again. A look
within a look is the same one. The threads of `map_at_once` share it; other threads and processes have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final, TypeVar

from sparklog.storage.base import Storage

_AT_ONCE_MAX: Final = 32
"""How many threads ask a remote storage."""

_I = TypeVar("_I")
_R = TypeVar("_R")

_look: ContextVar[dict[Any, Any] | None] = ContextVar("look", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """Let remote storages answer from what they have listed since the look began."""
    if _look.get() is not None:
        yield
        return
    token = _look.set({})
    try:
        yield
    finally:
        _look.reset(token)


@contextmanager
def another_look() -> Iterator[None]:
    """Begin a look of its own, also within another one: things may have changed since that began."""
    token = _look.set({})
    try:
        yield
    finally:
        _look.reset(token)


def seen() -> dict[Any, Any] | None:
    """Return what remote storages remember of the present look; None if there is no look."""
    return _look.get()


def map_at_once(do: Callable[[_I], _R], items: Iterable[_I], storages: Iterable[Storage]) -> list[_R]:
    """Return the results of a function for some items, in order; at the first error, raise it.

    Parameters
    ----------
    do : callable
    items : iterable
    storages : iterable of Storage
        The storages that the function asks. If one is remote, threads work on many items at once; otherwise this
        thread works on one after the other.
    """
    wanted = list(items)
    if len(wanted) < 2 or not any(each.capabilities.is_remote for each in storages):
        return [do(each) for each in wanted]
    contexts = [copy_context() for _ in wanted]
    with ThreadPoolExecutor(min(len(wanted), _AT_ONCE_MAX), "sparklog-look") as threads:
        asked = [threads.submit(context.run, do, each) for context, each in zip(contexts, wanted, strict=True)]
        try:
            return [each.result() for each in asked]
        except BaseException:
            for each in asked:
                each.cancel()
            raise
