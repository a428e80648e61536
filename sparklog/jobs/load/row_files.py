"""Reads the rows of a file in batches, in their order: Parquet, Arrow, CSV and JSON lines.

    format   types of columns                        memory, besides about `BATCH_BYTES` of rows
    parquet  from the file                           a page per column
    arrow    from the file (or stream)               a batch of the file
    csv      text, except those in `Csv.types`       the longest row
    json     by the part of a record that they are   the longest line

Types of CSV are not guessed: what looks like a number may be a code with leading zeros. An empty field is null, and a
quoted empty field is empty text. JSON lines are one object per line, and only the wanted members are parsed.

pyarrow reads the bytes through the storage. If it cannot read a file, an `InputFileError` names the file.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from sparklog.errors import InputFileError, InvalidOptionError, SeglogError
from sparklog.jobs.files.lines import Lines, blocks_of_lines, split_lines
from sparklog.jobs.files.row_sizes import ROW_BYTES_MAX, fixed_bytes, repeated_bytes, row_too_long, rows_in_memory
from sparklog.jobs.files.seekable import SeekableFile
from sparklog.jobs.load.inputs import ARROW, CSV, PARQUET, InputFile
from sparklog.storage.base import ReadableFile
from sparklog.values.json_text import BASE64_SUFFIX, is_bytes_type, is_text_type

BATCH_BYTES: Final = 1 << 20
"""The size of a batch of rows, in bytes, about."""

_BATCH_ROWS_MAX: Final = 1 << 16
_BUFFERED_BYTES: Final = 1 << 18
_CSV_BLOCK_BYTES: Final = 1 << 22
_CSV_HEADER_BYTES_MAX: Final = 1 << 20
_ARROW_FILE: Final = b"ARROW1"
_UNREADABLE: Final = (
    pa.ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError, OverflowError, RecursionError,
    csv.Error,
)  # fmt: skip
HEADER_OBJECTS: Final = pa.list_(
    pa.struct([("key", pa.string()), ("value", pa.string()), (f"value{BASE64_SUFFIX}", pa.string())])
)
"""The type of headers in files of text."""
_JSON_TYPES: Final[Mapping[str, tuple[pa.DataType, ...]]] = {
    "key": (pa.string(),),
    "value": (pa.string(),),
    "topic": (pa.string(),),
    "timestamp": (pa.int64(), pa.string()),
    "partition": (pa.int64(), pa.string()),
    "headers": (HEADER_OBJECTS,),
}
# A name with an escape in it: a backslash and a character, and only plain characters from there to the name's end.
_ESCAPED_NAME: Final = re.compile(rb'\\.[^"\\]*"[ \t\r]*:', re.DOTALL)


@dataclass(frozen=True)
class Csv:
    """The options for reading CSV files.

    Attributes
    ----------
    delimiter : str
        The character between fields.
    columns : tuple of str
        The names of the columns, for files without a first line of names.
    types : mapping of str to pyarrow.DataType
        The types of the columns that are not text.
    """

    delimiter: str = ","
    columns: tuple[str, ...] = ()
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            raise InvalidOptionError(f"csv_delimiter must be one character of ASCII, got {self.delimiter!r}")
        for name, kind in self.types.items():
            if not isinstance(kind, pa.DataType):
                raise InvalidOptionError(f"csv_types must have types of pyarrow, and has {kind!r} for {name!r}")


@dataclass(frozen=True)
class WantedColumns:
    """The columns to read from a file.

    Attributes
    ----------
    roles : mapping of str to str
        The parts of a record by column name: "key", "value", "headers", "timestamp", "topic" or "partition". A column
        with bytes as base64, which its file cannot hold otherwise, has the role of these bytes.
    has_all : bool
        Whether every column is read. Of JSON lines the whole lines are then read, unchanged, as the column `LINE`.
    row_bytes_max : int
        The largest size of a row, in bytes, after decompression and decoding.
    """

    roles: Mapping[str, str]
    has_all: bool
    row_bytes_max: int = ROW_BYTES_MAX


LINE: Final = "\0line"
"""The column of whole lines of JSON; no column of a file has this name."""


@dataclass
class InputSource:
    """An open file that is being loaded.

    Attributes
    ----------
    read_bytes : int
        The number of bytes that its readers have read.
    """

    file: ReadableFile
    read_bytes: int = 0

    def reader(self) -> Any:
        """Return a file object for pyarrow, at the beginning; each has a position of its own.

        Some readers read ahead in a thread, and may still do so when another one begins.
        """
        return pa.PythonFile(SeekableFile(self.file, self._count), mode="r")

    def _count(self, size_bytes: int) -> None:
        self.read_bytes += size_bytes


@contextmanager
def open_input(file: InputFile) -> Iterator[InputSource]:
    """Open a file to load; raise `InputFileError` if it has changed since it was found, then or while it is open."""
    with file.storage.open(file.path) as readable:
        _refuse_changed(file, readable)
        yield InputSource(readable)
        _refuse_changed(file, readable)


def _refuse_changed(file: InputFile, readable: ReadableFile) -> None:
    if (readable.size_bytes(), readable.modified_ns()) != (file.size_bytes, file.modified_ns):
        raise InputFileError(f"{file.name} was changed while it was loaded: repeat the load once it is finished")


def input_columns(file: InputFile, names: Sequence[str], options: Csv, row_bytes_max: int = ROW_BYTES_MAX) -> list[str]:
    """Return which of some names are columns of a file; for JSON lines only the first lines are read."""
    with input_errors(file), open_input(file) as source:
        if file.format == PARQUET:
            found = _open_parquet(source).schema_arrow.names
        elif file.format == ARROW:
            found = _open_arrow(source).schema.names
        elif file.format == CSV:
            found = _csv_names(_opener(source, file), options)
        else:
            block = next(blocks_of_lines(_opener(source, file)(), row_bytes_max), b"")
            found = _members(_named_in(block, names), split_lines(block, 1).texts)
        return [name for name in names if name in found]


@dataclass(frozen=True, slots=True)
class Footer:
    """The facts in the footer of a Parquet file.

    Attributes
    ----------
    columns : tuple of str
        The names of the columns.
    group_rows, group_bytes : tuple of int
        The number of rows of each row group, and about its bytes in the file.
    """

    columns: tuple[str, ...]
    group_rows: tuple[int, ...]
    group_bytes: tuple[int, ...]

    def rows_in(self, groups: range | None) -> int:
        """Return the number of rows in some row groups, or in the whole file if None."""
        return sum(self.group_rows if groups is None else (self.group_rows[number] for number in groups))


def read_footer(file: InputFile) -> Footer:
    """Read the footer of a Parquet file; raise `InputFileError` if it is damaged."""
    with input_errors(file), open_input(file) as source:
        opened_file = _open_parquet(source)
        metadata = opened_file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        sizes = [max(group.total_byte_size, 1) for group in groups]
        return Footer(
            tuple(opened_file.schema_arrow.names),
            tuple(group.num_rows for group in groups),
            tuple(size * file.size_bytes // sum(sizes) for size in sizes),
        )


def known_rows(file: InputFile, groups: range | None) -> int | None:
    """Return the number of rows of a file, or some of its row groups; None if only reading it all would tell."""
    return read_footer(file).rows_in(groups) if file.format == PARQUET else None


def read_rows(
    source: InputSource, file: InputFile, groups: range | None, wanted: WantedColumns, options: Csv
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches, in their order.

    Parameters
    ----------
    source : InputSource
        The open file, from `open_input`.
    groups : range, optional
        The row groups of a Parquet file to read; by default all.

    Raises
    ------
    InputFileError
        The file is damaged, is not of its format, or has columns of other types than given.
    """
    with input_errors(file):
        if file.format == PARQUET:
            yield from _read_parquet(source, groups, wanted)
        elif file.format == ARROW:
            yield from _read_arrow(source, wanted)
        elif file.format == CSV:
            yield from _read_csv(_opener(source, file), wanted, options)
        else:
            yield from _read_json(_opener(source, file)(), wanted)


