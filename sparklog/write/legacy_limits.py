"""Refuses records that the formats 0 and 1 cannot hold, so that no write loses anything silently.

Neither has producers, transactions, headers (`sparklog.record.encode.legacy` refuses those) or all codecs, and 0
has no timestamps.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.record.batches.stamps import fixes_offsets
from sparklog.record.codecs.table import CODEC_IDS, codec_named, codecs_of
from sparklog.record.encode.intake import NO_TIMESTAMP, take_times
from sparklog.record.format.arrays import numbers_of

_LATER = "give a message.format.version of {} or later"


def check_format(rows: pa.RecordBatch, config: LogConfig) -> None:
    """Raise if the record format of a log cannot hold the given records, or lacks the codec.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        The records as given: a null timestamp is no timestamp.
    config : LogConfig
        The configuration of the log.

    Raises
    ------
    InvalidOptionError
        The message names the settings that exclude each other.
    """
    if config.magic == 2:
        return
    if codec_named(config.codec).magic_min > config.magic:
        others = f"{codecs_of(config.magic)} or uncompressed"
        raise _refusal(config, f"no codec {config.codec}", f"compression.type must be {others}")
    if config.magic == 0:
        _refuse_times(rows, config)


def _refuse_times(rows: pa.RecordBatch, config: LogConfig) -> None:
    later = _LATER.format("0.10.0")
    if config.message_timestamp_type == "LogAppendTime":
        raise _refusal(config, "no timestamps", f"message.timestamp.type cannot be LogAppendTime; {later}")
    if "timestamp" in rows.schema.names:
        times = take_times(rows.column(rows.schema.get_field_index("timestamp"))).drop_null()
        has_time = numbers_of(pc.not_equal(times, NO_TIMESTAMP))
        if has_time.any():
            lost = f"{int(has_time.sum())} of {rows.num_rows} records would lose theirs"
            raise _refusal(config, "no timestamps", f"{lost}: leave timestamps out, or {later}")


def refuse_producer(config: LogConfig) -> None:
    """Raise if the record format of a log has no producers, and so no transactions."""
    if config.magic < 2:
        raise _refusal(config, "no producers and no transactions", _LATER.format("0.11.0"))


def refuse_fixed_offsets(config: LogConfig) -> None:
    """Raise if a commit could not write the log's offsets into batches of a log's configuration."""
    if fixes_offsets(config.magic, CODEC_IDS[config.codec]):
        raise _refusal(
            config,
            "offsets of their own in the messages of a compressed batch",
            "a commit cannot give them those of the log: compression.type must be uncompressed here "
            "(PartitionLog.append writes the others)",
        )


def _refusal(config: LogConfig, what: str, so: str) -> InvalidOptionError:
    named = f"message.format.version {config.message_format_version}"
    return InvalidOptionError(f"{named} is record format {config.magic}, which has {what}: {so}")
