"""Writes rows of an export as JSON lines, an object each."""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.jobs.files.json_rows import is_binary, json_texts
from sparklog.values.json_text import Pieces, data_field, header_objects, joined, octets_of

_BYTES: Final = pa.large_binary()
_RECORD_TIME: Final = pa.timestamp("ms", "UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])


def json_lines(batch: pa.RecordBatch) -> memoryview:
    """Write each row as a JSON object in a line of its own.

    Bytes that are UTF-8 are text; others are base64, in a field with ``_base64`` behind its name. The timestamp of a
    record is in ms since the epoch, headers are a list of objects, and what was decoded is as `json_rows` writes it.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        At least one column.

    Returns
    -------
    memoryview
        UTF-8.
    """
    pieces: list[pa.Array | bytes] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        pieces.extend(_field(field.name, column))
    if isinstance(pieces[0], bytes):
        pieces[0] = b"{" + pieces[0][1:]
    else:
        pieces = [b"{", pc.binary_replace_slice(pieces[0], 0, 1, b""), *pieces[1:]]
    return octets_of(joined(*pieces, b"}\n"))


def _field(name: str, column: pa.Array) -> Pieces:
    """Write a field with a comma before it."""
    if is_binary(column.type):
        return data_field(name, column)
    title = b"," + json.dumps(name, ensure_ascii=False).encode() + b":"
    if pa.types.is_list(column.type) and column.type.value_type == _HEADER:
        return title, header_objects(column)
    if column.type == _RECORD_TIME:
        column = column.cast(pa.int64())
    return title, pc.coalesce(json_texts(column, name).cast(_BYTES), pa.scalar(b"null", _BYTES))
