"""Makes JSON text of rows, column by column: ``{"id":17,"name":"a"}``, one object a row.

All of it is done by pyarrow's compiled functions: each column becomes a column of text, and the texts of a row are
joined. Only the bytes of binary columns, and text with control characters that have no short escape, go through Python.

The text is what Spark's ``to_json`` makes of the same row:

    column                      text
    null                        the name is left out; within a list it is null
    numbers, decimals           as they are; NaN and the infinities as "NaN", "Infinity" and "-Infinity"
    text                        as it is, in UTF-8
    binary                      base64
    dates, times                "2026-01-31", "12:30:00"
    timestamps                  "2026-01-31T12:30:00.000Z", with the digits of their unit; without Z if without a zone
    durations                   a number in their unit
    lists, structs, maps        arrays and objects
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError
from sparklog.record.format.arrays import array_of, filled, numbers_of

_FIRST_PLAIN: Final = 0x20
_QUOTE, _BACKSLASH = b'"\\'
_ESCAPES: Final = (
    ("\\", "\\\\"),
    ('"', '\\"'),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
    ("\b", "\\b"),
    ("\f", "\\f"),
)
_NO_SHORT_ESCAPE: Final = r"[\x00-\x1f]"
_LONG_MAX: Final = (1 << 63) - 1
_UNITS_A_MS: Final = {"s": (1, 1000), "ms": (1, 1), "us": (1000, 1), "D": (1, 24 * 3600 * 1000)}
_ARROW_TEXTS_MS: Final = (-1_096_193_779_200_000, 971_890_963_199_999)
"""The years -32767 to 32767: of others Arrow has no text, or that of another year."""
_NOT_FINITE: Final = (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))


def json_rows(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return one JSON object for each row.

    Parameters
    ----------
    names : sequence of str
        The names in the objects, in their order.
    columns : sequence of pyarrow.Array, each of length n_rows
        The values; nulls are left out.

    Returns
    -------
    pyarrow.Array of string, length n_rows

    Raises
    ------
    InvalidOptionError
        A column is of a type that has no JSON here; the message names the column.
    """
    if not columns:
        return pa.repeat("{}", rows)
    pieces: list[pa.Array | str] = []
    for name, column in zip(names, columns, strict=True):
        texts, quote = _plain(column, name)
        member = [f",{json.dumps(name, ensure_ascii=False)}:{quote}", texts, quote]
        pieces += [pc.coalesce(_joined(member), "")] if texts.null_count else member
    if isinstance(pieces[0], str):
        return _joined(["{" + pieces[0][1:], *pieces[1:], "}"])
    # The comma before the first member goes, whichever column that is of.
    return _joined(["{", pc.utf8_slice_codeunits(_joined(pieces), 1), "}"])


def _joined(pieces: Sequence[pa.Array | str]) -> pa.Array:
    """Put texts together, row by row; null where one is."""
    return pc.binary_join_element_wise(*pieces, "")


def json_texts(column: pa.Array, name: str) -> pa.Array:
    """Return the JSON text of each value of a column, null where it is null."""
    texts, quote = _plain(column, name)
    return _joined([quote, texts, quote]) if quote else texts


