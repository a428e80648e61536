"""Compiled code: encodes records as v2 batches.

For the layout of a record see `sparklog.record.format.v2`. Fields are passed as positions and lengths in a buffer, with
a length of -1 for null, as Arrow's arrays represent them. `cut_batches` measures the records and decides which go into
one batch; `write_records` writes them, and never past the end of its output; `seal_batches` writes headers before them,
once they are compressed.
"""

from __future__ import annotations

import numpy as np
from numba import types

from sparklog.record.format import headers as fields
from sparklog.record.format import v2
from sparklog.record.kernels.compile import inlined, kernel, step
from sparklog.record.kernels.crc import crc32c
from sparklog.record.kernels.memory import memcpy
from sparklog.record.kernels.scan import BYTES, BYTES_OUT, NUMBERS, NUMBERS_OUT, TABLE, TABLE_OUT

_HEADER_BYTES = v2.HEADER_BYTES
_CRC_COVERS_FROM = v2.CRC_COVERS_FROM
_SEQUENCE_MAX = v2.SEQUENCE_MAX

FIELDS = 7
KEY_POSITION, KEY_LENGTH, VALUE_POSITION, VALUE_LENGTH, TIMESTAMP, FIRST_HEADER, END_HEADER = range(FIELDS)
"""Rows of the table of records to write."""

HEADER_FIELDS = 4
NAME_POSITION, NAME_LENGTH, CONTENT_POSITION, CONTENT_LENGTH = range(HEADER_FIELDS)
"""Rows of the table of the records' headers."""

CUT_FIELDS = 2
FIRST_RECORD, RECORDS_BYTES = range(CUT_FIELDS)
"""Columns of the table of batches: the first record of each, and the bytes of all its records."""

SEAL_FIELDS = 6
START, END, ROW, COUNT, BASE_TIMESTAMP, MAX_TIMESTAMP = range(SEAL_FIELDS)
"""Columns of the table of batches to seal: start, end, first record's row, record count, base and largest timestamp."""


@inlined
def varint_bytes(number):
    """Count the bytes of a zigzag number: seven bits a byte."""
    raw = (np.uint64(number) << np.uint64(1)) ^ np.uint64(number >> np.int64(63))
    size = np.int64(1)
    while raw >= np.uint64(0x80):
        raw >>= np.uint64(7)
        size += 1
    return size


@inlined
def put_varint(out, position, number):
    """Write a zigzag number; return the position after it. The caller has checked that it fits."""
    raw = (np.uint64(number) << np.uint64(1)) ^ np.uint64(number >> np.int64(63))
    while raw >= np.uint64(0x80):
        out[position] = np.uint8((raw & np.uint64(0x7F)) | np.uint64(0x80))
        raw >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(raw)
    return position + 1


@inlined
def field_bytes(length):
    return varint_bytes(length) + max(length, np.int64(0))


@inlined
def put_field(out, position, buffer, start, length):
    position = put_varint(out, position, length)
    if length > 0:
        memcpy(out, position, buffer, start, length)
        position += length
    return position


@step
def _headers_bytes(headers, first, end):
    size = varint_bytes(end - first)
    for row in range(first, end):
        size += field_bytes(headers[NAME_LENGTH, row]) + field_bytes(headers[CONTENT_LENGTH, row])
    return size


@inlined
def _body_bytes(records, headers, row, base_timestamp, offset_delta):
    """Return the bytes of a record after its length field."""
    return (
        1
        + varint_bytes(records[TIMESTAMP, row] - base_timestamp)
        + varint_bytes(offset_delta)
        + field_bytes(records[KEY_LENGTH, row])
        + field_bytes(records[VALUE_LENGTH, row])
        + _headers_bytes(headers, records[FIRST_HEADER, row], records[END_HEADER, row])
    )


