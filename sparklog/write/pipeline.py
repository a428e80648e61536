"""Turns rows into encoded batches. The rows of every write pass through here.

    RowBuffer        gathers rows until they are worth encoding
    check_records    checks the columns and their values, and fills in timestamps
    encode_records   makes the batches that are appended, by the log's configuration
    encode_logs      the same for the records of some logs at once
    digest_rows      makes a number that other rows do not have, independent of order

`sparklog.write.partition` appends the batches to an open log. `sparklog.topic.write.accumulator` gathers the rows of a
task, chooses a partition for each between the check and the encoding, and appends the batches to staged files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.errors import RecordTooLargeError
from sparklog.log.config import LogConfig
from sparklog.log.producer_state import plus
from sparklog.record.encode import batches as encode
from sparklog.record.encode.batches import BatchSettings, EncodedBatches, digest_records, encode_batches
from sparklog.record.encode.intake import Records, take_records
from sparklog.record.format.arrays import filled, numbers_of
from sparklog.record.format.streams import Int64s
from sparklog.write.active_segment import refuse_past_last_offset
from sparklog.write.legacy_limits import check_format, refuse_producer
from sparklog.write.validation import check_admissible, fill_timestamps


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """An idempotent producer, and the sequence number of its next record; all -1 without a producer.

    Attributes
    ----------
    is_transactional : bool
        Whether its records belong to a transaction.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False

    def after(self, records: int) -> ProducerIdentity:
        """Return the same producer with the sequence number that follows as many records."""
        return replace(self, base_sequence=plus(self.base_sequence, records))


NO_PRODUCER: Final = ProducerIdentity()
UNKNOWN_PRODUCER: Final = ProducerIdentity(is_transactional=True)
"""The producer of a transaction, before the commit that writes it into the batches."""


class RowBuffer:
    """Rows waiting to be encoded.

    Attributes
    ----------
    size_bytes : int
        The bytes of the rows.
    """

    def __init__(self) -> None:
        self._rows: list[pa.RecordBatch] = []
        self.size_bytes = 0

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows at the end."""
        self._rows.append(rows)
        self.size_bytes += rows.nbytes

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Empty the buffer, and yield its rows.

        They come in one piece, unless their columns change, or a column would have too many bytes.
        """
        rows, self._rows, self.size_bytes = self._rows, [], 0
        for _, alike in groupby(rows, key=lambda each: each.schema):
            yield from pa.Table.from_batches(alike).combine_chunks().to_batches()


def check_records(rows: Records, config: LogConfig, written_ms: int, now_ms: int) -> pa.RecordBatch:
    """Return the columns that make records, checked as a broker checks them, with timestamps.

    Parameters
    ----------
    rows : Records
        Columns and types as `sparklog.record.encode.intake` takes them; other columns are left out.
    config : LogConfig
        The configuration of the log.
    written_ms : int
        The timestamp of records that have none, ms since the epoch.
    now_ms : int
        Wall-clock time, ms since the epoch, which timestamps are compared with.

    Raises
    ------
    InvalidOptionError
        A column is missing, duplicated or of a type that cannot be written, or a broker would refuse a record,
        or the log's record format cannot hold a record.
    """
    taken = take_records(rows)
    check_format(taken, config)
    records = fill_timestamps(taken, written_ms)
    check_admissible(records, config, now_ms, written_ms if "timestamp" not in taken.schema.names else None)
    return records


def digest_rows(rows: pa.RecordBatch, topic: str) -> int:
    """Return a number that other rows for a topic do not have; see `sparklog.record.encode.batches.digest_records`.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        As `check_records` takes them. A column ``partition``, which has been checked, counts as well.
    """
    partitions = np.full(rows.num_rows, -1)
    if "partition" in rows.schema.names:
        partitions = numbers_of(filled(rows.column("partition").cast(pa.int64()), -1))
    return digest_records(topic, take_records(rows), partitions)


