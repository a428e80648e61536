"""The loops over bytes: compiled, told where to stop, and trusting nothing that they read.

Every kernel is handed the regions it may look at, checks each length against the end of its region before using it, and
returns a status code with the place where it stopped. What is found is written as int64 columns of a table, one row a
record; copying the bytes out is left to `gather`, which is only ever given places that an index kernel has checked.

The layouts that these loops walk are written in `sparklog.record.v2` and `sparklog.record.legacy`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

if not os.environ.get("NUMBA_CACHE_DIR") and not os.access(Path(__file__).parent, os.W_OK):
    # Compiled code is kept beside the source; where that folder is read-only it goes to one of the user's own.
    os.environ["NUMBA_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / f"sparklog-numba-{os.getuid()}")

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sparklog.record.framing import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_BYTES,
    CRC,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)

# Rows of the table of records.
OFFSET, TIMESTAMP, KEY_POSITION, KEY_LENGTH, VALUE_POSITION, VALUE_LENGTH, HEADERS_POSITION, HEADER_COUNT = range(8)
RECORD_FIELDS = 8
# Columns of the spans: where the records of each batch begin and end in the buffer.
START, END = range(2)
# Rows of the table of record headers.
NAME_POSITION, NAME_LENGTH, CONTENT_POSITION, CONTENT_LENGTH = range(4)
HEADER_FIELDS = 4

OK = 0
TORN_VARINT = 1
BAD_RECORD_LENGTH = 2
BAD_FIELD_LENGTH = 3
BAD_HEADER_COUNT = 4
BAD_HEADER_LENGTH = 5
BAD_OFFSET = 6
RECORD_NOT_FILLED = 7
TRAILING_BYTES = 8
TOO_FEW_RECORDS = 9
BAD_MESSAGE_SIZE = 10
BAD_MESSAGE_MAGIC = 11
BAD_MESSAGE_CRC = 12
NESTED_COMPRESSION = 13
EMPTY_WRAPPER = 14
BAD_WRAPPER_OFFSET = 15

REASONS = {
    TORN_VARINT: "a variable-length number runs past its record",
    BAD_RECORD_LENGTH: "a record's length runs past its batch",
    BAD_FIELD_LENGTH: "a key's or value's length runs past its record",
    BAD_HEADER_COUNT: "a record's header count is negative or more than its bytes can hold",
    BAD_HEADER_LENGTH: "a record header's length is negative or runs past its record",
    BAD_OFFSET: "a record's offset is outside its batch or not above the one before it",
    RECORD_NOT_FILLED: "a record's fields end before its length does",
    TRAILING_BYTES: "bytes are left over after the last record of a batch",
    TOO_FEW_RECORDS: "a batch ends before its record count is reached",
    BAD_MESSAGE_SIZE: "a message's size is less than its fixed fields or runs past its wrapper",
    BAD_MESSAGE_MAGIC: "a message inside a wrapper is of a newer format than wrappers can hold",
    BAD_MESSAGE_CRC: "the CRC-32 of a message does not match",
    NESTED_COMPRESSION: "a message inside a compressed wrapper is itself compressed",
    EMPTY_WRAPPER: "a compressed wrapper holds no message",
    BAD_WRAPPER_OFFSET: "a wrapper's offset is below the offset of a message inside it",
}


def _crc_tables(polynomial: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Make the eight tables of a reflected CRC-32: table k moves a byte on by k further zero bytes."""
    tables = np.zeros((8, 256), dtype=np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(polynomial), values >> 1)
    tables[0] = values
    for k in range(1, 8):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> 8)
    return tables


CRC32 = _crc_tables(0xEDB88320)
CRC32C = _crc_tables(0x82F63B78)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BYTES_OUT = types.Array(types.uint8, 1, "C")
_CRC_TABLES = types.Array(types.uint32, 2, "C", readonly=True)
_NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
_NUMBERS_OUT = types.Array(types.int64, 1, "C")
_TABLE = types.Array(types.int64, 2, "C", readonly=True)
_TABLE_OUT = types.Array(types.int64, 2, "C")
_ARROW_OFFSETS = types.Array(types.int32, 1, "C", readonly=True)
_ARROW_OFFSETS_OUT = types.Array(types.int32, 1, "C")
_STATUS = types.UniTuple(types.int64, 3)


def kernel(signature: Any) -> Any:
    """Compile a kernel for the one signature that it is called with, once a machine."""
    return njit(signature, cache=True, nogil=True)


