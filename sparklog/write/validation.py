"""Checks records by the rules of a broker.

Source: apache/kafka, LogValidator.java.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.record.encode.intake import NO_TIMESTAMP, take_times
from sparklog.record.format.arrays import filled, numbers_of


def fill_timestamps(rows: pa.RecordBatch, written_ms: int) -> pa.RecordBatch:
    """Return the records with a column ``timestamp`` of int64 ms that has no nulls.

    Parameters
    ----------
    written_ms : int
        The time of the write, ms since the epoch. A record without a timestamp gets this one, as Kafka's
        producer does it.

    Raises
    ------
    InvalidOptionError
        The column ``timestamp`` has another type, or a time that no record can have.
    """
    if "timestamp" not in rows.schema.names:
        return rows.append_column("timestamp", _same_times(written_ms, rows.num_rows))
    index = rows.schema.get_field_index("timestamp")
    column = take_times(rows.column(index))
    return rows.set_column(index, "timestamp", filled(column, written_ms))


def _same_times(timestamp: int, rows: int) -> pa.Array:
    times = pa.py_buffer(np.full(rows, timestamp, dtype=np.int64))
    return pa.Array.from_buffers(pa.int64(), rows, [None, times])


def check_admissible(rows: pa.RecordBatch, config: LogConfig, now_ms: int, same_time: int | None = None) -> None:
    """Raise for the first record that a broker would not append to a topic of this configuration.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        The records; columns ``timestamp`` (int64 ms) and ``key`` are checked if present.
    config : LogConfig
        The topic's configuration.
    now_ms : int
        Wall-clock time, ms since the epoch, which timestamps are compared with.
    same_time : int, optional
        The timestamp of all rows, if they share one: then the column is not read.

    Raises
    ------
    InvalidOptionError
        A key is null although the topic is compacted, or under CreateTime a timestamp is too far from ``now_ms``.
    """
    names = rows.schema.names
    if "compact" in config.cleanup_policy:
        without_key = rows.num_rows if "key" not in names else rows.column("key").null_count
        if without_key:
            raise InvalidOptionError(
                f"{without_key} of {rows.num_rows} records have no key, and cleanup.policy is compact: "
                f"a compacted topic keeps the last record of each key"
            )
    if config.message_timestamp_type != "CreateTime" or not rows.num_rows:
        return
    if same_time is not None:
        _check_timestamps(same_time, same_time, config, now_ms)
    elif "timestamp" in names:
        times = numbers_of(rows.column("timestamp"))
        latest = int(times.max())
        if latest != NO_TIMESTAMP:
            # No time is before 1970, so a longer bound refuses none.
            is_bound = config.message_timestamp_before_max_ms < now_ms
            earliest = int(times[times != NO_TIMESTAMP].min()) if is_bound else now_ms
            _check_timestamps(earliest, latest, config, now_ms)


def _check_timestamps(earliest: int, latest: int, config: LogConfig, now_ms: int) -> None:
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    for timestamp, is_wrong, name, bound_ms in (
        (earliest, earliest < now_ms - before_ms, "message.timestamp.before.max.ms", before_ms),
        (latest, latest > now_ms + after_ms, "message.timestamp.after.max.ms", after_ms),
    ):
        if is_wrong:
            raise InvalidOptionError(
                f"a record has timestamp {timestamp} ms, {abs(timestamp - now_ms)} ms from now, and {name} is "
                f"{bound_ms}: a broker would refuse it; set {name} if it is right"
            )
