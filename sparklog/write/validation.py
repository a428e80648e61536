"""What a broker would refuse of the records that it is sent, refused here too.

Source: apache/kafka, LogValidator.java.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.record.intake import NO_TIMESTAMP, take_times


def with_timestamps(rows: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Return the records with timestamps of int64 ms; where there is none, the time of their writing, as of a producer.

    Raises
    ------
    InvalidOptionError
        A column ``timestamp`` is of another type, or a record cannot have one of its times.
    """
    if "timestamp" not in rows.schema.names:
        return rows.append_column("timestamp", pa.repeat(pa.scalar(now_ms, pa.int64()), rows.num_rows))
    place = rows.schema.get_field_index("timestamp")
    column = take_times(rows.column(place))
    return rows.set_column(place, "timestamp", column.fill_null(now_ms) if column.null_count else column)


def refuse_inadmissible(rows: pa.RecordBatch, config: LogConfig, now_ms: int) -> None:
    """Raise for the first record that a broker would not append to a topic of this configuration.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        ``timestamp`` as int64 ms, and ``key``, where there are such columns.
    now_ms : int
        The time of the append.

    Raises
    ------
    InvalidOptionError
        A key is null although the topic is compacted, or under CreateTime a timestamp is too far from now.
    """
    names = rows.schema.names
    if "compact" in config.cleanup_policy:
        keyless = rows.num_rows if "key" not in names else rows.column("key").null_count
        if keyless:
            raise InvalidOptionError(
                f"{keyless} of {rows.num_rows} records have no key, and cleanup.policy is compact: "
                f"a compacted topic keeps the last record of each key"
            )
    if "timestamp" in names and config.message_timestamp_type == "CreateTime" and rows.num_rows:
        _check_times(rows.column("timestamp"), config, now_ms)


def _check_times(column: pa.Array, config: LogConfig, now_ms: int) -> None:
    timed = column.filter(pc.not_equal(column, NO_TIMESTAMP))
    found = pc.min_max(timed).as_py()
    if found["max"] is None:
        return
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    for timestamp, is_wrong, name, bound_ms in (
        (found["min"], found["min"] < now_ms - before_ms, "message.timestamp.before.max.ms", before_ms),
        (found["max"], found["max"] > now_ms + after_ms, "message.timestamp.after.max.ms", after_ms),
    ):
        if is_wrong:
            raise InvalidOptionError(
                f"a record has timestamp {timestamp} ms, {abs(timestamp - now_ms)} ms from now, and {name} is "
                f"{bound_ms}: a broker would refuse it; set {name} if it is right"
            )
