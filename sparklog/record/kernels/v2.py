"""Compiled code: decodes the records of v2 batches directly into Arrow columns.

For the layout of a record see `sparklog.record.format.v2`.
"""

from __future__ import annotations

import numpy as np

from sparklog.record.format.headers import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CRC,
    LAST_OFFSET,
    LOWEST_OFFSET,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from sparklog.record.format.v2 import CRC_COVERS_FROM, HEADER_BYTES, LOG_APPEND_TIME, OFFSET_MAX, RECORD_BYTES_MIN
from sparklog.record.kernels.compile import apart, inlined, kernel, step
from sparklog.record.kernels.crc import crc32c
from sparklog.record.kernels.filter import FILTER, passes
from sparklog.record.kernels.memory import item, set_item
from sparklog.record.kernels.scan import (
    BAD_HEADER_COUNT,
    BAD_HEADER_LENGTH,
    BAD_OFFSET,
    BAD_RECORD_LENGTH,
    BATCH,
    BEYOND_RANGE,
    CROWDED,
    DECODE,
    EXCESS_END,
    FULL,
    HEADERS,
    HEADERS_DO_NOT_FIT,
    KEYS,
    LAST_OFFSET_DONE,
    NEXT_RECORD,
    OK,
    OUTSIDE,
    PREVIOUS_OFFSET,
    RECORD_BYTES,
    RECORD_NOT_FILLED,
    RECORD_TOO_LARGE,
    RECORDS_DONE,
    ROWS,
    TAKEN_BYTES,
    TOO_FEW_RECORDS,
    TRAILING_BYTES,
    VALUES,
    WRONG_CRC,
    put,
    span,
    wrapped_sum,
)
from sparklog.record.kernels.varints import field, varint, varlong

# The size of the numbers at the beginning of a record, in three bytes each, and of its attributes.
_NUMBERS_BYTES = 4 * 3 + 1
_CRC_LEAD = HEADER_BYTES - CRC_COVERS_FROM


@inlined
def _skip_headers(buffer, position, count, end):
    """Skip ``count`` record headers; no name may be null, a content may."""
    if count < 0 or count > end - position:
        return np.int64(-BAD_HEADER_COUNT)
    for _ in range(count):
        _, length, position = field(buffer, position, end)
        if position < 0 or length < 0:
            return np.int64(-BAD_HEADER_LENGTH)
        _, _, position = field(buffer, position, end)
        if position < 0:
            return np.int64(-BAD_HEADER_LENGTH)
    return position


@inlined
def _put_headers(buffer, position, count, end, first, output):
    """Copy the headers that `_skip_headers` has skipped to the rows from ``first`` on."""
    for row in range(first, first + count):
        start, length, position = field(buffer, position, end)
        put(output.name, row, buffer, start, length)
        start, length, position = field(buffer, position, end)
        put(output.content, row, buffer, start, length)


@apart
def _any_record(buffer, record, end):
    """Find the fields of a record of any form, like `_record`; return the fault of a malformed one."""
    nothing = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    if record >= end:
        return np.int64(-TOO_FEW_RECORDS), nothing
    length, position = varint(buffer, record, end)
    if position < 0:
        return position, nothing
    if length < 1 or length > end - position:
        return np.int64(-BAD_RECORD_LENGTH), nothing
    record_end = position + length
    timestamp, position = varlong(buffer, position + 1, record_end)
    if position < 0:
        return position, nothing
    offset, position = varint(buffer, position, record_end)
    if position < 0:
        return position, nothing
    key, key_length, position = field(buffer, position, record_end)
    if position < 0:
        return position, nothing
    value, value_length, position = field(buffer, position, record_end)
    if position < 0:
        return position, nothing
    header_count, headers = varint(buffer, position, record_end)
    position = headers
    if headers >= 0 and header_count != 0:
        position = _skip_headers(buffer, headers, header_count, record_end)
    if position < 0:
        return position, nothing
    if position != record_end:
        return np.int64(-RECORD_NOT_FILLED), nothing
    return record_end, (offset, timestamp, key, key_length, value, value_length, headers, header_count)


@inlined
def _short_number(buffer, position, is_longer):
    """Read a number of up to three bytes without undoing zigzag; the caller has checked that the bytes exist.

    Returns
    -------
    (number, position, is_longer)
        If the number is longer, bit 7 of ``is_longer`` is set, and the other two are meaningless.
    """
    raw = np.uint64(item(buffer, position))
    if raw < 0x80:
        position += 1
    else:
        second = np.uint64(item(buffer, position + 1))
        raw = raw & np.uint64(0x7F) | (second & np.uint64(0x7F)) << np.uint64(7)
        position += 2
        if second >= 0x80:
            third = np.uint64(item(buffer, position))
            is_longer |= third
            raw |= third << np.uint64(14)
            position += 1
    return raw, position, is_longer


@inlined
def _signed(raw):
    """Undo zigzag."""
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))


