"""Works on many partitions side by side, in processes of their own.

The processes begin anew instead of being forked, so that no thread and no lock of the caller is copied into them. They
end with the caller, however it ends.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from queue import Empty
from typing import Any, Final, TypeVar

from sparklog.errors import SeglogError

Item = TypeVar("Item")
Result = TypeVar("Result")

_ITEMS_A_PIECE: Final = 16
_SENT_EVERY_SECONDS: Final = 0.1
_LOOKED_EVERY_SECONDS: Final = 0.5


@dataclass(frozen=True)
class _Part:
    """Some results of a piece of the work; the last part says that it is the last, or what error ended the piece."""

    piece: int
    results: Sequence[Any]
    is_last: bool = False
    error: Exception | None = None


def side_by_side(work: Callable[[Item], Iterable[Result]], items: Sequence[Item], processes: int) -> Iterator[Result]:
    """Give what a function gives for each item, in the order of the items.

    Parameters
    ----------
    work : callable
        Called with one item. It and all that it is given and gives must pickle.
    items : sequence
    processes : int
        How many processes work; at most 1 is this process itself, which then works while the caller asks.

    Yields
    ------
    Result
        Results of the first item that is not done as they come, those of later items when it is their turn.

    Raises
    ------
    SeglogError
        A process was killed. What ``work`` raises is raised in the item's turn.
    """
    if processes <= 1:
        for item in items:
            yield from work(item)
        return
    context = multiprocessing.get_context("spawn")
    pieces, parts = context.Queue(), context.Queue()
    cut = [items[start : start + _ITEMS_A_PIECE] for start in range(0, len(items), _ITEMS_A_PIECE)]
    for piece in [*enumerate(cut), *[None] * processes]:
        pieces.put(piece)
    workers = [context.Process(target=_serve, args=(work, pieces, parts), daemon=True) for _ in range(processes)]
    try:
        for worker in workers:
            worker.start()
        yield from _in_order(len(cut), parts, workers)
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.terminate()
                worker.join()
        for queue in (pieces, parts):
            queue.cancel_join_thread()
            queue.close()


def _in_order(pieces: int, parts: Any, workers: Sequence[SpawnProcess]) -> Iterator[Any]:
    early: dict[int, list[_Part]] = {piece: [] for piece in range(pieces)}
    for piece in range(pieces):
        is_done = False
        while not is_done:
            if not early[piece]:
                part = _next(parts, workers)
                early[part.piece].append(part)
                continue
            part = early[piece].pop(0)
            yield from part.results
            if part.error is not None:
                raise part.error
            is_done = part.is_last
        del early[piece]


def _next(parts: Any, workers: Sequence[SpawnProcess]) -> _Part:
    while True:
        try:
            part: _Part = parts.get(timeout=_LOOKED_EVERY_SECONDS)
        except Empty:
            killed = [worker.exitcode for worker in workers if worker.exitcode]
            if killed:
                raise SeglogError(
                    f"a process that worked on some of the partitions was ended from outside (status {killed[0]}), "
                    f"perhaps since memory ran out: repeat the command with fewer processes"
                ) from None
        else:
            return part


def _serve(work: Callable[[Any], Iterable[Any]], pieces: Any, parts: Any) -> None:
    # Whoever interrupts the caller interrupts this process as well, and the caller ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (taken := pieces.get()) is not None:
        piece, items = taken
        results: list[Any] = []
        sent_at = time.monotonic()
        try:
            for item in items:
                for result in work(item):
                    results.append(result)
                    if time.monotonic() - sent_at >= _SENT_EVERY_SECONDS:
                        parts.put(_Part(piece, results))
                        results, sent_at = [], time.monotonic()
        except Exception as error:
            parts.put(_Part(piece, results, is_last=True, error=error))
        else:
            parts.put(_Part(piece, results, is_last=True))
