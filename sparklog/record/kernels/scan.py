"""Compiled code: scans a buffer batch by batch, summarises headers, and has the shared steps of the loops over bytes.

Every kernel gets the regions it may read, checks each length against the end of its region before using it, and returns
a status code with the position where it stopped. `sparklog.record.kernels.v2` walks the records of v2 batches,
`sparklog.record.kernels.legacy` the messages of magic 0 and 1; both write the records into an `Output`.

For the layouts see `sparklog.record.format.v2` and `sparklog.record.format.legacy`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import types

from sparklog.record.format.headers import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_BYTES,
    CRC,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOWEST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from sparklog.record.format.v2 import CODEC_MASK, HEADER_BYTES, OFFSET_MAX
from sparklog.record.kernels.compile import inlined, kernel
from sparklog.record.kernels.crc import crc32, crc32c
from sparklog.record.kernels.memory import (
    COPY_STEP_BYTES,
    big_endian_32,
    big_endian_64,
    copy_step,
    item,
    memcpy,
    set_item,
)

OK: Final = 0
FULL: Final = 1
RECORD_TOO_LARGE: Final = 2
HEADERS_DO_NOT_FIT: Final = 20
TORN_VARINT: Final = 3
BAD_RECORD_LENGTH: Final = 4
BAD_FIELD_LENGTH: Final = 5
BAD_HEADER_COUNT: Final = 6
BAD_HEADER_LENGTH: Final = 7
BAD_OFFSET: Final = 8
RECORD_NOT_FILLED: Final = 9
TRAILING_BYTES: Final = 10
TOO_FEW_RECORDS: Final = 11
CROWDED: Final = 12
OUTSIDE: Final = 13
WRONG_CRC: Final = 14
BAD_MESSAGE_SIZE: Final = 15
BAD_MESSAGE_MAGIC: Final = 16
NESTED_COMPRESSION: Final = 17
EMPTY_WRAPPER: Final = 18
BAD_WRAPPER_OFFSET: Final = 19
WRONG_WRAPPER_OFFSET: Final = 21
WRAPPER_OVERLAP: Final = 22
BEYOND_RANGE: Final = 23

REASONS: Final = {
    TORN_VARINT: "a variable-length number runs past its record",
    BAD_RECORD_LENGTH: "a record's length runs past its batch",
    BAD_FIELD_LENGTH: "a key's or value's length runs past its record",
    BAD_HEADER_COUNT: "a record's header count is negative or more than its bytes can hold",
    BAD_HEADER_LENGTH: "a record header's length is negative or runs past its record",
    BAD_OFFSET: "a record's offset is below that of its batch or not above the one before it",
    RECORD_NOT_FILLED: "a record's fields end before its length does",
    TRAILING_BYTES: "bytes are left over after the last record of a batch",
    TOO_FEW_RECORDS: "a batch ends before its record count is reached",
    CROWDED: "record count is more than the batch's bytes can hold",
    OUTSIDE: "the batch is outside the bytes that were read",
    WRONG_CRC: "the checksum does not match the bytes",
    BAD_MESSAGE_SIZE: "a message's size is less than its fixed fields or runs past its wrapper",
    BAD_MESSAGE_MAGIC: "a message inside a wrapper is of a newer format than wrappers can hold",
    NESTED_COMPRESSION: "a message inside a compressed wrapper is itself compressed",
    EMPTY_WRAPPER: "a compressed wrapper holds no message",
    BAD_WRAPPER_OFFSET: "a wrapper's offset is below the offset of a message inside it",
    WRONG_WRAPPER_OFFSET: "a wrapper's offset is not that of the last message inside it",
    WRAPPER_OVERLAP: "a wrapper's offset puts the first message inside it below the end of the batch before it",
    BEYOND_RANGE: "a record's offset is above the last offset of its batch, and past the range that is read",
}


BATCH_BYTES_MIN: Final = 26
"""The size of the smallest batch of any magic: a message of magic 0 without key and value."""

# Columns of the spans: the positions in the buffer at which the records of each batch begin and end.
START, END = range(2)

# The state of a decode between calls of a kernel: the batch, how many of its records are done, the position of the next
# one, the offset of the last one, the number that a wrapper adds to the offsets inside it; then how many rows and bytes
# of records the output holds, and the bytes of a record that is too large for it; the offset of the last record of all
# finished batches; and, never changed, the exclusive end of records above the last offset of their batch.
CURSOR_FIELDS: Final = 10
(
    BATCH,
    RECORDS_DONE,
    NEXT_RECORD,
    PREVIOUS_OFFSET,
    OFFSET_SHIFT,
    ROWS,
    TAKEN_BYTES,
    RECORD_BYTES,
    LAST_OFFSET_DONE,
    EXCESS_END,
) = range(CURSOR_FIELDS)

_SHORT_BYTES_MAX: Final = 256

KEYS, VALUES, HEADERS = 1, 2, 4
"""Bits of the columns to copy."""


class Strings(NamedTuple):
    """An Arrow column of byte strings that is being filled; ``valid`` has 1 for each string, 0 for null."""

    offsets: Any
    data: Any
    valid: Any


class Output(NamedTuple):
    """Columns of records that are being filled, all for as many rows as ``offsets``.

    ``batches`` is the row of each record's batch in the table of headers; ``lists`` are the Arrow offsets of the lists
    of headers. The data of each `Strings` has room for the bytes of whole records, so that single copies need no check.
    """

    offsets: Any
    timestamps: Any
    batches: Any
    lists: Any
    key: Strings
    value: Strings
    name: Strings
    content: Strings


BYTES = types.Array(types.uint8, 1, "C", readonly=True)
NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
NUMBERS_OUT = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C", readonly=True)
TABLE_OUT = types.Array(types.int64, 2, "C")
BYTES_OUT = types.Array(types.uint8, 1, "C")
_INT32S_OUT = types.Array(types.int32, 1, "C")
_STRINGS = types.NamedTuple((_INT32S_OUT, BYTES_OUT, BYTES_OUT), Strings)
OUTPUT = types.NamedTuple((NUMBERS_OUT, NUMBERS_OUT, _INT32S_OUT, _INT32S_OUT, *[_STRINGS] * 4), Output)

# The signature of `decode_records` and `decode_messages`, which decode batches into an output.
DECODE = types.int64(
    BYTES,
    TABLE_OUT,
    TABLE,
    types.int64,
    types.int64,
    types.int64,
    types.boolean,
    types.int64,
    types.int64,
    types.int64,
    types.int64,
    NUMBERS_OUT,
    OUTPUT,
)


@inlined
def span(spans, table, r, first, origin):
    """Return where a batch's records or a whole message begin and end, from the spans, if there are any, or the table.

    The positions are not checked against the buffer.
    """
    if spans.shape[0] > 0:
        return spans[r - first, START], spans[r - first, END]
    start = table[r, POSITION] - origin
    return start + (HEADER_BYTES if table[r, MAGIC] == 2 else 0), start + table[r, BATCH_BYTES]


@inlined
def wrapped_sum(a, b):
    """Add two int64 as Java does; the compiler may assume that a plain sum never overflows."""
    return np.int64(np.uint64(a) + np.uint64(b))


@inlined
def put(strings, row, buffer, position, length):
    """Append ``buffer[position:position + length]`` as string ``row``; length -1 is null. The caller checks the room.

    Most strings are short, and calling a function for one takes longer than copying it. They are copied in steps that
    may run past their ends, if the buffer has the bytes, into output that no string has been written to yet.
    """
    start = np.int64(item(strings.offsets, row))
    if length < 0:
        set_item(strings.valid, row, 0)
        length = np.int64(0)
    end = start + length
    set_item(strings.offsets, row + 1, end)
    if (
        length <= _SHORT_BYTES_MAX
        and position + length + COPY_STEP_BYTES <= buffer.shape[0]
        and end + COPY_STEP_BYTES <= strings.data.shape[0]
    ):
        copy_step(strings.data, start, buffer, position)
        while length > COPY_STEP_BYTES:
            start += COPY_STEP_BYTES
            position += COPY_STEP_BYTES
            length -= COPY_STEP_BYTES
            copy_step(strings.data, start, buffer, position)
    elif length > 0:
        memcpy(strings.data, start, buffer, position, length)


@kernel(types.UniTuple(types.int64, 2)(BYTES, TABLE, types.int64))
def first_wrong_crc(buffer, table, origin):
    """Find the first batch whose checksum is wrong: (its row, the checksum of its bytes).

    The row is the number of rows if there is none; the checksum is -1 if the batch is not in the buffer.
    """
    for r in range(table.shape[0]):
        start = table[r, POSITION] - origin
        if start < 0 or table[r, BATCH_BYTES] < BATCH_BYTES_MIN or table[r, BATCH_BYTES] > buffer.shape[0] - start:
            return r, np.int64(-1)
        end = start + table[r, BATCH_BYTES]
        if table[r, MAGIC] == 2:
            found = crc32c(buffer, start + 21, end)
        else:
            found = crc32(buffer, start + 16, end)
        if found != table[r, CRC]:
            return r, found
    return table.shape[0], np.int64(0)


@kernel(types.UniTuple(types.int64, 5)(TABLE))
def summary(table):
    """Summarise headers in one pass, while numpy would take a pass for each result.

    Returns
    -------
    (modern, oldest, attributes, different_attributes, wrappers)
        The number of batches of magic 2, and of magic 0; the bits set in any attributes; the bits in which attributes
        differ; and the number of batches without a record count.
    """
    modern = oldest = attributes = different = wrappers = np.int64(0)
    for r in range(table.shape[0]):
        modern += table[r, MAGIC] == 2
        oldest += table[r, MAGIC] == 0
        attributes |= table[r, ATTRIBUTES]
        different |= table[r, ATTRIBUTES] ^ table[0, ATTRIBUTES]
        wrappers += table[r, RECORD_COUNT] < 0
    return modern, oldest, attributes, different, wrappers


@kernel(types.UniTuple(types.int64, 2)(TABLE, types.int64, types.int64, types.int64, types.int64))
def capacity(table, first, start_offset, rows_max, bytes_max):
    """Return the rows and bytes that records from ``start_offset`` on need, in batches from row ``first`` on.

    Each is at most its limit, and equals it if a batch is compressed, or has no record count. Once the bytes are used
    up, later batches are ignored.
    """
    rows = size_bytes = plain_bytes = np.int64(0)
    for r in range(first, table.shape[0]):
        rows = rows_max if table[r, RECORD_COUNT] < 0 else min(rows + table[r, RECORD_COUNT], rows_max)
        if table[r, ATTRIBUTES] & CODEC_MASK != 0:
            size_bytes = bytes_max
        else:
            record_bytes = table[r, BATCH_BYTES] - (HEADER_BYTES if table[r, MAGIC] == 2 else 0)
            size_bytes = min(size_bytes + record_bytes, bytes_max)
            # It is not known how many records of a batch that begins before the range are in the range.
            plain_bytes += record_bytes if table[r, BASE_OFFSET] >= start_offset else 0
        if size_bytes == bytes_max and (rows == rows_max or plain_bytes > bytes_max):
            break
    return rows, size_bytes


@kernel(types.int64(TABLE_OUT, types.int64, types.int64))
def set_lowest_offsets(table, lowest_offset, upper_offset):
    """Write the lowest offset that each batch may have; return the first row out of order, or the number of rows."""
    for r in range(table.shape[0]):
        table[r, LOWEST_OFFSET] = lowest_offset
        if table[r, BASE_OFFSET] < lowest_offset or table[r, LAST_OFFSET] >= upper_offset:
            return r
        lowest_offset = table[r, LAST_OFFSET] + 1
    return table.shape[0]


@kernel(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64, TABLE_OUT))
def scan(buffer, position, origin, table):
    """Walk from batch to batch and write their headers into a table.

    Parameters
    ----------
    buffer : uint8 array
    position : int
        A batch boundary in the buffer.
    origin : int
        Position in the file of the first byte of the buffer.
    table : int64 array, shape (n, headers.TABLE_FIELDS)
        Written, a row for each batch; the walk stops when the table is full.

    Returns
    -------
    (rows, position)
        The number of batches, and the position after them: there the next batch is not whole, no broker writes it, or
        it does not fit the table.
    """
    end = np.int64(buffer.shape[0])
    row = 0
    while row < table.shape[0] and position + 17 <= end:
        batch_bytes = big_endian_32(buffer, position + 8) + 12
        magic = np.int64(buffer[position + 16])
        header_bytes = 61 if magic == 2 else 26 + 8 * magic
        if magic > 2 or batch_bytes < header_bytes or batch_bytes > end - position:
            break
        base_offset = big_endian_64(buffer, position)
        table[row, POSITION] = origin + position
        table[row, BATCH_BYTES] = batch_bytes
        table[row, MAGIC] = magic
        table[row, BASE_OFFSET] = base_offset
        table[row, LOWEST_OFFSET] = 0
        if magic == 2:
            table[row, ATTRIBUTES] = buffer[position + 22]
            table[row, CRC] = big_endian_32(buffer, position + 17) & np.int64(0xFFFFFFFF)
            last_offset_delta = big_endian_32(buffer, position + 23)
            if last_offset_delta < 0 or base_offset > OFFSET_MAX - last_offset_delta:
                break
            table[row, LAST_OFFSET] = base_offset + last_offset_delta
            table[row, BASE_TIMESTAMP] = big_endian_64(buffer, position + 27)
            table[row, MAX_TIMESTAMP] = big_endian_64(buffer, position + 35)
            table[row, PRODUCER_ID] = big_endian_64(buffer, position + 43)
            table[row, PRODUCER_EPOCH] = big_endian_32(buffer, position + 49) << 48 >> 48
            table[row, BASE_SEQUENCE] = big_endian_32(buffer, position + 53)
            table[row, LEADER_EPOCH] = big_endian_32(buffer, position + 12)
            table[row, RECORD_COUNT] = big_endian_32(buffer, position + 57)
            if table[row, RECORD_COUNT] < 0:
                break
        else:
            table[row, ATTRIBUTES] = buffer[position + 17]
            table[row, CRC] = big_endian_32(buffer, position + 12) & np.int64(0xFFFFFFFF)
            table[row, LAST_OFFSET] = base_offset
            table[row, BASE_TIMESTAMP:RECORD_COUNT] = -1
            if magic == 1:
                table[row, BASE_TIMESTAMP] = big_endian_64(buffer, position + 18)
                table[row, MAX_TIMESTAMP] = table[row, BASE_TIMESTAMP]
            table[row, RECORD_COUNT] = -1 if buffer[position + 17] & 0x07 else 1
        if base_offset < 0:
            break
        row += 1
        position += batch_bytes
    return row, position
