"""How many bytes the rows of a file come to in memory, where the file is much smaller.

A value that a file has once, in a dictionary, may be that of every row, and a null of a wide type takes its width.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.values.json_text import is_bytes_type, is_text_type

ROW_BYTES_MAX: Final = 1 << 27
"""How many bytes a row may have, by default."""

_REPEATED_BYTES_MAX: Final = 1 << 26


def row_too_long(row_bytes_max: int) -> ValueError:
    """Return an error of a row that is longer than it may be."""
    return ValueError(f"a row has more than {row_bytes_max} bytes, the most that row_bytes_max lets it have")


def rows_in_memory(widest: int, row_bytes_max: int) -> int:
    """Return how many rows of so many bytes may be in memory; `ValueError` where a row has more than it may."""
    if widest > row_bytes_max:
        raise row_too_long(row_bytes_max)
    return max(_REPEATED_BYTES_MAX // max(widest, 1), 1)


def repeated_bytes(column: pa.Array) -> int:
    """Return how many bytes a row at most gets of values that the rows of a column share."""
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
    """Return how many bytes each value of a type takes at least, nulls included."""
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * max(fixed_bytes(kind.value_type), 1)
    if pa.types.is_struct(kind):
        return sum(fixed_bytes(kind.field(number).type) for number in range(kind.num_fields))
    return 0
