"""How much of the work one task does: not so much that others wait for it, and not so little that it does not pay."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from sparklog.topic.places.packing import pack

_PIECE_BYTES_MIN: Final = 1 << 26
_TASKS_A_WORKER: Final = 3
_PIECES_TRIED_MAX: Final = 64
"""Of so many pieces a worker or more, those that come last take little of the time."""


def even_share(log_bytes: Sequence[int], task_bytes: int, workers: int) -> int:
    """Return of how many bytes at most the pieces are to be that logs of so many bytes each are cut into.

    It is what a task may have, or less, down to half of it, where the workers would then end together rather than one
    of them work on alone.
    """
    share = _share(sum(log_bytes), task_bytes, workers)
    if sum(log_bytes) > share * workers * _PIECES_TRIED_MAX:
        return share
    # Of shares that end at about the same time the largest makes the fewest files.
    tried = [max(share * part // 20, 1) for part in range(20, 10, -1)]
    return min(tried, key=lambda bytes_max: round(_bytes_of_last(log_bytes, bytes_max, workers) / share, 1))


def _bytes_of_last(log_bytes: Sequence[int], bytes_max: int, workers: int) -> int:
    """Return how many bytes the worker has in all that ends last, where each takes the next piece when it is free."""
    taken = [0] * workers
    for each in log_bytes:
        pieces = max(-(-each // bytes_max), 1)
        for _ in range(pieces):
            heapq.heapreplace(taken, taken[0] + each // pieces)
    return max(taken)


def grouped(log_bytes: Sequence[int], task_bytes: int, workers: int) -> list[slice]:
    """Say which neighbouring pieces of the work, of so many bytes of log each, a task does: about as many bytes each.

    Returns
    -------
    list of slice
        The rows of the pieces of each task.
    """
    share = _share(sum(log_bytes), task_bytes, workers)
    return pack(log_bytes, [0] * len(log_bytes), bytes_max=share, tasks_min=min(workers, len(log_bytes)))


def _share(total_bytes: int, task_bytes: int, workers: int) -> int:
    """Return what a task may have: less where tasks would be too few, but what is worth the files that it makes."""
    return min(task_bytes, max(-(-total_bytes // (workers * _TASKS_A_WORKER)), _PIECE_BYTES_MIN))
