"""Record batches to Arrow columns: the one module that knows both.

A run of batches is checked, decompressed where needed into one buffer, indexed by a kernel (where each key, value and
header stands), and only then are the wanted columns copied out. What headers alone can tell is told without
decompressing anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.record import kernels, v2
from sparklog.record.compression import DECOMPRESSED_BYTES_MAX, codec_name, decompressor
from sparklog.record.framing import BatchHeaders
from sparklog.record.schema import OFFSET_MAX, RECORD_COLUMNS, RECORD_SCHEMA

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]

_ARROW_BYTES_MAX: Final = (1 << 31) - 1
_CRC_LIBRARY_BYTES: Final = 2048
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


@dataclass(frozen=True)
class DecodeLimits:
    """How much a decode may take at a time.

    Attributes
    ----------
    decompressed_bytes_max : int
        A batch that decompresses to more is refused (Kafka: ``max.decompressed.message.bytes``).
    chunk_bytes : int
        Batches are decompressed and decoded together until they are this long.
    output_bytes_max : int
        An Arrow batch is cut before its records are longer than this; a single record may be.
    """

    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    chunk_bytes: int = 1 << 21
    output_bytes_max: int = 1 << 26

    def __post_init__(self) -> None:
        if not 0 < self.output_bytes_max <= _ARROW_BYTES_MAX:
            raise InvalidOptionError(f"output_bytes_max must be from 1 to {_ARROW_BYTES_MAX}")


LIMITS: Final = DecodeLimits()


@dataclass(frozen=True)
class Rows:
    """Records that have been found and not yet copied.

    Attributes
    ----------
    headers : BatchHeaders, length n_batches
        Of the batches that the records are in.
    rows_per_batch : int64 array, shape (n_batches,)
        How many of the records each batch has.
    records : int64 array, shape (kernels.RECORD_FIELDS, n_rows)
        Where each record's fields are in ``buffer``; only offsets and timestamps are set where ``buffer`` is empty.
    buffer : uint8 array
        The records' bytes.
    """

    headers: BatchHeaders
    rows_per_batch: Int64s
    records: Int64s
    buffer: Octets

    def __len__(self) -> int:
        return int(self.records.shape[1])

    def slice(self, start: int, end: int) -> Rows:
        """Return the records from row ``start`` to before row ``end``."""
        ends = np.cumsum(self.rows_per_batch)
        inside = np.minimum(ends, end) - np.maximum(ends - self.rows_per_batch, start)
        return Rows(self.headers, np.maximum(inside, 0), self.records[:, start:end], self.buffer)

    def of_batch(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Give each record its batch's value."""
        if (values == values[0]).all():
            return np.full(len(self), values[0], dtype=values.dtype)
        return np.repeat(values, self.rows_per_batch)


def decode_batches(
    buffer: memoryview,
    headers: BatchHeaders,
    *,
    columns: Collection[str] = RECORD_COLUMNS,
    start_offset: int = 0,
    end_offset: int = OFFSET_MAX,
    limits: DecodeLimits = LIMITS,
) -> Iterator[pa.RecordBatch]:
    """Decode whole batches into record columns.

    Parameters
    ----------
    buffer : memoryview, shape (n_bytes,)
        Bytes of a ``.log`` file, from a batch boundary on.
    headers : BatchHeaders, length n_batches
        From `scan_headers` over the same buffer, control batches left out.
    columns : collection of str
        Names of `RECORD_SCHEMA`; what is not named is not copied, and where possible not decompressed.
    start_offset, end_offset : int
        Records before the one, and from the other on, are left out.
    limits : DecodeLimits
        How large a piece at a time.

    Yields
    ------
    pyarrow.RecordBatch
        The named columns in the order of `RECORD_SCHEMA`, one row a record, in offset order; timestamps in ms, UTC.

    Raises
    ------
    CorruptBatchError
        A checksum differs, or a length runs past its batch; with the position of the batch and its offset.

    Notes
    -----
    Length -1 is null and length 0 is empty; both survive. Format: KIP-98, KIP-534.
    """
    check_crcs(buffer, headers)
    wanted = [name for name in RECORD_SCHEMA.names if name in columns]
    schema = pa.schema([RECORD_SCHEMA.field(name) for name in wanted])
    for rows in _rows(buffer, headers, frozenset(wanted), start_offset, end_offset, limits):
        for piece in _cut(rows, limits.output_bytes_max):
            arrays = [_BUILDERS[name](piece) for name in wanted]
            if wanted:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            else:
                yield pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), len(piece), [None]))


