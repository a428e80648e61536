"""Decodes record batches into Arrow columns.

A kernel takes a run of batches of one format, checks them, walks through their records, and copies the wanted fields
into the buffers of Arrow columns until those are full. Batches that are not compressed are read where they stand. The
others are checked and decompressed a few at a time, so that the bytes are still in the processor's cache when the
kernel reads them.

Whatever columns are wanted, every batch of the range is checked, decompressed and walked through to its end. A header
alone is never taken for rows: a right checksum says that the bytes are those that were sent, but not that they hold
as many records as the header says, or records at the offsets that it spans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.record import checksums, kernels, kernels_legacy, kernels_v2, kernels_where, v2
from sparklog.record.arrow import BYTES_WITHOUT_END, RECORD_HEADERS_MAX, ROWS_MAX, Columns, Rows, wanted_bits
from sparklog.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    TARGET_TOO_SMALL,
    DecompressInto,
    copy_into,
    decompressor,
    decompressor_into,
    to_corrupt_error,
)
from sparklog.record.headers import BatchHeaders
from sparklog.record.many_streams import many_into
from sparklog.record.schema import OFFSET_MAX, RECORD_COLUMNS, RECORD_SCHEMA, selector
from sparklog.record.streams import Int64s, Octets
from sparklog.record.wrappers import wrapped

_ARROW_BYTES_MAX: Final = (1 << 31) - 1
_CHUNK_SLACK_BYTES: Final = 1 << 18
_MANY_STREAMS: Final = 5
_NO_SPANS: Final = np.empty((0, 2), dtype=np.int64)
# Of magic 2, and of magic 0 and 1.
_DECODING: Final = (kernels_v2.decode_records, kernels_legacy.decode_messages)
_FILTERING: Final = (kernels_where.filter_records, kernels_where.filter_messages)


@dataclass(frozen=True)
class DecodeLimits:
    """The limits on how much memory a decode uses at a time.

    Attributes
    ----------
    decompressed_bytes_max : int
        A batch that decompresses to more is refused (Kafka: ``max.decompressed.message.bytes``).
    chunk_bytes : int
        Batches are decompressed and walked through together until they have this many bytes, which are best a fraction
        of the processor's cache.
    output_bytes_max : int
        An Arrow batch is cut before its records are longer than this; a single record may be.
    """

    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    chunk_bytes: int = 1 << 20
    output_bytes_max: int = 1 << 23

    def __post_init__(self) -> None:
        if not 0 < self.output_bytes_max <= _ARROW_BYTES_MAX:
            raise InvalidOptionError(f"output_bytes_max must be from 1 to {_ARROW_BYTES_MAX}")


LIMITS: Final = DecodeLimits()


@dataclass
class Progress:
    """The progress of a read. One decode hands it to the next, so that offsets ascend over all of them.

    Attributes
    ----------
    next_offset : int
        The lowest offset that the next record may have.
    """

    next_offset: int = 0


def decode_batches(
    buffer: memoryview,
    headers: BatchHeaders,
    *,
    columns: Collection[str] = RECORD_COLUMNS,
    start_offset: int = 0,
    end_offset: int = OFFSET_MAX,
    reaches_log_end: bool = False,
    limits: DecodeLimits = LIMITS,
    progress: Progress | None = None,
    program: kernels_where.Program | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode whole batches into record columns.

    Parameters
    ----------
    buffer : memoryview, shape (n_bytes,)
        Bytes of a ``.log`` file, from a batch boundary on.
    headers : BatchHeaders, length n_batches
        From `scan_headers` over the same buffer, control batches left out.
    columns : collection of str
        Names of `RECORD_SCHEMA`; other columns are not copied. An empty collection still gives rows.
    start_offset, end_offset : int
        Records below the start are left out, and those from the end on.
    reaches_log_end : bool
        Whether ``end_offset`` is the end of the log. There records are given, as by Kafka, whose offsets are above the
        last one of their batch and past the end; before the end of the log they are an error, since whoever reads on
        from ``end_offset`` would not find them.
    limits : DecodeLimits
        How large a piece at a time.
    progress : Progress, optional
        The progress of the read that this decode is a part of; it is updated.
    program : Program, optional
        A filter, by `sparklog.record.where_program.program_of`. Only records that pass are copied; the others are
        checked all the same.

    Yields
    ------
    pyarrow.RecordBatch
        The named columns in the order of `RECORD_SCHEMA`, one row a record, in offset order; timestamps in ms, UTC.

    Raises
    ------
    CorruptBatchError
        A checksum differs, a length runs past its batch, a count or an offset is not that of the records, or offsets do
        not ascend from batch to batch; with the position of the batch and its offset. The records
        of all batches before it have been yielded by then. Of the batch itself none has, unless it is longer than
        ``output_bytes_max`` and its checksum is right.

    Notes
    -----
    Length -1 is null and length 0 is empty; both survive. Format: KIP-98, KIP-534.

    An offset above the last one that its batch's header gives is Kafka's to give and ours, too, as long as offsets
    ascend. Where the next batch begins below it, Kafka's consumer gives the one and passes over the other, or the other
    way round, as its fetches fall; here the second batch is an error.
    """
    names = tuple(name for name in RECORD_SCHEMA.names if name in columns)
    progress = Progress() if progress is None else progress
    modern, oldest, attributes, different, wrappers = kernels.summary(headers.numbers)
    decoding = _Decoding(headers, names, (start_offset, end_offset), limits, program, has_wrappers=wrappers > 0)
    decoding.timestamp_type = _timestamp_type(len(headers), oldest, attributes, different)
    decoding.begin(progress.next_offset - 1, OFFSET_MAX if reaches_log_end else end_offset)
    for run in _runs(headers) if 0 < modern < len(headers) else [slice(0, len(headers))]:
        try:
            is_compressed = bool(attributes & v2.CODEC_MASK) and bool(headers[run].codec_ids.any())
            for step in _steps(buffer, headers, run, limits, is_compressed=is_compressed):
                yield from decoding.rows_of_step(step)
        except CorruptBatchError:
            yield from decoding.flush()
            raise
    yield from decoding.flush()
    progress.next_offset = decoding.last_offset + 1


