"""Compiled code: maps the keys of records to offsets in a hash table, and decides which records compaction keeps.

A slot of the table is three numbers of 64 bits: the two halves of a key's hash, and the offset + 1, which is 0 in an
empty slot. A key is identified by the 128 bits of its hash alone, as in Kafka's own cleaner. The hash is SipHash-2-4
with an output of 128 bits and a secret seed from the caller: without it nobody can make two keys that collide, and by
chance two of a thousand million keys collide in one of 10^20 cleanings.

The table is open-addressed. A slot's home follows from the upper 32 bits of its hash; slots that share a home, or come
after a full one, follow each other in the order of their homes (Robin Hood hashing). So a search for a missing key ends
as soon as a search for a present one, even in a table that is nine tenths full.

Source: SipHash, J.-P. Aumasson and D. J. Bernstein, https://github.com/veorq/SipHash; P. Celis, Robin Hood Hashing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sparklog.record.kernels.compile import inlined, kernel, step
from sparklog.record.kernels.memory import item, load_64, pointer_to, set_item

SLOT_WORDS: Final = 3
SLOT_BYTES: Final = 8 * SLOT_WORDS
BLOCK_RECORDS: Final = 64
"""The number of keys whose slots are fetched into the processor's cache at a time; a block has two numbers for each."""

BAD_KEY: Final = -1

# The rules for the records of a batch: keep all; the latest of each key, by the map; these without tombstones; none.
KEEP_ALL, KEEP_LATEST, KEEP_LATEST_VALUES, KEEP_NONE = range(4)

# The counts of `judge_records` for each batch.
COUNTS: Final = 2
KEPT, TOMBSTONES_KEPT = range(COUNTS)

_FOR_READING, _IN_ALL_CACHES, _OF_DATA = 0, 3, 1

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BYTES_OUT = types.Array(types.uint8, 1, "C")
# A column of a table of records.
_COLUMN = types.Array(types.int64, 1, "A", readonly=True)
_NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
_NUMBERS_OUT = types.Array(types.int64, 1, "C")
_COUNTS_OUT = types.Array(types.int64, 2, "C")
_WORDS = types.Array(types.uint64, 1, "C", readonly=True)
_WORDS_OUT = types.Array(types.uint64, 1, "C")
_PUT = types.UniTuple(types.int64, 2)(
    _BYTES, _COLUMN, _COLUMN, _COLUMN, types.int64, _WORDS, _WORDS_OUT, types.int64, types.int64, _WORDS_OUT
)


@intrinsic
def _prefetch(typingctx: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Make the processor fetch an item of an array into its cache."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        name = "llvm.prefetch.p0"
        found = builder.module.globals.get(name)
        function = ir.Function(builder.module, kind, name) if found is None else found
        place = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(64)(1))
        how = [number(each) for each in (_FOR_READING, _IN_ALL_CACHES, _OF_DATA)]
        builder.call(function, [builder.bitcast(place, byte), *how])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@inlined
def rotated(word, bits):
    return word << np.uint64(bits) | word >> np.uint64(64 - bits)


@inlined
def _round(v0, v1, v2, v3):
    v0 += v1
    v2 += v3
    v1 = rotated(v1, 13) ^ v0
    v3 = rotated(v3, 16) ^ v2
    v0 = rotated(v0, 32)
    v2 += v1
    v0 += v3
    v1 = rotated(v1, 17) ^ v2
    v3 = rotated(v3, 21) ^ v0
    return v0, v1, rotated(v2, 32), v3


@inlined
def last_word(buffer, position, end, length):
    """Return the rest of a key after its whole words, with its length in the highest byte."""
    word = np.uint64(length) << np.uint64(56)
    if position == end:
        return word
    if position + 8 <= buffer.shape[0]:
        beyond = np.uint64(8 * (8 - (end - position)))
        return word | load_64(buffer, position) << beyond >> beyond
    for place in range(position, end):
        word |= np.uint64(buffer[place]) << np.uint64(8 * (place - position))
    return word


@step
def siphash(buffer, position, length, first, second):
    """Return both halves of the hash of ``buffer[position:position + length]``; the caller has checked the bounds."""
    v0 = first ^ np.uint64(0x736F6D6570736575)
    v1 = second ^ np.uint64(0x646F72616E646F6D ^ 0xEE)
    v2 = first ^ np.uint64(0x6C7967656E657261)
    v3 = second ^ np.uint64(0x7465646279746573)
    end = position + length
    while position + 8 <= end:
        word = load_64(buffer, position)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    word = last_word(buffer, position, end, length)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    high = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return high, v0 ^ v1 ^ v2 ^ v3


