"""The output formats of ``dump``: a table, JSON lines, CSV, or only the values."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import WriteOptions, write_csv

from sparklog.cli.output import render
from sparklog.cli.output.columns import entry_columns
from sparklog.cli.output.fields import BATCH, RECORD
from sparklog.cli.output.tables import Column, StreamedTable, no_heading
from sparklog.cli.parsing import Format
from sparklog.errors import InvalidOptionError
from sparklog.inspect.dump import TIMESTAMP_TYPES, RowDict, record_rows
from sparklog.inspect.dump_range import DumpedLog
from sparklog.log.reads.columns import FILE_COLUMN
from sparklog.record.format.arrays import array_of, array_of_texts, numbers_of
from sparklog.values.json_text import (
    base64_of,
    data_field,
    digits_of,
    escaped,
    header_objects,
    joined_pieces,
    octets_of,
    pieces_of,
)
from sparklog.values.rows import only_where
from sparklog.values.text import FORMULA, NO_FORMULA, is_text, without_formulas

Chunk = Any
"""Records, as a `pyarrow.RecordBatch`, or rows of batches, as a list of dicts: both have a length and slices."""

Printer = Callable[[DumpedLog, Chunk], None]

_BYTES: Final = pa.large_binary()
_KIND_IDS: Final = array_of(np.array(list(TIMESTAMP_TYPES), np.int32))
_KINDS: Final = array_of_texts(list(TIMESTAMP_TYPES.values()))
# These fields are the same in all records of a Kafka batch, so their text is made once per batch.
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
_NO_RAW: Final = "--format raw prints the values of records; batches, and files that are not logs, have none"


def log_printer(form: Format, *, has_batches: bool, escapes_formulas: bool = False) -> Printer:
    """Return the function that prints records, or batches, in a format.

    Parameters
    ----------
    escapes_formulas : bool
        Whether CSV text that a spreadsheet would take for a formula gets a ' before it.

    Raises
    ------
    InvalidOptionError
        The form is for records only.
    """
    if has_batches:
        put = _rows_printer(form, lambda _: BATCH.columns, _file_of, escapes_formulas=escapes_formulas)
        return lambda _, rows: put(rows)
    if form is Format.TABLE:
        table = StreamedTable(RECORD.columns, _partition_of)
        return lambda log, batch: table.put(record_rows(log, batch))
    if form is Format.JSON:
        return lambda log, batch: render.put_whole(record_lines(log, batch))
    return _put_values if form is Format.RAW else _CsvRecords(escapes_formulas=escapes_formulas).put


def entries_printer(form: Format, *, escapes_formulas: bool = False) -> Callable[[Sequence[RowDict]], None]:
    """Return the function that prints the entries of a file that is not a log; see `log_printer`.

    Raises
    ------
    InvalidOptionError
        The form is for records only.
    """
    return _rows_printer(form, entry_columns, no_heading, escapes_formulas=escapes_formulas)


def _rows_printer(
    form: Format,
    columns: Callable[[RowDict], Sequence[Column]],
    heading: Callable[[render.Row], str],
    *,
    escapes_formulas: bool,
) -> Callable[[Sequence[RowDict]], None]:
    if form is Format.RAW:
        raise InvalidOptionError(_NO_RAW)
    if form is Format.JSON:
        return render.put_rows
    return (_CsvRows(escapes_formulas=escapes_formulas) if form is Format.CSV else _TableRows(columns, heading)).put


class _TableRows:
    """Prints rows as a table; the first row may decide its columns."""

    def __init__(self, columns: Callable[[RowDict], Sequence[Column]], heading: Callable[[render.Row], str]) -> None:
        self._columns = columns
        self._heading = heading
        self._table: StreamedTable | None = None

    def put(self, rows: Sequence[RowDict]) -> None:
        if self._table is None:
            self._table = StreamedTable(self._columns(rows[0]), self._heading)
        self._table.put(rows)


class _CsvRows:
    """Prints rows as CSV, with a header line."""

    def __init__(self, *, escapes_formulas: bool) -> None:
        self._escapes_formulas, self._has_names = escapes_formulas, False

    def put(self, rows: Sequence[RowDict]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        if not self._has_names:
            writer.writeheader()
        self._has_names = True
        for row in rows:
            writer.writerow({name: self._value(value) for name, value in row.items()})
        render.put_whole(text.getvalue())

    def _value(self, value: Any) -> Any:
        if isinstance(value, str) and self._escapes_formulas:
            return re.sub(FORMULA, NO_FORMULA, value)
        return str(value).lower() if isinstance(value, bool) else value


class _CsvRecords:
    """Prints records as CSV, with JSON's field names as header; bytes that are not text are in base64 columns."""

    def __init__(self, *, escapes_formulas: bool) -> None:
        self._escapes_formulas, self._has_names = escapes_formulas, False

    def put(self, log: DumpedLog, batch: pa.RecordBatch) -> None:
        written = io.BytesIO()
        rows = _csv_table(log, batch)
        if self._escapes_formulas:
            texts = (pa.string(), pa.large_string())
            columns = [without_formulas(each) if each.type in texts else each for each in rows.columns]
            rows = pa.record_batch(columns, names=rows.schema.names)
        write_csv(rows, written, WriteOptions(include_header=not self._has_names))
        self._has_names = True
        render.put_whole(written.getbuffer())