@inlined
def _length(raw):
    """Undo zigzag of a length: (number of bytes, 1 for null, else 0)."""
    is_null = np.int64(raw & np.uint64(1))
    return np.int64(raw >> np.uint64(1)) & (is_null - 1), is_null


@inlined
def _record(buffer, record, end):
    """Find the fields of the record at ``record``: (its end or a negated status, the fields for `_put_record`).

    Most records have one form: no number is longer than three bytes, and there are few headers. They are read without
    checking the end at each number: it is enough that the buffer has the bytes, and that the fields end where the
    record does. Any other record is read again from its beginning.
    """
    bytes_end = buffer.shape[0] - _NUMBERS_BYTES
    if record <= bytes_end:
        length, position, is_longer = _short_number(buffer, record, np.uint64(0))
        # A negative length, with bit 0 set, makes a record that ends nowhere near its fields.
        record_end = position + np.int64(length >> np.uint64(1))
        is_longer |= length << np.uint64(7)
        timestamp, position, is_longer = _short_number(buffer, position + 1, is_longer)
        offset, position, is_longer = _short_number(buffer, position, is_longer)
        key_length, key, is_longer = _short_number(buffer, position, is_longer)
        key_bytes, is_key_null = _length(key_length)
        position = key + key_bytes
        if position <= bytes_end:
            value_length, value, is_longer = _short_number(buffer, position, is_longer)
            value_bytes, is_value_null = _length(value_length)
            position = value + value_bytes
            if is_longer & np.uint64(0x80) == 0 and position < record_end and record_end <= end:
                header_count, headers = np.int64(0), position + 1
                raw = np.uint64(item(buffer, position))
                position = headers
                if raw != 0:
                    header_count = _signed(raw)
                    position = _skip_headers(buffer, headers, header_count, record_end) if raw < 0x80 else record
                if position == record_end:
                    key_length, value_length = key_bytes - is_key_null, value_bytes - is_value_null
                    return record_end, (
                        _signed(offset),
                        _signed(timestamp),
                        key,
                        key_length,
                        value,
                        value_length,
                        headers,
                        header_count,
                    )
    return _any_record(buffer, record, end)


@inlined
def _put_record(buffer, record_end, fields, wanted, row, output):
    """Copy a record's wanted fields to a row; the caller writes offset, timestamp and batch."""
    _, _, key, key_length, value, value_length, headers, header_count = fields
    if wanted & KEYS:
        put(output.key, row, buffer, key, key_length)
    if wanted & VALUES:
        put(output.value, row, buffer, value, value_length)
    if output.lists.shape[0] > 0:
        first = np.int64(item(output.lists, row))
        set_item(output.lists, row + 1, first + header_count)
        if header_count > 0:
            _put_headers(buffer, headers, header_count, record_end, first, output)


@inlined
def _capacity_status(row, taken, record_bytes, header_count, bytes_max, wanted, output):
    """Return the status of adding a record and its headers to the output: OK, or why it does not fit."""
    if row >= output.offsets.shape[0] or taken + record_bytes > bytes_max:
        return FULL if row > 0 else RECORD_TOO_LARGE
    if wanted & HEADERS and header_count > 0:
        if output.lists.shape[0] == 0:
            return HEADERS_DO_NOT_FIT
        if header_count > output.name.valid.shape[0] - output.lists[row]:
            return FULL if row > 0 else RECORD_TOO_LARGE
    return OK


@step
def _batch_status(buffer, table, r, start, end, in_place):
    """Check a batch without its records: its position, checksum and record count."""
    if start < (HEADER_BYTES if in_place else 0) or end < start or end > buffer.shape[0]:
        return OUTSIDE
    if in_place and crc32c(buffer, start - _CRC_LEAD, end) != table[r, CRC]:
        return WRONG_CRC
    if table[r, RECORD_COUNT] * RECORD_BYTES_MIN > end - start:
        return CROWDED
    return OK


@apart
def _excess_status(offset_delta, base_offset, end_offset, last_offset, excess_end):
    """Return, as a status, whether a record's offset may be above the last one in its batch's header, as in Kafka.

    If the batch itself is before the end of the range, no other range reads it, and the record must not be lost.
    """
    if base_offset > OFFSET_MAX - offset_delta:
        return BAD_OFFSET
    if last_offset < end_offset and base_offset + offset_delta >= excess_end:
        return BEYOND_RANGE
    return OK


