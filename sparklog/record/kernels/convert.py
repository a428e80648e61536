"""Compiled code: converts records that `sparklog.record.kernels.spans` has found to another format."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from sparklog.record.kernels.compile import inlined, kernel
from sparklog.record.kernels.crc import crc32
from sparklog.record.kernels.encode import (
    KEY_LENGTH,
    KEY_POSITION,
    VALUE_LENGTH,
    VALUE_POSITION,
    put_integer,
)
from sparklog.record.kernels.memory import memcpy
from sparklog.record.kernels.rewrite import is_inside, put_record
from sparklog.record.kernels.scan import BYTES, BYTES_OUT, NUMBERS, TABLE, TABLE_OUT
from sparklog.record.kernels.spans import KEY, KEY_BYTES, OFFSET, TIMESTAMP, VALUE, VALUE_BYTES

UNIT_FIELDS: Final = 7
(
    FIRST_ROW,
    END_ROW,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    ATTRIBUTES,
    UNIT_START,
    UNIT_END,
) = range(UNIT_FIELDS)
"""Columns of the table of batches to write: the rows of a batch's records, the base of their offsets and, in magic 2,
timestamps, the attributes of messages; and, written by the kernels, where its records are in the output."""

_CONVERT = types.boolean(BYTES, TABLE, TABLE_OUT, types.int64, BYTES_OUT)


@kernel(_CONVERT)
def convert_records(octets, records, units, gap_bytes, out):
    """Write the records of some batches as records of magic 2.

    Parameters
    ----------
    octets, records
        ``octets`` and ``table`` of `sparklog.record.rewrite.spans.RecordSpans`.
    units : int64 array, shape (n_batches, UNIT_FIELDS)
        The batches to write; UNIT_START and UNIT_END are written.
    gap_bytes : int
        The number of bytes to leave free before the records of each batch.
    out : uint8 array
        Written.

    Returns
    -------
    bool
        Whether all records were inside ``octets``, and fitted into ``out``.
    """
    position = np.int64(0)
    for u in range(units.shape[0]):
        position += gap_bytes
        if position > out.shape[0] or units[u, FIRST_ROW] < 0 or units[u, END_ROW] > records.shape[0]:
            return False
        units[u, UNIT_START] = position
        for row in range(units[u, FIRST_ROW], units[u, END_ROW]):
            if not is_inside(octets, records, row, out.shape[0] - position):
                return False
            position = put_record(
                out,
                position,
                octets,
                records,
                row,
                units[u, BASE_TIMESTAMP],
                units[u, BASE_OFFSET],
                records[row, VALUE_BYTES],
            )
        units[u, UNIT_END] = position
    return True


@inlined
def _put_field(out, position, octets, start, length):
    position = put_integer(out, position, length, 4)
    if length > 0:
        memcpy(out, position, octets, start, length)
        position += length
    return position


@inlined
def _put_lead(out, start, offset, magic, attributes, timestamp):
    position = put_integer(out, start, offset, 8) + 8
    out[position], out[position + 1] = magic, attributes
    position += 2
    if magic == 1:
        position = put_integer(out, position, timestamp, 8)
    return position


@inlined
def _put_size(out, start, position):
    put_integer(out, start + 8, position - start - 12, 4)
    put_integer(out, start + 12, crc32(out, start + 16, position), 4)


@kernel(_CONVERT)
def convert_messages(octets, records, units, magic, out):
    """Write the records of some batches as messages of magic 0 or 1; like `convert_records`, without gaps."""
    position = np.int64(0)
    for u in range(units.shape[0]):
        if units[u, FIRST_ROW] < 0 or units[u, END_ROW] > records.shape[0]:
            return False
        units[u, UNIT_START] = position
        for row in range(units[u, FIRST_ROW], units[u, END_ROW]):
            if not is_inside(octets, records, row, out.shape[0] - position):
                return False
            start, offset = position, records[row, OFFSET] - units[u, BASE_OFFSET]
            position = _put_lead(out, start, offset, magic, units[u, ATTRIBUTES], records[row, TIMESTAMP])
            position = _put_field(out, position, octets, records[row, KEY], records[row, KEY_BYTES])
            position = _put_field(out, position, octets, records[row, VALUE], records[row, VALUE_BYTES])
            _put_size(out, start, position)
        units[u, UNIT_END] = position
    return True


@kernel(types.boolean(TABLE, BYTES, BYTES, NUMBERS, NUMBERS, *[types.int64] * 5, BYTES_OUT))
def write_messages(records, keys, values, offsets, times, first_row, end_row, base_offset, magic, attributes, out):
    """Write records as messages of magic 0 or 1.

    Parameters
    ----------
    records : int64 array, shape (kernels_encode.FIELDS, n_records)
    keys, values : uint8 arrays
        The buffers with the keys and values; the caller has checked the table's positions against them.
    offsets, times : int64 array, shape (n_records,)
        The offset and the timestamp (ms) of each record.
    first_row, end_row : int
        The range of records to write.
    base_offset : int
        The base that written offsets are relative to.
    out : uint8 array
        Written.

    Returns
    -------
    bool
        Whether the messages filled the whole output.
    """
    position, overhead_bytes = np.int64(0), 34 if magic == 1 else 26
    for row in range(first_row, end_row):
        key_bytes, value_bytes = records[KEY_LENGTH, row], records[VALUE_LENGTH, row]
        if overhead_bytes + max(key_bytes, 0) + max(value_bytes, 0) > out.shape[0] - position:
            return False
        start = position
        position = _put_lead(out, start, offsets[row] - base_offset, magic, attributes, times[row])
        position = _put_field(out, position, keys, records[KEY_POSITION, row], key_bytes)
        position = _put_field(out, position, values, records[VALUE_POSITION, row], value_bytes)
        _put_size(out, start, position)
    return position == out.shape[0]
