"""Converts whole columns to text and back: JSON, and bytes as base64 or hexadecimal digits.

Each field is made for all rows at once, as an Arrow array of pieces of text; then the pieces of each row are joined.
Pieces are large binary arrays, or bytes that all rows share.

`json_rows` writes the text that Spark's ``to_json`` makes from the same row:

    column                      text
    null                        the name is left out; within a list it is null
    numbers, decimals           as they are; NaN and the infinities as "NaN", "Infinity" and "-Infinity"
    text                        as it is, in UTF-8
    binary                      base64
    dates, times                "2026-01-31", "12:30:00"
    timestamps                  "2026-01-31T12:30:00.000Z", with the digits of their unit; without Z if without a zone
    durations                   a number in their unit
    lists, structs, maps        arrays and objects

`json_lines` writes records: null is ``null``, and bytes that are UTF-8 are text.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError
from sparklog.record.format.arrays import array_of, filled, numbers_of
from sparklog.values.rows import call_rows, only_where
from sparklog.values.text import is_text

_BYTES: Final = pa.large_binary()
_RECORD_TIME: Final = pa.timestamp("ms", "UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
BASE64_SUFFIX: Final = "_base64"
"""Suffix of the name of a field with base64, whose bytes are not UTF-8."""
_ESCAPES: Final = {byte: json.dumps(chr(byte))[1:-1] for byte in (*range(32), *b'\\"')}
_LONG_MAX: Final = (1 << 63) - 1
_UNITS_A_MS: Final = {"s": (1, 1000), "ms": (1, 1), "us": (1000, 1), "D": (1, 24 * 3600 * 1000)}
_ARROW_TEXTS_MS: Final = (-1_096_193_779_200_000, 971_890_963_199_999)
"""The years -32767 to 32767: for others Arrow writes no text, or another year."""
_NOT_FINITE: Final = (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))

Pieces = Sequence[pa.Array | bytes]


def json_rows(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return one JSON object for each row.

    Parameters
    ----------
    names : sequence of str
        The names in the objects, in order.
    columns : sequence of pyarrow.Array, each of length n_rows
        The values; nulls are left out.

    Returns
    -------
    pyarrow.Array of large binary, length n_rows

    Raises
    ------
    InvalidOptionError
        A column has a type that is not written as JSON; the message names the column.
    """
    if not columns:
        return pa.repeat(pieces_of(b"{}")[0], rows)
    pieces: list[pa.Array | bytes] = []
    for name, column in zip(names, columns, strict=True):
        texts, quote = _plain(column, name)
        member = (_opening(name) + quote, texts, quote)
        pieces += [joined_pieces(*member).fill_null(pieces_of(b"")[0])] if texts.null_count else member
    return _objects(pieces, b"}")


def json_lines(batch: pa.RecordBatch) -> memoryview:
    """Write each row as a JSON object in a line of its own.

    Bytes that are UTF-8 become text; others become base64, in a field whose name ends in ``_base64``. The timestamp of
    a record is in ms since the epoch, headers are a list of objects, and decoded columns are as `json_rows` writes
    them.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        The rows, with at least one column.

    Returns
    -------
    memoryview
        UTF-8.
    """
    fields = zip(batch.schema.names, batch.columns, strict=True)
    return octets_of(_objects([piece for name, column in fields for piece in _field(name, column)], b"}\n"))


def _field(name: str, column: pa.Array) -> Pieces:
    """Write a field of each line, with a comma before it."""
    if is_bytes_type(column.type):
        return data_field(name, column)
    if pa.types.is_list(column.type) and column.type.value_type == _HEADER:
        return _opening(name), header_objects(column)
    if column.type == _RECORD_TIME:
        column = column.cast(pa.int64())
    return _opening(name), _texts_or_null(column, name)


def _opening(name: str) -> bytes:
    return b"," + json.dumps(name, ensure_ascii=False).encode() + b":"