def check_crcs(buffer: memoryview, headers: BatchHeaders) -> None:
    """Check the CRC-32C of every v2 batch; those of magic 0 and 1 are checked when their messages are indexed."""
    modern = headers.where(headers.column("magic") == 2)
    starts = modern.column("position") - modern.origin + v2.CRC_COVERS_FROM
    ends = starts - v2.CRC_COVERS_FROM + modern.column("batch_bytes")
    if len(modern) and int(ends[-1] - starts[0]) > len(modern) * _CRC_LIBRARY_BYTES:
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        found = np.array([crc32c(buffer[start:end]) for start, end in spans], dtype=np.int64)
    else:
        # A call of the library costs more than the work of our own loop on a batch this small.
        found = np.empty(len(modern), dtype=np.int64)
        kernels.crcs(kernels.CRC32C, np.frombuffer(buffer, dtype=np.uint8), starts, ends, found)
    wrong = np.flatnonzero(found != modern.column("crc"))
    if len(wrong):
        row = int(wrong[0])
        expected = int(modern.column("crc")[row])
        raise _corrupt(modern, row, f"CRC-32C is {found[row]:08x}, the batch says {expected:08x}")


def _corrupt(headers: BatchHeaders, row: int, reason: str) -> CorruptBatchError:
    return _located(headers, row, CorruptBatchError(reason))


def _located(headers: BatchHeaders, row: int, error: CorruptBatchError) -> CorruptBatchError:
    batch = headers.table[row]
    return error.located(position=int(batch["position"]), offset=int(batch["base_offset"]))


def _rows(
    buffer: memoryview,
    headers: BatchHeaders,
    wanted: frozenset[str],
    start_offset: int,
    end_offset: int,
    limits: DecodeLimits,
) -> Iterator[Rows]:
    """Find the records of each stretch of batches that one kernel can walk."""
    for run in _runs(headers):
        if run.column("magic")[0] == 2:
            if _told_by_headers(run, wanted):
                yield _rows_of_headers(run, start_offset, end_offset)
                continue
            find = _index_v2
        else:
            find = _index_legacy
        for chunk, octets, spans in _chunks(buffer, run, limits):
            yield find(chunk, octets, spans, start_offset, end_offset)


def _runs(headers: BatchHeaders) -> Iterator[BatchHeaders]:
    """Cut where the family of formats changes; a batch without records is in no run."""
    held = headers.where(headers.column("record_count") != 0)
    modern = held.column("magic") == 2
    borders = [0, *(np.flatnonzero(modern[1:] != modern[:-1]) + 1).tolist(), len(held)]
    for start, end in pairwise(borders):
        if start < end:
            yield held[start:end]


def _told_by_headers(run: BatchHeaders, wanted: frozenset[str]) -> bool:
    """Whether every wanted column of these v2 batches follows from their headers.

    It does where no offset is missing from a batch, so that its records are those from its base to its last offset.
    """
    if wanted & {"key", "value", "headers"}:
        return False
    dense = run.column("last_offset") - run.column("base_offset") + 1 == run.column("record_count")
    return bool(dense.all()) and ("timestamp" not in wanted or bool((run.timestamp_types == 1).all()))


def _rows_of_headers(run: BatchHeaders, start_offset: int, end_offset: int) -> Rows:
    first = np.maximum(run.column("base_offset"), start_offset)
    counts = np.maximum(np.minimum(run.column("last_offset") + 1, end_offset) - first, 0)
    total = int(counts.sum())
    records = np.empty((2, total), dtype=np.int64)
    ahead = np.cumsum(counts) - counts
    records[kernels.OFFSET] = np.arange(total) + np.repeat(first - ahead, counts)
    records[kernels.TIMESTAMP] = np.repeat(run.column("max_timestamp"), counts)
    return Rows(run, counts, records, np.empty(0, dtype=np.uint8))


def _chunks(
    buffer: memoryview, run: BatchHeaders, limits: DecodeLimits
) -> Iterator[tuple[BatchHeaders, Octets, Int64s]]:
    """Give some batches of a run at a time, one buffer that holds their records, and where in it: shape (n_batches, 2).

    Where none is compressed, they stay where they are. The records of a message of magic 0 or 1 are the message itself.
    """
    starts = run.column("position") - run.origin
    ends = starts + run.column("batch_bytes")
    if run.codec_ids.any():
        yield from _decompressed(buffer, run, starts, ends, limits)
        return
    overhead = v2.HEADER_BYTES if run.column("magic")[0] == 2 else 0
    octets = np.frombuffer(buffer, np.uint8)
    spans = np.stack([starts + overhead, ends], 1)
    first = 0
    while first < len(run):
        end = max(int(np.searchsorted(ends, starts[first] + limits.chunk_bytes, side="right")), first + 1)
        yield run[first:end], octets, spans[first:end]
        first = end


