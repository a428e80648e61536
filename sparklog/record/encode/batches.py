"""Encodes Arrow columns as v2 batches: the reverse of `sparklog.record.decode.columns`.

One kernel measures the records and cuts them into batches, and another writes them. Then each batch is compressed, and
its header is written before it. The checksum of a batch does not cover the base offset and the leader epoch, so a
commit can change them later.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError, RecordTooLargeError
from sparklog.record.batches import checksums
from sparklog.record.codecs.many_streams import many_frames
from sparklog.record.codecs.table import CODEC_IDS, DECOMPRESSED_BYTES_MAX, compressed_bytes_max, compressor
from sparklog.record.encode.intake import NO_TIMESTAMP, refuse_twice, take_headers, take_text, time_numbers
from sparklog.record.format import v2
from sparklog.record.format.arrays import filled, numbers_of
from sparklog.record.format.headers import CRC, HEADERS_DTYPE, TABLE_FIELDS, BatchHeaders
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import encode as kernels
from sparklog.record.kernels.digest import sum_of_hashes

TimestampType = Literal["CreateTime", "LogAppendTime"]
_NO_BYTES: Final = np.empty(0, dtype=np.uint8)
_NO_HEADERS: Final = np.empty((kernels.HEADER_FIELDS, 0), dtype=np.int64)
_LARGE_TYPES: Final = (pa.large_binary(), pa.large_string())
_BATCHES_AT_ONCE_MIN: Final = 8
"""The fewest batches to compress at once: fewer are compressed one by one faster than the code for many is loaded."""


@dataclass(frozen=True)
class BatchSettings:
    """The settings of the batches to encode.

    Attributes
    ----------
    codec : str
        Kafka's name of the codec, or ``none``.
    level : int or None
        The level of the codec; None is the codec's default.
    batch_bytes : int
        The largest uncompressed size of a batch, unless one record alone is longer (Kafka: ``batch.size``).
    batch_bytes_max : int
        The largest size of a batch, compressed (Kafka: ``max.message.bytes``).
    decompressed_bytes_max : int
        The most bytes of records in a compressed batch (Kafka: ``max.decompressed.message.bytes``).
    append_time : int or None
        The timestamp of all records, in ms, if the log's timestamp type is LogAppendTime.
    producer_id, producer_epoch, base_sequence : int
        An idempotent producer, and the sequence number of the first record; each is -1 if there is none.
    is_transactional : bool
        Whether the batches belong to a transaction of that producer.
    leader_epoch : int
        The leader epoch of the log.
    magic : int
        The record format. The functions of this module write 2; `sparklog.record.encode.legacy` writes 0 and 1.
    """

    codec: str = "lz4"
    level: int | None = None
    batch_bytes: int = 16_384
    batch_bytes_max: int = 1_048_588
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    append_time: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    leader_epoch: int = 0
    magic: int = 2


@dataclass(frozen=True)
class EncodedBatches:
    """Consecutive batches, and their headers with positions in ``data``."""

    data: memoryview
    headers: BatchHeaders


@dataclass(frozen=True)
class RecordFields:
    """Records to write, in the form that the kernels take."""

    records: Int64s
    headers: Int64s
    keys: Octets
    values: Octets
    names: Octets
    contents: Octets

    def __len__(self) -> int:
        return int(self.records.shape[1])

    def rows(self, start: int, end: int) -> RecordFields:
        chosen = np.ascontiguousarray(self.records[:, start:end])
        return RecordFields(chosen, self.headers, self.keys, self.values, self.names, self.contents)


def encode_batches(columns: pa.RecordBatch, settings: BatchSettings, base_offset: int = 0) -> EncodedBatches:
    """Encode records as v2 batches.

    Parameters
    ----------
    columns : pyarrow.RecordBatch
        ``value``, and optionally ``key``, ``timestamp`` (null is -1, no timestamp) and ``headers``, of the types that
        `sparklog.record.encode.intake` takes; others are ignored.
    settings : BatchSettings
        The settings of the batches.
    base_offset : int
        The offset of the first record; the others follow without gaps.

    Returns
    -------
    EncodedBatches
        The batches, in the order of the rows.

    Raises
    ------
    InvalidOptionError
        A column is missing, occurs twice, or has a type that cannot be written, a record cannot have its timestamp, or
        a header has no name.
    RecordTooLargeError
        A single record makes a batch above ``batch_bytes_max``.
    """
    table, data = _compressed(fields_of(columns), settings, np.array([columns.num_rows]))
    return _sealed(table, data, settings, base_offset)


def encode_logs(
    columns: pa.RecordBatch, settings: BatchSettings, row_ends: Int64s, base_offsets: Int64s
) -> tuple[EncodedBatches, list[int]]:
    """Encode the records of several logs at once, which is faster than one log after another if each has few records.

    Parameters
    ----------
    columns : pyarrow.RecordBatch
        The records, as for `encode_batches`, one log after another.
    settings : BatchSettings
        The settings of the batches; without a producer, whose sequence numbers belong to one log.
    row_ends : int64 array, shape (n_logs,)
        The row after the last one of each log, ascending. Each log has rows.
    base_offsets : int64 array, shape (n_logs,)
        The offset of the first record of each log.

    Returns
    -------
    (EncodedBatches, list of int)
        The batches in the order of the rows, and the row after the last batch of each log.

    Raises
    ------
    InvalidOptionError, RecordTooLargeError
        See `encode_batches`.
    """
    table, data = _compressed(fields_of(columns), settings, row_ends)
    logs = np.searchsorted(row_ends, table[:, kernels.ROW], side="right")
    first_rows = np.concatenate(([0], row_ends[:-1]))
    table[:, kernels.ROW] += (base_offsets - first_rows)[logs]
    batch_ends = np.searchsorted(logs, np.arange(len(row_ends)), side="right")
    return _sealed(table, data, settings, 0), batch_ends.tolist()


def _sealed(table: Int64s, data: memoryview, settings: BatchSettings, base_offset: int) -> EncodedBatches:
    """Write the headers of batches; the base offset is the offset of row 0."""
    numbers = np.empty((len(table), TABLE_FIELDS), dtype=np.int64)
    kernels.seal_batches(
        np.frombuffer(data, dtype=np.uint8),
        table,
        base_offset,
        _attributes(settings),
        settings.leader_epoch,
        settings.producer_id,
        settings.producer_epoch,
        settings.base_sequence,
        checksums.IN_KERNELS,
        numbers,
    )
    if not checksums.IN_KERNELS:
        numbers[:, CRC] = checksums.write_missing(data, table[:, kernels.START], table[:, kernels.END])
    return EncodedBatches(data, BatchHeaders(numbers.reshape(-1).view(HEADERS_DTYPE), 0, len(data)))


def _compressed(
    fields: RecordFields, settings: BatchSettings, row_ends: Int64s, first_row: int = 0
) -> tuple[Int64s, memoryview]:
    """Encode rows as batches, and leave the bytes of their headers free.

    Parameters
    ----------
    row_ends : int64 array, shape (n_logs,)
        The row after the last one of each log.
    first_row : int
        The caller's row of the first of these rows, for errors.

    Returns
    -------
    int64 array, shape (n_batches, kernels.SEAL_FIELDS)
    memoryview
        The consecutive batches.
    """
    records_bytes_max = settings.batch_bytes - v2.HEADER_BYTES
    if settings.codec != "none":
        records_bytes_max = min(records_bytes_max, settings.decompressed_bytes_max)
    cuts, sizes, octets = _written(fields, row_ends, records_bytes_max)
    _refuse_unreadable(cuts, sizes, settings, first_row)
    # Memory that is never written costs nothing.
    out = np.empty(sum(map(compressed_bytes_max, sizes)) + v2.HEADER_BYTES * len(sizes), np.uint8)
    ends = _compress_batches(octets, sizes, settings, out)
    table = np.empty((len(sizes), kernels.SEAL_FIELDS), dtype=np.int64)
    append_time = -1 if settings.append_time is None else settings.append_time
    longest_bytes = kernels.describe_batches(fields.records, cuts, ends, first_row, append_time, table)
    if longest_bytes <= settings.batch_bytes_max:
        return table, out.data[: ends[0, -1] if sizes else 0]
    return _halved(fields, table, out.data, settings, first_row)


def _compress_batches(octets: Octets, sizes: list[int], settings: BatchSettings, out: Octets) -> Int64s:
    """Compress the records of each batch, after free bytes for its header.

    Parameters
    ----------
    octets : uint8 array
        The records of all batches, one batch after another.
    sizes : list of int
        The number of these bytes in each batch.

    Returns
    -------
    int64 array, shape (1, n_batches)
        The end of each batch in ``out``.
    """
    compress_all = many_frames(settings.codec, settings.level) if len(sizes) >= _BATCHES_AT_ONCE_MIN else None
    if compress_all is not None:
        return compress_all(octets, np.cumsum(sizes), v2.HEADER_BYTES, out)[np.newaxis]
    compress = compressor(settings.codec, settings.level)
    source, target = octets.data, out.data
    ends, end, position = [], 0, 0
    for records_bytes in sizes:
        start = end + v2.HEADER_BYTES
        end = start + compress(source[position : position + records_bytes], target[start:])
        position += records_bytes
        ends.append(end)
    return np.array([ends], dtype=np.int64)


def _refuse_unreadable(cuts: Int64s, sizes: list[int], settings: BatchSettings, first_row: int) -> None:
    """Raise if no reader with the same limit would decompress a batch; a batch of this size has a single record."""
    if settings.codec != "none" and sizes and max(sizes) > settings.decompressed_bytes_max:
        row = next(row for row, size in enumerate(sizes) if size > settings.decompressed_bytes_max)
        raise RecordTooLargeError(
            f"row {first_row + int(cuts[row, kernels.FIRST_RECORD])} has {sizes[row]} bytes before it is compressed, "
            f"and max.decompressed.message.bytes is {settings.decompressed_bytes_max}"
        )


def _halved(
    fields: RecordFields, table: Int64s, out: memoryview, settings: BatchSettings, first_row: int
) -> tuple[Int64s, memoryview]:
    """Split each batch that is too long, and encode it again as two batches; see `_compressed`."""
    tables, pieces, filled_bytes = [], [], 0
    for batch in table:
        start, end, row, count = (int(number) for number in batch[: kernels.COUNT + 1])
        parts = [(batch[np.newaxis], out[start:end])]
        if end - start > settings.batch_bytes_max:
            if count == 1:
                raise RecordTooLargeError(
                    f"row {row} makes a batch of {end - start} bytes alone, "
                    f"and max.message.bytes is {settings.batch_bytes_max}"
                )
            cuts = (row, row + count // 2, row + count)
            parts = [
                _compressed(fields.rows(first - first_row, last - first_row), settings, np.array([last - first]), first)
                for first, last in pairwise(cuts)
            ]
        for part, piece in parts:
            part[:, : kernels.END + 1] += filled_bytes - part[0, kernels.START]
            tables.append(part)
            pieces.append(piece)
            filled_bytes += len(piece)
    return np.concatenate(tables), memoryview(bytearray().join(pieces))


def _attributes(settings: BatchSettings) -> int:
    attributes = CODEC_IDS[settings.codec]
    if settings.append_time is not None:
        attributes |= v2.LOG_APPEND_TIME
    if settings.is_transactional:
        attributes |= v2.TRANSACTIONAL
    return attributes


class _ThreadMemory(threading.local):
    """Memory that a thread reuses in its next call: allocating new memory takes as long as writing to it."""

    def __init__(self) -> None:
        self._octets = np.empty(0, dtype=np.uint8)

    def of(self, size_bytes: int) -> Octets:
        if len(self._octets) < size_bytes:
            self._octets = np.empty(size_bytes, dtype=np.uint8)
        return self._octets[:size_bytes]


_of_thread = _ThreadMemory()


def _written(fields: RecordFields, row_ends: Int64s, records_bytes_max: int) -> tuple[Int64s, list[int], Octets]:
    """Cut records into batches and write them.

    Returns
    -------
    int64 array, shape (n_batches + 1, kernels.CUT_FIELDS)
        The table of batches, with a row for its end.
    list of int
        The number of bytes of each batch's records.
    uint8 array
        The bytes of all records, in memory that the next call of the same thread reuses.
    """
    table = np.empty((len(fields) + 1, kernels.CUT_FIELDS), dtype=np.int64)
    bodies = np.empty(len(fields), dtype=np.int64)
    count = kernels.cut_batches(fields.records, fields.headers, row_ends, records_bytes_max, table, bodies)
    cuts = table[: count + 1]
    cuts[count] = len(fields), 0
    sizes = cuts[:-1, kernels.RECORDS_BYTES].tolist()
    out = _of_thread.of(sum(sizes))
    if not kernels.write_records(
        fields.records, fields.headers, fields.keys, fields.values, fields.names, fields.contents, cuts, bodies, out
    ):
        raise AssertionError("records were not as long as they were measured to be")
    return cuts, sizes, out


def fields_of(columns: pa.RecordBatch) -> RecordFields:
    """Turn the columns into the tables that the kernels take."""
    refuse_twice(columns.schema)
    named = dict(zip(columns.schema.names, columns.columns, strict=True))
    if "value" not in named:
        raise InvalidOptionError("Required attribute 'value' not found")
    records = np.empty((kernels.FIELDS, columns.num_rows), dtype=np.int64)
    values = _take_apart(named["value"], "value", records, kernels.VALUE_POSITION)
    keys = _NO_BYTES
    if "key" in named:
        keys = _take_apart(named["key"], "key", records, kernels.KEY_POSITION)
    else:
        records[kernels.KEY_POSITION], records[kernels.KEY_LENGTH] = 0, -1
    if "timestamp" in named:
        records[kernels.TIMESTAMP] = time_numbers(named["timestamp"])
    else:
        records[kernels.TIMESTAMP] = NO_TIMESTAMP
    headers, header_names, contents = _NO_HEADERS, _NO_BYTES, _NO_BYTES
    if "headers" in named:
        headers, header_names, contents = _take_headers_apart(named["headers"], records)
    else:
        records[kernels.FIRST_HEADER : kernels.END_HEADER + 1] = 0
    return RecordFields(records, headers, keys, values, header_names, contents)


def _take_apart(column: pa.Array, name: str, table: Int64s, row: int) -> Octets:
    """Write the positions and lengths of byte strings into two rows of a table; return the buffer with the strings."""
    column = take_text(column, name)
    offsets_type: type[np.signedinteger[Any]] = np.int64 if column.type in _LARGE_TYPES else np.int32
    _, offsets_buffer, data_buffer = column.buffers()
    if not len(column):
        return _NO_BYTES
    offsets = np.frombuffer(offsets_buffer, dtype=offsets_type)[column.offset : column.offset + len(column) + 1]
    table[row] = offsets[:-1]
    np.subtract(offsets[1:], offsets[:-1], out=table[row + 1], casting="unsafe")
    if column.null_count:
        table[row + 1][numbers_of(column.is_null())] = -1
    return _NO_BYTES if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)


def _take_headers_apart(column: pa.Array, records: Int64s) -> tuple[Int64s, Octets, Octets]:
    """Write the range of each record's headers; return the table of headers, and the buffers of names and contents."""
    column = take_headers(column)
    counts = numbers_of(filled(column.value_lengths(), 0)).astype(np.int64)
    pairs = column.flatten()
    ends = np.cumsum(counts)
    records[kernels.FIRST_HEADER], records[kernels.END_HEADER] = ends - counts, ends
    table = np.empty((kernels.HEADER_FIELDS, len(pairs)), dtype=np.int64)
    names = _take_apart(pairs.field("key"), "header key", table, kernels.NAME_POSITION)
    contents = _take_apart(pairs.field("value"), "header value", table, kernels.CONTENT_POSITION)
    is_nameless = table[kernels.NAME_LENGTH] < 0
    if pairs.null_count:
        is_nameless |= numbers_of(pairs.is_null())
    nameless = np.flatnonzero(is_nameless)
    if len(nameless):
        row = int(np.searchsorted(ends, nameless[0], side="right"))
        raise InvalidOptionError(f"a header of row {row} has no key")
    return table, names, contents


def digest_records(topic: str, records: pa.RecordBatch, partitions: Int64s) -> int:
    """Return a digest of 64 bits, which does not depend on the order of rows or on the tasks that write them.

    The digests of two parts add up, modulo 2**64, to the digest of all rows.

    Parameters
    ----------
    topic : str
        The topic of the rows.
    records : pyarrow.RecordBatch
        The rows, from `sparklog.record.encode.intake.take_records`. A missing time is no part of a row's digest.
    partitions : int64 array, length n_rows
        The partition of each row; -1 if it names none.
    """
    fields = fields_of(records)
    seed = np.frombuffer(hashlib.blake2b(topic.encode(), digest_size=8).digest(), np.uint64)
    tables = fields.records, fields.headers, fields.keys, fields.values, fields.names, fields.contents
    return int(sum_of_hashes(*tables, partitions, *seed))
