"""``dump``: the sentences that say what logs hold where there is nothing to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparklog.cli import render
from sparklog.errors import OffsetOutOfRangeError
from sparklog.inspect.dump import DumpedLog, DumpRange

_LOGS_SHOWN_MAX: Final = 5


def refuse_outside(logs: Sequence[DumpedLog], wanted: DumpRange) -> None:
    """Raise unless one of the logs reaches to where the rows are to begin.

    Raises
    ------
    OffsetOutOfRangeError
        It says what the logs hold.
    """
    if not any(log.reaches(wanted) for log in logs):
        where = f"--offset {wanted.start_offset}"
        if wanted.start_time is not None:
            where = f"--time {render.time_text(wanted.start_time)} ({wanted.start_time} ms)"
        raise OffsetOutOfRangeError(f"{where} is behind the end of every log: {extents(logs)}")


def extents(logs: Sequence[DumpedLog]) -> str:
    """Say which offsets some logs have, and up to which times."""
    shown = [_extent(log) for log in logs[:_LOGS_SHOWN_MAX]]
    more = len(logs) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _extent(log: DumpedLog) -> str:
    layout = log.layout
    if layout.start_offset >= layout.end_offset:
        return f"{log.name} has no record, and its next offset is {layout.end_offset}"
    offsets = f"{log.name} has offsets {layout.start_offset} to {layout.end_offset - 1}"
    latest = log.max_timestamp()
    return offsets if latest is None else f"{offsets}, with times up to {render.time_text(latest)} ({latest} ms)"