def _decompressed(
    buffer: memoryview, run: BatchHeaders, starts: Int64s, ends: Int64s, limits: DecodeLimits
) -> Iterator[tuple[BatchHeaders, Octets, Int64s]]:
    magic = int(run.column("magic")[0])
    legal = [decompressor(codec_id, magic) for codec_id in range(v2.CODEC_MASK + 1)]
    limit_bytes, chunk_bytes = limits.decompressed_bytes_max, limits.chunk_bytes
    pieces: list[bytes | memoryview] = []
    first, total, piece_ends = 0, 0, [0]
    spans = zip(starts.tolist(), ends.tolist(), run.codec_ids.tolist(), strict=True)
    for row, (start, end, codec_id) in enumerate(spans):
        try:
            if magic == 2:
                piece = buffer[start + v2.HEADER_BYTES : end]
            else:
                piece = _wrapped(buffer[start:end]) if codec_id else buffer[start:end]
            pieces.append(legal[codec_id](piece, limit_bytes) if codec_id else piece)
        except CorruptBatchError as error:
            raise _located(run, row, error) from error
        total += len(pieces[-1])
        piece_ends.append(total)
        if total >= chunk_bytes or row + 1 == len(run):
            joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            places = np.array(piece_ends)
            yield run[first : row + 1], np.frombuffer(joined, np.uint8), np.stack([places[:-1], places[1:]], 1)
            pieces, first, total, piece_ends = [], row + 1, 0, [0]


def _wrapped(message: memoryview) -> memoryview:
    """Return the value of a compressed wrapper of magic 0 or 1."""
    field = 26 if message[16] == 1 else 18
    key_bytes = int.from_bytes(message[field : field + 4], "big", signed=True)
    field += 4 + max(key_bytes, 0)
    value_bytes = int.from_bytes(message[field : field + 4], "big", signed=True)
    value = message[field + 4 :]
    if value_bytes != len(value):
        raise CorruptBatchError("a compressed wrapper's value is null or does not fill it")
    return value


def _table(fields: int, rows: int) -> Int64s:
    """Make an empty table in Arrow's memory pool, which hands out the same pages again, as numpy does not."""
    return np.frombuffer(pa.allocate_buffer(8 * fields * rows), dtype=np.int64).reshape(fields, rows)


def _index_v2(run: BatchHeaders, octets: Octets, spans: Int64s, start_offset: int, end_offset: int) -> Rows:
    counts = run.column("record_count")
    crowded = counts * v2.RECORD_BYTES_MIN > spans[:, 1] - spans[:, 0]
    if crowded.any():
        raise _corrupt(run, int(np.argmax(crowded)), "record count is more than the batch's bytes can hold")
    records = _table(kernels.RECORD_FIELDS, int(counts.sum()))
    rows_per_batch = np.zeros(len(run), dtype=np.int64)
    found = kernels.index_records(octets, run.numbers, spans, start_offset, end_offset, records, rows_per_batch)
    return _found(run, octets, records, rows_per_batch, *found)


def _index_legacy(run: BatchHeaders, octets: Octets, spans: Int64s, start_offset: int, end_offset: int) -> Rows:
    counts = np.zeros(len(run), dtype=np.int64)
    status, total, row = kernels.count_messages(octets, spans, counts)
    if status != kernels.OK:
        raise _corrupt(run, row, kernels.REASONS[status])
    records = _table(kernels.RECORD_FIELDS, total)
    rows_per_batch = np.zeros(len(run), dtype=np.int64)
    found = kernels.index_messages(
        octets, run.numbers, spans, counts, start_offset, end_offset, records, rows_per_batch
    )
    return _found(run, octets, records, rows_per_batch, *found)


def _found(
    run: BatchHeaders, octets: Octets, records: Int64s, rows_per_batch: Int64s, status: int, rows: int, row: int
) -> Rows:
    if status != kernels.OK:
        raise _corrupt(run, row, kernels.REASONS[status])
    return Rows(run, rows_per_batch, records[:, :rows], octets)


def _cut(rows: Rows, bytes_max: int) -> Iterator[Rows]:
    """Cut rows so that the bytes of each piece stay within a limit; one record is never cut."""
    if len(rows.buffer) <= bytes_max:
        if len(rows):
            yield rows
        return
    ends = rows.records[kernels.HEADERS_POSITION]
    starts = rows.records[kernels.KEY_POSITION]
    first = 0
    while first < len(rows):
        end = max(int(np.searchsorted(ends, starts[first] + bytes_max, side="right")), first + 1)
        yield rows.slice(first, end)
        first = end