@kernel(types.int64(TABLE, TABLE, NUMBERS, types.int64, TABLE_OUT, NUMBERS_OUT))
def cut_batches(records, headers, log_ends, records_bytes_max, cuts, bodies):
    """Cut records into batches of at most ``records_bytes_max`` bytes of records; a single record may have more.

    Parameters
    ----------
    records : int64 array, shape (FIELDS, n_records)
    headers : int64 array, shape (HEADER_FIELDS, n_headers)
    log_ends : int64 array, shape (n_logs,)
        The rows after the last record of each log, ascending. No batch has records of two logs.
    cuts : int64 array, shape (n_records + 1, CUT_FIELDS)
        Written: a row for each batch.
    bodies : int64 array, shape (n_records,)
        Written: the bytes of each record after its length field.

    Returns
    -------
    int
        The number of batches.
    """
    batches, first, size, log = 0, np.int64(0), np.int64(0), 0
    base_timestamp = np.int64(0)
    for row in range(records.shape[1]):
        if row == first:
            base_timestamp = records[TIMESTAMP, row]
        body = _body_bytes(records, headers, row, base_timestamp, row - first)
        length = body + varint_bytes(body)
        begins_log = False
        while log < log_ends.shape[0] and log_ends[log] <= row:
            begins_log, log = True, log + 1
        if row > first and (begins_log or size + length > records_bytes_max):
            cuts[batches, FIRST_RECORD], cuts[batches, RECORDS_BYTES] = first, size
            batches, first, size, base_timestamp = batches + 1, row, np.int64(0), records[TIMESTAMP, row]
            body = _body_bytes(records, headers, row, base_timestamp, np.int64(0))
            length = body + varint_bytes(body)
        bodies[row] = body
        size += length
    if records.shape[1]:
        cuts[batches, FIRST_RECORD], cuts[batches, RECORDS_BYTES] = first, size
        batches += 1
    return batches


@kernel(types.boolean(TABLE, TABLE, BYTES, BYTES, BYTES, BYTES, TABLE, NUMBERS_OUT, BYTES_OUT))
def write_records(records, headers, keys, values, names, contents, cuts, bodies, out):
    """Write the records of all batches, one after another.

    Parameters
    ----------
    keys, values, names, contents : uint8 arrays
        The buffers with the fields; the caller has checked the tables' positions against them.
    cuts : int64 array, shape (n_batches + 1, CUT_FIELDS)
        From `cut_batches`; the last row has the number of records for its first.
    out : uint8 array, shape (the sum of RECORDS_BYTES,)
        Written.

    Returns
    -------
    bool
        Whether the records took exactly the measured bytes.
    """
    position = np.int64(0)
    for batch in range(cuts.shape[0] - 1):
        first, batch_end = cuts[batch, FIRST_RECORD], position + cuts[batch, RECORDS_BYTES]
        if batch_end > out.shape[0]:
            return False
        for row in range(first, cuts[batch + 1, FIRST_RECORD]):
            if position + bodies[row] + varint_bytes(bodies[row]) > batch_end:
                return False
            position = put_varint(out, position, bodies[row])
            record_end = position + bodies[row]
            out[position] = 0
            position = put_varint(out, position + 1, records[TIMESTAMP, row] - records[TIMESTAMP, first])
            position = put_varint(out, position, row - first)
            position = put_field(out, position, keys, records[KEY_POSITION, row], records[KEY_LENGTH, row])
            position = put_field(out, position, values, records[VALUE_POSITION, row], records[VALUE_LENGTH, row])
            first_header, end_header = records[FIRST_HEADER, row], records[END_HEADER, row]
            position = put_varint(out, position, end_header - first_header)
            for h in range(first_header, end_header):
                position = put_field(out, position, names, headers[NAME_POSITION, h], headers[NAME_LENGTH, h])
                position = put_field(out, position, contents, headers[CONTENT_POSITION, h], headers[CONTENT_LENGTH, h])
            if position != record_end:
                return False
        if position != batch_end:
            return False
    return position == out.shape[0]


@kernel(types.int64(TABLE, TABLE, TABLE, types.int64, types.int64, TABLE_OUT))
def describe_batches(records, cuts, ends, first_row, append_time, batches):
    """Fill the table from which `seal_batches` writes headers.

    Parameters
    ----------
    records : int64 array, shape (FIELDS, n_records)
    cuts : int64 array, shape (n_batches + 1, CUT_FIELDS)
        From `cut_batches`; the last row has the number of records for its first.
    ends : int64 array, shape (1, n_batches)
        The end of each batch; the next one begins there.
    first_row : int
        The caller's row of the first record.
    append_time : int
        The timestamp of all records; below 0 if each has its own.
    batches : int64 array, shape (n_batches, SEAL_FIELDS)
        Written.

    Returns
    -------
    int
        The size of the longest batch in bytes.
    """
    longest, start = np.int64(0), np.int64(0)
    for b in range(batches.shape[0]):
        first, end = cuts[b, FIRST_RECORD], ends[0, b]
        latest = records[TIMESTAMP, first]
        for row in range(first, cuts[b + 1, FIRST_RECORD]):
            latest = max(latest, records[TIMESTAMP, row])
        batches[b, START], batches[b, END] = start, end
        batches[b, ROW], batches[b, COUNT] = first + first_row, cuts[b + 1, FIRST_RECORD] - first
        batches[b, BASE_TIMESTAMP] = records[TIMESTAMP, first]
        batches[b, MAX_TIMESTAMP] = latest if append_time < 0 else append_time
        longest, start = max(longest, end - start), end
    return longest


