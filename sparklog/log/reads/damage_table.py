"""Makes the table of damage: one row for each damaged stretch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import Final

import pyarrow as pa

from sparklog.log.damage_rows import DamagedStretch

DAMAGE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("length_bytes", pa.int64()),
        ("first_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("reason", pa.string()),
    ]
)


def damage_table(stretches: Iterable[DamagedStretch]) -> pa.Table:
    """Return one row of `DAMAGE_SCHEMA` for each stretch, in the given order."""
    rows = [astuple(stretch) for stretch in stretches]
    columns = zip(*rows, strict=True) if rows else [()] * len(DAMAGE_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, DAMAGE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=DAMAGE_SCHEMA)
