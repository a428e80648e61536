"""Compiled code: writes a table of the positions of each record's parts.

The steps that decode records walk and check them. Instead of a filter, these steps get one that writes a row of the
table for each record and lets none pass, so that nothing is copied.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from numba import types

from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.record.kernels.compile import inlined, kernel
from sparklog.record.kernels.legacy import decode_span
from sparklog.record.kernels.memory import item, set_item
from sparklog.record.kernels.scan import (
    BAD_OFFSET,
    BATCH,
    BYTES,
    CROWDED,
    LAST_OFFSET_DONE,
    NUMBERS_OUT,
    OK,
    OUTPUT,
    TABLE,
    TABLE_OUT,
    span,
)
from sparklog.record.kernels.v2 import decode_batch

SPAN_FIELDS: Final = 10
(
    START,
    END,
    OFFSET,
    TIMESTAMP,
    KEY,
    KEY_BYTES,
    VALUE,
    VALUE_BYTES,
    HEADERS,
    HEADER_COUNT,
) = range(SPAN_FIELDS)
"""Columns of the table of records. START, END, KEY, VALUE and HEADERS are positions; a length of -1 is null."""

_ALL: Final = (0, OFFSET_MAX, 0, 0)
"""The request to `decode_batch` for records of any offset, and for no column."""

STATE_FIELDS: Final = 2
_ROWS, _RECORD = range(STATE_FIELDS)


class Taken(NamedTuple):
    """The table that is being filled, and its progress.

    ``numbers`` has `SPAN_FIELDS` numbers for each record. ``state`` has the number of rows, and the position of the
    next record.
    """

    numbers: Any
    state: Any


_TAKEN = types.NamedUniTuple(NUMBERS_OUT, 2, Taken)
_SPAN = types.int64(
    BYTES,
    TABLE_OUT,
    TABLE,
    types.int64,
    types.int64,
    types.int64,
    types.boolean,
    NUMBERS_OUT,
    OUTPUT,
    _TAKEN,
    NUMBERS_OUT,
)


@inlined
def _note(taken, buffer, end, fields, offset, timestamp, timestamp_type):  # noqa: ARG001
    """Write the row of a record whose fields have been found and checked."""
    _, _, key, key_bytes, value, value_bytes, headers, header_count = fields
    row = item(taken.state, _ROWS)
    at = row * SPAN_FIELDS
    if at + SPAN_FIELDS <= taken.numbers.shape[0]:
        set_item(taken.numbers, at + START, item(taken.state, _RECORD))
        set_item(taken.numbers, at + END, end)
        set_item(taken.numbers, at + OFFSET, offset)
        set_item(taken.numbers, at + TIMESTAMP, timestamp)
        set_item(taken.numbers, at + KEY, key)
        set_item(taken.numbers, at + KEY_BYTES, key_bytes)
        set_item(taken.numbers, at + VALUE, value)
        set_item(taken.numbers, at + VALUE_BYTES, value_bytes)
        set_item(taken.numbers, at + HEADERS, headers)
        set_item(taken.numbers, at + HEADER_COUNT, header_count)
    set_item(taken.state, _ROWS, row + 1)
    set_item(taken.state, _RECORD, end)
    return False


@inlined
def _end_batch(taken, batch_ends, r, first, cursor):
    """Write where the records of a batch end in the table; return the fault of a batch whose records are not in it.

    No offset follows the highest of 64 bits, and no reader gets a record with it.
    """
    rows = item(taken.state, _ROWS)
    if cursor[LAST_OFFSET_DONE] == OFFSET_MAX:
        return BAD_OFFSET
    if rows * SPAN_FIELDS > taken.numbers.shape[0]:
        return CROWDED
    batch_ends[r - first] = rows
    cursor[BATCH] = r + 1
    return OK


@kernel(_SPAN)
def span_records(buffer, table, spans, first, end_row, origin, in_place, cursor, nothing, taken, batch_ends):
    """Write a row for each record of v2 batches.

    Parameters
    ----------
    buffer, table, spans, first, end_row, origin, in_place, cursor
        See `sparklog.record.kernels.v2.decode_records`.
    nothing : Output
        Columns without rows.
    taken : Taken
        Written.
    batch_ends : int64 array, shape (end_row - first,)
        Written: the number of rows after each batch.

    Returns
    -------
    int
        OK when all batches are done, else the code of the fault of the batch at the cursor.
    """
    while cursor[BATCH] < end_row:
        r = cursor[BATCH]
        start, end = span(spans, table, r, first, origin)
        set_item(taken.state, _RECORD, start)
        status = decode_batch(buffer, table, r, start, end, in_place, _ALL, cursor, nothing, _note, taken)
        if status == OK:
            status = _end_batch(taken, batch_ends, r, first, cursor)
        if status != OK:
            return status
    return OK


@kernel(_SPAN)
def span_messages(
    buffer,
    table,
    spans,
    first,
    end_row,
    origin,
    in_place,  # noqa: ARG001
    cursor,
    nothing,
    taken,
    batch_ends,
):
    """Write a row for each message of magic 0 and 1; like `span_records`."""
    while cursor[BATCH] < end_row:
        r = cursor[BATCH]
        start, end = span(spans, table, r, first, origin)
        set_item(taken.state, _RECORD, start)
        status = decode_span(buffer, table, r, start, end, _ALL, cursor, nothing, _note, taken)
        if status == OK:
            status = _end_batch(taken, batch_ends, r, first, cursor)
        if status != OK:
            return status
    return OK