def check_crcs(buffer: memoryview, headers: BatchHeaders) -> None:
    """Check the checksum of every batch: CRC-32C of v2, CRC-32 of messages of magic 0 and 1 and of their wrappers.

    Raises
    ------
    CorruptBatchError
        With the position and the offset of the first batch that is wrong.
    """
    _, failure = _sound(buffer, headers, slice(0, len(headers)))
    if failure is not None:
        raise failure


def _sound(buffer: memoryview, headers: BatchHeaders, run: slice) -> tuple[slice, CorruptBatchError | None]:
    """Return the batches before the first one whose checksum is wrong, and the error to raise after those."""
    good, found = checksums.first_wrong(np.frombuffer(buffer, np.uint8), headers[run])
    row = run.start + good
    if row == run.stop:
        return run, None
    if found < 0:
        return slice(run.start, row), _corrupt(headers, row, kernels.REASONS[kernels.OUTSIDE])
    name = "CRC-32C" if headers.column("magic")[row] == 2 else "CRC-32"
    reason = f"{name} is {found:08x}, the batch says {headers.column('crc')[row]:08x}"
    return slice(run.start, row), _corrupt(headers, row, reason)


def _corrupt(headers: BatchHeaders, row: int, reason: str) -> CorruptBatchError:
    return _located(headers, row, CorruptBatchError(reason))


def _located(headers: BatchHeaders, row: int, error: CorruptBatchError) -> CorruptBatchError:
    batch = headers.table[row]
    return error.located(position=int(batch["position"]), offset=int(batch["base_offset"]))