def encode_records(
    records: pa.RecordBatch,
    config: LogConfig,
    base_offset: int,
    written_ms: int,
    *,
    name: str,
    producer: ProducerIdentity = NO_PRODUCER,
    leader_epoch: int = 0,
) -> EncodedBatches:
    """Encode records that `check_records` has returned.

    Parameters
    ----------
    config : LogConfig
        Sets how large a batch may be, its codec, and whether records get the time of the append.
    base_offset : int
        The offset of the first record.
    written_ms : int
        The time of the append, ms since the epoch, for LogAppendTime.
    name : str
        The topic-partition, for errors.

    Raises
    ------
    RecordTooLargeError
        A record can never fit into a batch.
    InvalidOptionError
        A header has no key, or the record format has no producers or headers.
    OffsetOutOfRangeError
        The log would get offsets above the largest possible one.
    """
    refuse_past_last_offset(name, base_offset, records.num_rows)
    settings = _settings(config, written_ms, producer, leader_epoch)
    try:
        if settings.magic < 2:
            return _encode_messages(records, settings, np.array([records.num_rows]), np.array([base_offset]))[0]
        return encode_batches(records, settings, base_offset)
    except RecordTooLargeError as error:
        raise RecordTooLargeError(f"a record for {name} is too large: {error.message}") from error


def encode_records_of_logs(
    records: pa.RecordBatch,
    config: LogConfig,
    row_ends: Int64s,
    base_offsets: Int64s,
    written_ms: int,
    names: Sequence[str],
    producer: ProducerIdentity = NO_PRODUCER,
) -> tuple[EncodedBatches, list[int]]:
    """Encode records of several logs at once; see `sparklog.record.encode.batches.encode_logs` and `encode_records`.

    Parameters
    ----------
    names : sequence of str
        The topic-partition of each log, for errors.
    producer : ProducerIdentity
        `NO_PRODUCER` or `UNKNOWN_PRODUCER`.
    """
    settings = _settings(config, written_ms, producer)
    encode_all = _encode_messages if settings.magic < 2 else encode.encode_logs
    try:
        return encode_all(records, settings, row_ends, base_offsets)
    except RecordTooLargeError:
        # Log by log, so that the error names the log.
        for name, (start, end) in zip(names, pairwise((0, *row_ends.tolist())), strict=True):
            encode_records(records.slice(start, end - start), config, 0, written_ms, name=name)
        raise


def _encode_messages(
    records: pa.RecordBatch, settings: BatchSettings, row_ends: Int64s, base_offsets: Int64s
) -> tuple[EncodedBatches, list[int]]:
    # Few logs are written in an old format, and its compiled code takes time to load.
    from sparklog.record.encode.legacy import encode_messages

    return encode_messages(records, settings, row_ends, base_offsets)


def _settings(
    config: LogConfig, written_ms: int, producer: ProducerIdentity = NO_PRODUCER, leader_epoch: int = 0
) -> BatchSettings:
    usual, has_append_time = _usual_settings(config), config.message_timestamp_type == "LogAppendTime"
    if producer == NO_PRODUCER and not leader_epoch and not has_append_time:
        return usual
    if producer != NO_PRODUCER:
        refuse_producer(config)
    return replace(
        usual,
        append_time=written_ms if has_append_time else None,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.base_sequence,
        is_transactional=producer.is_transactional,
        leader_epoch=leader_epoch,
    )


@lru_cache(maxsize=64)
def _usual_settings(config: LogConfig) -> BatchSettings:
    """Return the settings of most batches of a log. Making them each time would cost a twentieth of a small append."""
    return BatchSettings(
        codec=config.codec,
        level=config.compression_level,
        batch_bytes=config.batch_size,
        batch_bytes_max=config.batch_bytes_max,
        decompressed_bytes_max=config.max_decompressed_message_bytes,
        magic=config.magic,
    )
