"""Writes records as JSON lines: compiled per record, Python per batch.

Each field of all records is made at once, as an Arrow array of pieces of text; then the pieces of each record are
joined. What all records of a Kafka batch have in common is written once for the batch, and then repeated.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.inspect.dump import TIMESTAMP_TYPES
from sparklog.inspect.dump_range import DumpedLog
from sparklog.log.reader import FILE_COLUMN
from sparklog.values.rows import only_where
from sparklog.values.text import is_text

_BYTES: Final = pa.large_binary()
_ESCAPES: Final = {byte: json.dumps(chr(byte))[1:-1] for byte in range(32)}
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
_PADDINGS: Final = pa.array([b"", b"\0\0", b"\0"], _BYTES)
"""The bytes that are missing to a multiple of three, by the length's remainder."""

Pieces = Sequence[pa.Array | bytes]


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
        _joined(
            whose[:-1].encode() + b',"offset":',
            _numbers(batch.column("offset")),
            b',"timestamp":',
            _numbers(batch.column("timestamp").cast(pa.int64())),
            first,
            *_data("key", batch.column("key")),
            *_data("value", batch.column("value")),
            *_headers(batch.column("headers")),
            second,
            _numbers(batch.column("sequence")),
            third,
        )
    )


def header_objects(headers: pa.Array) -> pa.Array:
    """Write the headers of each record as a JSON array of objects."""
    return _joined(*_header_lists(headers))


def base64_of(data: pa.Array) -> pa.Array:
    """Write bytes as base64, all at once: each value is padded to whole groups of three bytes, and the ends are set."""
    whole = pc.fill_null(data.cast(_BYTES), b"")
    missing = np.asarray(pc.binary_length(whole)) % 3
    padded = _joined(whole, _PADDINGS.take(pa.array(missing)))
    written = np.frombuffer(bytearray(binascii.b2a_base64(octets_of(padded), newline=False)), np.uint8)
    offsets = _offsets(padded)
    ends = (offsets - offsets[0]) // 3 * 4
    written[ends[1:][missing > 0] - 1] = ord("=")
    written[ends[1:][missing == 1] - 2] = ord("=")
    encoded = pa.Array.from_buffers(_BYTES, len(whole), [None, pa.py_buffer(ends), pa.py_buffer(written)])
    return only_where(encoded, data.is_valid())


def _pieces_of_batches(batch: pa.RecordBatch) -> list[pa.Array]:
    """Write the fields that the records of a Kafka batch share: before the key, before the sequence, and behind it."""
    columns = [np.asarray(batch.column(name).cast(pa.int64())) for name in _OF_A_BATCH]
    is_first = np.zeros(batch.num_rows, bool)
    is_first[:1] = True
    for column in columns:
        is_first[1:] |= column[1:] != column[:-1]
    runs = pa.array(np.cumsum(is_first) - 1)
    firsts = batch.take(pa.array(np.flatnonzero(is_first)))
    kinds = firsts.column("timestampType").to_pylist()
    written = {name: _numbers(firsts.column(name)) for name in _OF_A_BATCH if name != "is_transactional"}
    pieces = (
        (b',"timestamp_type":"', pa.array([TIMESTAMP_TYPES[kind].encode() for kind in kinds], _BYTES), b'"'),
        (
            *(b',"leader_epoch":', written["leader_epoch"]),
            *(b',"producer_id":', written["producer_id"]),
            *(b',"producer_epoch":', written["producer_epoch"]),
            b',"sequence":',
        ),
        (
            *(b',"is_transactional":', firsts.column("is_transactional").cast(pa.large_string()).cast(_BYTES)),
            *(b',"codec":"', _escaped(firsts.column("compression")), b'"'),
            *(b',"magic":', written["magic"]),
            *(b',"base_offset":', written["base_offset"]),
            *(b',"file":"', _escaped(firsts.column(FILE_COLUMN)), b'"'),
            *(b',"position":', written["position"]),
            b"}\n",
        ),
    )
    return [_joined(*each).take(runs) for each in pieces]


def _data(name: str, data: pa.Array) -> Pieces:
    """Write the field of a key or a value, with a comma before it."""
    title = name.encode()
    texts, others = data, None
    try:
        data.cast(pa.string())
    except pa.ArrowInvalid:
        are_text = is_text(data)
        texts = only_where(data, are_text)
        others = base64_of(only_where(data, pc.invert(are_text)))
    if not texts.null_count:
        return b',"' + title + b'":"', _escaped(texts), b'"'
    fields = [_joined(b',"' + title + b'":"', _escaped(texts), b'"')]
    if others is not None:
        fields.append(_joined(b',"' + title + b'_base64":"', others, b'"'))
    return (pc.coalesce(*fields, pa.scalar(b',"' + title + b'":null', _BYTES)),)


def _headers(headers: pa.Array) -> Pieces:
    return b',"headers":', *_header_lists(headers)


def _header_lists(headers: pa.Array) -> Pieces:
    flat = headers.flatten()
    if not len(flat):
        return (pa.repeat(pa.scalar(b"[]", _BYTES), len(headers)),)
    each = _joined(b'{"key":"', _escaped(flat.field("key")), b'"', *_data("value", flat.field("value")), b"}")
    lengths = np.asarray(pc.fill_null(pc.list_value_length(headers), 0))
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return b"[", pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), each), pa.scalar(b",", _BYTES)), b"]"


def _escaped(text: pa.Array) -> pa.Array:
    """Write text as within the quotes of JSON; other characters than those that must be escaped stay."""
    octets = np.frombuffer(octets_of(text.cast(_BYTES)), np.uint8)
    escaped = pc.replace_substring(pc.replace_substring(text.cast(_BYTES), b"\\", b"\\\\"), b'"', b'\\"')
    for byte in np.unique(octets[octets < 32]).tolist():
        escaped = pc.replace_substring(escaped, bytes([byte]), _ESCAPES[byte].encode())
    return escaped


def _numbers(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_string()).cast(_BYTES)


def _joined(*pieces: pa.Array | bytes) -> pa.Array:
    """Join pieces record by record; those that all records share are given once. Null where a piece is."""
    arrays = [pa.scalar(piece, _BYTES) if isinstance(piece, bytes) else piece for piece in pieces]
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", _BYTES))


def _offsets(data: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where in its buffer each value of large binary data begins, and where the last one ends."""
    _, offsets, _ = data.buffers()
    return np.frombuffer(offsets, np.int64, len(data) + 1, data.offset * 8)


def octets_of(data: pa.Array) -> memoryview:
    """Return the bytes of all values of large binary data, one after another."""
    offsets, values = _offsets(data), data.buffers()[2]
    return memoryview(values)[int(offsets[0]) : int(offsets[-1])] if values is not None else memoryview(b"")
