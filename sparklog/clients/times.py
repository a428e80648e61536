"""Finds the first record of a log at or after a time, for a consumer."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.log.reader import LogReader
from sparklog.log.times import Time, to_ms


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, and its own time in ms."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


def first_from(log: LogReader, time: Time) -> OffsetAndTimestamp | None:
    """Return the first record at or after a time, ms since the epoch; None where there is none.

    Raises
    ------
    InvalidOptionError
        The time is before 1970, or none.
    """
    if to_ms(time) < 0:
        raise InvalidOptionError(f"a time is in ms since 1970, and not {time!r}")
    offset = log.offset_for_time(time)
    if offset is None:
        return None
    columns = log.read(offset, offset + 1, ["timestamp", "leader_epoch"])
    # Python has no datetime of a year after 9999.
    (timestamp,), (leader_epoch,) = (column.cast(pa.int64()).to_pylist() for column in columns.columns)
    return OffsetAndTimestamp(offset, timestamp, leader_epoch)
