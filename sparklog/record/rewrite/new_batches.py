"""Writes batches again from their remaining records.

A batch of magic 2 keeps its base and last offset, its producer, sequence and leader epoch, its timestamp type, and a
delete horizon. As in Kafka, its maximum timestamp is recomputed from its records, except with log append time and in an
empty batch, which keep it. An empty batch is a header, without codec and delete horizon.

A wrapper of magic 0 or 1 gets the offset of its last remaining message, and offsets inside magic 1 count from the first
one. The messages are copied unchanged, whatever magic each has.

Source: apache/kafka, MemoryRecords.java (filterTo), MemoryRecordsBuilder.java, DefaultRecordBatch.java
(writeEmptyHeader); KIP-31, KIP-534.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sparklog.errors import InvalidOptionError
from sparklog.record.batches import checksums
from sparklog.record.batches.wrappers import wrapper
from sparklog.record.codecs.table import CODEC_IDS, codec_name, codec_named, compressed_bytes_max, compressor
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import rewrite as kernels
from sparklog.record.kernels.spans import END, START
from sparklog.record.rewrite.changes import Changes
from sparklog.record.rewrite.spans import RecordSpans

_KEPT_BITS: Final = v2.LOG_APPEND_TIME | v2.TRANSACTIONAL | v2.CONTROL | v2.DELETE_HORIZON


def new_batches(spans: RecordSpans, changes: Changes, chosen: Int64s) -> list[memoryview]:
    """Write the batches of magic 2 at the rows ``chosen`` of the spans again."""
    headers = BatchHeaders(spans.headers.table[chosen], spans.headers.origin, spans.headers.valid_bytes)
    base_timestamps, attributes = headers.column("base_timestamp"), headers.column("attributes") & _KEPT_BITS
    if changes.delete_horizons is not None:
        horizons = changes.delete_horizons[chosen]
        base_timestamps = np.where(horizons >= 0, horizons, base_timestamps)
        attributes |= np.where(horizons >= 0, v2.DELETE_HORIZON, 0)
    batches = _batches(chosen, base_timestamps)
    copied = _copied(spans, changes, kernels.copy_records, batches, v2.HEADER_BYTES)
    codec_ids = headers.codec_ids
    if changes.codec is not None:
        codec_ids = np.where(headers.is_control, codec_ids, CODEC_IDS[changes.codec])
    is_empty = batches[:, kernels.COUNT] == 0
    codec_ids = np.where(is_empty, 0, codec_ids)
    places = batches[:, [kernels.COPY_START, kernels.COPY_END]]
    out, starts, ends = compressed(copied, places, codec_ids, changes.level)
    is_kept = is_empty | (headers.timestamp_types == 1)
    seals = np.empty((len(chosen), kernels.REWRITTEN_SEAL_FIELDS), dtype=np.int64)
    seals[:, kernels.SEAL_START], seals[:, kernels.SEAL_END] = starts, ends
    seals[:, kernels.SEAL_ATTRIBUTES] = np.where(is_empty, attributes & ~v2.DELETE_HORIZON, attributes) | codec_ids
    seals[:, kernels.SEAL_DELTA] = headers.column("last_offset") - headers.column("base_offset")
    seals[:, kernels.SEAL_BASE_TIMESTAMP] = np.where(is_empty, -1, base_timestamps)
    seals[:, kernels.SEAL_MAX_TIMESTAMP] = np.where(
        is_kept, headers.column("max_timestamp"), batches[:, kernels.MAX_TIMESTAMP]
    )
    seals[:, kernels.SEAL_COUNT] = batches[:, kernels.COUNT]
    for column, name in _SEALED:
        seals[:, column] = headers.column(name)
    return sealed(out, seals)


def sealed(out: memoryview, seals: Int64s) -> list[memoryview]:
    """Write the headers of batches of magic 2, and return the batches.

    Parameters
    ----------
    seals : int64 array, shape (n_batches, kernels_rewrite.REWRITTEN_SEAL_FIELDS)
    """
    if not kernels.seal_batches_anew(np.frombuffer(out, np.uint8), seals, checksums.IN_KERNELS):
        raise AssertionError("a batch was not where its records were written")
    starts, ends = seals[:, kernels.SEAL_START], seals[:, kernels.SEAL_END]
    if not checksums.IN_KERNELS:
        checksums.write_missing(out, starts, ends)
    return [out[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


_SEALED: Final = (
    (kernels.SEAL_EPOCH, "leader_epoch"),
    (kernels.SEAL_OFFSET, "base_offset"),
    (kernels.SEAL_PRODUCER, "producer_id"),
    (kernels.SEAL_PRODUCER_EPOCH, "producer_epoch"),
    (kernels.SEAL_SEQUENCE, "base_sequence"),
)


def new_messages(spans: RecordSpans, changes: Changes, chosen: Int64s) -> list[memoryview]:
    """Write the messages and wrappers of magic 0 and 1 at the rows ``chosen`` of the spans again."""
    batches = _batches(chosen, np.full(len(chosen), -1))
    copied = memoryview(_copied(spans, changes, kernels.copy_messages, batches, 0).data)
    new = []
    for batch, header in zip(batches.tolist(), spans.headers.table[chosen].tolist(), strict=True):
        named = dict(zip(spans.headers.table.dtype.names or (), header, strict=True))
        messages = copied[batch[kernels.COPY_START] : batch[kernels.COPY_END]]
        codec = codec_name(named["attributes"] & v2.CODEC_MASK)
        if codec == "none":
            new.append(messages)
            continue
        if changes.codec is not None:
            codec = changes.codec
        if codec == "none" or codec_named(codec).magic_min > named["magic"]:
            raise InvalidOptionError(
                f"messages of magic {named['magic']} inside a wrapper cannot have the codec {codec}"
            )
        is_append_time = named["attributes"] & v2.LOG_APPEND_TIME != 0
        timestamp = named["max_timestamp"] if is_append_time else batch[kernels.MAX_TIMESTAMP]
        new.append(
            wrapper(
                messages,
                magic=named["magic"],
                codec=codec,
                level=changes.level,
                offset=batch[kernels.LAST_OFFSET],
                timestamp=timestamp,
                is_append_time=is_append_time,
            )
        )
    return new


def _batches(chosen: Int64s, base_timestamps: Int64s) -> Int64s:
    batches = np.zeros((len(chosen), kernels.COPY_FIELDS), dtype=np.int64)
    batches[:, kernels.BATCH], batches[:, kernels.BASE_TIMESTAMP] = chosen, base_timestamps
    return batches


def _copied(spans: RecordSpans, changes: Changes, copy: Callable[..., bool], batches: Int64s, gap_bytes: int) -> Octets:
    """Copy the remaining records of each batch, after a gap, and describe them in the table of batches."""
    records = len(spans.table)
    keep = np.ones(records, np.uint8) if changes.keep is None else changes.keep.astype(np.uint8)
    blank = np.zeros(records, np.uint8) if changes.blank is None else changes.blank.astype(np.uint8)
    # Memory that is never written costs nothing.
    starts = np.concatenate(([0], spans.batch_ends[:-1]))[batches[:, kernels.BATCH]]
    sizes = _sums(
        spans.table[:, END] - spans.table[:, START] + kernels.NEW_BYTES_MAX,
        starts,
        spans.batch_ends[batches[:, kernels.BATCH]],
    )
    out = np.empty(int(sizes.sum()) + (gap_bytes + kernels.NEW_BYTES_MAX) * len(batches), np.uint8)
    if not copy(
        spans.octets,
        spans.table,
        spans.batch_ends,
        spans.headers.numbers,
        keep,
        blank,
        changes.blank_bytes,
        gap_bytes,
        batches,
        out,
    ):
        raise AssertionError("records were not where they were found")
    return out


def _sums(numbers: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    sums = np.concatenate(([0], np.cumsum(numbers)))
    summed: Int64s = sums[ends] - sums[starts]
    return summed


def compressed(
    copied: Octets, places: Int64s, codec_ids: Int64s, level: int | None
) -> tuple[memoryview, Int64s, Int64s]:
    """Compress the records of batches of magic 2.

    Parameters
    ----------
    copied : uint8 array
        The records of all batches, each batch after room for a header.
    places : int64 array, shape (n_batches, 2)
        The positions in ``copied`` at which the records of each batch begin and end.

    Returns
    -------
    (memoryview, int64 array, int64 array)
        The bytes of all batches, and where each begins and ends. The bytes of their headers are left free.
    """
    starts, ends = places[:, 0], places[:, 1]
    octets = memoryview(copied.data)
    if not codec_ids.any():
        return octets, starts - v2.HEADER_BYTES, ends
    sizes = (ends - starts).tolist()
    compressors = {codec_id: compressor(codec_name(codec_id), level) for codec_id in np.unique(codec_ids).tolist()}
    out = memoryview(np.empty(sum(map(compressed_bytes_max, sizes)) + v2.HEADER_BYTES * len(sizes), np.uint8).data)
    borders, end = [0], 0
    for start, size, codec_id in zip(starts.tolist(), sizes, codec_ids.tolist(), strict=True):
        end += v2.HEADER_BYTES
        end += compressors[codec_id](octets[start : start + size], out[end:])
        borders.append(end)
    return out, np.array(borders[:-1], dtype=np.int64), np.array(borders[1:], dtype=np.int64)
