"""Finds the positions of each record's parts in the bytes of batches, so that records can be copied unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sparklog.record.decode.columns import LIMITS, DecodeLimits
from sparklog.record.decode.steps import Step, failure_of, runs, steps
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.legacy import MESSAGE_BYTES_MIN
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.format.v2 import OFFSET_MAX, RECORD_BYTES_MIN
from sparklog.record.kernels import scan as kernels
from sparklog.record.kernels import spans as kernels_spans
from sparklog.record.kernels.spans import SPAN_FIELDS

_CHUNK_RECORDS: Final = 1 << 17


@dataclass
class SpanProgress:
    """The progress of a read. Successive searches for spans share it, so that offsets ascend over all of them.

    Attributes
    ----------
    next_offset : int
        The lowest offset that the next record may have.
    """

    next_offset: int = 0


@dataclass(frozen=True)
class RecordSpans:
    """Whole batches, and the positions of their records' parts.

    Attributes
    ----------
    buffer : memoryview
        The bytes that the headers were read from: the batches as in the log.
    headers : BatchHeaders, length n_batches
        The headers of the batches; here a wrapper's base offset is the offset of its first message.
    octets : uint8 array
        The bytes that hold the records, decompressed. They are valid until the next spans are requested.
    batch_ends : int64 array, shape (n_batches,)
        The row after the last record of each batch.
    table : int64 array, shape (n_records, kernels_spans.SPAN_FIELDS)
        A row for each record, in order: START and END, positions in ``octets`` of the whole record (in magic 0 and 1:
        of the whole message); OFFSET and TIMESTAMP (ms), as a consumer gets them; KEY, KEY_BYTES, VALUE, VALUE_BYTES,
        positions and lengths of the contents, with a length of -1 for null; HEADERS, the position of the first header,
        after their count, and HEADER_COUNT. It is valid as long as ``octets``.
    """

    buffer: memoryview
    headers: BatchHeaders
    octets: Octets
    batch_ends: Int64s
    table: Int64s

    def __len__(self) -> int:
        return len(self.headers)


def record_spans(
    buffer: memoryview, headers: BatchHeaders, *, limits: DecodeLimits = LIMITS, progress: SpanProgress | None = None
) -> Iterator[RecordSpans]:
    """Find the parts of all records of whole batches, including control batches.

    Parameters
    ----------
    buffer : memoryview, shape (n_bytes,)
        Bytes of a ``.log`` file, from a batch boundary on.
    headers : BatchHeaders, length n_batches
        The headers from `scan_headers` over the same buffer.
    limits : DecodeLimits
        The limits on a piece, ``chunk_bytes``, and on a batch.
    progress : SpanProgress, optional
        The progress of the read that this is a part of; it is updated.

    Yields
    ------
    RecordSpans
        Consecutive batches. Every batch, even one without records, is in one of the results.

    Raises
    ------
    CorruptBatchError
        See `sparklog.record.decode.columns.decode_batches`, which checks the same; all batches before the damaged one
        have been yielded by then.
    """
    progress = SpanProgress() if progress is None else progress
    # The kernels write the base offsets of wrappers into the table, which belongs to the caller.
    headers = replace(headers, table=headers.table.copy())
    spanning = _Spanning(buffer, headers, progress)
    for run in runs(headers):
        is_compressed = bool(headers[run].codec_ids.any())
        for step in steps(
            buffer, headers, run, limits.decompressed_bytes_max, limits.chunk_bytes, is_compressed=is_compressed
        ):
            for rows in _pieces(headers, step, limits.chunk_bytes):
                yield from spanning.spans_of(step, rows)


def _pieces(headers: BatchHeaders, step: Step, chunk_bytes: int) -> Iterator[slice]:
    """Cut the rows of a step into pieces of ``chunk_bytes``; decompressed batches are one piece already."""
    if len(step.spans):
        yield step.rows
        return
    ends = np.cumsum(headers.column("batch_bytes")[step.rows])
    first, rows = 0, len(ends)
    while first < rows:
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + chunk_bytes, side="right")))
        yield slice(step.rows.start + first, step.rows.start + end)
        first = end


class _Spanning:
    """The state of one call of `record_spans`."""

    def __init__(self, buffer: memoryview, headers: BatchHeaders, progress: SpanProgress) -> None:
        self._buffer, self._headers, self._progress = buffer, headers, progress
        self._nothing = _no_columns()
        self._cursor = np.zeros(kernels.CURSOR_FIELDS, dtype=np.int64)
        self._cursor[kernels.LAST_OFFSET_DONE] = progress.next_offset - 1
        self._cursor[kernels.EXCESS_END] = OFFSET_MAX
        self._memory = np.empty(_CHUNK_RECORDS * SPAN_FIELDS, dtype=np.int64)

    def spans_of(self, step: Step, rows: slice) -> Iterator[RecordSpans]:
        """Yield the spans of some batches of a step; if one is damaged, only those before it, and then raise."""
        is_v2 = bool(self._headers.column("magic")[rows.start] == 2)
        span = kernels_spans.span_records if is_v2 else kernels_spans.span_messages
        numbers = self._memory_of(self._records_max(step, rows, is_v2=is_v2))
        batch_ends = np.zeros(rows.stop - rows.start, dtype=np.int64)
        self._cursor[kernels.BATCH] = rows.start
        status = span(
            step.octets,
            self._headers.numbers,
            step.spans[rows.start - step.rows.start :],
            rows.start,
            rows.stop,
            self._headers.origin,
            not step.is_checked,
            self._cursor,
            self._nothing,
            kernels_spans.Taken(numbers, np.zeros(kernels_spans.STATE_FIELDS, dtype=np.int64)),
            batch_ends,
        )
        done = int(self._cursor[kernels.BATCH]) - rows.start
        if done:
            self._progress.next_offset = int(self._cursor[kernels.LAST_OFFSET_DONE]) + 1
            batch_ends = batch_ends[:done]
            table = numbers.reshape(-1, SPAN_FIELDS)[: batch_ends[-1]]
            yield RecordSpans(
                self._buffer, self._headers[rows.start : rows.start + done], step.octets, batch_ends, table
            )
        if status != kernels.OK:
            raise failure_of(step, self._headers, rows.start + done, status)

    def _records_max(self, step: Step, rows: slice, *, is_v2: bool) -> int:
        """Return how many records the batches can have: at most what their headers say and their bytes can hold."""
        batches = self._headers[rows]
        sizes = np.diff(step.spans).ravel() if len(step.spans) else batches.column("batch_bytes")
        possible = sizes // (RECORD_BYTES_MIN if is_v2 else MESSAGE_BYTES_MIN[0])
        counts = batches.column("record_count")
        return int(np.where(counts < 0, possible, np.minimum(counts, possible)).sum())

    def _memory_of(self, records: int) -> Int64s:
        if records * SPAN_FIELDS > len(self._memory):
            self._memory = np.empty(records * SPAN_FIELDS, dtype=np.int64)
        return self._memory


def _no_columns() -> kernels.Output:
    int64s, int32s, octets = (np.empty(0, dtype=kind) for kind in (np.int64, np.int32, np.uint8))
    strings = kernels.Strings(int32s, octets, octets)
    return kernels.Output(int64s, int64s, int32s, int32s, strings, strings, strings, strings)
