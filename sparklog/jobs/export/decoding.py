"""Decodes the keys and values of an export into typed columns, and sets aside records that do not decode.

A decoded key or value is one column of its own name. A value of a struct type can be unnested: a column for each of
its fields. A record whose key or value does not decode fails the task, has null there, or becomes a dead letter: a row
of `DEAD_LETTERS` in a file beside the table. The same holds for a record whose time the table cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError, ValueDecodeError
from sparklog.log.files import TopicPartition
from sparklog.record.format.arrays import array_of
from sparklog.values.decoder import make_decoder
from sparklog.values.json_text import base64_of, hex_of, is_far, time_texts
from sparklog.values.rows import DecodedValues, no_failures, only_where
from sparklog.values.spec import RAW, STRING, DecoderSpec, parse_decoder

OnDecodeError = Literal["fail", "dead_letter", "null"]

KEY, VALUE = "key", "value"
DIGITS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {"base64": base64_of, "hex": hex_of}
"""Text forms of bytes; every value can be written in them."""
DEAD_LETTERS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("field", pa.string()),
        ("reason", pa.string()),
        (KEY, pa.binary()),
        (VALUE, pa.binary()),
    ]
)
"""``field`` names the first that failed: key, value or timestamp. The other columns are unchanged."""
DEAD_LETTERS_AS_TEXT: Final = pa.schema(
    [field.with_type(pa.string()) if pa.types.is_binary(field.type) else field for field in DEAD_LETTERS]
)
"""The schema of dead letters in files that hold only text: bytes are base64."""
_AS_THEY_ARE: Final = DecoderSpec(RAW)


class TableColumnDecoder(Protocol):
    """Decodes a column; `sparklog.values.decoder.ValueDecoder` is one."""

    type: pa.DataType

    def decode(self, values: pa.Array) -> DecodedValues: ...


@dataclass(frozen=True)
class Decoding:
    """The options for decoding keys and values; a frozen value that pickles.

    Attributes
    ----------
    key, value : DecoderSpec or str
        A result of `sparklog.values.spec.parse_decoder`, or a name of `DIGITS`.
    unnests : bool
        Whether the fields of the value become columns of their own.
    on_error : {"fail", "dead_letter", "null"}
        The treatment of a record that does not decode.
    """

    key: DecoderSpec | str = _AS_THEY_ARE
    value: DecoderSpec | str = _AS_THEY_ARE
    unnests: bool = False
    on_error: OnDecodeError = "fail"

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that are needed besides those that are written."""
        return (KEY, VALUE, "timestamp") if self.on_error == "dead_letter" else ()

    @property
    def is_needed(self) -> bool:
        return any(each != _AS_THEY_ARE for each in (self.key, self.value))


NO_DECODING: Final = Decoding()


class DecodedRows(NamedTuple):
    """Rows of a table, and dead letters."""

    rows: pa.RecordBatch
    dead_letters: pa.RecordBatch | None