def _objects(members: Pieces, closing: bytes) -> pa.Array:
    """Join members, each with a comma before it, to objects without the first comma; some members may be empty."""
    first, *others = members
    if isinstance(first, bytes):
        return joined_pieces(b"{" + first[1:], *others, closing)
    if not numbers_of(pc.binary_length(first)).all():
        # The first comma may belong to any member.
        first, others = joined_pieces(*members), []
    return joined_pieces(b"{", pc.binary_replace_slice(first, 0, 1, b""), *others, closing)


def _texts_or_null(column: pa.Array, name: str) -> pa.Array:
    """Return the JSON text of each value of a column."""
    texts, quote = _plain(column, name)
    return (joined_pieces(quote, texts, quote) if quote else texts).fill_null(pieces_of(b"null")[0])


def _plain(column: pa.Array, name: str) -> tuple[pa.Array, bytes]:
    """Return the JSON text of each value, null for a null, and the quotes to put around it, or nothing."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        texts, quote = _plain(column.dictionary, name)
        return texts.take(column.indices), quote
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(column), name)
    if is_text_type(kind):
        return escaped(column), b'"'
    if is_bytes_type(kind):
        return base64_of(column), b'"'
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(time_texts(column), " ", "T").cast(_BYTES), b'"'
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return time_texts(column).cast(_BYTES), b'"'
    return (_nested if pa.types.is_nested(kind) else _bare)(column, name), b""


def _bare(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return digits_of(column)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), _BYTES)
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_duration(kind):
        return digits_of(column.cast(pa.int64()))
    raise _no_json(name, kind)


def _nested(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        return _null_where(column, json_rows(names, column.flatten(), len(column)))
    if pa.types.is_fixed_size_list(kind):
        return _nested(column.cast(pa.list_(kind.value_type)), name)
    if not (pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise _no_json(name, kind)
    # The lists of a slice have only some of the values.
    ends = column.offsets.cast(pa.int32())
    first, last = ends[0].as_py(), ends[-1].as_py()
    if pa.types.is_map(kind):
        keys, items = column.keys.slice(first, last - first), column.items.slice(first, last - first)
        texts = joined_pieces(b'"', _plain(keys, name)[0], b'":', _texts_or_null(items, name))
    else:
        texts = _texts_or_null(column.values.slice(first, last - first), name)
    lists = pa.ListArray.from_arrays(pc.subtract(ends, ends[0]), texts)
    opening, closing = (b"{", b"}") if pa.types.is_map(kind) else (b"[", b"]")
    return _null_where(column, joined_pieces(opening, pc.binary_join(lists, pieces_of(b",")[0]), closing))


def _no_json(name: str, kind: pa.DataType) -> InvalidOptionError:
    return InvalidOptionError(f"column {name!r} has type {kind}, which has no form in JSON: leave it out, or cast it")


def _null_where(column: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the texts, with nulls where the column has them."""
    return only_where(texts, column.is_valid()) if column.null_count else texts


def _floats(column: pa.Array) -> pa.Array:
    plain = column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
    texts = plain.cast(pa.string())
    if pc.all(pc.is_finite(plain)).as_py() is False:
        for given, wanted in _NOT_FINITE:
            texts = pc.if_else(pc.equal(texts, given), wanted, texts)
    return texts.cast(_BYTES)


def is_far(column: pa.Array, times_ms: tuple[int, int] = _ARROW_TEXTS_MS) -> npt.NDArray[np.bool_]:
    """Return a mask of the times and dates that lie outside of ``times_ms``, the first and last ms since the epoch."""
    kind = column.type
    unit = kind.unit if pa.types.is_timestamp(kind) else {pa.date32(): "D", pa.date64(): "ms"}.get(kind, "ns")
    if unit == "ns":
        # A count of ns reaches only a few centuries.
        return np.zeros(len(column), np.bool_)
    factor, divisor = _UNITS_A_MS[unit]
    first, last = times_ms[0] * factor // divisor, (times_ms[1] + 1) * factor // divisor - 1
    numbers = numbers_of(filled(column.view(pa.int32() if kind == pa.date32() else pa.int64()), 0)).astype(np.int64)
    found: npt.NDArray[np.bool_] = (numbers < max(first, -_LONG_MAX)) | (numbers > min(last, _LONG_MAX))
    return found