@inlined
def put_integer(out, position, number, size):
    """Write the lowest ``size`` bytes of a number, big-endian; return the position after them."""
    for n in range(size):
        out[position + n] = np.uint8(number >> np.int64(8 * (size - 1 - n)))
    return position + size


@inlined
def put_header(
    out,
    start,
    end,
    leader_epoch,
    attributes,
    base_offset,
    last_offset_delta,
    base_timestamp,
    max_timestamp,
    producer_id,
    producer_epoch,
    sequence,
    count,
):
    """Write the header of a batch except its checksum; the caller has checked that it fits."""
    at = put_integer(out, start, base_offset, 8)
    at = put_integer(out, at, end - start - 12, 4)
    at = put_integer(out, at, leader_epoch, 4)
    out[at] = 2
    at = put_integer(out, at + 5, attributes, 2)
    at = put_integer(out, at, last_offset_delta, 4)
    at = put_integer(out, at, base_timestamp, 8)
    at = put_integer(out, at, max_timestamp, 8)
    at = put_integer(out, at, producer_id, 8)
    at = put_integer(out, at, producer_epoch, 2)
    at = put_integer(out, at, sequence, 4)
    put_integer(out, at, count, 4)


@inlined
def put_crc(out, start, end):
    """Write and return the checksum of a batch whose header and records have been written."""
    crc = crc32c(out, start + _CRC_COVERS_FROM, end)
    put_integer(out, start + 17, crc, 4)
    return crc


@kernel(types.boolean(BYTES_OUT, TABLE, *[types.int64] * 6, types.boolean, TABLE_OUT))
def seal_batches(
    out, batches, base_offset, attributes, leader_epoch, producer_id, producer_epoch, base_sequence, with_crc, table
):
    """Write the header of every batch into the free bytes before its records.

    Parameters
    ----------
    out : uint8 array
        Written: the first `v2.HEADER_BYTES` of each batch.
    batches : int64 array, shape (n_batches, SEAL_FIELDS)
    base_offset, base_sequence : int
        The base offset and base sequence of row 0; the sequence is -1 without a producer.
    with_crc : bool
        Whether to write checksums; if not, the caller writes them, also into the table.
    table : int64 array, shape (n_batches, headers.TABLE_FIELDS)
        Written: the same rows that a scan of ``out`` would find.

    Returns
    -------
    bool
        Whether every batch was inside ``out``.
    """
    for b in range(batches.shape[0]):
        start, end, row, count = batches[b, START], batches[b, END], batches[b, ROW], batches[b, COUNT]
        if start < 0 or end > out.shape[0] or end - start < _HEADER_BYTES:
            return False
        sequence = np.int64(-1)
        if base_sequence >= 0:
            sequence = (base_sequence + row) & np.int64(_SEQUENCE_MAX)
        put_header(
            out,
            start,
            end,
            leader_epoch,
            attributes,
            base_offset + row,
            count - 1,
            batches[b, BASE_TIMESTAMP],
            batches[b, MAX_TIMESTAMP],
            producer_id,
            producer_epoch,
            sequence,
            count,
        )
        crc = put_crc(out, start, end) if with_crc else np.int64(-1)
        table[b, fields.POSITION], table[b, fields.BATCH_BYTES], table[b, fields.MAGIC], table[b, fields.ATTRIBUTES] = (
            start,
            end - start,
            2,
            attributes,
        )
        table[b, fields.CRC], table[b, fields.BASE_OFFSET], table[b, fields.LAST_OFFSET] = (
            crc,
            base_offset + row,
            base_offset + row + count - 1,
        )
        table[b, fields.BASE_TIMESTAMP], table[b, fields.MAX_TIMESTAMP] = (
            batches[b, BASE_TIMESTAMP],
            batches[b, MAX_TIMESTAMP],
        )
        table[b, fields.PRODUCER_ID], table[b, fields.PRODUCER_EPOCH], table[b, fields.BASE_SEQUENCE] = (
            producer_id,
            producer_epoch,
            sequence,
        )
        table[b, fields.LEADER_EPOCH], table[b, fields.RECORD_COUNT], table[b, fields.LOWEST_OFFSET] = (
            leader_epoch,
            count,
            0,
        )
    return True
