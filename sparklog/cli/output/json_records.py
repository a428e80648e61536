"""Writes records as JSON lines: compiled per record, Python per batch.

Each field of all records is made at once, as an Arrow array of pieces of text; then the pieces of each record are
joined. What all records of a Kafka batch have in common is written once for the batch, and then repeated.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.inspect.dump import TIMESTAMP_TYPES
from sparklog.inspect.dump_range import DumpedLog
from sparklog.log.reader import FILE_COLUMN
from sparklog.record.format.arrays import array_of, numbers_of
from sparklog.values.json_text import data_field, digits_of, escaped, header_objects, joined, octets_of, pieces_of

_BYTES: Final = pa.large_binary()
_OF_A_BATCH: Final = (
    "timestampType",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "is_transactional",
    "magic",
    "base_offset",
    "position",
)


def record_lines(log: DumpedLog, batch: pa.RecordBatch) -> memoryview:
    """Write each record as a JSON object in a line of its own.

    Parameters
    ----------
    log : DumpedLog
        The log of the records, which they name.
    batch : pyarrow.RecordBatch
        From `sparklog.inspect.dump.record_batches`.

    Returns
    -------
    memoryview
        UTF-8. Keys and values that are UTF-8 are text; others are base64, in a field with ``_base64`` behind its name.
    """
    whose = json.dumps({"topic": log.topic, "partition": log.partition}, ensure_ascii=False, separators=(",", ":"))
    first, second, third = _pieces_of_batches(batch)
    return octets_of(
        joined(
            whose[:-1].encode() + b',"offset":',
            digits_of(batch.column("offset")),
            b',"timestamp":',
            digits_of(batch.column("timestamp").cast(pa.int64())),
            first,
            *data_field("key", batch.column("key")),
            *data_field("value", batch.column("value")),
            b',"headers":',
            header_objects(batch.column("headers")),
            second,
            digits_of(batch.column("sequence")),
            third,
        )
    )


def _pieces_of_batches(batch: pa.RecordBatch) -> list[pa.Array]:
    """Write the fields that the records of a Kafka batch share: before the key, before the sequence, and behind it."""
    columns = [numbers_of(batch.column(name)) for name in _OF_A_BATCH]
    is_first = np.zeros(batch.num_rows, bool)
    is_first[:1] = True
    for column in columns:
        is_first[1:] |= column[1:] != column[:-1]
    runs = array_of(np.cumsum(is_first) - 1)
    firsts = batch.take(array_of(np.flatnonzero(is_first)))
    kinds = firsts.column("timestampType").to_pylist()
    written = {name: digits_of(firsts.column(name)) for name in _OF_A_BATCH if name != "is_transactional"}
    pieces = (
        (b',"timestamp_type":"', pieces_of(*(TIMESTAMP_TYPES[kind].encode() for kind in kinds)), b'"'),
        (
            *(b',"leader_epoch":', written["leader_epoch"]),
            *(b',"producer_id":', written["producer_id"]),
            *(b',"producer_epoch":', written["producer_epoch"]),
            b',"sequence":',
        ),
        (
            *(b',"is_transactional":', firsts.column("is_transactional").cast(pa.large_string()).cast(_BYTES)),
            *(b',"codec":"', escaped(firsts.column("compression")), b'"'),
            *(b',"magic":', written["magic"]),
            *(b',"base_offset":', written["base_offset"]),
            *(b',"file":"', escaped(firsts.column(FILE_COLUMN)), b'"'),
            *(b',"position":', written["position"]),
            b"}\n",
        ),
    )
    return [joined(*each).take(runs) for each in pieces]