class RecordDecoder:
    """Decodes batches of records; it is made in the worker.

    Parameters
    ----------
    decoding : Decoding
    schema : pyarrow.Schema
        The wanted columns, before decoding.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns after decoding.

    Raises
    ------
    InvalidOptionError
        See `sparklog.values.decoder.make_decoder`; or a field would have the name of another column.
    """

    def __init__(self, decoding: Decoding, schema: pa.Schema) -> None:
        self._on_error = decoding.on_error
        wanted = {KEY: decoding.key, VALUE: decoding.value}
        self._decoders = {
            name: _make(spec) for name, spec in wanted.items() if name in schema.names and spec != _AS_THEY_ARE
        }
        self._unnested = VALUE if decoding.unnests else ""
        if self._unnested and not self._is_struct(VALUE):
            raise InvalidOptionError(
                "the fields of the value are to be columns, and it has none: give a value_format with a schema"
            )
        fields = [each for field in schema for each in self._fields_of(field)]
        names = [field.name for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise InvalidOptionError(
                    f"the value has a field {name}, and so is a column of the record called: leave that one out by "
                    f"columns, or keep the value in one column"
                )
        self.schema = pa.schema(fields)

    def decode(self, batch: pa.RecordBatch, at: TopicPartition, times_ms: tuple[int, int] | None = None) -> DecodedRows:
        """Decode a batch; other columns of it are kept.

        Parameters
        ----------
        times_ms : tuple of int, optional
            The first and the last time that the table can hold, ms since the epoch; by default it holds all.

        Raises
        ------
        ValueDecodeError
            A key or a value does not decode, or a time does not fit, and ``on_error`` is "fail".
        """
        columns: dict[str, pa.Array] = {}
        failed: dict[int, tuple[str, str]] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name not in self._decoders:
                columns[name] = column
                continue
            decoded = self._decoders[name].decode(column)
            for row, reason in decoded.failures.by_row().items():
                failed.setdefault(row, (name, reason))
            if name == self._unnested:
                columns.update(zip((field.name for field in decoded.array.type), decoded.array.flatten(), strict=True))
            else:
                columns[name] = decoded.array
        if times_ms is not None:
            columns = {name: _fitting(name, column, times_ms, failed) for name, column in columns.items()}
        rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if not failed or self._on_error == "null":
            return DecodedRows(rows, None)
        numbers = sorted(failed)
        if self._on_error == "fail":
            name, reason = failed[numbers[0]]
            offset = batch.column("offset")[numbers[0]].as_py()
            raise ValueDecodeError(
                f"the {name} of offset {offset} of {at} does not {'decode' if name in self._decoders else 'fit'}: "
                f"{reason}. Set on_decode_error to dead_letter or null to go on without it"
            )
        is_sound = np.ones(batch.num_rows, bool)
        is_sound[numbers] = False
        return DecodedRows(rows.filter(pa.array(is_sound)), _dead_letters(batch, failed, at))

    def _is_struct(self, name: str) -> bool:
        return name in self._decoders and bool(pa.types.is_struct(self._decoders[name].type))

    def _fields_of(self, field: pa.Field) -> list[pa.Field]:
        if field.name not in self._decoders:
            return [field]
        kind = self._decoders[field.name].type
        return list(kind) if field.name == self._unnested else [pa.field(field.name, kind)]


class _DigitsDecoder:
    """Writes bytes as text, such as base64; this never fails."""

    type = pa.string()

    def __init__(self, name: str) -> None:
        self._write = DIGITS[name]

    def decode(self, values: pa.Array) -> DecodedValues:
        return DecodedValues(self._write(values).cast(pa.string()), no_failures())


def _make(spec: DecoderSpec | str) -> TableColumnDecoder:
    return _DigitsDecoder(spec) if isinstance(spec, str) else make_decoder(spec)


def _fitting(name: str, column: pa.Array, times_ms: tuple[int, int], failed: dict[int, tuple[str, str]]) -> pa.Array:
    """Return times with null for those that are out of bounds, and add their rows to ``failed``."""
    if not pa.types.is_temporal(column.type) or not (far := is_far(column, times_ms)).any():
        return column
    for row in np.flatnonzero(far).tolist():
        time = time_texts(column.slice(row, 1))[0]
        failed.setdefault(row, (name, f"{time} is a time that the table cannot hold"))
    return only_where(column, array_of(~far))


def _dead_letters(batch: pa.RecordBatch, failed: Mapping[int, tuple[str, str]], at: TopicPartition) -> pa.RecordBatch:
    numbers = sorted(failed)
    letters = batch.take(pa.array(numbers))
    made = {
        "topic": pa.repeat(at.topic, len(numbers)),
        "partition": pa.repeat(pa.scalar(at.partition, pa.int32()), len(numbers)),
        "field": pa.array([failed[row][0] for row in numbers]),
        "reason": pa.array([failed[row][1] for row in numbers]),
    }
    columns = [made[field.name] if field.name in made else letters.column(field.name) for field in DEAD_LETTERS]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTERS)


def as_digits(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return dead letters with bytes as base64, for files that hold only text."""
    columns = [
        base64_of(column).cast(pa.string()) if pa.types.is_binary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTERS_AS_TEXT)


def parse_decoding(
    key_format: str | None,
    value_format: str | None,
    key_options: Mapping[str, Any],
    value_options: Mapping[str, Any],
    *,
    unnests: bool,
    on_error: str,
    holds_bytes: bool,
) -> Decoding:
    """Return the decoding that the arguments of a caller mean; raise `InvalidOptionError` if they are wrong.

    Parameters
    ----------
    key_format, value_format : str or None
        A format of `sparklog.values.spec.parse_decoder`, or of `DIGITS`; by default bytes, or text if files hold no
        bytes.
    key_options, value_options : mapping
        Further arguments of `parse_decoder`.
    """
    if on_error not in ("fail", "dead_letter", "null"):
        raise InvalidOptionError(f"on_decode_error is {on_error!r}, and must be fail, dead_letter or null")
    default = RAW if holds_bytes else STRING

    def parsed(name: str, wanted: str | None, options: Mapping[str, Any]) -> DecoderSpec | str:
        if wanted is not None and wanted in DIGITS and not options:
            return wanted
        known = {"schema", "wire", "schema_id", "message"}
        for option in options:
            if option not in known:
                raise InvalidOptionError(f"{name}_options has {option!r}: it may have {', '.join(sorted(known))}")
        return parse_decoder(wanted or default, argument=f"{name}_format", **options)

    return Decoding(
        parsed(KEY, key_format, key_options),
        parsed(VALUE, value_format, value_options),
        unnests,
        on_error,  # type: ignore[arg-type]
    )