@inlined
def decode_batch(buffer, table, r, record, end, in_place, request, cursor, output, is_wanted, program):
    """Decode one batch for `decode_records`, from its beginning or from the cursor's position, at which it was cut.

    The records for which ``is_wanted``, a step such as `passes`, is true are copied. The request is the start and end
    offset, the wanted columns and ``bytes_max``.
    """
    start_offset, end_offset, wanted, bytes_max = request
    count, base_offset, last_offset = table[r, RECORD_COUNT], table[r, BASE_OFFSET], table[r, LAST_OFFSET]
    last_delta = last_offset - base_offset
    previous_delta = max(max(cursor[LAST_OFFSET_DONE], table[r, LOWEST_OFFSET] - 1) - base_offset, np.int64(-1))
    row, taken, done = cursor[ROWS], cursor[TAKEN_BYTES], cursor[RECORDS_DONE]
    first_row = row
    if done > 0:
        record, previous_delta = cursor[NEXT_RECORD], cursor[PREVIOUS_OFFSET] - base_offset
    else:
        status = _batch_status(buffer, table, r, record, end, in_place)
        if status != OK or count == 0:
            return status
    does_fit = taken + end - record <= bytes_max and row + count - done <= output.offsets.shape[0]
    if done == 0 and row > 0 and not does_fit:
        return FULL
    is_inside = start_offset <= base_offset and last_offset < end_offset
    # If the batch is inside the range, records up to its last offset need no further check.
    inside_delta = last_delta if is_inside else np.int64(-1)
    is_append_time = table[r, ATTRIBUTES] & LOG_APPEND_TIME != 0
    base_timestamp = table[r, MAX_TIMESTAMP] if is_append_time else table[r, BASE_TIMESTAMP]
    delta_mask = np.int64(0 if is_append_time else -1)
    timestamp_type = np.int64(1 if is_append_time else 0)
    while done < count:
        record_end, fields = _record(buffer, record, end)
        if record_end < 0:
            return -record_end
        if fields[0] <= previous_delta:
            return BAD_OFFSET
        offset = base_offset + fields[0]
        is_taken = True
        if fields[0] > inside_delta:
            taken_end = end_offset
            if fields[0] > last_delta:
                status = _excess_status(fields[0], base_offset, end_offset, last_offset, cursor[EXCESS_END])
                if status != OK:
                    return status
                taken_end = cursor[EXCESS_END] if last_offset < end_offset else end_offset
            is_taken = start_offset <= offset < taken_end
        timestamp = wrapped_sum(base_timestamp, fields[1] & delta_mask)
        if is_taken and is_wanted(program, buffer, record_end, fields, offset, timestamp, timestamp_type):
            if not does_fit or fields[7] > 0:
                status = _capacity_status(row, taken, record_end - record, fields[7], bytes_max, wanted, output)
                if status != OK:
                    if first_row == 0:
                        cursor[RECORDS_DONE], cursor[NEXT_RECORD] = done, record
                        cursor[PREVIOUS_OFFSET] = base_offset + previous_delta
                        cursor[ROWS], cursor[RECORD_BYTES] = row, record_end - record
                    return status
            set_item(output.offsets, row, offset)
            set_item(output.timestamps, row, timestamp)
            set_item(output.batches, row, r)
            _put_record(buffer, record_end, fields, wanted, row, output)
            taken += record_end - record
            row += 1
        previous_delta = fields[0]
        record = record_end
        done += 1
    if record != end:
        return TRAILING_BYTES
    cursor[RECORDS_DONE], cursor[ROWS], cursor[TAKEN_BYTES] = 0, row, taken
    cursor[LAST_OFFSET_DONE] = base_offset + previous_delta
    return OK


@kernel(DECODE, FILTER)
def decode_records(
    buffer,
    table,
    spans,
    first,
    end_row,
    origin,
    in_place,
    start_offset,
    end_offset,
    wanted,
    bytes_max,
    cursor,
    output,
    program=None,
):
    """Copy the records of v2 batches whose offset is in [start_offset, end_offset) into columns.

    Parameters
    ----------
    buffer : uint8 array
        The bytes that hold the records, decompressed.
    table : int64 array, shape (n_batches, headers.TABLE_FIELDS)
        The headers; not changed.
    spans : int64 array, shape (n, 2)
        START and END of the records of the batches from row ``first`` of the table on; if empty, the table has the
        positions.
    first, end_row : int
        The rows of the batches to decode.
    origin : int
        The position, as in the table, of the first byte of the buffer.
    in_place : bool
        Whether each batch's header is before its records. If so, its checksum is verified, while its bytes are in the
        cache anyway; else the caller has verified it.
    wanted : int
        The bits KEYS, VALUES, HEADERS of the columns to copy. The rest of a record is checked all the same.
    bytes_max : int
        The most bytes of each data buffer of the output.
    cursor : int64 array, shape (CURSOR_FIELDS,)
        The state at which to continue; updated.
    program : Program, optional
        A filter. Only records that pass it are copied; the others are checked all the same.

    Returns
    -------
    int
        OK when all batches of the rows are done. FULL when the output must be emptied first; a batch is only cut if it
        is larger than an empty output. HEADERS_DO_NOT_FIT when a record has headers and the output has no memory for
        any. RECORD_TOO_LARGE when a record is larger than the empty output. Else the code of the fault of the
        batch at the cursor; the output has no row of it unless the batch had been cut.
    """
    request = start_offset, end_offset, wanted, bytes_max
    while cursor[BATCH] < end_row:
        r = cursor[BATCH]
        start, end = span(spans, table, r, first, origin)
        status = decode_batch(buffer, table, r, start, end, in_place, request, cursor, output, passes, program)
        if status != OK:
            return status
        cursor[BATCH] = r + 1
    return OK