@contextmanager
def input_errors(file: InputFile) -> Iterator[None]:
    """Raise `InputFileError`, which names the file, for errors of pyarrow that mean it cannot be read."""
    try:
        yield
    except SeglogError:
        raise
    except _UNREADABLE as error:
        reason = str(error).strip().rstrip(".") or repr(error)
        raise InputFileError(
            f"{file.name} cannot be read as {file.format}: {reason}. Nothing of it was loaded: repair or replace it, "
            f"or say its format if it is another"
        ) from error


def _opener(source: InputSource, file: InputFile) -> Callable[[], Any]:
    """Return a function that opens the decompressed bytes of a file at their beginning."""

    def opener() -> Any:
        plain = source.reader()
        return plain if file.codec is None else pa.CompressedInputStream(plain, file.codec)

    return opener


def _pieces(rows: pa.RecordBatch, wanted: WantedColumns) -> Iterator[pa.RecordBatch]:
    """Split rows into batches of bounded size: a value that is in the file once may be in many rows."""
    rows_max = max(rows.num_rows * BATCH_BYTES // max(rows.nbytes, 1), 1)
    rows_max = min(rows_max, rows_in_memory(sum(map(repeated_bytes, rows.columns)), wanted.row_bytes_max))
    for start in range(0, rows.num_rows, rows_max):
        yield rows.slice(start, rows_max)


def _open_parquet(source: InputSource, dictionaries: Sequence[str] = ()) -> pa.parquet.ParquetFile:
    # With pre-buffering a whole row group would be in memory.
    return pa.parquet.ParquetFile(
        source.reader(),
        buffer_size=_BUFFERED_BYTES,
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=list(dictionaries),
    )


def _read_parquet(source: InputSource, groups: range | None, wanted: WantedColumns) -> Iterator[pa.RecordBatch]:
    file = _open_parquet(source)
    metadata, names = file.metadata, file.schema_arrow.names
    # Rows without any column would be none.
    chosen = None if wanted.has_all else [name for name in names if name in wanted.roles] or names[:1]
    fields = [field for field in file.schema_arrow if chosen is None or field.name in chosen]
    texts = [field.name for field in fields if is_text_type(field.type) or is_bytes_type(field.type)]
    first_rows = _open_parquet(source, texts)
    for number in range(metadata.num_row_groups) if groups is None else groups:
        widest = sum(_in_dictionary(first_rows, number, name) for name in texts)
        widest += sum(fixed_bytes(field.type) for field in fields)
        rows_max = min(_rows_at_once(metadata.row_group(number)), rows_in_memory(widest, wanted.row_bytes_max))
        for rows in file.iter_batches(rows_max, row_groups=[number], columns=chosen, use_threads=False):
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                # Text in a damaged file may not be UTF-8.
                if wanted.roles.get(name) not in ("key", "value"):
                    column.validate(full=True)
            yield from _pieces(rows, wanted)


def _in_dictionary(file: pa.parquet.ParquetFile, group: int, column: str) -> int:
    """Return the size, in bytes, of the longest value in a column's dictionary, which may be in every row."""
    try:
        # Reading one row reads the whole dictionary.
        return max((repeated_bytes(rows.column(0)) for rows in _one_row(file, group, column)), default=0)
    except OSError as error:
        # pyarrow makes no dictionary for some encodings that have none.
        if "Not yet implemented" not in str(error):
            raise
        return 0


def _one_row(file: pa.parquet.ParquetFile, group: int, column: str) -> Iterator[pa.RecordBatch]:
    return islice(file.iter_batches(1, row_groups=[group], columns=[column], use_threads=False), 1)


def _rows_at_once(group: Any) -> int:
    """Return how many rows of a row group are about `BATCH_BYTES`.

    The metadata of single columns are not read: if they are damaged, pyarrow ends the process.
    """
    rows = int(group.num_rows) * BATCH_BYTES // max(int(group.total_byte_size), 1)
    return max(min(rows, _BATCH_ROWS_MAX), 1)


def _open_arrow(source: InputSource, options: Any = None) -> Any:
    is_file = bytes(source.file.read(0, len(_ARROW_FILE))) == _ARROW_FILE
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source.reader(), options=options)