def _plain(column: pa.Array, name: str) -> tuple[pa.Array, str]:
    """Return the JSON text of each value, null where it is null; and the quotes that it is to stand in, or nothing."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        texts, quote = _plain(column.dictionary, name)
        return texts.take(column.indices), quote
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(column), name)
    if is_text(kind):
        return _escaped(column.cast(pa.string())), '"'
    if is_binary(kind):
        return pa.array([None if each is None else _base64(each) for each in column.to_pylist()], pa.string()), '"'
    if pa.types.is_timestamp(kind):
        return _times(column), '"'
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return time_texts(column), '"'
    if pa.types.is_nested(kind):
        return _nested(column, name), ""
    return _bare(column, name), ""


def _bare(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.string())
    raise _no_json(name, kind)


def _nested(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [kind.field(n) for n in range(kind.num_fields)]
        parts = column.flatten()
        return _null_where(column, json_rows([each.name for each in fields], parts, len(column)))
    if pa.types.is_map(kind):
        offsets = _offsets(column)
        keys, items = _within(column.keys, offsets), _within(column.items, offsets)
        named = _keys(keys, name)
        pairs = _joined([named, ":", pc.coalesce(json_texts(items, name), "null")])
        return _bracketed(column, offsets, pairs, "{", "}")
    if pa.types.is_fixed_size_list(kind):
        return json_texts(column.cast(pa.list_(kind.value_type)), name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = _offsets(column)
        values = pc.coalesce(json_texts(_within(column.values, offsets), name), "null")
        return _bracketed(column, offsets, values, "[", "]")
    raise _no_json(name, kind)


def _no_json(name: str, kind: pa.DataType) -> InvalidOptionError:
    return InvalidOptionError(f"column {name!r} is of type {kind}, of which no JSON is made: leave it out, or cast it")


def _offsets(column: Any) -> pa.Array:
    """Return where the values of each list begin, and where those of the last end."""
    return column.offsets.cast(pa.int32())


def _within(values: pa.Array, offsets: pa.Array) -> pa.Array:
    """Return the values that the lists of a column have, which may be a slice of a longer one."""
    first, end = offsets[0].as_py(), offsets[-1].as_py()
    return values.slice(first, end - first)


def _bracketed(column: pa.Array, offsets: pa.Array, texts: pa.Array, opening: str, closing: str) -> pa.Array:
    lists = pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), texts)
    return _null_where(column, _joined([opening, pc.binary_join(lists, ","), closing]))


def _null_where(column: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the texts, with null where the column is null."""
    return texts if not column.null_count else pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _keys(keys: pa.Array, name: str) -> pa.Array:
    return _joined(['"', _plain(keys, name)[0], '"'])


def _floats(column: pa.Array) -> pa.Array:
    plain = column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
    texts = plain.cast(pa.string())
    if pc.all(pc.is_finite(plain)).as_py() is not False:
        return texts
    for given, wanted in _NOT_FINITE:
        texts = pc.if_else(pc.equal(texts, given), wanted, texts)
    return texts


def _escaped(texts: pa.Array) -> pa.Array:
    """Escape what a string of JSON cannot hold as it is; most columns have nothing of it."""
    data: npt.NDArray[np.uint8] = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    if not ((data < _FIRST_PLAIN) | (data == _QUOTE) | (data == _BACKSLASH)).any():
        return texts
    for plain, escaped in _ESCAPES:
        texts = pc.replace_substring(texts, plain, escaped)
    if not pc.any(pc.match_substring_regex(texts, _NO_SHORT_ESCAPE)).as_py():
        return texts
    for number in range(_FIRST_PLAIN):
        texts = pc.replace_substring(texts, chr(number), f"\\u{number:04x}")
    return texts


def _times(column: pa.Array) -> pa.Array:
    return pc.replace_substring(time_texts(column), " ", "T")


def is_far(column: pa.Array, times_ms: tuple[int, int] = _ARROW_TEXTS_MS) -> npt.NDArray[np.bool_]:
    """Tell which times and dates are not from the first to the last of two times, ms since the epoch."""
    kind = column.type
    unit = kind.unit if pa.types.is_timestamp(kind) else {pa.date32(): "D", pa.date64(): "ms"}.get(kind, "ns")
    if unit == "ns":
        # There are few years of them.
        return np.zeros(len(column), np.bool_)
    factor, divisor = _UNITS_A_MS[unit]
    first, last = times_ms[0] * factor // divisor, (times_ms[1] + 1) * factor // divisor - 1
    numbers = numbers_of(filled(column.view(pa.int32() if kind == pa.date32() else pa.int64()), 0)).astype(np.int64)
    found: npt.NDArray[np.bool_] = (numbers < max(first, -_LONG_MAX)) | (numbers > min(last, _LONG_MAX))
    return found


def time_texts(column: pa.Array) -> pa.Array:
    """Write timestamps, dates and times of day as Arrow does, those of years as well that Arrow has no text of."""
    kind, zone = column.type, ""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Without its zone a time is one of UTC, and many times as fast made text of.
        column, zone = column.view(pa.timestamp(kind.unit)), "Z"
    texts, far = column.cast(pa.string()), is_far(column)
    if far.any():
        written = np.datetime_as_string(column.filter(array_of(far)).to_numpy(zero_copy_only=False))
        texts = pc.replace_with_mask(texts, array_of(far), pa.array(np.char.replace(written, "T", " ")))
    return _joined([texts, zone]) if zone else texts


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_binary(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or bool(pa.types.is_fixed_size_binary(kind))
