"""Writes tables to files: Parquet, Arrow IPC, CSV and JSON lines.

A format is a small frozen value that opens a writer on a file object. The writer receives tables of the size of a row
group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from sparklog.errors import InvalidOptionError, ValueDecodeError, did_you_mean
from sparklog.values.json_text import is_far, json_lines, time_texts
from sparklog.values.text import without_formulas

ROW_GROUP_BYTES: Final = 1 << 26
"""The default bytes of rows that are gathered in memory before they are written."""
ROW_GROUP_ROWS: Final = 1 << 20
_WINDOW_BYTES: Final = 1 << 20
_BATCH_BYTES: Final = 1 << 12
"""The bytes that a batch takes besides its rows, about."""
_SAMPLED_ROWS: Final = 1 << 12
_REPEATED_SHARE_MAX: Final = 0.5
"""Values get a dictionary if no more than this share of them is distinct."""
_SAMPLED_BYTES: Final = 1 << 19
_SAMPLED_BYTES_MIN: Final = 1 << 16
"""For fewer bytes, trying encodings would take longer than writing."""
_DELTAS: Final = "DELTA_BINARY_PACKED"
_LENGTHS_APART: Final = "DELTA_LENGTH_BYTE_ARRAY"
_APART_SHARE_MAX: Final = 0.98
"""Lengths are stored apart if text and bytes then compress to at most this share of their size with lengths."""


class TableWriter(Protocol):
    """Writes tables of one schema to a file."""

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None:
        """Write the end of the file; the file object stays open."""


class FileFormat(Protocol):
    """The interface of formats, which open writers; a frozen value with a small pickle."""

    @property
    def name(self) -> str:
        """The name of the format for users."""

    @property
    def suffix(self) -> str:
        """The suffix of names of its files."""

    @property
    def holds_bytes(self) -> bool:
        """Whether columns may be binary."""

    def check(self, schema: pa.Schema) -> None:
        """Raise `InvalidOptionError` for a column that the format cannot hold."""

    def open(self, sink: Any, schema: pa.Schema) -> TableWriter:
        """Begin a file, and return its writer."""

    def count_rows(self, source: Any) -> int:
        """Return the number of rows of a file; raise `pyarrow.ArrowInvalid` or OSError if it is not of this format."""


@dataclass(frozen=True)
class ParquetFormat:
    """The Parquet format, with files that are small, fast to write, and fast to read in part.

    Only columns that readers prune by have statistics. A column of text or bytes gets a dictionary if values repeat in
    its first rows.

    Attributes
    ----------
    has_deltas : bool
        Whether offsets and times are delta-encoded, and lengths are stored apart from text and bytes that compress
        better without them, such as values with few repetitions. Old readers know neither.
    """

    compression: str = "zstd"
    compression_level: int | None = None
    has_deltas: bool = True
    name: str = "parquet"
    suffix: str = ".parquet"
    holds_bytes: bool = True

    def check(self, schema: pa.Schema) -> None:
        pass

    def open(self, sink: Any, schema: pa.Schema) -> TableWriter:
        return _ParquetWriter(self, sink, schema)

    def count_rows(self, source: Any) -> int:
        return int(pyarrow.parquet.read_metadata(source).num_rows)


class _ParquetWriter:
    """Writes a Parquet file; the values of the first table decide how columns are encoded."""

    def __init__(self, wanted: ParquetFormat, sink: Any, schema: pa.Schema) -> None:
        self._wanted, self._sink, self._schema = wanted, sink, schema
        self._writer: pyarrow.parquet.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        self._opened(table).write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        self._opened(pa.Table.from_batches([], self._schema)).close()

    def _opened(self, table: pa.Table) -> pyarrow.parquet.ParquetWriter:
        if self._writer is None:
            repeated = [name for name in table.column_names if _repeats(table.column(name))]
            others = [name for name in table.column_names if name not in repeated]
            self._writer = pyarrow.parquet.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._wanted.compression,
                compression_level=self._wanted.compression_level,
                use_dictionary=repeated,
                column_encoding=self._deltas(table.select(others)) if self._wanted.has_deltas else {},
                write_statistics=[field.name for field in self._schema if not _is_opaque(field)],
            )
        return self._writer

    def _deltas(self, table: pa.Table) -> dict[str, str]:
        """Return the delta encoding of each column that is worth one."""
        counted = [field.name for field in table.schema if _is_counted(field.type)]
        texts = [field.name for field in table.schema if _is_text(field.type) and self._is_smaller_apart(table, field)]
        return {**dict.fromkeys(counted, _DELTAS), **dict.fromkeys(texts, _LENGTHS_APART)}

    def _is_smaller_apart(self, table: pa.Table, field: pa.Field) -> bool:
        """Return whether the first rows of a column compress better with their lengths apart.

        Lengths within random text are matches of a few bytes each, which take time to find and gain little.
        """
        size_bytes = table.column(field.name).nbytes
        if size_bytes < _SAMPLED_BYTES_MIN:
            return False
        sample = table.select([field.name]).slice(0, max(table.num_rows * _SAMPLED_BYTES // size_bytes, 1))
        among, apart = (self._written_bytes(sample, encoding) for encoding in ("PLAIN", _LENGTHS_APART))
        return apart <= among * _APART_SHARE_MAX

    def _written_bytes(self, table: pa.Table, encoding: str) -> int:
        """Return the size, in bytes, of a file with a table of one column."""
        sink = pa.BufferOutputStream()
        pyarrow.parquet.write_table(
            table,
            sink,
            compression=self._wanted.compression,
            compression_level=self._wanted.compression_level,
            use_dictionary=False,
            column_encoding=dict.fromkeys(table.column_names, encoding),
            write_statistics=False,
            store_schema=False,
        )
        return int(sink.tell())


def _is_counted(kind: pa.DataType) -> bool:
    """Return whether consecutive values of a type probably have small differences."""
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def _is_binary(kind: pa.DataType) -> bool:
    """Return whether values of a type are bytes of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are text or bytes of any length."""
    return bool(_is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_opaque(field: pa.Field) -> bool:
    """Return whether readers never prune by a column: bytes, nested types, and the text of keys and values."""
    kind = field.type
    return bool(_is_binary(kind) or pa.types.is_nested(kind) or field.name in ("key", "value", "timestampType"))


def _repeats(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if _is_counted(kind) or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return False
    sample = column.slice(0, _SAMPLED_ROWS)
    return not len(sample) or pc.count_distinct(sample).as_py() <= max(len(sample) * _REPEATED_SHARE_MAX, 1)


@dataclass(frozen=True)
class ArrowFormat:
    """The format of Arrow IPC files, which readers can map into memory."""

    compression: str | None = "zstd"
    name: str = "arrow"
    suffix: str = ".arrow"
    holds_bytes: bool = True

    def check(self, schema: pa.Schema) -> None:
        pass

    def open(self, sink: Any, schema: pa.Schema) -> TableWriter:
        writer: TableWriter = pa.ipc.new_file(
            sink, schema, options=pa.ipc.IpcWriteOptions(compression=self.compression)
        )
        return writer

    def count_rows(self, source: Any) -> int:
        with pa.ipc.open_file(source) as reader:
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


_ANY_VALUES: Final = pyarrow.csv.ParseOptions(newlines_in_values=True)


@dataclass(frozen=True)
class CsvFormat:
    """The CSV format with a line of names; null is an empty field, and the empty string is ``""``.

    It holds text and numbers: bytes must be decoded or written as base64, and headers left out or written as JSON; see
    `check`. Times are text in Arrow's form.

    Attributes
    ----------
    escapes_formulas : bool
        Whether text that a spreadsheet would take for a formula gets a ' before it.
    """

    escapes_formulas: bool = False
    name: str = "csv"
    suffix: str = ".csv"
    holds_bytes: bool = False

    def check(self, schema: pa.Schema) -> None:
        for field in schema:
            if pa.types.is_nested(field.type):
                raise InvalidOptionError(
                    f"the column {field.name} is of {field.type}, which CSV cannot hold: leave it out by columns, or "
                    f"export to Parquet, Arrow or JSON lines"
                )
            if _is_binary(field.type):
                raise InvalidOptionError(
                    f"the column {field.name} is binary, which CSV cannot hold: say how it is decoded, as string, "
                    f"base64 or hex, or leave it out by columns"
                )

    def open(self, sink: Any, schema: pa.Schema) -> TableWriter:
        return _CsvWriter(self, sink, schema)

    def count_rows(self, source: Any) -> int:
        # All columns as text: types are not guessed.
        names = pyarrow.csv.open_csv(source, parse_options=_ANY_VALUES).schema.names
        source.seek(0)
        as_text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()))
        with pyarrow.csv.open_csv(source, parse_options=_ANY_VALUES, convert_options=as_text) as reader:
            return sum(batch.num_rows for batch in reader)


class _CsvWriter:
    def __init__(self, wanted: CsvFormat, sink: Any, schema: pa.Schema) -> None:
        self._wanted, self._sink = wanted, sink
        pyarrow.csv.write_csv(schema.empty_table(), sink)

    def write(self, table: pa.Table) -> None:
        if table.num_columns == 1 and table.column(0).null_count:
            raise ValueDecodeError(
                f"the column {table.column_names[0]!r} has nulls, and in a CSV file of one column these are empty "
                f"lines, which readers pass over: write another column beside it, or JSON lines"
            )
        for batch in table.to_batches():
            columns = [self._written(column) for column in batch.columns]
            rows = pa.record_batch(columns, names=batch.schema.names)
            pyarrow.csv.write_csv(rows, self._sink, pyarrow.csv.WriteOptions(include_header=False))

    def _written(self, column: pa.Array) -> pa.Array:
        if self._wanted.escapes_formulas and pa.types.is_string(column.type):
            return without_formulas(column)
        return time_texts(column) if pa.types.is_temporal(column.type) and is_far(column).any() else column

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class JsonLinesFormat:
    """The JSON lines format: one object per record, written by `sparklog.values.json_text.json_lines`."""

    name: str = "jsonl"
    suffix: str = ".jsonl"
    holds_bytes: bool = True

    def check(self, schema: pa.Schema) -> None:
        pass

    def open(self, sink: Any, schema: pa.Schema) -> TableWriter:  # noqa: ARG002
        return _JsonLinesWriter(sink)

    def count_rows(self, source: Any) -> int:
        rows = 0
        while window := source.read(_WINDOW_BYTES):
            rows += bytes(window).count(b"\n")
        return rows


class _JsonLinesWriter:
    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches():
            self._sink.write(json_lines(batch))

    def close(self) -> None:
        pass


EXPORT_FORMATS: Final[dict[str, Callable[[], FileFormat]]] = {
    "parquet": ParquetFormat,
    "arrow": ArrowFormat,
    "csv": CsvFormat,
    "jsonl": JsonLinesFormat,
}


def format_named(name: str, others: Sequence[str] = ()) -> FileFormat:
    """Return a format by its name; otherwise raise `InvalidOptionError`, whose message lists ``others`` too."""
    if name not in EXPORT_FORMATS:
        known = [*EXPORT_FORMATS, *others]
        raise InvalidOptionError(f"no format {name!r}: {did_you_mean(name, known, 'formats are ' + ', '.join(known))}")
    return EXPORT_FORMATS[name]()


def format_of_file(name: str) -> FileFormat | None:
    """Return the format of a file by its name; None if it is none of ours."""
    return next((each for make in EXPORT_FORMATS.values() if name.endswith((each := make()).suffix)), None)


class RowGroups:
    """Gathers batches into row groups, and writes them.

    Parameters
    ----------
    writer : TableWriter
        Writes the row groups.
    schema : pyarrow.Schema
        The columns of the file.
    rows_max, bytes_max : int
        A row group is written when it has this number of rows or bytes.
    """

    def __init__(
        self, writer: TableWriter, schema: pa.Schema, rows_max: int = ROW_GROUP_ROWS, bytes_max: int = ROW_GROUP_BYTES
    ) -> None:
        self._writer, self._schema = writer, schema
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._batches: list[pa.RecordBatch] = []
        self._rows = self.buffered_bytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.buffered_bytes += batch.nbytes + _BATCH_BYTES
        if self._rows >= self._rows_max or self.buffered_bytes >= self._bytes_max:
            self.flush()

    def flush(self) -> None:
        """Write the gathered rows as a row group."""
        if self._batches:
            self._writer.write(pa.Table.from_batches(self._batches, schema=self._schema))
        self._batches, self._rows, self.buffered_bytes = [], 0, 0

    def close(self) -> None:
        """Write the remaining rows and the end of the file."""
        self.flush()
        self._writer.close()
