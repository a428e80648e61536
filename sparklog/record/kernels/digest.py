"""Compiled code: computes a digest of rows that does not depend on their order.

Each field of a row is added to the hash of the fields before it, so that one row and the same bytes in two rows have
different hashes. The digest is the sum of the hashes of the rows. It reveals accidental differences, but not rows that
somebody made to have the same digest: a hash that does so takes as long as all the rest of encoding.
Source: the last step is that of MurmurHash3, A. Appleby.
"""
# Kernels are typed by the signatures that numba compiles them for.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators, no-check-untyped-defs

from __future__ import annotations

import numpy as np
from numba import types

from sparklog.record.kernels import encode as fields
from sparklog.record.kernels.compile import inlined, kernel
from sparklog.record.kernels.memory import load_64
from sparklog.record.kernels.offset_map import last_word, rotated
from sparklog.record.kernels.scan import BYTES, NUMBERS, TABLE

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@inlined
def _with_word(hashed, word):
    """Add a word to a hash; different words make different hashes."""
    return rotated((hashed ^ word) * _MULTIPLIER, 29)


@inlined
def _with_field(buffer, position, length, hashed):
    """Add a field to the hash of the fields before it; null and empty differ."""
    hashed, end = _with_word(hashed, np.uint64(length)), position + length
    while position + 8 <= end:
        hashed = _with_word(hashed, load_64(buffer, position))
        position += 8
    return _with_word(hashed, last_word(buffer, position, end, length)) if position < end else hashed


@inlined
def _mixed(hashed):
    hashed = (hashed ^ (hashed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    hashed = (hashed ^ (hashed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return hashed ^ (hashed >> np.uint64(33))


@kernel(types.uint64(TABLE, TABLE, BYTES, BYTES, BYTES, BYTES, NUMBERS, types.uint64))
def sum_of_hashes(records, headers, keys, values, names, contents, partitions, seed):
    """Return the sum of the hashes of rows, modulo 2**64.

    Parameters
    ----------
    records, headers, keys, values, names, contents
        As for `sparklog.record.kernels.encode.write_records`.
    partitions : int64 array, length n_records
        The partition of each row; -1 if it names none.
    seed : uint64
        The initial value of every hash.
    """
    total = np.uint64(0)
    for row in range(records.shape[1]):
        hashed = _with_word(_with_word(seed, np.uint64(records[fields.TIMESTAMP, row])), np.uint64(partitions[row]))
        key, value = records[fields.KEY_POSITION, row], records[fields.VALUE_POSITION, row]
        hashed = _with_field(keys, key, records[fields.KEY_LENGTH, row], hashed)
        hashed = _with_field(values, value, records[fields.VALUE_LENGTH, row], hashed)
        for h in range(records[fields.FIRST_HEADER, row], records[fields.END_HEADER, row]):
            name, content = headers[fields.NAME_POSITION, h], headers[fields.CONTENT_POSITION, h]
            hashed = _with_field(names, name, headers[fields.NAME_LENGTH, h], hashed)
            hashed = _with_field(contents, content, headers[fields.CONTENT_LENGTH, h], hashed)
        total += _mixed(hashed)
    return total
