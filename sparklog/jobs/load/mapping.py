"""Maps columns of a table to the parts of records, and converts them to the columns that a write takes.

    record part   columns that it may come from
    key, value    text or bytes of any type of Arrow's
    timestamp     a timestamp of any unit and zone, int64 of ms since 1970, or text: ISO 8601, or ms
    headers       a list of structs of key and value, or a map of key to value; in CSV such a list as JSON
    topic         text
    partition     integers, or text of digits

Times without a zone are in UTC.

In files of text a key, a value or the value of a header that is not UTF-8 is base64, in a column or field whose name
has the suffix ``_base64``; an export and ``dump`` write it there. A row has a value in only one of the two.

With `ColumnRoles.value_json` the value is one JSON object per row, made by `sparklog.values.json_text.json_rows` from
all columns that are no other part of the record. For JSON lines the value is the line itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InputFileError, InvalidOptionError, SeglogError
from sparklog.jobs.load.inputs import CSV, JSON, InputFile
from sparklog.jobs.load.row_files import HEADER_OBJECTS, LINE, WantedColumns
from sparklog.record.encode.intake import take_headers, take_text, take_times
from sparklog.record.format.schema import HEADERS_TYPE
from sparklog.values.json_documents import JsonCodec
from sparklog.values.json_text import (
    BASE64_SUFFIX,
    bytes_of_base64,
    bytes_of_hex,
    is_bytes_type,
    is_text_type,
    json_rows,
)

ROLES: Final = ("key", "value", "headers", "timestamp", "topic", "partition")
TEXT_ENCODINGS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {"base64": bytes_of_base64, "hex": bytes_of_hex}
"""The text forms that keys and values may be in; an export writes them under the same names."""
_DIGITS: Final = r"^-?[0-9]+$"
_CANNOT_CAST: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True)
class ColumnRoles:
    """The names of the columns for each part of a record.

    Attributes
    ----------
    key, value, headers, timestamp, topic, partition : str or None
        The name of a column; None for none. A column with its default name may be missing in all files, and any except
        ``value`` in some of them; then it is null.
    value_json : bool
        Whether the value is made from all other columns.
    key_format, value_format : str or None
        The encoding of the text of a column, one of `TEXT_ENCODINGS`; None if the text stands for itself.
    """

    key: str | None = "key"
    value: str | None = "value"
    headers: str | None = "headers"
    timestamp: str | None = "timestamp"
    topic: str | None = "topic"
    partition: str | None = "partition"
    value_json: bool = False
    key_format: str | None = None
    value_format: str | None = None

    def __post_init__(self) -> None:
        for name in ("key_format", "value_format"):
            wanted = getattr(self, name)
            if wanted is not None and wanted not in TEXT_ENCODINGS:
                raise InvalidOptionError(f"{name} is {wanted!r}, and must be {' or '.join(TEXT_ENCODINGS)}")
        if self.value_format is not None and self.value_json:
            raise InvalidOptionError("value_format needs a column of values, and value_json makes them: give one")
        named = [name for name in self._sources.values() if name is not None]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            roles = [role for role, name in self._sources.items() if name == twice]
            raise InvalidOptionError(f"the column {twice!r} is to be both {' and '.join(roles)} of a record")
        if self.value is None and not self.value_json:
            raise InvalidOptionError("records need a value: name its column by value, or have it made by value_json")

    @property
    def _sources(self) -> dict[str, str | None]:
        """The column of each part of a record."""
        return {role: getattr(self, role) for role in ROLES if role != "value" or not self.value_json}

    @property
    def chosen(self) -> dict[str, str]:
        """The parts of a record by column name, for columns that do not have their default names."""
        return {name: role for role, name in self._sources.items() if name is not None and name != role}

    @property
    def wanted(self) -> WantedColumns:
        return WantedColumns(self._roles, self.value_json)

    @property
    def _roles(self) -> dict[str, str]:
        """The part of a record that each column is."""
        named = {name: role for role, name in self._sources.items() if name is not None}
        return {f"{name}{BASE64_SUFFIX}": role for name, role in named.items() if role in ("key", "value")} | named

    def rows(self, rows: pa.RecordBatch, file: InputFile, first_row: int) -> pa.RecordBatch:
        """Return the rows to write, made from rows of a file.

        Parameters
        ----------
        first_row : int
            The number of the first row in the file, from 0, for errors.

        Raises
        ------
        InputFileError
            A column is missing, is doubled, or has a type that does not fit; the message names the file and the column.
        """
        there = self._there(rows, file)
        found: dict[str, pa.Array] = {}
        for role, name in self._sources.items():
            beside = f"{name}{BASE64_SUFFIX}"
            has_beside = beside in there and self._roles.get(beside) == role and file.format in (CSV, JSON)
            if name is None or (name not in there and not has_beside):
                continue
            try:
                column = self._taken(there[name], role) if name in there else None
                if has_beside:
                    column = _filled_in(column, bytes_of_base64(take_text(_plain(there[beside]), role)), beside)
                found[role] = column
            except (SeglogError, *_CANNOT_CAST) as error:
                reason = error.message if isinstance(error, SeglogError) else str(error)
                raise InputFileError(
                    f"column {name!r} of {file.name} cannot be the {role} of records: {reason}, in the rows from row "
                    f"{first_row} on"
                ) from error
        if self.value_json:
            found["value"] = self._json(there, rows.num_rows, file)
        self._refuse_missing(found, there, file)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

    def _taken(self, column: pa.Array, role: str) -> pa.Array:
        wanted = {"key": self.key_format, "value": self.value_format}.get(role)
        taken = _TAKE[role](_plain(column), role)
        return taken if wanted is None else TEXT_ENCODINGS[wanted](taken).cast(pa.binary())

    def json_kinds(self, schema: pa.Schema) -> dict[str, str]:
        """Return the JSON kind of each column that the value is made from, without columns of nulls only."""
        others = [schema.field(name) for name in schema.names if name != LINE and self._is_other(name)]
        return {each.name: _json_kind(each.type) for each in others if not pa.types.is_null(each.type)}

    def _is_other(self, name: str) -> bool:
        return self.value_json and name not in self._roles

    def _there(self, rows: pa.RecordBatch, file: InputFile) -> dict[str, pa.Array]:
        """Return the columns of a file by their names, including those from the names of its folders."""
        there = {name: pa.repeat(pa.scalar(value, pa.string()), rows.num_rows) for name, value in file.columns}
        names = rows.schema.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputFileError(f"{file.name} has more than one column {twice!r}: one is wanted")
        there.update(zip(names, rows.columns, strict=True))
        return there

    def _json(self, there: Mapping[str, pa.Array], rows: int, file: InputFile) -> pa.Array:
        if LINE in there:
            return there[LINE].cast(pa.binary())
        names = [name for name in there if self._is_other(name)]
        try:
            return json_rows(names, [there[name] for name in names], rows).cast(pa.binary())
        except InvalidOptionError as error:
            raise InputFileError(f"{error.message} (file {file.name})") from error

    def _refuse_missing(self, found: Mapping[str, pa.Array], there: Mapping[str, pa.Array], file: InputFile) -> None:
        has = ", ".join(name for name in there if name != LINE) or "none that is asked for"
        if "value" not in found:
            raise InputFileError(f"{file.name} has no column {self.value!r} for the value of records; it has {has}")
        if self.topic is not None and ("topic" not in found or found["topic"].null_count):
            what = f"has no column {self.topic!r} that says" if "topic" not in found else "has rows without"
            raise InputFileError(f"{file.name} {what} the topic of records: say one by topic, or which column has it")


def _json_kind(kind: pa.DataType) -> str:
    """Return the kind of a type in JSON: all numbers are one kind, and all text is one."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _json_kind(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "a number"
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "an object"
    if pa.types.is_nested(kind):
        return "an array"
    return "binary" if is_bytes_type(kind) else "a time" if pa.types.is_temporal(kind) else "text"


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without encodings that only make it smaller."""
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def _taken_bytes(column: pa.Array, role: str) -> pa.Array:
    return take_text(column, role).cast(pa.binary())


def _taken_topics(column: pa.Array, role: str) -> pa.Array:
    return take_text(column, role).cast(pa.string())


def _filled_in(column: pa.Array | None, of_base64: pa.Array, beside: str) -> pa.Array:
    """Return a column of bytes, with the bytes that came as base64 in rows where it is null."""
    if column is None:
        return of_base64.cast(pa.binary())
    twice = pc.and_(column.is_valid(), of_base64.is_valid())
    if pc.any(twice).as_py():
        row = pc.index(twice, value=True).as_py()
        raise InvalidOptionError(f"row {row} has {beside!r} as well: give one of the two")
    return pc.coalesce(column, of_base64.cast(pa.binary()))


def _taken_headers(column: pa.Array, role: str) -> pa.Array:
    if is_text_type(column.type):
        column, failures = JsonCodec(HEADER_OBJECTS).decode(take_text(column, role).cast(pa.binary()))
        for row, reason in failures.by_row().items():
            raise InvalidOptionError(
                f"headers must be a list of objects in JSON where they are text, and row {row} is not: {reason}"
            )
    if column.type != HEADER_OBJECTS:
        return take_headers(column)
    keys, texts, of_base64 = column.values.flatten()
    data = _filled_in(texts.cast(pa.binary()), bytes_of_base64(of_base64), f"value{BASE64_SUFFIX}")
    pairs = pa.StructArray.from_arrays([keys, data], fields=list(HEADERS_TYPE.value_type))
    # A record has no headers if they are null or an empty list.
    return pa.ListArray.from_arrays(column.offsets, pairs, HEADERS_TYPE)


def _taken_times(column: pa.Array, role: str) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.int64())
    if not is_text_type(column.type):
        return take_times(column)
    texts = take_text(column, role)
    if pc.all(pc.match_substring_regex(texts, _DIGITS)).as_py() is not False:
        return take_times(texts.cast(pa.int64()))
    try:
        return take_times(texts.cast(pa.timestamp("us", "UTC")))
    except pa.ArrowInvalid:
        return take_times(texts.cast(pa.timestamp("us")))


def _taken_numbers(column: pa.Array, role: str) -> pa.Array:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind) or is_text_type(kind)):
        raise InvalidOptionError(f"{role} attribute unsupported type {kind}. {role} must be an integer")
    return column.cast(pa.int32())


_TAKE: Final[Mapping[str, Callable[[pa.Array, str], pa.Array]]] = {
    "key": _taken_bytes,
    "value": _taken_bytes,
    "headers": _taken_headers,
    "timestamp": _taken_times,
    "topic": _taken_topics,
    "partition": _taken_numbers,
}