def _read_arrow(source: InputSource, wanted: WantedColumns) -> Iterator[pa.RecordBatch]:
    names = _open_arrow(source).schema.names
    chosen = [n for n, name in enumerate(names) if wanted.has_all or name in wanted.roles]
    reader = _open_arrow(source, pa.ipc.IpcReadOptions(included_fields=chosen, use_threads=False))
    is_file = isinstance(reader, pa.ipc.RecordBatchFileReader)
    for rows in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
        # The format does not prevent offsets that point outside of their buffer.
        rows.validate(full=True)
        yield from _pieces(rows, wanted)


def _csv_names(opener: Callable[[], Any], options: Csv) -> list[str]:
    """Return the names of the columns; none for an empty file."""
    head = bytes(opener().read(_CSV_HEADER_BYTES_MAX)).decode("utf-8-sig", "replace")
    if options.columns or not head:
        return list(options.columns) if head else []
    lines = csv.reader(io.StringIO(head, newline=""), delimiter=options.delimiter)
    return next((line for line in lines if line), [])


def _read_csv(opener: Callable[[], Any], wanted: WantedColumns, options: Csv) -> Iterator[pa.RecordBatch]:
    names = _csv_names(opener, options)
    if not names:
        return
    chosen = [name for name in names if wanted.has_all or name in wanted.roles]
    kinds = {name: _csv_type(name, wanted, options) for name in chosen}
    convert = pa.csv.ConvertOptions(
        column_types=kinds,
        include_columns=chosen or names[:1],
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    block_bytes, done = _CSV_BLOCK_BYTES, 0
    while True:
        seen = 0
        try:
            for rows in pa.csv.open_csv(opener(), *_csv_settings(options, block_bytes), convert):
                # A row longer than a block makes reading begin again with larger blocks: skip rows already read.
                left = rows.slice(max(done - seen, 0))
                seen += rows.num_rows
                done = max(done, seen)
                yield from _pieces(left, wanted)
        except pa.ArrowInvalid as error:
            block_bytes = _larger_block(block_bytes, wanted.row_bytes_max, error)
        else:
            return


def _csv_type(name: str, wanted: WantedColumns, options: Csv) -> pa.DataType:
    is_bytes = wanted.roles.get(name) in ("key", "value")
    return options.types.get(name, pa.binary() if is_bytes else pa.string())


def _csv_settings(options: Csv, block_bytes: int) -> tuple[Any, Any]:
    return (
        pa.csv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=options.columns or None),
        pa.csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
    )