def _timestamp_type(batches: int, oldest: int, attributes: int, different: int) -> int | None:
    """Return the timestamp type of all batches, by their `kernels.summary`; None where they have not the same."""
    if oldest:
        return -1 if oldest == batches else None
    return None if different & v2.LOG_APPEND_TIME else int(attributes & v2.LOG_APPEND_TIME != 0)


def _runs(headers: BatchHeaders) -> Iterator[slice]:
    """Cut the batches where magic 2 follows magic 0 or 1, or the other way round."""
    modern = headers.column("magic") == 2
    borders = [0, *(np.flatnonzero(modern[1:] != modern[:-1]) + 1).tolist(), len(headers)]
    for start, end in pairwise(borders):
        if start < end:
            yield slice(start, end)


@dataclass(frozen=True)
class _Step:
    """Batches whose records one call of a kernel can walk.

    Attributes
    ----------
    rows : slice
        Their rows in the table of headers.
    octets : uint8 array
        The bytes that hold their records.
    spans : int64 array, shape (n_batches, 2)
        Where in it the records of each batch begin and end. Those of a message of magic 0 or 1 are the message itself.
        Empty where ``octets`` is the log itself: there the table says it.
    is_checked : bool
        Whether checksums have been verified. Where they have not, headers stand before records in ``octets``, and the
        kernel verifies them.
    """

    rows: slice
    octets: Octets
    spans: Int64s
    is_checked: bool


def _steps(
    buffer: memoryview, headers: BatchHeaders, run: slice, limits: DecodeLimits, *, is_compressed: bool
) -> Iterator[_Step]:
    if run.start == run.stop:
        return
    if is_compressed:
        sound, failure = _sound(buffer, headers, run)
        yield from _decompressed(buffer, headers, sound, limits)
        if failure is not None:
            raise failure
        return
    is_v2, failure = headers.column("magic")[run.start] == 2, None
    is_checked = is_v2 and not checksums.IN_KERNELS
    if is_checked:
        run, failure = _sound(buffer, headers, run)
    yield _Step(run, np.frombuffer(buffer, np.uint8), _NO_SPANS, is_checked=is_checked)
    if failure is not None:
        raise failure


def _decompressed(buffer: memoryview, headers: BatchHeaders, run: slice, limits: DecodeLimits) -> Iterator[_Step]:
    """Decompress some batches at a time; the batches before one that cannot be decompressed are a step of their own."""
    if run.start == run.stop:
        return
    pieces, limit_bytes, chunk_bytes = _Pieces(buffer, headers[run]), limits.decompressed_bytes_max, limits.chunk_bytes
    # Memory that is not written to is never touched, and so costs nothing; a bytearray would be filled with zeros.
    target = np.empty(chunk_bytes + _CHUNK_SLACK_BYTES, dtype=np.uint8)
    borders, first, row = [0], run.start, run.start
    while row < run.stop:
        alone, failure = None, None
        # No batch can be above a limit that is above the target.
        taken = (
            pieces.take_many(row - run.start, target, borders[-1], chunk_bytes) if len(target) <= limit_bytes else []
        )
        borders += taken
        row += len(taken)
        if not taken:
            try:
                size = pieces.take(row - run.start, target.data[borders[-1] :], limit_bytes)
                if size == TARGET_TOO_SMALL:
                    alone = pieces.records(row - run.start, limit_bytes)
                else:
                    borders.append(borders[-1] + size)
            except Exception as error:
                # Each library has errors of its own, and none of them knows where the bytes came from.
                failure = error
            row += 1
        if failure or alone is not None or borders[-1] >= chunk_bytes or row == run.stop:
            if len(borders) > 1:
                yield _step(first, target, borders)
            borders, first = [0], row
        if failure:
            raise _located(headers, row - 1, to_corrupt_error(failure, int(headers.codec_ids[row - 1]))) from failure
        if alone is not None:
            yield _step(row - 1, np.frombuffer(alone, np.uint8), [0, len(alone)])


