"""Defines the columns that can be asked of a log, and puts the decoded ones in the order asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from sparklog.log.segment import Segment
from sparklog.record.format.arrays import scalar_of
from sparklog.record.format.schema import DEFAULT_COLUMNS, RECORD_SCHEMA, chosen_columns, selector

FILE_COLUMN: Final = "file"
LOG_SCHEMA: Final = RECORD_SCHEMA.append(pa.field(FILE_COLUMN, pa.string()))
"""The columns that can be asked of a log: those of its records, and ``file``, the name of the segment's file."""

DAMAGED_COLUMN: Final = "damaged"
DAMAGED_SCHEMA: Final = LOG_SCHEMA.append(pa.field(DAMAGED_COLUMN, pa.bool_()))
"""The columns of a read with ``best_effort``: also ``damaged``, whether the checksum of the record's batch differs."""


def schema_of(columns: str | Sequence[str] | None, *, is_best_effort: bool = False) -> pa.Schema:
    """Return the schema of a read of some columns, `DEFAULT_COLUMNS` where None are given.

    Parameters
    ----------
    is_best_effort : bool
        Whether ``damaged`` can be asked for; by default it is then the last column.

    Raises
    ------
    InvalidOptionError
        There is no such column.
    """
    if is_best_effort:
        return _damaged_schema_of(chosen_columns(columns, (*DEFAULT_COLUMNS, DAMAGED_COLUMN), DAMAGED_SCHEMA.names))
    return _schema_of(chosen_columns(columns, DEFAULT_COLUMNS, LOG_SCHEMA.names))


_schema_of: Final = selector(LOG_SCHEMA)
_damaged_schema_of: Final = selector(DAMAGED_SCHEMA)


def decoded_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a schema that are decoded."""
    return [name for name in schema.names if name not in (FILE_COLUMN, DAMAGED_COLUMN)]


def in_order_asked(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, segment: Segment, *, is_damaged: bool = False
) -> Iterator[pa.RecordBatch]:
    """Put the decoded columns in the order asked for, and add the others."""
    for batch in batches:
        if batch.schema.names == schema.names:
            yield batch
            continue
        added = {
            FILE_COLUMN: scalar_of(segment.file_name(), pa.string()),
            DAMAGED_COLUMN: scalar_of(is_damaged, pa.bool_()),
        }
        arrays = [
            pa.repeat(added[name], batch.num_rows) if name in added else batch.column(name) for name in schema.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