@inlined
def _home(high, slot_count):
    return np.int64((high >> np.uint64(32)) * np.uint64(slot_count) >> np.uint64(32))


@inlined
def _distance(slots, slot, slot_count):
    """Return the distance of a slot, which is not empty, from its home."""
    distance = slot - _home(item(slots, SLOT_WORDS * slot), slot_count)
    return distance + slot_count if distance < 0 else distance


@inlined
def _put(slots, slot_count, high, low, mark):
    """Put a hash into the table, which has an empty slot; return how many more slots are used than before."""
    slot = _home(high, slot_count)
    is_new = False
    distance = np.int64(0)
    while True:
        place = SLOT_WORDS * slot
        there = item(slots, place + 2)
        if there == 0:
            set_item(slots, place, high)
            set_item(slots, place + 1, low)
            set_item(slots, place + 2, mark)
            return np.int64(1)
        if not is_new and item(slots, place) == high and item(slots, place + 1) == low:
            set_item(slots, place + 2, mark)
            return np.int64(0)
        distance_there = _distance(slots, slot, slot_count)
        if distance_there < distance:
            # The hash in this slot is nearer to its home: it gives up the slot, and is moved on instead.
            high_there, low_there = item(slots, place), item(slots, place + 1)
            set_item(slots, place, high)
            set_item(slots, place + 1, low)
            set_item(slots, place + 2, mark)
            high, low, mark, distance, is_new = high_there, low_there, there, distance_there, True
        slot += 1
        distance += 1
        if slot == slot_count:
            slot = np.int64(0)


@inlined
def _find(slots, slot_count, high, low):
    """Return the offset of a hash; -1 if it is not in the table, which has an empty slot."""
    slot = _home(high, slot_count)
    distance = np.int64(0)
    while True:
        place = SLOT_WORDS * slot
        there = item(slots, place + 2)
        if there == 0:
            return np.int64(-1)
        if item(slots, place) == high and item(slots, place + 1) == low:
            return np.int64(there) - 1
        if _distance(slots, slot, slot_count) < distance:
            return np.int64(-1)
        slot += 1
        distance += 1
        if slot == slot_count:
            slot = np.int64(0)


@inlined
def _hash_block(octets, keys, lengths, first, end, seed, slots, slot_count, block):
    """Hash the keys of some rows into the block, and fetch their slots; return False if a key is outside the bytes."""
    for row in range(first, end):
        length = lengths[row]
        if length < 0:
            continue
        if keys[row] < 0 or keys[row] > octets.shape[0] or length > octets.shape[0] - keys[row]:
            return False
        high, low = siphash(octets, keys[row], length, seed[0], seed[1])
        set_item(block, 2 * (row - first), high)
        set_item(block, 2 * (row - first) + 1, low)
        _prefetch(slots, SLOT_WORDS * _home(high, slot_count))
    return True


