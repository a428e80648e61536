"""Which columns of a table are what of a record, and their conversion to the columns that a write takes.

    of a record   columns that it may come from
    key, value    text or bytes of any kind of Arrow's
    timestamp     a timestamp of any unit and zone, int64 of ms since 1970, or text: ISO 8601, or ms
    headers       a list of structs of key and value, or a map of key to value
    topic         text
    partition     integers, or text of digits

What has no zone is in UTC.

With `Columns.value_json` the value is made of all columns that are nothing else of the record, as one JSON object a
row, by `sparklog.jobs.json_rows`. A line of JSON is the value as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InputFileError, InvalidOptionError, SeglogError
from sparklog.jobs.inputs import InputFile
from sparklog.jobs.json_rows import is_binary, is_text, json_rows
from sparklog.jobs.row_files import LINE, Wanted
from sparklog.record.intake import take_headers, take_text, take_times

ROLES: Final = ("key", "value", "headers", "timestamp", "topic", "partition")
_DIGITS: Final = r"^-?[0-9]+$"
_CANNOT_CAST: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True)
class Columns:
    """The columns of tables that records are made of, by what they are of a record.

    Attributes
    ----------
    key, value, headers, timestamp, topic, partition : str or None
        The name of a column; None where there is none. A column of the same name as what it is may be missing, as any
        but ``value`` may in some of the files; then it is null.
    value_json : bool
        Whether the value is made of all other columns.
    """

    key: str | None = "key"
    value: str | None = "value"
    headers: str | None = "headers"
    timestamp: str | None = "timestamp"
    topic: str | None = "topic"
    partition: str | None = "partition"
    value_json: bool = False

    def __post_init__(self) -> None:
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
        """What columns are of a record, by the names that were given for them, rather than those that they have."""
        return {name: role for role, name in self._sources.items() if name is not None and name != role}

    @property
    def wanted(self) -> Wanted:
        roles = {name: role for role, name in self._sources.items() if name is not None}
        return Wanted(roles, self.value_json)

    def rows(self, rows: pa.RecordBatch, file: InputFile, first_row: int) -> pa.RecordBatch:
        """Return the rows that are written of those of a file.

        Parameters
        ----------
        first_row : int
            The number of the first of them in the file, from 0, for errors.

        Raises
        ------
        InputFileError
            A column is missing, is there twice or of a type that does not fit; it names the file and the column.
        """
        there = self._there(rows, file)
        found: dict[str, pa.Array] = {}
        for role, name in self._sources.items():
            column = there.get(name) if name is not None else None
            if column is None:
                continue
            try:
                found[role] = _TAKE[role](_plain(column), role)
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

    def json_kinds(self, schema: pa.Schema) -> dict[str, str]:
        """Return what the columns that a value is made of are in JSON; nothing of those that are nulls only."""
        others = [schema.field(name) for name in schema.names if name != LINE and self._is_other(name)]
        return {each.name: _json_kind(each.type) for each in others if not pa.types.is_null(each.type)}

    def _is_other(self, name: str) -> bool:
        return self.value_json and name not in self._sources.values()

    def _there(self, rows: pa.RecordBatch, file: InputFile) -> dict[str, pa.Array]:
        """Return the columns of a file by their names, with those that the names of its folders say."""
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
    """Return what a type is in JSON: numbers of all kinds are the same, and so is text."""
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
    return "binary" if is_binary(kind) else "a time" if pa.types.is_temporal(kind) else "text"


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without what only makes it smaller."""
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def _taken_bytes(column: pa.Array, role: str) -> pa.Array:
    return take_text(column, role).cast(pa.binary())


def _taken_topics(column: pa.Array, role: str) -> pa.Array:
    return take_text(column, role).cast(pa.string())


def _taken_headers(column: pa.Array, role: str) -> pa.Array:  # noqa: ARG001
    return take_headers(column)


def _taken_times(column: pa.Array, role: str) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.int64())
    if not is_text(column.type):
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
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind) or is_text(kind)):
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
