"""Compiled code: decodes messages of magic 0 and 1 directly into Arrow columns.

For the layout of a message see `sparklog.record.format.legacy`.
"""

from __future__ import annotations

import numpy as np

from sparklog.record.format.headers import ATTRIBUTES, BASE_OFFSET, LAST_OFFSET, LOWEST_OFFSET, MAGIC, MAX_TIMESTAMP
from sparklog.record.format.legacy import SIZE_MIN
from sparklog.record.format.v2 import CODEC_MASK, LOG_APPEND_TIME
from sparklog.record.kernels.compile import inlined, kernel, step
from sparklog.record.kernels.crc import crc32
from sparklog.record.kernels.filter import FILTER, passes
from sparklog.record.kernels.memory import big_endian_32, big_endian_64, item, set_item
from sparklog.record.kernels.scan import (
    BAD_FIELD_LENGTH,
    BAD_MESSAGE_MAGIC,
    BAD_MESSAGE_SIZE,
    BAD_OFFSET,
    BAD_WRAPPER_OFFSET,
    BATCH,
    DECODE,
    EMPTY_WRAPPER,
    FULL,
    KEYS,
    LAST_OFFSET_DONE,
    NESTED_COMPRESSION,
    NEXT_RECORD,
    OFFSET_SHIFT,
    OK,
    OUTSIDE,
    PREVIOUS_OFFSET,
    RECORD_BYTES,
    RECORD_TOO_LARGE,
    RECORDS_DONE,
    ROWS,
    TAKEN_BYTES,
    VALUES,
    WRAPPER_OVERLAP,
    WRONG_CRC,
    WRONG_WRAPPER_OFFSET,
    put,
    span,
    wrapped_sum,
)


@step
def _walk(buffer, position, end):
    """Walk over the messages that must fill a span: (status, offset fields of the first and of the last)."""
    first_offset = last_offset = np.int64(-1)
    if position == end:
        return EMPTY_WRAPPER, first_offset, last_offset
    start = position
    while position < end:
        if end - position < 12:
            return BAD_MESSAGE_SIZE, first_offset, last_offset
        size = big_endian_32(buffer, position + 8)
        if size < SIZE_MIN or size > end - position - 12:
            return BAD_MESSAGE_SIZE, first_offset, last_offset
        last_offset = big_endian_64(buffer, position)
        if position == start:
            first_offset = last_offset
        position += size + 12
    return OK, first_offset, last_offset


@inlined
def _message_status(buffer, position, end, wrapped):
    """Check the format and checksum of the message that `_walk` found in ``buffer[position:end]``."""
    magic = buffer[position + 16]
    if magic > 1:
        return BAD_MESSAGE_MAGIC
    if end - position < (34 if magic == 1 else 26):
        return BAD_MESSAGE_SIZE
    if crc32(buffer, position + 16, end) != big_endian_32(buffer, position + 12) & np.int64(0xFFFFFFFF):
        return WRONG_CRC
    if wrapped and buffer[position + 17] & CODEC_MASK:
        return NESTED_COMPRESSION
    return OK


@inlined
def _fields(buffer, position, end):
    """Find key and value of a message: (status, key, key length, value, value length); a length of -1 is null."""
    key = position + (30 if buffer[position + 16] == 1 else 22)
    key_length = big_endian_32(buffer, key - 4)
    if key_length > end - key - 4:
        return BAD_FIELD_LENGTH, key, key_length, key, key_length
    value = key + max(key_length, 0) + 4
    value_length = big_endian_32(buffer, value - 4)
    # As in Kafka's own reader, bytes of a message after its value are not checked.
    if value_length > end - value:
        return BAD_FIELD_LENGTH, key, key_length, value, value_length
    return OK, key, max(key_length, -1), value, max(value_length, -1)


@step
def _begin_span(buffer, table, r, start, end, previous_offset, cursor):
    """Check the messages of a span, and write the number to add to the offsets inside it to the cursor.

    No checksum covers a wrapper's offset, but one covers the offsets inside: they must agree as far as the format
    allows. The base offset of a wrapper, which its header does not have, is written into the table.
    """
    if start < 0 or end < start or end > buffer.shape[0]:
        return OUTSIDE
    status, first_offset, last_offset = _walk(buffer, start, end)
    if status != OK:
        return status
    cursor[OFFSET_SHIFT] = 0
    if table[r, ATTRIBUTES] & CODEC_MASK == 0:
        return OK
    if table[r, MAGIC] == 0:
        if table[r, LAST_OFFSET] != last_offset:
            return WRONG_WRAPPER_OFFSET
    # Old librdkafka left the wrapper's offset 0; then the offsets inside are absolute.
    elif table[r, LAST_OFFSET] != 0:
        if table[r, LAST_OFFSET] < last_offset:
            return BAD_WRAPPER_OFFSET
        cursor[OFFSET_SHIFT] = wrapped_sum(table[r, LAST_OFFSET], -last_offset)
    table[r, BASE_OFFSET] = wrapped_sum(first_offset, cursor[OFFSET_SHIFT])
    return OK if table[r, BASE_OFFSET] > previous_offset else WRAPPER_OVERLAP


