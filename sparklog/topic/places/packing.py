"""Packs ranges of offsets into tasks: a Python task costs Spark some tens of ms, however little it reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

PACK_BYTES: Final = 1 << 25

OPENING_BYTES: Final = 1 << 17
"""The bytes of log that can be read in about the time of opening a partition."""


def pack(
    log_bytes: Sequence[int],
    offsets: Sequence[int],
    *,
    bytes_max: int,
    offsets_max: int | None = None,
    tasks_min: int = 1,
) -> list[slice]:
    """Choose the neighbouring ranges that each task reads.

    A task takes ranges, in order, until it has enough. If that would make too few tasks, all of them take less, so that
    they stay about the same size.

    Parameters
    ----------
    log_bytes, offsets : sequence of int, length n_ranges
        The bytes of log and the number of offsets of each range.
    bytes_max : int
        The most bytes that a task of several ranges reads; `OPENING_BYTES` are added for each range.
    offsets_max : int, optional
        The most offsets that a task of several ranges reads.
    tasks_min : int
        The fewest tasks that there may be, unless there are fewer ranges.

    Returns
    -------
    list of slice, length n_tasks
        The rows of the ranges that each task reads. Every range is in one task.
    """
    costs = [OPENING_BYTES + each for each in log_bytes]
    offsets_max = sum(offsets) if offsets_max is None else offsets_max
    enough = min(tasks_min, len(costs))

    def makes_too_few(task_bytes_max: int) -> bool:
        return len(_filled(costs, offsets, task_bytes_max, offsets_max)) < enough

    # The less a task may read, the more tasks there are. At no bytes at all each range has its own.
    choices = range(min(bytes_max, sum(costs)) + 1)
    return _filled(costs, offsets, bisect_left(choices, True, key=makes_too_few) - 1, offsets_max)


def _filled(costs: Sequence[int], offsets: Sequence[int], bytes_max: int, offsets_max: int) -> list[slice]:
    """Fill one task after the other with as many ranges as it may read; a range that is too large gets its own."""
    tasks: list[slice] = []
    first = task_bytes = task_offsets = 0
    for row, (cost, count) in enumerate(zip(costs, offsets, strict=True)):
        if row > first and (task_bytes + cost > bytes_max or task_offsets + count > offsets_max):
            tasks.append(slice(first, row))
            first, task_bytes, task_offsets = row, 0, 0
        task_bytes, task_offsets = task_bytes + cost, task_offsets + count
    return [*tasks, slice(first, len(costs))] if costs else tasks