def time_texts(column: pa.Array) -> pa.Array:
    """Write timestamps, dates and times of day as Arrow does, and also the years that Arrow cannot write."""
    kind, zone = column.type, ""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Without its zone a time is in UTC, and is written many times as fast.
        column, zone = column.view(pa.timestamp(kind.unit)), "Z"
    texts, far = column.cast(pa.string()), is_far(column)
    if far.any():
        written = np.datetime_as_string(column.filter(array_of(far)).to_numpy(zero_copy_only=False))
        texts = pc.replace_with_mask(texts, array_of(far), pa.array(np.char.replace(written, "T", " ")))
    return pc.binary_join_element_wise(texts, zone, "") if zone else texts


def is_text_type(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes_type(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or bool(pa.types.is_fixed_size_binary(kind))


def hex_of(data: pa.Array) -> pa.Array:
    """Write bytes as hexadecimal digits, two a byte."""
    whole = _without_nulls(data)
    offsets = _offsets(whole)
    written = binascii.hexlify(octets_of(whole))
    ends = pa.py_buffer((offsets - offsets[0]) * 2)
    encoded = pa.Array.from_buffers(_BYTES, len(whole), [None, ends, pa.py_buffer(written)])
    return only_where(encoded, data.is_valid())


def header_objects(headers: pa.Array) -> pa.Array:
    """Write the headers of each record as a JSON array of objects."""
    return joined_pieces(*_header_lists(headers))


def base64_of(data: pa.Array) -> pa.Array:
    """Write bytes as base64, all at once: each value is padded to groups of three bytes, and then gets its ``=``."""
    whole = _without_nulls(data)
    missing = numbers_of(pc.binary_length(whole)) % 3
    padded = joined_pieces(whole, pieces_of(b"", bytes(2), bytes(1)).take(array_of(missing)))
    written = np.frombuffer(bytearray(binascii.b2a_base64(octets_of(padded), newline=False)), np.uint8)
    offsets = _offsets(padded)
    ends = (offsets - offsets[0]) // 3 * 4
    written[ends[1:][missing > 0] - 1] = ord("=")
    written[ends[1:][missing == 1] - 2] = ord("=")
    encoded = pa.Array.from_buffers(_BYTES, len(whole), [None, pa.py_buffer(ends), pa.py_buffer(written)])
    return only_where(encoded, data.is_valid())


def bytes_of_hex(digits: pa.Array) -> pa.Array:
    """Return the bytes of hexadecimal digits, the inverse of `hex_of`."""
    return _decoded(digits, binascii.unhexlify, "hexadecimal digits")


def bytes_of_base64(texts: pa.Array) -> pa.Array:
    """Return the bytes of base64 texts, the inverse of `base64_of`."""
    return _decoded(texts, lambda text: binascii.a2b_base64(text, strict_mode=True), "base64")


def _decoded(texts: pa.Array, decode: Callable[[bytes], bytes], what: str) -> pa.Array:
    found, reasons = call_rows(decode, texts.cast(_BYTES).to_pylist())
    for row, reason in reasons.items():
        raise InvalidOptionError(f"row {row} is not {what}: {reason}")
    return pa.array(found, _BYTES)


def data_field(name: str, data: pa.Array) -> Pieces:
    """Write the field of a key or value, with a comma before it."""
    opening = b',"' + name.encode()
    is_null = numbers_of(data.is_null())
    written, is_base64 = _text_or_base64(data)
    texts = escaped(written)
    if not data.null_count and not is_base64.any():
        return opening + b'":"', texts, b'"'
    kinds = array_of(np.where(is_null, 2, is_base64).astype(np.int8))
    openings = pieces_of(opening + b'":"', opening + BASE64_SUFFIX.encode() + b'":"', opening + b'":null')
    return openings.take(kinds), texts, pieces_of(b'"', b'"', b"").take(kinds)


def _text_or_base64(data: pa.Array) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the values, as base64 if they are not UTF-8, and a mask of the base64 ones; a null becomes empty."""
    whole = _without_nulls(data)
    try:
        data.cast(pa.string())
    except pa.ArrowInvalid:
        is_other = pc.invert(is_text(whole))
        return pc.replace_with_mask(whole, is_other, base64_of(whole.filter(is_other))), numbers_of(is_other)
    return whole, np.zeros(len(data), np.bool_)


def _without_nulls(data: pa.Array) -> pa.Array:
    return data.cast(_BYTES).fill_null(pieces_of(b"")[0])


def pieces_of(*pieces: bytes) -> pa.Array:
    """Return pieces as an array."""
    ends = np.cumsum([0, *map(len, pieces)])
    return pa.Array.from_buffers(_BYTES, len(pieces), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(pieces))])


def _header_lists(headers: pa.Array) -> Pieces:
    """Write all headers one after another; the ends of the lists divide them by record."""
    flat = headers.flatten()
    if not len(flat):
        return (pa.repeat(pieces_of(b"[]")[0], len(headers)),)
    ends = np.zeros(len(headers) + 1, np.int64)
    np.cumsum(numbers_of(filled(pc.list_value_length(headers), 0)), out=ends[1:])
    is_later = np.ones(len(flat) + 1, np.int8)
    is_later[ends] = 0
    opening = pieces_of(b'{"key":"', b',{"key":"').take(array_of(is_later[:-1]))
    each = joined_pieces(opening, escaped(flat.field("key")), b'"', *data_field("value", flat.field("value")), b"}")
    written = pa.Array.from_buffers(_BYTES, len(headers), [None, pa.py_buffer(_offsets(each)[ends]), each.buffers()[2]])
    return b"[", written, b"]"


def escaped(text: pa.Array) -> pa.Array:
    """Write text as it stands within the quotes of JSON; only characters that must be escaped are."""
    written = text.cast(_BYTES)
    octets = np.frombuffer(octets_of(written), np.uint8)
    # Searching all texts for a byte takes a tenth of the time of a replacement that finds nothing.
    controls = np.unique(octets[octets < 32]).tolist() if len(octets) and octets.min() < 32 else []
    for byte in (*(each for each in b'\\"' if (octets == each).any()), *controls):
        written = pc.replace_substring(written, bytes([byte]), _ESCAPES[byte].encode())
    return written


def digits_of(column: pa.Array) -> pa.Array:
    """Write numbers in decimal digits."""
    return column.cast(pa.large_string()).cast(_BYTES)


def joined_pieces(*pieces: pa.Array | bytes) -> pa.Array:
    """Join pieces record by record; shared pieces are given once. The result is null where a piece is."""
    arrays = [pieces_of(piece)[0] if isinstance(piece, bytes) else piece for piece in pieces]
    return pc.binary_join_element_wise(*arrays, pieces_of(b"")[0])


def _offsets(data: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the position in the buffer of each value of large binary data, and the end of the last one."""
    _, offsets, _ = data.buffers()
    return np.frombuffer(offsets, np.int64, len(data) + 1, data.offset * 8)


def octets_of(data: pa.Array) -> memoryview:
    """Return the bytes of all values of large binary data, one after another."""
    offsets, values = _offsets(data), data.buffers()[2]
    return memoryview(values)[int(offsets[0]) : int(offsets[-1])] if values is not None else memoryview(b"")