def _larger_block(block_bytes: int, row_bytes_max: int, error: pa.ArrowInvalid) -> int:
    """Return the block size to try next; raise the error unless it means that a row is longer than a block."""
    if "straddl" not in str(error):
        raise error
    if block_bytes >= row_bytes_max:
        raise row_too_long(row_bytes_max) from error
    return min(block_bytes * 16, row_bytes_max)


def _read_json(stream: Any, wanted: WantedColumns) -> Iterator[pa.RecordBatch]:
    names = list(wanted.roles)
    types = [_JSON_TYPES[wanted.roles[name]] for name in names]
    choices = [pa.schema(list(zip(names, kinds, strict=True))) for kinds in product(*types)]
    line = 1
    for block in blocks_of_lines(stream, wanted.row_bytes_max):
        lines = split_lines(block, line)
        line += block.count(b"\n")
        if not len(lines.texts):
            continue
        parsed = _parsed(lines, choices)
        # The next block probably has the same schema.
        choices.remove(parsed.schema)
        choices.insert(0, parsed.schema)
        columns = {LINE: lines.texts} if wanted.has_all else {}
        named = _named_in(block, names)
        found = {name: parsed.column(name).combine_chunks() for name in named}
        # Missing values must not be taken for tombstones, though headers also have a member "value"; nor missing keys
        # for null ones, if the name of a folder gives the key.
        there = _members([name for name in named if found[name].null_count == len(lines.texts)], lines.texts)
        for name, column in found.items():
            column.validate(full=True)
            if name in there or column.null_count < len(column):
                columns[name] = column
        # A batch without columns would have no rows.
        yield from _pieces(pa.record_batch(columns or {LINE: pa.nulls(len(lines.texts))}), wanted)


def _named_in(block: bytes, names: Iterable[str]) -> list[str]:
    """Return which names may be columns of these lines; the others are no columns, and not columns of nulls."""
    is_escaped = _ESCAPED_NAME.search(block) is not None
    return [name for name in names if is_escaped or json.dumps(name, ensure_ascii=False).encode() in block]


def _members(names: Sequence[str], lines: pa.Array) -> list[str]:
    """Return which names occur in the objects of the lines; stop as soon as all are found."""
    missing = set(names)
    for line in lines:
        if not missing:
            break
        missing.difference_update(json.loads(line.as_py()))
    return [name for name in names if name not in missing]


def _parsed(lines: Lines, choices: Sequence[pa.Schema]) -> pa.Table:
    """Parse lines by the first schema that fits."""
    first_error: Exception | None = None
    for schema in choices:
        options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        settings = pa.json.ReadOptions(use_threads=False, block_size=len(lines.block) + 1)
        try:
            found = pa.json.read_json(pa.BufferReader(lines.block), settings, options)
        except pa.ArrowInvalid as error:
            first_error = first_error or error
            continue
        if found.num_rows != len(lines.texts):
            raise ValueError(
                f"{len(lines.texts)} lines from line {lines.first} on have {found.num_rows} objects, and each is to "
                f"have one"
            )
        return found
    raise ValueError(f"from line {lines.first} on, where row 0 is, {first_error}") from first_error
