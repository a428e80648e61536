"""Compiled code: a digest of rows that does not depend on their order.

Each field of a row is hashed under the hash of the fields before it, so that what belongs to one row is told from the
same bytes in two. The digest is the sum of the hashes of the rows. The hash is that of `kernels_offset_map`.
"""
# Kernels are typed by the signatures that numba compiles them for.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators, no-check-untyped-defs

from __future__ import annotations

import numpy as np
from numba import types

from sparklog.record.kernels import BYTES, NUMBERS, TABLE
from sparklog.record.kernels_compile import inlined, kernel
from sparklog.record.kernels_encode import (
    CONTENT_LENGTH,
    CONTENT_POSITION,
    END_HEADER,
    FIRST_HEADER,
    KEY_LENGTH,
    KEY_POSITION,
    NAME_LENGTH,
    NAME_POSITION,
    TIMESTAMP,
    VALUE_LENGTH,
    VALUE_POSITION,
)
from sparklog.record.kernels_offset_map import siphash


@inlined
def _with_field(buffer, position, length, first, second):
    """Return the hash of a field under that of the fields before it; null is told from empty."""
    if length < 0:
        return siphash(buffer, 0, 0, second, first)
    return siphash(buffer, position, length, first, second)


@kernel(types.uint64(TABLE, TABLE, BYTES, BYTES, BYTES, BYTES, NUMBERS, types.uint64, types.uint64))
def sum_of_hashes(records, headers, keys, values, names, contents, partitions, first, second):
    """Return the sum of the hashes of rows, without what does not fit 64 bits.

    Parameters
    ----------
    records, headers, keys, values, names, contents
        As `sparklog.record.kernels_encode.write_records` takes them.
    partitions : int64 array, length n_records
        The partition that each row names; -1 where it names none.
    first, second : uint64
        The key of the hash.
    """
    total = np.uint64(0)
    for row in range(records.shape[1]):
        one = first ^ np.uint64(records[TIMESTAMP, row])
        two = second ^ np.uint64(partitions[row])
        one, two = _with_field(keys, records[KEY_POSITION, row], records[KEY_LENGTH, row], one, two)
        one, two = _with_field(values, records[VALUE_POSITION, row], records[VALUE_LENGTH, row], one, two)
        for h in range(records[FIRST_HEADER, row], records[END_HEADER, row]):
            one, two = _with_field(names, headers[NAME_POSITION, h], headers[NAME_LENGTH, h], one, two)
            one, two = _with_field(contents, headers[CONTENT_POSITION, h], headers[CONTENT_LENGTH, h], one, two)
        total += one
    return total
