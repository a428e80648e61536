"""Limits the memory of rows whose file is much smaller than they are.

A value that a file has once, in a dictionary, may be in every row, and a null of a wide type takes its whole width.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.values.json_text import is_bytes_type, is_text_type

ROW_BYTES_MAX: Final = 1 << 27
"""The default limit for the bytes of a row."""

_REPEATED_BYTES_MAX: Final = 1 << 26


def row_too_long(row_bytes_max: int) -> ValueError:
    """Return the error for a row that is longer than the limit."""
    return ValueError(f"a row has more than {row_bytes_max} bytes, the most that row_bytes_max lets it have")


def rows_in_memory(widest: int, row_bytes_max: int) -> int:
    """Return how many rows of ``widest`` bytes may be in memory; raise `ValueError` if a row is too long."""
    if widest > row_bytes_max:
        raise row_too_long(row_bytes_max)
    return max(_REPEATED_BYTES_MAX // max(widest, 1), 1)


def repeated_bytes(column: pa.Array) -> int:
    """Return the most bytes that a row can have from values that the rows of a column share."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary
    elif pa.types.is_run_end_encoded(kind):
        column = column.values
    else:
        return fixed_bytes(kind)
    return max(column.nbytes if pa.types.is_nested(column.type) else _longest(column), repeated_bytes(column))


def _longest(column: pa.Array) -> int:
    if not (is_text_type(column.type) or is_bytes_type(column.type)):
        return 0
    lengths = pc.binary_length(column.cast(pa.large_binary()))
    return pc.max(lengths).as_py() or 0


def fixed_bytes(kind: pa.DataType) -> int:
    """Return the fewest bytes that each value of a type takes, nulls included."""
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * max(fixed_bytes(kind.value_type), 1)
    if pa.types.is_struct(kind):
        return sum(fixed_bytes(kind.field(number).type) for number in range(kind.num_fields))
    return 0
