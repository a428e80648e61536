"""Compiled code: selects records that have one of many keys, or that pass a filter.

The keys are in a hash table with open addressing. The hash only says where to look: keys are compared byte by byte.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from sparklog.record.kernels.compile import kernel, step
from sparklog.record.kernels.filter import PROGRAM, is_equal, passes
from sparklog.record.kernels.memory import item, load_64
from sparklog.record.kernels.scan import BYTES, BYTES_OUT, NUMBERS, TABLE, TABLE_OUT
from sparklog.record.kernels.spans import (
    END,
    HEADER_COUNT,
    HEADERS,
    KEY,
    KEY_BYTES,
    OFFSET,
    TIMESTAMP,
    VALUE,
    VALUE_BYTES,
)

SLOT_FIELDS: Final = 2
_HASH, _KEY = range(SLOT_FIELDS)
"""Columns of the hash table: the hash of a key, and its index among the keys plus 1, or 0 in a free slot."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


@step
def _mixed(hashed, word):
    hashed = (hashed ^ word) * _MULTIPLIER
    return hashed ^ (hashed >> _SHIFT)


@step
def _hashed(buffer, position, length):
    """Hash ``buffer[position:position + length]``; the caller has checked the bounds."""
    hashed = _mixed(np.uint64(0), np.uint64(length))
    end = position + length
    while end - position >= 8:
        hashed = _mixed(hashed, load_64(buffer, position))
        position += 8
    word = np.uint64(0)
    while position < end:
        word = word << np.uint64(8) | np.uint64(item(buffer, position))
        position += 1
    return np.int64(_mixed(hashed, word))


@step
def _found(slots, borders, keys, hashed, buffer, position, length):
    """Return the slot of a key, or else a free slot, and whether the key was found. The table is never full."""
    mask = np.int64(slots.shape[0] - 1)
    slot = hashed & mask
    while slots[slot, _KEY] != 0:
        if slots[slot, _HASH] == hashed:
            start, end = borders[slots[slot, _KEY] - 1], borders[slots[slot, _KEY]]
            if end - start == length and is_equal(buffer, position, keys, start, length):
                return slot, True
        slot = (slot + 1) & mask
    return slot, False


@kernel(types.int64(NUMBERS, BYTES, TABLE_OUT))
def fill_slots(borders, keys, slots):
    """Put keys into a hash table.

    Parameters
    ----------
    borders : int64 array, shape (n_keys + 1,)
        Key i is ``keys[borders[i]:borders[i + 1]]``.
    slots : int64 array, shape (a power of two above n_keys, SLOT_FIELDS)
        The hash table, full of zeros; written.

    Returns
    -------
    int
        The number of different keys; -1 if a key is outside ``keys``.
    """
    different = np.int64(0)
    for row in range(borders.shape[0] - 1):
        start, length = borders[row], borders[row + 1] - borders[row]
        if start < 0 or length < 0 or length > keys.shape[0] - start:
            return np.int64(-1)
        hashed = _hashed(keys, start, length)
        slot, is_there = _found(slots, borders, keys, hashed, keys, start, length)
        if not is_there:
            slots[slot, _HASH], slots[slot, _KEY] = hashed, row + 1
            different += 1
    return different


@kernel(types.int64(BYTES, TABLE, TABLE, NUMBERS, BYTES, BYTES_OUT))
def match_keys(octets, records, slots, borders, keys, out):
    """Set 1 in ``out``, shape (n_records,), for each record with one of some keys; return the number of these records.

    Parameters
    ----------
    octets, records
        ``octets`` and ``table`` of `sparklog.record.rewrite.spans.RecordSpans`.
    slots, borders, keys
        The hash table and its keys, from `fill_slots`.
    """
    matches = np.int64(0)
    for row in range(records.shape[0]):
        position, length = records[row, KEY], records[row, KEY_BYTES]
        if length < 0 or position < 0 or length > octets.shape[0] - position:
            continue
        _, is_there = _found(slots, borders, keys, _hashed(octets, position, length), octets, position, length)
        if is_there:
            out[row] = 1
            matches += 1
    return matches


@kernel(types.int64(BYTES, TABLE, NUMBERS, NUMBERS, PROGRAM, BYTES_OUT))
def match_program(octets, records, batch_ends, timestamp_types, program, out):
    """Set 1 in ``out``, shape (n_records,), for each record that passes a filter; return the number of these records.

    Parameters
    ----------
    batch_ends, timestamp_types : int64 array, shape (n_batches,)
        The row after the last record of each batch, and its timestamp type.
    """
    matches, first = np.int64(0), np.int64(0)
    for batch in range(batch_ends.shape[0]):
        for row in range(first, batch_ends[batch]):
            fields = (
                np.int64(0),
                np.int64(0),
                records[row, KEY],
                records[row, KEY_BYTES],
                records[row, VALUE],
                records[row, VALUE_BYTES],
                records[row, HEADERS],
                records[row, HEADER_COUNT],
            )
            offset, timestamp = records[row, OFFSET], records[row, TIMESTAMP]
            if passes(program, octets, records[row, END], fields, offset, timestamp, timestamp_types[batch]):
                out[row] = 1
                matches += 1
        first = batch_ends[batch]
    return matches