@kernel(_PUT)
def put_keys(octets, keys, lengths, offsets, start_offset, seed, slots, size, size_max, block):
    """Put the keys of records into the map; a later offset replaces an earlier one.

    Parameters
    ----------
    octets : uint8 array
        The bytes that hold the keys.
    keys, lengths, offsets : int64 array, one number for each record
        The position of its key, the key's length (-1 for null), and its offset. Records with null keys are skipped.
    start_offset : int
        Records below this offset are skipped.
    seed : uint64 array, shape (2,)
        The seed of the hash.
    slots : uint64 array, shape (n_slots * SLOT_WORDS,)
        The map; written.
    size, size_max : int
        The numbers of slots in use and allowed; fewer than all.
    block : uint64 array, shape (2 * BLOCK_RECORDS,)
        Working memory.

    Returns
    -------
    (rows, size)
        The number of records done (if not all, the map was full for the next one), and the new size; rows is BAD_KEY if
        a key is outside the bytes.
    """
    slot_count, rows = np.int64(slots.shape[0] // SLOT_WORDS), np.int64(offsets.shape[0])
    if size_max >= slot_count or keys.shape[0] < rows or lengths.shape[0] < rows or block.shape[0] < 2 * BLOCK_RECORDS:
        return np.int64(BAD_KEY), size
    for first in range(0, rows, BLOCK_RECORDS):
        end = min(first + BLOCK_RECORDS, rows)
        if not _hash_block(octets, keys, lengths, first, end, seed, slots, slot_count, block):
            return np.int64(BAD_KEY), size
        for row in range(first, end):
            if lengths[row] >= 0 and offsets[row] >= start_offset:
                if size >= size_max:
                    return row, size
                place = 2 * (row - first)
                mark = np.uint64(offsets[row]) + np.uint64(1)
                size += _put(slots, slot_count, item(block, place), item(block, place + 1), mark)
    return rows, size


@kernel(types.boolean(_WORDS, _WORDS_OUT))
def move_keys(slots, larger):
    """Put all keys of a map into an empty one with more slots; return False, and do nothing, if it has no more."""
    slot_count = np.int64(larger.shape[0] // SLOT_WORDS)
    if larger.shape[0] <= slots.shape[0]:
        return False
    for slot in range(slots.shape[0] // SLOT_WORDS):
        place = SLOT_WORDS * slot
        mark = item(slots, place + 2)
        if mark != 0:
            _put(larger, slot_count, item(slots, place), item(slots, place + 1), mark)
    return True


@kernel(types.boolean(_BYTES, _COLUMN, _COLUMN, _WORDS, _WORDS, _WORDS_OUT, _NUMBERS_OUT))
def find_keys(octets, keys, lengths, seed, slots, block, found):
    """Look the keys of records up in the map.

    For the parameters see `put_keys`. ``found``, int64, one number for each record, is written: the offset of its key,
    -1 if the map does not have it or it is null. Return False, and stop, if a key is outside the bytes.
    """
    slot_count, rows = np.int64(slots.shape[0] // SLOT_WORDS), np.int64(found.shape[0])
    if slot_count < 1 or keys.shape[0] < rows or lengths.shape[0] < rows or block.shape[0] < 2 * BLOCK_RECORDS:
        return False
    for first in range(0, rows, BLOCK_RECORDS):
        end = min(first + BLOCK_RECORDS, rows)
        if not _hash_block(octets, keys, lengths, first, end, seed, slots, slot_count, block):
            return False
        for row in range(first, end):
            place = 2 * (row - first)
            found[row] = -1
            if lengths[row] >= 0:
                found[row] = _find(slots, slot_count, item(block, place), item(block, place + 1))
    return True


@kernel(types.boolean(_COLUMN, _COLUMN, _COLUMN, _NUMBERS, _NUMBERS, _BYTES, types.int64, _BYTES_OUT, _COUNTS_OUT))
def judge_records(offsets, key_lengths, value_lengths, found, batch_ends, rules, latest_offset, keep, counts):
    """Decide which records stay.

    Parameters
    ----------
    offsets, key_lengths, value_lengths : int64 array, one number for each record
        The offsets of records, and the lengths of their keys and values, -1 for null.
    found : int64 array
        The result of `find_keys`.
    batch_ends : int64 array, one number for each batch
        The row after the last record of each batch.
    rules : uint8 array, one for each batch
        KEEP_ALL, KEEP_LATEST, KEEP_LATEST_VALUES or KEEP_NONE.
    latest_offset : int
        The last offset that the map covers. Records above it stay under any rule except KEEP_NONE.
    keep : uint8 array
        Written: 1 for each record that stays, else 0.
    counts : int64 array, shape (n_batches, COUNTS)
        Written: the numbers of remaining records, and of tombstones among them.

    Returns
    -------
    bool
        False if the arrays' lengths do not agree.
    """
    rows, row = offsets.shape[0], np.int64(0)
    if key_lengths.shape[0] < rows or value_lengths.shape[0] < rows or found.shape[0] < rows or keep.shape[0] < rows:
        return False
    if rules.shape[0] < batch_ends.shape[0] or counts.shape[0] < batch_ends.shape[0] or counts.shape[1] != COUNTS:
        return False
    for batch in range(batch_ends.shape[0]):
        kept, tombstones, rule = np.int64(0), np.int64(0), rules[batch]
        if batch_ends[batch] > rows:
            return False
        while row < batch_ends[batch]:
            is_latest = key_lengths[row] >= 0 and offsets[row] >= found[row]
            if rule == KEEP_LATEST_VALUES and value_lengths[row] < 0:
                is_latest = False
            stays = rule != KEEP_NONE and (rule == KEEP_ALL or offsets[row] > latest_offset or is_latest)
            keep[row] = stays
            kept += stays
            tombstones += stays and value_lengths[row] < 0
            row += 1
        counts[batch, KEPT], counts[batch, TOMBSTONES_KEPT] = kept, tombstones
    return True