def _csv_table(log: DumpedLog, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        "topic": pa.repeat(log.topic, batch.num_rows),
        "partition": pa.repeat(pa.scalar(log.partition, pa.int32()), batch.num_rows),
        "offset": batch.column("offset"),
        "timestamp": batch.column("timestamp").cast(pa.int64()),
        "timestamp_type": _KINDS.take(pc.index_in(batch.column("timestampType"), _KIND_IDS)),
    }
    for name in ("key", "value"):
        data = batch.column(name)
        are_text = is_text(data)
        columns[name] = only_where(data, are_text).cast(pa.large_string())
        columns[f"{name}_base64"] = base64_of(only_where(data, pc.invert(are_text))).cast(pa.large_string())
    columns["headers"] = header_objects(batch.column("headers")).cast(pa.large_string())
    for name in ("leader_epoch", "producer_id", "producer_epoch", "sequence", "is_transactional"):
        columns[name] = batch.column(name)
    columns["codec"] = batch.column("compression")
    for name in ("magic", "base_offset", FILE_COLUMN, "position"):
        columns[name] = batch.column(name)
    return pa.RecordBatch.from_pydict(columns)


def _put_values(_: DumpedLog, batch: pa.RecordBatch) -> None:
    """Print each value's bytes and a newline; only the newline if the value is null."""
    values = batch.column("value").cast(_BYTES).fill_null(pieces_of(b"")[0])
    render.put_whole(octets_of(joined_pieces(values, b"\n")), is_raw=True)


def _partition_of(row: render.Row) -> str:
    return row["topic"] if row["partition"] is None else f"{row['topic']}-{row['partition']}"


def _file_of(row: render.Row) -> str:
    return f"{_partition_of(row)}/{row['file']}"


def record_lines(log: DumpedLog, batch: pa.RecordBatch) -> memoryview:
    """Return each record as a JSON object on its own line.

    Parameters
    ----------
    log : DumpedLog
        The log of the records; each object names it.
    batch : pyarrow.RecordBatch
        A batch from `sparklog.inspect.dump.record_batches`.

    Returns
    -------
    memoryview
        UTF-8. Keys and values that are UTF-8 are text; others are base64, in a field with the suffix ``_base64``.
    """
    whose = json.dumps({"topic": log.topic, "partition": log.partition}, ensure_ascii=False, separators=(",", ":"))
    first, second, third = _pieces_of_batches(batch)
    return octets_of(
        joined_pieces(
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
    """Return the text shared by the records of a Kafka batch: before the key, before the sequence, and after it."""
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
    return [joined_pieces(*each).take(runs) for each in pieces]