class _Pieces:
    """Batches to decompress: where the records of each are, and the function that decompresses them.

    Either all batches are of magic 2, and a piece is the records of one, or none is, and a piece is a whole message.
    """

    def __init__(self, buffer: memoryview, batches: BatchHeaders) -> None:
        self._buffer, self._magics = buffer, batches.column("magic")
        self._octets = np.frombuffer(buffer, np.uint8)
        self._starts = batches.column("position") - batches.origin
        self._ends = self._starts + batches.column("batch_bytes")
        self._are_v2 = bool(self._magics[0] == 2)
        if self._are_v2:
            self._starts += v2.HEADER_BYTES
        # A batch without records has none to decompress, whatever its codec.
        self._codec_ids = np.where(batches.column("record_count") == 0, 0, batches.codec_ids)
        borders = np.flatnonzero(np.diff(self._codec_ids, append=-1)) + 1
        # For each piece, the first one behind it that is of another codec.
        self._run_ends = borders[np.searchsorted(borders, np.arange(len(self._starts)), side="right")]

    def take_many(self, row: int, target: Octets, filled: int, full_bytes: int) -> list[int]:
        """Decompress pieces from one on behind what is filled of a target, as far as they can be taken at once.

        Returns
        -------
        list of int
            How much of the target is filled behind each piece that was taken.
        """
        end = int(self._run_ends[row])
        if not self._are_v2 or end - row < _MANY_STREAMS:
            return []
        many = many_into(int(self._codec_ids[row]))
        if many is None:
            return []
        borders = many(self._octets, self._starts[row:end], self._ends[row:end], target, filled, full_bytes)
        return borders.tolist()  # type: ignore[no-any-return]

    def take(self, row: int, target: memoryview, limit_bytes: int) -> int:
        """Decompress one piece into a target; return its size, or `TARGET_TOO_SMALL`."""
        data = self._buffer[self._starts[row] : self._ends[row]]
        return self._decompressor_into(row)(data, target, limit_bytes)

    def _decompressor_into(self, row: int) -> DecompressInto:
        if not self._are_v2:
            return self._copier(row)
        return decompressor_into(int(self._codec_ids[row]), 2)

    def _copier(self, row: int) -> DecompressInto:
        """Return the function that writes the messages of one piece into a target."""
        codec_id = int(self._codec_ids[row])
        if codec_id == 0:
            return lambda message, target, _: copy_into(message, target)
        decompress = decompressor_into(codec_id, int(self._magics[row]))
        return lambda message, target, limit_bytes: decompress(wrapped(message), target, limit_bytes)

    def records(self, row: int, limit_bytes: int) -> bytes | bytearray | memoryview:
        """Return the bytes of one piece that a kernel is to walk through: records, or messages."""
        data, codec_id = self._buffer[self._starts[row] : self._ends[row]], int(self._codec_ids[row])
        if codec_id == 0:
            return data
        decompress = decompressor(codec_id, int(self._magics[row]))
        return decompress(data if self._are_v2 else wrapped(data), limit_bytes)


def _step(first: int, octets: Octets, borders: list[int]) -> _Step:
    ends = np.array(borders, dtype=np.int64)
    spans = np.empty((len(borders) - 1, 2), dtype=np.int64)
    spans[:, 0], spans[:, 1] = ends[:-1], ends[1:]
    return _Step(slice(first, first + len(spans)), octets, spans, is_checked=True)


