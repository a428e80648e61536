"""Decodes record batches into Arrow columns.

A kernel takes consecutive batches of one format, checks them, walks through their records, and copies the wanted fields
into the buffers of Arrow columns until these are full. `sparklog.record.decode.steps` decompresses the batches.

Whatever columns are wanted, every batch of the range is checked, decompressed and walked through to its end. Rows are
never made from a header alone: a right checksum shows that the bytes are as they were sent, but not that they hold as
many records as the header says, or records at the offsets that it spans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.record.codecs.table import DECOMPRESSED_BYTES_MAX
from sparklog.record.decode.arrow import (
    BYTES_WITHOUT_END,
    RECORD_HEADERS_MAX,
    ROWS_MAX,
    BatchPiece,
    ColumnBuffers,
    DecodedRecords,
    wanted_bits,
)
from sparklog.record.decode.steps import Step, failure_of, runs, sound_rows, steps
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.schema import RECORD_COLUMNS, RECORD_SCHEMA, selector
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.record.kernels import legacy as kernels_legacy
from sparklog.record.kernels import scan as kernels
from sparklog.record.kernels import v2 as kernels_v2
from sparklog.record.kernels.filter import Program

_ARROW_BYTES_MAX: Final = (1 << 31) - 1
# The kernel for magic 2, and the one for magic 0 and 1.
_KERNELS: Final = (kernels_v2.decode_records, kernels_legacy.decode_messages)


@dataclass(frozen=True)
class DecodeLimits:
    """The limits on how much memory a decode uses at a time.

    Attributes
    ----------
    decompressed_bytes_max : int
        The largest decompressed size of a batch; others are refused (Kafka: ``max.decompressed.message.bytes``).
    chunk_bytes : int
        The bytes of batches that are decompressed and walked through together, best a fraction of the processor's
        cache.
    output_bytes_max : int
        The most bytes of records in an Arrow batch; a single record may have more.
    """

    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    chunk_bytes: int = 1 << 20
    output_bytes_max: int = 1 << 23

    def __post_init__(self) -> None:
        if not 0 < self.output_bytes_max <= _ARROW_BYTES_MAX:
            raise InvalidOptionError(f"output_bytes_max must be from 1 to {_ARROW_BYTES_MAX}")

    def within(self, output_bytes_max: int | None) -> DecodeLimits:
        """Return the same limits, with ``output_bytes_max`` lowered to the given one, if any."""
        if output_bytes_max is None:
            return self
        if isinstance(output_bytes_max, bool) or not isinstance(output_bytes_max, int) or output_bytes_max < 1:
            raise InvalidOptionError(f"max_bytes must be a whole number, at least 1, and is {output_bytes_max!r}")
        return replace(self, output_bytes_max=min(output_bytes_max, self.output_bytes_max))


LIMITS: Final = DecodeLimits()


def decode_batches(
    buffer: memoryview,
    headers: BatchHeaders,
    *,
    columns: Collection[str] = RECORD_COLUMNS,
    start_offset: int = 0,
    end_offset: int = OFFSET_MAX,
    reaches_log_end: bool = False,
    limits: DecodeLimits = LIMITS,
    program: Program | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode whole batches into record columns.

    Parameters
    ----------
    buffer : memoryview, shape (n_bytes,)
        Bytes of a ``.log`` file, from a batch boundary on.
    headers : BatchHeaders, length n_batches
        The headers from `scan_headers` over the same buffer, without control batches.
    columns : collection of str
        Names from `RECORD_SCHEMA`; other columns are not copied. Without any column, batches still have rows.
    start_offset, end_offset : int
        Only records with offsets from the start on and below the end are returned.
    reaches_log_end : bool
        Whether ``end_offset`` is the end of the log. If so, records with offsets above the last one of their batch and
        past the end are returned, as by Kafka; otherwise they are an error, since the next read, from ``end_offset``
        on, would not find them.
    limits : DecodeLimits
        The limits on memory.
    program : Program, optional
        A filter from `sparklog.record.decode.where_program.program_of`. Only records that pass are copied; the others
        are checked all the same.

    Yields
    ------
    pyarrow.RecordBatch
        The named columns in the order of `RECORD_SCHEMA`, one row for each record, in offset order; timestamps in ms,
        UTC.

    Raises
    ------
    CorruptBatchError
        A checksum differs, a length runs past its batch, a count or an offset disagrees with the records, or offsets do
        not ascend from batch to batch. The error has the batch's position and offset. The records of all batches before
        it have been yielded by then; its own records have not, unless it is longer than ``output_bytes_max`` and its
        checksum is right.

    Notes
    -----
    Length -1 is null and length 0 is empty; both survive. Format: KIP-98, KIP-534.

    A record's offset may be above the last offset in its batch's header, as in Kafka, as long as offsets ascend. If the
    next batch begins below it, Kafka's consumer returns one of the two and skips the other, depending on its fetches;
    here the second batch is an error.
    """
    decoder = BatchDecoder(
        columns,
        start_offset=start_offset,
        end_offset=end_offset,
        reaches_log_end=reaches_log_end,
        limits=limits,
        program=program,
    )
    yield from decoder.decode(buffer, headers)
    yield from decoder.flush()


def check_crcs(buffer: memoryview, headers: BatchHeaders) -> None:
    """Check the checksum of every batch: CRC-32C in magic 2, CRC-32 in messages and wrappers of magic 0 and 1.

    Raises
    ------
    CorruptBatchError
        A checksum is wrong. The error has the position and the offset of the first such batch.
    """
    _, failure = sound_rows(buffer, headers, slice(0, len(headers)))
    if failure is not None:
        raise failure