def _int64(values: Int64s, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _bytes_column(buffer: Octets, positions: Int64s, lengths: Int64s, kind: pa.DataType) -> pa.Array:
    """Copy byte strings into an Arrow array; a length of -1 is null."""
    count = len(lengths)
    offsets_buffer = pa.allocate_buffer(4 * (count + 1))
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)
    total, nulls = kernels.measure(lengths, offsets)
    data_buffer = pa.allocate_buffer(total)
    if not kernels.gather(buffer, positions, offsets, np.frombuffer(data_buffer, dtype=np.uint8)):
        raise CorruptBatchError("a field of a record is outside its batch")
    return pa.Array.from_buffers(kind, count, [_validity(lengths >= 0, nulls), offsets_buffer, data_buffer], nulls)


def _validity(valid: np.ndarray[Any, np.dtype[np.bool_]], nulls: int) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None


def _headers_column(rows: Rows) -> pa.Array:
    """Build the lists of headers; a record without any has null, as in Spark's connector."""
    kind = RECORD_SCHEMA.field("headers").type
    counts = rows.records[kernels.HEADER_COUNT]
    if not counts.any():
        return pa.nulls(len(rows), kind)
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    fields = _table(kernels.HEADER_FIELDS, int(offsets[-1]))
    kernels.index_headers(rows.buffer, rows.records[kernels.HEADERS_POSITION], counts, fields)
    names = _text(_bytes_column(rows.buffer, fields[kernels.NAME_POSITION], fields[kernels.NAME_LENGTH], pa.string()))
    contents = _bytes_column(rows.buffer, fields[kernels.CONTENT_POSITION], fields[kernels.CONTENT_LENGTH], pa.binary())
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(kind.value_type))
    nulls = int((counts == 0).sum())
    return pa.Array.from_buffers(
        kind, len(rows), [_validity(counts > 0, nulls), pa.py_buffer(offsets)], nulls, children=[pairs]
    )


def _text(names: pa.StringArray) -> pa.StringArray:
    """Replace what is not UTF-8, as Java does when it reads a header's name."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_java_text(name) for name in names.cast(pa.binary()).to_pylist()], pa.string())
    return names


def _java_text(name: bytes) -> str:
    # Java takes an encoded surrogate as one wrong character, Python takes each of its bytes as one.
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), name).decode("utf-8", "replace")


def _sequences(rows: Rows) -> Int64s:
    base = rows.of_batch(rows.headers.column("base_sequence"))
    delta = rows.records[kernels.OFFSET] - rows.of_batch(rows.headers.column("base_offset"))
    return np.where(base < 0, -1, (base + delta) & v2.SEQUENCE_MAX)


def _codec_names(rows: Rows) -> pa.Array:
    names = pa.array([codec_name(codec_id) for codec_id in range(v2.CODEC_MASK + 1)])
    return names.take(pa.array(rows.of_batch(rows.headers.codec_ids)))


def _of_batch(name: str, kind: pa.DataType) -> Callable[[Rows], pa.Array]:
    """Make the builder of a column that is the same for all records of a batch."""
    numbers = kind.to_pandas_dtype()
    return lambda rows: pa.array(rows.of_batch(rows.headers.column(name).astype(numbers)))


def _field(position: int, length: int) -> Callable[[Rows], pa.Array]:
    return lambda rows: _bytes_column(rows.buffer, rows.records[position], rows.records[length], pa.binary())


_BUILDERS: Final[dict[str, Callable[[Rows], pa.Array]]] = {
    "key": _field(kernels.KEY_POSITION, kernels.KEY_LENGTH),
    "value": _field(kernels.VALUE_POSITION, kernels.VALUE_LENGTH),
    "offset": lambda rows: _int64(rows.records[kernels.OFFSET], pa.int64()),
    "timestamp": lambda rows: _int64(rows.records[kernels.TIMESTAMP], RECORD_SCHEMA.field("timestamp").type),
    "timestampType": lambda rows: pa.array(rows.of_batch(rows.headers.timestamp_types.astype(np.int32))),
    "headers": _headers_column,
    "leader_epoch": _of_batch("leader_epoch", pa.int32()),
    "producer_id": _of_batch("producer_id", pa.int64()),
    "producer_epoch": _of_batch("producer_epoch", pa.int32()),
    "sequence": lambda rows: pa.array(_sequences(rows).astype(np.int32)),
    "is_transactional": lambda rows: pa.array(rows.of_batch(rows.headers.is_transactional)),
    "compression": _codec_names,
    "magic": _of_batch("magic", pa.int32()),
    "base_offset": _of_batch("base_offset", pa.int64()),
    "position": _of_batch("position", pa.int64()),
}
assert set(_BUILDERS) == set(RECORD_COLUMNS)