@inlined
def decode_span(buffer, table, r, position, end, request, cursor, output, is_wanted, program):
    """Decode one batch for `decode_messages`, from its beginning or from the cursor's position, at which it was cut.

    The messages for which ``is_wanted``, a step such as `passes`, is true are copied. For the request see
    `sparklog.record.kernels.v2.decode_batch`.
    """
    start_offset, end_offset, wanted, bytes_max = request
    row, taken, done = cursor[ROWS], cursor[TAKEN_BYTES], cursor[RECORDS_DONE]
    previous_offset = max(cursor[LAST_OFFSET_DONE], table[r, LOWEST_OFFSET] - 1)
    first_row = row
    if done > 0:
        position, previous_offset = cursor[NEXT_RECORD], cursor[PREVIOUS_OFFSET]
    else:
        status = _begin_span(buffer, table, r, position, end, previous_offset, cursor)
        if status != OK:
            return status
        if row > 0 and taken + end - position > bytes_max:
            return FULL
    wrapped = table[r, ATTRIBUTES] & CODEC_MASK != 0
    is_append_time = table[r, MAGIC] == 1 and table[r, ATTRIBUTES] & LOG_APPEND_TIME != 0
    timestamp_type = np.int64(-1 if table[r, MAGIC] == 0 else 1 if is_append_time else 0)
    while position < end:
        message_end = position + 12 + big_endian_32(buffer, position + 8)
        status = _message_status(buffer, position, message_end, wrapped)
        if status != OK:
            return status
        status, key, key_length, value, value_length = _fields(buffer, position, message_end)
        if status != OK:
            return status
        offset = wrapped_sum(big_endian_64(buffer, position), cursor[OFFSET_SHIFT])
        if offset <= previous_offset:
            return BAD_OFFSET
        timestamp = np.int64(-1)
        if item(buffer, position + 16) == 1:
            timestamp = table[r, MAX_TIMESTAMP] if wrapped and is_append_time else big_endian_64(buffer, position + 18)
        fields = offset, timestamp, key, key_length, value, value_length, message_end, np.int64(0)
        if start_offset <= offset < end_offset and is_wanted(
            program, buffer, message_end, fields, offset, timestamp, timestamp_type
        ):
            if row >= output.offsets.shape[0] or taken + message_end - position > bytes_max:
                if first_row == 0:
                    cursor[RECORDS_DONE], cursor[NEXT_RECORD], cursor[PREVIOUS_OFFSET] = done, position, previous_offset
                    cursor[ROWS], cursor[RECORD_BYTES] = row, message_end - position
                return FULL if row > 0 else RECORD_TOO_LARGE
            set_item(output.offsets, row, offset)
            set_item(output.timestamps, row, timestamp)
            set_item(output.batches, row, r)
            if wanted & KEYS:
                put(output.key, row, buffer, key, key_length)
            if wanted & VALUES:
                put(output.value, row, buffer, value, value_length)
            if output.lists.shape[0] > 0:
                set_item(output.lists, row + 1, item(output.lists, row))
            taken += message_end - position
            row += 1
        done += 1
        previous_offset = offset
        position = message_end
    cursor[RECORDS_DONE], cursor[ROWS], cursor[TAKEN_BYTES] = 0, row, taken
    cursor[LAST_OFFSET_DONE] = previous_offset
    return OK


@kernel(DECODE, FILTER)
def decode_messages(
    buffer,
    table,
    spans,
    first,
    end_row,
    origin,
    in_place,  # noqa: ARG001
    start_offset,
    end_offset,
    wanted,
    bytes_max,
    cursor,
    output,
    program=None,
):
    """Copy the messages of magic 0 and 1 whose offset is in [start_offset, end_offset) into columns.

    Like `sparklog.record.kernels.v2.decode_records`, but spans are whole messages, or all messages inside a wrapper.
    The checksum of every message is verified, but not the checksum of a wrapper, which is not in the buffer.
    """
    request = start_offset, end_offset, wanted, bytes_max
    while cursor[BATCH] < end_row:
        r = cursor[BATCH]
        start, end = span(spans, table, r, first, origin)
        status = decode_span(buffer, table, r, start, end, request, cursor, output, passes, program)
        if status != OK:
            return status
        cursor[BATCH] = r + 1
    return OK