class _Decoding:
    """The state of one call of `decode_batches`: the columns so far, and where the kernels go on."""

    def __init__(
        self,
        headers: BatchHeaders,
        names: tuple[str, ...],
        offsets: tuple[int, int],
        limits: DecodeLimits,
        program: kernels_where.Program | None,
        *,
        has_wrappers: bool,
    ) -> None:
        # The kernels write the base offsets of wrappers into the table, which belongs to the caller.
        self._headers = replace(headers, table=headers.table.copy()) if has_wrappers else headers
        self._names, self._offsets, self._limits = names, offsets, limits
        self._kernels = _DECODING if program is None else _FILTERING
        self._filter = () if program is None else (program,)
        self._schema = _schema(names)
        self._cursor = np.zeros(kernels.CURSOR_FIELDS, dtype=np.int64)
        self._columns: Columns | None = None
        self._record_headers_max = 0
        self.timestamp_type: int | None = None

    def begin(self, last_offset: int, excess_end: int) -> None:
        """Set the offset that records must be above, and the end for those above the last offset of their batch."""
        self._cursor[kernels.LAST_OFFSET_DONE], self._cursor[kernels.EXCESS_END] = last_offset, excess_end

    @property
    def last_offset(self) -> int:
        """The offset of the last record of all batches that are done, or what `begin` was given."""
        return int(self._cursor[kernels.LAST_OFFSET_DONE])

    def rows_of_step(self, step: _Step) -> Iterator[pa.RecordBatch]:
        """Walk through the batches of a step, and yield the Arrow batches that fill up on the way."""
        is_legacy = self._headers.column("magic")[step.rows.start] < 2
        decode = self._kernels[int(is_legacy)]
        numbers, cursor = self._headers.numbers, self._cursor
        cursor[kernels.BATCH] = step.rows.start
        while True:
            if self._columns is None:
                self._columns = self._empty_columns()
            columns = self._columns
            status = decode(
                step.octets,
                numbers,
                step.spans,
                step.rows.start,
                step.rows.stop,
                self._headers.origin,
                not step.is_checked,
                *self._offsets,
                columns.wanted,
                columns.bytes_max,
                cursor,
                columns.output,
                *self._filter,
            )
            if status == kernels.OK:
                return
            if status == kernels.RECORD_TOO_LARGE:
                record_bytes = int(cursor[kernels.RECORD_BYTES])
                record_headers_max = record_bytes // v2.RECORD_HEADER_BYTES_MIN
                self._columns = self._empty_columns(record_bytes, record_headers_max)
            elif status == kernels.HEADERS_DO_NOT_FIT:
                self._record_headers_max = RECORD_HEADERS_MAX
                yield from self.flush()
            elif status == kernels.FULL:
                yield from self.flush()
            else:
                raise self._failure(step, status)

    def _empty_columns(self, record_bytes: int = 1, record_headers_max: int = 0) -> Columns:
        """Make columns for the batches that are left, as far as they may go together, and for one record at least."""
        bytes_max = max(self._limits.output_bytes_max, record_bytes) if wanted_bits(self._names) else BYTES_WITHOUT_END
        rows, size_bytes = kernels.capacity(
            self._headers.numbers, self._cursor[kernels.BATCH], self._offsets[0], ROWS_MAX, bytes_max
        )
        record_headers_max = max(record_headers_max, self._record_headers_max)
        return Columns(self._names, max(rows, 1), max(size_bytes, record_bytes), record_headers_max)

    def _failure(self, step: _Step, status: int) -> CorruptBatchError:
        row = int(self._cursor[kernels.BATCH])
        if status == kernels.WRONG_CRC and not step.is_checked:
            _, failure = _sound(step.octets.data, self._headers, slice(row, row + 1))
            if failure is not None:
                return failure
        return _corrupt(self._headers, row, kernels.REASONS[status])

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far, if there are any, and begin with empty columns."""
        rows, columns = int(self._cursor[kernels.ROWS]), self._columns
        self._cursor[kernels.ROWS] = self._cursor[kernels.TAKEN_BYTES] = 0
        self._columns = None
        if columns is not None and rows:
            yield self._batch(columns.take(rows, self._headers, self.timestamp_type))

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        if not self._names:
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), len(rows), [None]))
        return pa.RecordBatch.from_arrays([rows.column(name) for name in self._names], schema=self._schema)


_schema: Final = selector(RECORD_SCHEMA)
