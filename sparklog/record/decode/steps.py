"""Cuts batches into steps; one call of a kernel walks through the bytes of a step.

Uncompressed batches are walked in place. The others are checked and decompressed a few at a time, so that the bytes are
still in the processor's cache when a kernel reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError
from sparklog.record.batches import checksums
from sparklog.record.batches.wrappers import wrapped
from sparklog.record.codecs.many_streams import many_into
from sparklog.record.codecs.table import (
    TARGET_TOO_SMALL,
    DecompressInto,
    copy_into,
    decompressor,
    decompressor_into,
    to_corrupt_error,
)
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import scan as kernels

_CHUNK_SLACK_BYTES: Final = 1 << 18
_MANY_STREAMS: Final = 5
_NO_SPANS: Final = np.empty((0, 2), dtype=np.int64)


def sound_rows(buffer: memoryview, headers: BatchHeaders, run: slice) -> tuple[slice, CorruptBatchError | None]:
    """Return the rows before the first batch whose checksum is wrong, and the error to raise after them."""
    good, found = checksums.first_wrong(np.frombuffer(buffer, np.uint8), headers[run])
    row = run.start + good
    if row == run.stop:
        return run, None
    if found < 0:
        return slice(run.start, row), corrupt(headers, row, kernels.REASONS[kernels.OUTSIDE])
    name = "CRC-32C" if headers.column("magic")[row] == 2 else "CRC-32"
    reason = f"{name} is {found:08x}, the batch says {headers.column('crc')[row]:08x}"
    return slice(run.start, row), corrupt(headers, row, reason)


def corrupt(headers: BatchHeaders, row: int, reason: str) -> CorruptBatchError:
    """Return the error for a batch, with its position and offset."""
    return _located(headers, row, CorruptBatchError(reason))


def _located(headers: BatchHeaders, row: int, error: CorruptBatchError) -> CorruptBatchError:
    batch = headers.table[row]
    return error.located(position=int(batch["position"]), offset=int(batch["base_offset"]))


def runs(headers: BatchHeaders) -> Iterator[slice]:
    """Cut the batches into runs of magic 2 and of magic 0 or 1."""
    modern = headers.column("magic") == 2
    borders = [0, *(np.flatnonzero(modern[1:] != modern[:-1]) + 1).tolist(), len(headers)]
    for start, end in pairwise(borders):
        if start < end:
            yield slice(start, end)


@dataclass(frozen=True)
class Step:
    """Batches whose records one call of a kernel can walk through.

    Attributes
    ----------
    rows : slice
        Their rows in the table of headers.
    octets : uint8 array
        The bytes that hold their records.
    spans : int64 array, shape (n_batches, 2)
        The positions in ``octets`` at which the records of each batch begin and end; for magic 0 or 1, the whole
        message. Empty if ``octets`` is the log itself: then the positions are in the table.
    is_checked : bool
        Whether checksums have been verified. If not, ``octets`` has headers before records, and the kernel verifies
        them.
    """

    rows: slice
    octets: Octets
    spans: Int64s
    is_checked: bool


def steps(
    buffer: memoryview, headers: BatchHeaders, run: slice, limit_bytes: int, chunk_bytes: int, *, is_compressed: bool
) -> Iterator[Step]:
    """Cut a run of batches, all or none of magic 2, into steps.

    Parameters
    ----------
    buffer : memoryview
        The bytes that the headers were read from.
    run : slice
        The run's rows in the table of headers.
    limit_bytes : int
        The largest decompressed size of a batch; others are refused.
    chunk_bytes : int
        The bytes of batches that are decompressed together.
    is_compressed : bool
        Whether any of the batches is compressed.

    Yields
    ------
    Step
        A step. Its bytes are valid until the next one is requested: the memory of decompressed batches is reused.

    Raises
    ------
    CorruptBatchError
        A batch has a wrong checksum, or cannot be decompressed; the batches before it have been yielded.
    """
    if run.start == run.stop:
        return
    if is_compressed:
        sound, failure = sound_rows(buffer, headers, run)
        yield from _decompressed(buffer, headers, sound, limit_bytes, chunk_bytes)
        if failure is not None:
            raise failure
        return
    is_v2, failure = headers.column("magic")[run.start] == 2, None
    is_checked = is_v2 and not checksums.IN_KERNELS
    if is_checked:
        run, failure = sound_rows(buffer, headers, run)
    yield Step(run, np.frombuffer(buffer, np.uint8), _NO_SPANS, is_checked=is_checked)
    if failure is not None:
        raise failure


def _decompressed(
    buffer: memoryview, headers: BatchHeaders, run: slice, limit_bytes: int, chunk_bytes: int
) -> Iterator[Step]:
    """Decompress some batches at a time; if one cannot be decompressed, the batches before it become a step."""
    if run.start == run.stop:
        return
    pieces = _Pieces(buffer, headers[run])
    # Memory that is never written costs nothing; a bytearray would be filled with zeros.
    target = np.empty(chunk_bytes + _CHUNK_SLACK_BYTES, dtype=np.uint8)
    borders, first, row = [0], run.start, run.start
    while row < run.stop:
        alone, failure = None, None
        # A batch that fits the target cannot be above a limit that is above the target.
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
                # Each library raises its own errors, and none of them contains the bytes' position in the log. The
                # frames of a traceback would hold all that was decompressed, for as long as somebody has the error.
                failure = error.with_traceback(None)
            row += 1
        if failure or alone is not None or borders[-1] >= chunk_bytes or row == run.stop:
            if len(borders) > 1:
                yield _step_of(first, target, borders)
            borders, first = [0], row
        if failure:
            raise _located(headers, row - 1, to_corrupt_error(failure, int(headers.codec_ids[row - 1]))) from failure
        if alone is not None:
            yield _step_of(row - 1, np.frombuffer(alone, np.uint8), [0, len(alone)])


class _Pieces:
    """Pieces of batches to decompress: their positions, and the functions that decompress them.

    If the batches are of magic 2, a piece is the records of one batch; otherwise it is a whole message.
    """

    def __init__(self, buffer: memoryview, batches: BatchHeaders) -> None:
        self._buffer, self._magics = buffer, batches.column("magic")
        self._octets = np.frombuffer(buffer, np.uint8)
        self._starts = batches.column("position") - batches.origin
        self._ends = self._starts + batches.column("batch_bytes")
        self._are_v2 = bool(self._magics[0] == 2)
        if self._are_v2:
            self._starts += v2.HEADER_BYTES
        # A batch without records needs no decompression, whatever its codec.
        self._codec_ids = np.where(batches.column("record_count") == 0, 0, batches.codec_ids)
        borders = np.flatnonzero(np.diff(self._codec_ids, append=-1)) + 1
        # For each piece, the row of the next one with another codec.
        self._run_ends = borders[np.searchsorted(borders, np.arange(len(self._starts)), side="right")]

    def take_many(self, row: int, target: Octets, filled: int, full_bytes: int) -> list[int]:
        """Decompress consecutive pieces into a target, after its filled part, as many as one call can take.

        Returns
        -------
        list of int
            How many bytes of the target are filled after each piece that was taken.
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
        """Return the function that writes the decompressed messages of one piece into a target."""
        codec_id = int(self._codec_ids[row])
        if codec_id == 0:
            return lambda message, target, _: copy_into(message, target)
        decompress = decompressor_into(codec_id, int(self._magics[row]))
        return lambda message, target, limit_bytes: decompress(wrapped(message), target, limit_bytes)

    def records(self, row: int, limit_bytes: int) -> bytes | bytearray | memoryview:
        """Return the decompressed bytes of one piece: records, or messages."""
        data, codec_id = self._buffer[self._starts[row] : self._ends[row]], int(self._codec_ids[row])
        if codec_id == 0:
            return data
        decompress = decompressor(codec_id, int(self._magics[row]))
        return decompress(data if self._are_v2 else wrapped(data), limit_bytes)


def _step_of(first: int, octets: Octets, borders: list[int]) -> Step:
    ends = np.array(borders, dtype=np.int64)
    spans = np.empty((len(borders) - 1, 2), dtype=np.int64)
    spans[:, 0], spans[:, 1] = ends[:-1], ends[1:]
    return Step(slice(first, first + len(spans)), octets, spans, is_checked=True)


def failure_of(step: Step, headers: BatchHeaders, row: int, status: int) -> CorruptBatchError:
    """Return the error for a batch in which a kernel has found a fault, from the status that it returned."""
    if status == kernels.WRONG_CRC and not step.is_checked:
        _, failure = sound_rows(step.octets.data, headers, slice(row, row + 1))
        if failure is not None:
            return failure
    return corrupt(headers, row, kernels.REASONS[status])
