"""Compiled code: copies the remaining records of batches into new batches.

The positions of records come from `sparklog.record.kernels.spans`, which has checked them against the ends of their
batches. Most records are copied unchanged, adjacent ones together. A record whose timestamp becomes relative to another
base, or whose value is replaced, is written from its parts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from sparklog.record.format import headers as fields
from sparklog.record.format import v2
from sparklog.record.kernels.compile import kernel, step
from sparklog.record.kernels.crc import crc32
from sparklog.record.kernels.encode import (
    field_bytes,
    put_crc,
    put_field,
    put_header,
    put_integer,
    put_varint,
    varint_bytes,
)
from sparklog.record.kernels.memory import memcpy
from sparklog.record.kernels.scan import BYTES, BYTES_OUT, NUMBERS, TABLE, TABLE_OUT, wrapped_sum
from sparklog.record.kernels.spans import (
    END,
    HEADER_COUNT,
    HEADERS,
    KEY,
    KEY_BYTES,
    OFFSET,
    START,
    TIMESTAMP,
    VALUE,
    VALUE_BYTES,
)

NEW_BYTES_MAX: Final = 48
"""The most bytes by which a record written from its parts is longer than it was."""

COPY_FIELDS: Final = 7
(
    BATCH,
    BASE_TIMESTAMP,
    COPY_START,
    COPY_END,
    COUNT,
    MAX_TIMESTAMP,
    LAST_OFFSET,
) = range(COPY_FIELDS)
"""Columns of the table of batches to write: the row of a batch's header, and the base of its timestamps; then, written
by the kernels, where its records are in the copy, their number, the latest of their timestamps, -1 for none, and the
offset of the last, -1 for none."""

REWRITTEN_SEAL_FIELDS: Final = 12
(
    SEAL_START,
    SEAL_END,
    SEAL_EPOCH,
    SEAL_ATTRIBUTES,
    SEAL_OFFSET,
    SEAL_DELTA,
    SEAL_BASE_TIMESTAMP,
    SEAL_MAX_TIMESTAMP,
    SEAL_PRODUCER,
    SEAL_PRODUCER_EPOCH,
    SEAL_SEQUENCE,
    SEAL_COUNT,
) = range(REWRITTEN_SEAL_FIELDS)
"""Columns of the table of batches whose headers are written."""

_COPY = types.boolean(BYTES, TABLE, NUMBERS, TABLE, BYTES, BYTES, types.int64, types.int64, TABLE_OUT, BYTES_OUT)
_HEADER_BYTES = v2.HEADER_BYTES
_CODEC_MASK = v2.CODEC_MASK


@step
def is_inside(octets, records, row, copied):
    """Return whether a record and its parts are inside the bytes, and fit after the copied ones."""
    start, end = records[row, START], records[row, END]
    key, key_bytes = records[row, KEY], max(records[row, KEY_BYTES], np.int64(0))
    value, value_bytes = records[row, VALUE], max(records[row, VALUE_BYTES], np.int64(0))
    return (
        0 <= start <= key
        and key_bytes <= end - key
        and key <= value
        and value_bytes <= end - value
        and value <= records[row, HEADERS] <= end <= octets.shape[0]
        and end - start + NEW_BYTES_MAX <= copied
    )


@step
def put_record(out, position, octets, records, row, base_timestamp, base_offset, value_bytes):
    """Write a record from its parts; return the position after it."""
    delta = wrapped_sum(records[row, TIMESTAMP], -base_timestamp)
    offset_delta = records[row, OFFSET] - base_offset
    headers = records[row, HEADERS]
    headers_bytes = records[row, END] - headers
    count = records[row, HEADER_COUNT]
    body = (
        1
        + varint_bytes(delta)
        + varint_bytes(offset_delta)
        + field_bytes(records[row, KEY_BYTES])
        + field_bytes(value_bytes)
        + varint_bytes(count)
        + headers_bytes
    )
    position = put_varint(out, position, body)
    out[position] = 0
    position = put_varint(out, position + 1, delta)
    position = put_varint(out, position, offset_delta)
    position = put_field(out, position, octets, records[row, KEY], records[row, KEY_BYTES])
    position = put_field(out, position, octets, records[row, VALUE], value_bytes)
    position = put_varint(out, position, count)
    memcpy(out, position, octets, headers, headers_bytes)
    return position + headers_bytes


@kernel(_COPY)
def copy_records(octets, records, batch_ends, headers, keep, blank, blank_bytes, gap_bytes, batches, out):
    """Copy the remaining records of some v2 batches, one batch after another.

    Parameters
    ----------
    octets : uint8 array
        The bytes that hold the records.
    records : int64 array, shape (n_records, kernels_spans.SPAN_FIELDS)
    batch_ends : int64 array, shape (n_headers,)
        The row after the last record of each batch.
    headers : int64 array, shape (n_headers, headers.TABLE_FIELDS)
    keep, blank : uint8 array, shape (n_records,)
        1 for each record that stays, and for each record whose value is replaced.
    blank_bytes : int
        -1 to replace a value by null, 0 by nothing.
    gap_bytes : int
        The number of bytes to leave free before the records of each batch.
    batches : int64 array, shape (n_batches, COPY_FIELDS)
        The batches to write, ascending, with BATCH and BASE_TIMESTAMP; the other columns are written.
    out : uint8 array
        Written.

    Returns
    -------
    bool
        Whether all records were inside ``octets``, and fitted into ``out``.
    """
    position = np.int64(0)
    for b in range(batches.shape[0]):
        r = batches[b, BATCH]
        first = batch_ends[r - 1] if r > 0 else np.int64(0)
        base_offset, base_timestamp = headers[r, fields.BASE_OFFSET], batches[b, BASE_TIMESTAMP]
        is_rebased = base_timestamp != headers[r, fields.BASE_TIMESTAMP]
        position += gap_bytes
        if position > out.shape[0] or batch_ends[r] > records.shape[0]:
            return False
        batches[b, COPY_START] = position
        count, latest, last_offset = np.int64(0), np.int64(-1), np.int64(-1)
        # The bytes of adjacent records that are to be copied unchanged, and have not been copied yet.
        run_start = run_end = np.int64(0)
        for row in range(first, batch_ends[r]):
            if keep[row] == 0:
                continue
            if not is_inside(octets, records, row, out.shape[0] - position - (run_end - run_start)):
                return False
            count += 1
            latest, last_offset = max(latest, records[row, TIMESTAMP]), records[row, OFFSET]
            is_blanked = blank[row] != 0 and records[row, VALUE_BYTES] != blank_bytes
            if is_rebased or is_blanked or records[row, START] != run_end:
                memcpy(out, position, octets, run_start, run_end - run_start)
                position += run_end - run_start
                run_start = run_end = records[row, START]
            if is_rebased or is_blanked:
                value_bytes = blank_bytes if is_blanked else records[row, VALUE_BYTES]
                position = put_record(out, position, octets, records, row, base_timestamp, base_offset, value_bytes)
                run_start = run_end = records[row, END]
            else:
                run_end = records[row, END]
        memcpy(out, position, octets, run_start, run_end - run_start)
        position += run_end - run_start
        batches[b, COPY_END], batches[b, COUNT] = position, count
        batches[b, MAX_TIMESTAMP], batches[b, LAST_OFFSET] = latest, last_offset
    return True


@kernel(_COPY)
def copy_messages(octets, records, batch_ends, headers, keep, blank, blank_bytes, gap_bytes, batches, out):
    """Copy the remaining messages of magic 0 and 1 of some batches; like `copy_records`, without BASE_TIMESTAMP.

    Inside a wrapper of magic 1, offsets count from the first remaining message.
    """
    position = np.int64(0)
    for b in range(batches.shape[0]):
        r = batches[b, BATCH]
        first = batch_ends[r - 1] if r > 0 else np.int64(0)
        is_relative = headers[r, fields.MAGIC] == 1 and headers[r, fields.ATTRIBUTES] & _CODEC_MASK != 0
        position += gap_bytes
        if position > out.shape[0] or batch_ends[r] > records.shape[0]:
            return False
        batches[b, COPY_START] = position
        count, latest, last_offset, shift = np.int64(0), np.int64(-1), np.int64(-1), np.int64(0)
        for row in range(first, batch_ends[r]):
            if keep[row] == 0:
                continue
            if not is_inside(octets, records, row, out.shape[0] - position):
                return False
            offset = records[row, OFFSET]
            if count == 0 and is_relative:
                shift = offset
            count += 1
            latest, last_offset = max(latest, records[row, TIMESTAMP]), offset
            is_blanked = blank[row] != 0 and records[row, VALUE_BYTES] != blank_bytes
            start, message_bytes = (
                position,
                (records[row, VALUE] if is_blanked else records[row, END]) - records[row, START],
            )
            memcpy(out, start, octets, records[row, START], message_bytes)
            position += message_bytes
            put_integer(out, start, offset - shift, 8)
            if is_blanked:
                put_integer(out, position - 4, blank_bytes, 4)
                put_integer(out, start + 8, message_bytes - 12, 4)
                put_integer(out, start + 12, crc32(out, start + 16, position), 4)
        batches[b, COPY_END], batches[b, COUNT] = position, count
        batches[b, MAX_TIMESTAMP], batches[b, LAST_OFFSET] = latest, last_offset
    return True


@kernel(types.boolean(BYTES_OUT, TABLE, types.boolean))
def seal_batches_anew(out, batches, with_crc):
    """Write the header of every batch into the free bytes before its records.

    Parameters
    ----------
    out : uint8 array
        Written.
    batches : int64 array, shape (n_batches, REWRITTEN_SEAL_FIELDS)
    with_crc : bool
        Whether to write checksums; if not, the caller writes them.

    Returns
    -------
    bool
        Whether every batch was inside ``out``.
    """
    for b in range(batches.shape[0]):
        start, end = batches[b, SEAL_START], batches[b, SEAL_END]
        if start < 0 or end > out.shape[0] or end - start < _HEADER_BYTES:
            return False
        put_header(
            out,
            start,
            end,
            batches[b, SEAL_EPOCH],
            batches[b, SEAL_ATTRIBUTES],
            batches[b, SEAL_OFFSET],
            batches[b, SEAL_DELTA],
            batches[b, SEAL_BASE_TIMESTAMP],
            batches[b, SEAL_MAX_TIMESTAMP],
            batches[b, SEAL_PRODUCER],
            batches[b, SEAL_PRODUCER_EPOCH],
            batches[b, SEAL_SEQUENCE],
            batches[b, SEAL_COUNT],
        )
        if with_crc:
            put_crc(out, start, end)
    return True