def _growth(buffer: memoryview, headers: BatchHeaders, end_offset: int) -> int:
    """Return how many times a piece's bytes are expected to be decoded together, counting the piece itself.

    It is 1 if no whole batch of the range follows in the buffer; see `sparklog.record.batches.framing.scan_pieces`.
    """
    left_bytes = len(buffer) - headers.valid_bytes
    if headers.fault or not 0 < headers.next_batch_bytes <= left_bytes:
        return 1
    if len(headers) and int(headers.column("last_offset")[-1]) + 1 >= end_offset:
        return 1
    return 2 + left_bytes // headers.valid_bytes


def _timestamp_type(batches: int, oldest: int, attributes: int, different: int) -> int | None:
    """Return the timestamp type of all batches from their `kernels.summary`; None if they differ."""
    if oldest:
        return -1 if oldest == batches else None
    return None if different & v2.LOG_APPEND_TIME else int(attributes & v2.LOG_APPEND_TIME != 0)


class BatchDecoder:
    """Decodes the batches of a log piece by piece; its parameters are as for `decode_batches`, which decodes one piece.

    Making columns takes as long as decoding hundreds of records. So if a piece ends before its buffer does, its rows
    wait for the rows of the next piece. Offsets must ascend over all pieces.
    """

    def __init__(
        self,
        columns: Collection[str] = RECORD_COLUMNS,
        *,
        start_offset: int = 0,
        end_offset: int = OFFSET_MAX,
        reaches_log_end: bool = False,
        limits: DecodeLimits = LIMITS,
        program: Program | None = None,
    ) -> None:
        self._names = tuple(name for name in RECORD_SCHEMA.names if name in columns)
        self._offsets, self._limits = (start_offset, end_offset), limits
        self._filter = () if program is None else (program,)
        self._schema = _schema(self._names)
        self._cursor = np.zeros(kernels.CURSOR_FIELDS, dtype=np.int64)
        self._cursor[kernels.LAST_OFFSET_DONE] = -1
        self._cursor[kernels.EXCESS_END] = OFFSET_MAX if reaches_log_end else end_offset
        self._columns: ColumnBuffers | None = None
        self._record_headers_max = 0

    def decode(self, buffer: memoryview, headers: BatchHeaders) -> Iterator[pa.RecordBatch]:
        """Decode a piece; yield and raise as `decode_batches` does.

        If whole batches of the range follow in the buffer, rows may be kept back until the next call or `flush`.
        """
        modern, oldest, attributes, different, wrappers = kernels.summary(headers.numbers)
        # The kernels write the base offsets of wrappers into the table, which belongs to the caller.
        headers = replace(headers, table=headers.table.copy()) if wrappers else headers
        timestamp_type = _timestamp_type(len(headers), oldest, attributes, different)
        self._piece = BatchPiece(headers, timestamp_type)
        self._growth = _growth(buffer, headers, self._offsets[1])
        if self._columns is not None:
            self._columns.begin(self._piece, int(self._cursor[kernels.ROWS]))
        for run in runs(headers) if 0 < modern < len(headers) else [slice(0, len(headers))]:
            try:
                is_compressed = bool(attributes & v2.CODEC_MASK) and bool(headers[run].codec_ids.any())
                for step in steps(
                    buffer,
                    headers,
                    run,
                    self._limits.decompressed_bytes_max,
                    self._limits.chunk_bytes,
                    is_compressed=is_compressed,
                ):
                    yield from self._rows_of_step(step)
                    # A large batch is a step of its own, and must be gone before the next one is decompressed.
                    del step
            except CorruptBatchError:
                yield from self.flush()
                raise
        if self._growth == 1:
            yield from self.flush()

    def _rows_of_step(self, step: Step) -> Iterator[pa.RecordBatch]:
        """Decode the batches of a step, and yield the Arrow batches that become full."""
        headers, cursor = self._piece.headers, self._cursor
        decode = _KERNELS[int(headers.column("magic")[step.rows.start] < 2)]
        cursor[kernels.BATCH] = step.rows.start
        while True:
            if self._columns is None:
                self._columns = self._empty_columns()
            columns = self._columns
            status = decode(
                step.octets,
                headers.numbers,
                step.spans,
                step.rows.start,
                step.rows.stop,
                headers.origin,
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
                raise failure_of(step, headers, int(cursor[kernels.BATCH]), status)

    def _empty_columns(self, record_bytes: int = 1, record_headers_max: int = 0) -> ColumnBuffers:
        """Make columns for the remaining batches, up to the limits, with room for at least one record."""
        bytes_max = max(self._limits.output_bytes_max, record_bytes) if wanted_bits(self._names) else BYTES_WITHOUT_END
        rows, size_bytes = kernels.capacity(
            self._piece.headers.numbers, self._cursor[kernels.BATCH], self._offsets[0], ROWS_MAX, bytes_max
        )
        rows, size_bytes = min(rows * self._growth, ROWS_MAX), min(size_bytes * self._growth, bytes_max)
        record_headers_max = max(record_headers_max, self._record_headers_max)
        columns = ColumnBuffers(self._names, max(rows, 1), max(size_bytes, record_bytes), record_headers_max)
        columns.begin(self._piece, 0)
        return columns

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows kept back, if any, and begin with empty columns."""
        rows, columns = int(self._cursor[kernels.ROWS]), self._columns
        self._cursor[kernels.ROWS] = self._cursor[kernels.TAKEN_BYTES] = 0
        self._columns = None
        if columns is not None and rows:
            yield self._batch(columns.take(rows))

    def _batch(self, rows: DecodedRecords) -> pa.RecordBatch:
        if not self._names:
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), len(rows), [None]))
        return pa.RecordBatch.from_arrays([rows.column(name) for name in self._names], schema=self._schema)


_schema: Final = selector(RECORD_SCHEMA)