# For the steps inside the loops: a call that is left standing costs more than the step itself.
inlined = njit(cache=True, nogil=True, forceinline=True)
step = njit(cache=True, nogil=True)


@intrinsic
def _memcpy(typingctx: Any, target: Any, target_index: Any, source: Any, source_index: Any, length: Any) -> Any:  # noqa: ARG001
    """Copy ``length`` bytes between two uint8 arrays; the caller has checked both places."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_type, _, source_type, _, _ = signature.args
        to = cgutils.create_struct_proxy(target_type)(context, builder, value=arguments[0])
        of = cgutils.create_struct_proxy(source_type)(context, builder, value=arguments[2])
        to_pointer = builder.gep(to.data, [arguments[1]])
        of_pointer = builder.gep(of.data, [arguments[3]])
        cgutils.raw_memcpy(builder, to_pointer, of_pointer, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), codegen


# The steps below return the position after what they read; a negative one is a status code, negated.


@inlined
def _varlong(buffer, position, end):
    """Read a zigzag number of up to ten bytes: (number, position after it)."""
    if position < end and buffer[position] < 0x80:
        byte = np.int64(buffer[position])
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(buffer[position])
        position += 1
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-TORN_VARINT)


@inlined
def _varint(buffer, position, end):
    """Read a zigzag number of up to five bytes; bits above the 32nd are dropped, as Java drops them."""
    if position < end and buffer[position] < 0x80:
        byte = np.int64(buffer[position])
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = np.int64(0)
    shift = np.int64(0)
    while position < end and shift < 35:
        byte = np.int64(buffer[position])
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    return np.int64(0), np.int64(-TORN_VARINT)


@inlined
def _field(buffer, position, end):
    """Step over a length and as many bytes: (where they start, length or -1 for null, position after)."""
    length, start = _varint(buffer, position, end)
    if start < 0:
        return start, length, start
    if length < 0:
        return start, np.int64(-1), start
    if length > end - start:
        return start, length, np.int64(-BAD_FIELD_LENGTH)
    return start, length, start + length


@step
def _skip_headers(buffer, position, count, end):
    """Step over ``count`` record headers; every name must be there, a content may be null."""
    if count < 0 or count > end - position:
        return np.int64(-BAD_HEADER_COUNT)
    for _ in range(count):
        _, length, position = _field(buffer, position, end)
        if position < 0 or length < 0:
            return np.int64(-BAD_HEADER_LENGTH)
        _, _, position = _field(buffer, position, end)
        if position < 0:
            return np.int64(-BAD_HEADER_LENGTH)
    return position


@kernel(_STATUS(_BYTES, _TABLE, _TABLE, types.int64, types.int64, _TABLE_OUT, _NUMBERS_OUT))
def index_records(buffer, table, spans, start_offset, end_offset, records, rows_per_batch):
    """Find every record of the given v2 batches whose offset is in [start_offset, end_offset).

    Parameters
    ----------
    buffer : uint8 array
        Where the records are, decompressed.
    table : int64 array, shape (n_batches, framing.TABLE_FIELDS)
        The headers.
    spans : int64 array, shape (n_batches, 2)
        START and END of each batch's records.
    records : int64 array, shape (RECORD_FIELDS, at least the sum of RECORD_COUNT)
        Written: a column a record.
    rows_per_batch : int64 array, shape (n_batches,)
        Written.

    Returns
    -------
    (status, rows, batch)
        Where status is not OK: the row of the batch that is wrong.
    """
    row = np.uint64(0)
    for r in range(table.shape[0]):
        record, end, base_offset = spans[r, START], spans[r, END], table[r, BASE_OFFSET]
        first_row, previous_offset = row, base_offset - 1
        for _ in range(table[r, RECORD_COUNT]):
            if record >= end:
                return TOO_FEW_RECORDS, row, r
            length, position = _varint(buffer, record, end)
            if position < 0:
                return TORN_VARINT, row, r
            if length < 1 or length > end - position:
                return BAD_RECORD_LENGTH, row, r
            record_end = position + length
            timestamp, position = _varlong(buffer, position + 1, record_end)
            if position < 0:
                return -position, row, r
            offset, position = _varint(buffer, position, record_end)
            if position < 0:
                return -position, row, r
            offset += base_offset
            if offset <= previous_offset or offset > table[r, LAST_OFFSET]:
                return BAD_OFFSET, row, r
            key, key_length, position = _field(buffer, position, record_end)
            if position < 0:
                return -position, row, r
            value, value_length, position = _field(buffer, position, record_end)
            if position < 0:
                return -position, row, r
            header_count, headers = _varint(buffer, position, record_end)
            position = headers
            if headers >= 0 and header_count != 0:
                position = _skip_headers(buffer, headers, header_count, record_end)
            if position != record_end:
                return -position if position < 0 else RECORD_NOT_FILLED, row, r
            records[OFFSET, row] = offset
            records[TIMESTAMP, row] = table[r, BASE_TIMESTAMP] + timestamp
            records[KEY_POSITION, row] = key
            records[KEY_LENGTH, row] = key_length
            records[VALUE_POSITION, row] = value
            records[VALUE_LENGTH, row] = value_length
            records[HEADERS_POSITION, row] = headers
            records[HEADER_COUNT, row] = header_count
            if start_offset <= offset < end_offset:
                row += np.uint64(1)
            previous_offset = offset
            record = record_end
        if record != end:
            return TRAILING_BYTES, row, r
        if table[r, ATTRIBUTES] & 0x08:
            records[TIMESTAMP, first_row:row] = table[r, MAX_TIMESTAMP]
        rows_per_batch[r] = row - first_row
    return OK, row, table.shape[0]


@step
def _big_endian_32(buffer, position):
    raw = (
        np.int64(buffer[position]) << 24
        | np.int64(buffer[position + 1]) << 16
        | np.int64(buffer[position + 2]) << 8
        | np.int64(buffer[position + 3])
    )
    return raw - (np.int64(1) << 32) if raw >= np.int64(1) << 31 else raw


@step
def _big_endian_64(buffer, position):
    low = _big_endian_32(buffer, position + 4) & np.int64(0xFFFFFFFF)
    return (_big_endian_32(buffer, position) << 32) | low


@step
def _crc(tables, buffer, position, end):
    """CRC-32 or CRC-32C by its tables, eight bytes at a step."""
    crc = np.uint32(0xFFFFFFFF)
    while position + 8 <= end:
        low = crc ^ (
            np.uint32(buffer[position])
            | np.uint32(buffer[position + 1]) << np.uint32(8)
            | np.uint32(buffer[position + 2]) << np.uint32(16)
            | np.uint32(buffer[position + 3]) << np.uint32(24)
        )
        crc = (
            tables[7, low & np.uint32(0xFF)]
            ^ tables[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ tables[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ tables[4, low >> np.uint32(24)]
            ^ tables[3, buffer[position + 4]]
            ^ tables[2, buffer[position + 5]]
            ^ tables[1, buffer[position + 6]]
            ^ tables[0, buffer[position + 7]]
        )
        position += 8
    while position < end:
        crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(buffer[position])) & np.uint32(0xFF)]
        position += 1
    return crc ^ np.uint32(0xFFFFFFFF)


@kernel(types.void(_CRC_TABLES, _BYTES, _NUMBERS, _NUMBERS, _NUMBERS_OUT))
def crcs(tables, buffer, starts, ends, out):
    """Write the checksum of each ``buffer[start:end]``; the places are of batches that `scan` found whole."""
    for i in range(starts.shape[0]):
        out[i] = _crc(tables, buffer, starts[i], ends[i])


@kernel(types.UniTuple(types.int64, 2)(_BYTES, _TABLE_OUT))
def scan(buffer, table):
    """Walk from batch to batch and write what their headers say.

    Parameters
    ----------
    buffer : uint8 array
        From a batch boundary on.
    table : int64 array, shape (n, framing.TABLE_FIELDS)
        Written, a row a batch; the walk stops when it is full.

    Returns
    -------
    (rows, position)
        Where the batch begins that is not whole, not a batch, or past the end of the table.
    """
    end = np.int64(buffer.shape[0])
    position = np.int64(0)
    row = 0
    while row < table.shape[0] and position + 17 <= end:
        batch_bytes = _big_endian_32(buffer, position + 8) + 12
        magic = np.int64(buffer[position + 16])
        header_bytes = 61 if magic == 2 else 26 + 8 * magic
        if magic > 2 or batch_bytes < header_bytes or batch_bytes > end - position:
            break
        table[row, POSITION] = position
        table[row, BATCH_BYTES] = batch_bytes
        table[row, MAGIC] = magic
        base_offset = _big_endian_64(buffer, position)
        table[row, BASE_OFFSET] = base_offset
        if magic == 2:
            table[row, ATTRIBUTES] = buffer[position + 22]
            table[row, CRC] = _big_endian_32(buffer, position + 17) & np.int64(0xFFFFFFFF)
            table[row, LAST_OFFSET] = base_offset + _big_endian_32(buffer, position + 23)
            table[row, BASE_TIMESTAMP] = _big_endian_64(buffer, position + 27)
            table[row, MAX_TIMESTAMP] = _big_endian_64(buffer, position + 35)
            table[row, PRODUCER_ID] = _big_endian_64(buffer, position + 43)
            table[row, PRODUCER_EPOCH] = _big_endian_32(buffer, position + 49) << 48 >> 48
            table[row, BASE_SEQUENCE] = _big_endian_32(buffer, position + 53)
            table[row, LEADER_EPOCH] = _big_endian_32(buffer, position + 12)
            table[row, RECORD_COUNT] = _big_endian_32(buffer, position + 57)
        else:
            table[row, ATTRIBUTES] = buffer[position + 17]
            table[row, CRC] = _big_endian_32(buffer, position + 12) & np.int64(0xFFFFFFFF)
            table[row, LAST_OFFSET] = base_offset
            table[row, BASE_TIMESTAMP:RECORD_COUNT] = -1
            if magic == 1:
                table[row, BASE_TIMESTAMP] = _big_endian_64(buffer, position + 18)
                table[row, MAX_TIMESTAMP] = table[row, BASE_TIMESTAMP]
            table[row, RECORD_COUNT] = -1 if buffer[position + 17] & 0x07 else 1
        row += 1
        position += batch_bytes
    return row, position


@step
def _message_status(buffer, position, end, inside):
    """Check the frame, format and checksum of the message at ``position``; ``end`` is where its bytes must stop."""
    magic = buffer[position + 16]
    if magic > 1:
        return BAD_MESSAGE_MAGIC
    if end - position < (34 if magic == 1 else 26):
        return BAD_MESSAGE_SIZE
    if _crc(CRC32, buffer, position + 16, end) != np.uint32(
        _big_endian_32(buffer, position + 12) & np.int64(0xFFFFFFFF)
    ):
        return BAD_MESSAGE_CRC
    if inside and buffer[position + 17] & 0x07:
        return NESTED_COMPRESSION
    return OK


@kernel(_STATUS(_BYTES, _TABLE, _NUMBERS_OUT))
def count_messages(buffer, spans, counts):
    """Count the messages of magic 0 and 1 in each span, which they must fill.

    Returns (status, messages in all, batch).
    """
    total = np.int64(0)
    for r in range(spans.shape[0]):
        position, end = spans[r, START], spans[r, END]
        count = np.int64(0)
        while position + 12 <= end:
            size = _big_endian_32(buffer, position + 8)
            if size < 14 or size > end - position - 12:
                return BAD_MESSAGE_SIZE, total, r
            count += 1
            position += size + 12
        if position != end:
            return BAD_MESSAGE_SIZE, total, r
        if count == 0:
            return EMPTY_WRAPPER, total, r
        counts[r] = count
        total += count
    return OK, total, spans.shape[0]


@step
def _index_message(buffer, position, message_end, append_time, records, row):
    """Write the row of the message at ``position``, whose offset field is taken as it stands.

    ``append_time`` is the wrapper's timestamp where that stands for those inside, else -1.
    """
    magic = buffer[position + 16]
    timestamp = np.int64(-1)
    field = position + 18
    if magic == 1:
        timestamp = append_time if append_time >= 0 else _big_endian_64(buffer, field)
        field += 8
    key_length = np.int64(_big_endian_32(buffer, field))
    field += 4
    if key_length > message_end - field - 4:
        return BAD_FIELD_LENGTH
    key_position = field
    field += max(key_length, 0)
    value_length = np.int64(_big_endian_32(buffer, field))
    field += 4
    if value_length > message_end - field:
        return BAD_FIELD_LENGTH
    # Like Kafka's own reader, nothing is asked of bytes that a message has after its value.
    records[OFFSET, row] = _big_endian_64(buffer, position)
    records[TIMESTAMP, row] = timestamp
    records[KEY_POSITION, row] = key_position
    records[KEY_LENGTH, row] = max(key_length, -1)
    records[VALUE_POSITION, row] = field
    records[VALUE_LENGTH, row] = max(value_length, -1)
    records[HEADERS_POSITION, row] = message_end
    records[HEADER_COUNT, row] = 0
    return OK


@step
def _place_messages(magic, wrapper_offset, records, first_row, end_row):
    """Turn the offsets inside a wrapper into offsets of the log; those of a magic 1 wrapper count from its first."""
    # Old librdkafka left the wrapper's offset 0; the broker then kept the inner offsets.
    if magic == 1 and wrapper_offset != 0:
        last = records[OFFSET, end_row - 1]
        if wrapper_offset < last:
            return BAD_WRAPPER_OFFSET
        for row in range(first_row, end_row):
            records[OFFSET, row] += wrapper_offset - last
    for row in range(first_row, end_row):
        if records[OFFSET, row] < 0 or (row > first_row and records[OFFSET, row] <= records[OFFSET, row - 1]):
            return BAD_OFFSET
    return OK


@kernel(_STATUS(_BYTES, _TABLE, _TABLE, _NUMBERS, types.int64, types.int64, _TABLE_OUT, _NUMBERS_OUT))
def index_messages(buffer, table, spans, counts, start_offset, end_offset, records, rows_per_batch):
    """Find every message of magic 0 and 1 whose offset is in [start_offset, end_offset).

    As `index_records`; ``spans`` are of whole messages, or of what is inside a wrapper; ``counts`` is from
    `count_messages`, and ``records`` has room for the sum of them.
    """
    row = np.int64(0)
    for r in range(table.shape[0]):
        position, first_row = spans[r, START], row
        wrapped = table[r, ATTRIBUTES] & 0x07 != 0
        append_time = np.int64(-1)
        if wrapped and table[r, MAGIC] == 1 and table[r, ATTRIBUTES] & 0x08:
            append_time = table[r, MAX_TIMESTAMP]
        for _ in range(counts[r]):
            message_end = position + 12 + _big_endian_32(buffer, position + 8)
            status = _message_status(buffer, position, message_end, wrapped)
            if status == OK:
                status = _index_message(buffer, position, message_end, append_time, records, row)
            if status != OK:
                return status, row, r
            row += 1
            position = message_end
        if wrapped:
            status = _place_messages(table[r, MAGIC], table[r, LAST_OFFSET], records, first_row, row)
            if status != OK:
                return status, row, r
        kept = first_row
        for i in range(first_row, row):
            if start_offset <= records[OFFSET, i] < end_offset:
                if kept != i:
                    records[:, kept] = records[:, i]
                kept += 1
        row = kept
        rows_per_batch[r] = row - first_row
    return OK, row, table.shape[0]


@kernel(types.void(_BYTES, _NUMBERS, _NUMBERS, _TABLE_OUT))
def index_headers(buffer, positions, counts, headers):
    """Find the names and contents of the headers of records that `index_records` has checked."""
    row = np.int64(0)
    for record in range(positions.shape[0]):
        position = positions[record]
        for _ in range(counts[record]):
            start, length, position = _field(buffer, position, np.int64(buffer.shape[0]))
            headers[NAME_POSITION, row] = start
            headers[NAME_LENGTH, row] = length
            start, length, position = _field(buffer, position, np.int64(buffer.shape[0]))
            headers[CONTENT_POSITION, row] = start
            headers[CONTENT_LENGTH, row] = length
            row += 1


@kernel(types.UniTuple(types.int64, 2)(_NUMBERS, _ARROW_OFFSETS_OUT))
def measure(lengths, offsets):
    """Write the Arrow offsets of byte strings of these lengths, -1 being null: (bytes in all, nulls).

    The caller has seen to it that the sum fits 32 bits.
    """
    total = np.int64(0)
    nulls = np.int64(0)
    offsets[0] = 0
    for i in range(lengths.shape[0]):
        if lengths[i] < 0:
            nulls += 1
        else:
            total += lengths[i]
        offsets[i + 1] = total
    return total, nulls


@kernel(types.boolean(_BYTES, _NUMBERS, _ARROW_OFFSETS, _BYTES_OUT))
def gather(buffer, positions, offsets, out):
    """Copy byte strings that stand at ``positions`` one behind the other; ``offsets`` is from `measure`.

    Returns False, having stopped, where a place is outside ``buffer`` or ``out``.
    """
    for i in range(positions.shape[0]):
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        position = positions[i]
        if length <= 0:
            continue
        if position < 0 or length > buffer.shape[0] - position or length > out.shape[0] - start:
            return False
        _memcpy(out, start, buffer, position, length)
    return True
