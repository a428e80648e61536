"""Decides the size of tasks: small enough that all workers end together, large enough to be worth their files."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from sparklog.topic.places.packing import pack

_PIECE_BYTES_MIN: Final = 1 << 26
_TASKS_A_WORKER: Final = 3
_PIECES_TRIED_MAX: Final = 64
"""With this many pieces per worker or more the last ones hardly matter, so even cutting is not tried."""


def even_share(log_bytes: Sequence[int], task_bytes: int, workers: int) -> int:
    """Return the largest piece size, in bytes, that makes all workers finish at about the same time.

    It is between half the size that a task may have and all of it.
    """
    share = _share(sum(log_bytes), task_bytes, workers)
    if sum(log_bytes) > share * workers * _PIECES_TRIED_MAX:
        return share
    # Among sizes with about the same finishing time, the largest makes the fewest files.
    tried = [max(share * part // 20, 1) for part in range(20, 10, -1)]
    return min(tried, key=lambda bytes_max: round(_bytes_of_last(log_bytes, bytes_max, workers) / share, 1))


def _bytes_of_last(log_bytes: Sequence[int], bytes_max: int, workers: int) -> int:
    """Return the total bytes of the worker that ends last, if each takes the next piece when it is free."""
    taken = [0] * workers
    for each in log_bytes:
        pieces = max(-(-each // bytes_max), 1)
        for _ in range(pieces):
            heapq.heapreplace(taken, taken[0] + each // pieces)
    return max(taken)


def task_slices(log_bytes: Sequence[int], task_bytes: int, workers: int) -> list[slice]:
    """Return which consecutive pieces of the work each task does, so that tasks have about equal bytes of log.

    Returns
    -------
    list of slice
        The rows of the pieces of each task.
    """
    share = _share(sum(log_bytes), task_bytes, workers)
    return pack(log_bytes, [0] * len(log_bytes), bytes_max=share, tasks_min=min(workers, len(log_bytes)))


def _share(total_bytes: int, task_bytes: int, workers: int) -> int:
    """Return the largest size of a task: less than ``task_bytes`` if tasks were too few, but worth its files."""
    return min(task_bytes, max(-(-total_bytes // (workers * _TASKS_A_WORKER)), _PIECE_BYTES_MIN))
