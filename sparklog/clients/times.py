"""Finds the first record of a log at or after a time, for a consumer."""

from __future__ import annotations

from typing import NamedTuple

from sparklog.log.reader import LogReader


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, and its own time in ms."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


def first_from(log: LogReader, time_ms: int) -> OffsetAndTimestamp | None:
    """Return the first record at or after a time, ms since the epoch; None where there is none."""
    offset = log.offset_for_time(time_ms)
    if offset is None:
        return None
    columns = log.read(offset, offset + 1, ["timestamp", "leader_epoch"])
    (timestamp,), (leader_epoch,) = (columns[name].to_pylist() for name in columns.column_names)
    return OffsetAndTimestamp(offset, round(timestamp.timestamp() * 1000), leader_epoch)
