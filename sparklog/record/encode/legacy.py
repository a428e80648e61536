"""Encodes Arrow columns as messages of magic 0 and 1, or as wrappers of them.

For magic 2 see `sparklog.record.encode.batches`, for the layout of a message `sparklog.record.format.legacy`. An
uncompressed message is a batch by itself, and ``batch_bytes_max`` bounds its size. Wrappers are cut like batches: by
the bytes of their messages, and in halves if they are still too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError, RecordTooLargeError
from sparklog.record.batches.framing import scan_headers
from sparklog.record.batches.wrappers import wrapper
from sparklog.record.encode.batches import BatchSettings, EncodedBatches, RecordFields, fields_of
from sparklog.record.format import v2
from sparklog.record.format.legacy import MESSAGE_BYTES_MIN
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import encode as rows_of
from sparklog.record.kernels.convert import write_messages


def encode_messages(
    columns: pa.RecordBatch, settings: BatchSettings, row_ends: Int64s, base_offsets: Int64s
) -> tuple[EncodedBatches, list[int]]:
    """Encode the records of several logs as messages of magic 0 or 1.

    Parameters
    ----------
    columns, settings, row_ends, base_offsets
        See `sparklog.record.encode.batches.encode_logs`.

    Returns
    -------
    (EncodedBatches, list of int)
        See `encode_logs`.

    Raises
    ------
    InvalidOptionError, RecordTooLargeError
        See `sparklog.record.encode.batches.encode_logs`; or a record has headers.
    """
    fields = fields_of(columns)
    _refuse_headers(fields, settings)
    logs = np.searchsorted(row_ends, np.arange(len(fields)), side="right")
    offsets: Int64s = np.arange(len(fields)) + (base_offsets - np.concatenate(([0], row_ends[:-1])))[logs]
    encoder = _Encoder(fields, offsets, settings)
    if settings.codec == "none":
        encoder.refuse_long_messages()
        return _described(encoder.messages(0, len(fields), 0), None), row_ends.tolist()
    wrappers = [list(encoder.wrappers(first, end)) for first, end in pairwise((0, *row_ends.tolist()))]
    made = [each for of_log in wrappers for each in of_log]
    data = memoryview(bytearray().join(each.data for each in made))
    firsts = np.array([each.first_row for each in made], dtype=np.int64)
    return _described(data, offsets[firsts]), np.cumsum([len(of_log) for of_log in wrappers]).tolist()


def _refuse_headers(fields: RecordFields, settings: BatchSettings) -> None:
    has_headers = fields.records[rows_of.END_HEADER] > fields.records[rows_of.FIRST_HEADER]
    if has_headers.any():
        raise InvalidOptionError(
            f"row {int(has_headers.argmax())} has headers, and format {settings.magic} has no room for them: leave "
            f"headers out, or give a message.format.version of 0.11.0 or later"
        )


def _described(data: memoryview, base_offsets: Int64s | None) -> EncodedBatches:
    """Add the headers of batches; with base offsets, which wrappers need, set these and the record counts."""
    headers = scan_headers(data)
    if base_offsets is not None:
        table = headers.table
        table["base_offset"] = table["lowest_offset"] = base_offsets
        table["record_count"] = table["last_offset"] - base_offsets + 1
    return EncodedBatches(data, headers)


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A whole wrapper, and the row of its first message."""

    data: memoryview
    first_row: int


class _Encoder:
    """Encodes the records of one call, whose sizes it measures first.

    Parameters
    ----------
    offsets : int64 array, shape (n_records,)
        The offsets of the encoded records.
    """

    def __init__(self, fields: RecordFields, offsets: Int64s, settings: BatchSettings) -> None:
        self._fields, self._offsets, self._settings = fields, offsets, settings
        self._overhead_bytes = MESSAGE_BYTES_MIN[settings.magic]
        lengths = fields.records[[rows_of.KEY_LENGTH, rows_of.VALUE_LENGTH]]
        self._sizes: Int64s = np.maximum(lengths, 0).sum(axis=0) + self._overhead_bytes
        self._ends: Int64s = np.cumsum(self._sizes)
        self._times: Int64s = fields.records[rows_of.TIMESTAMP]
        self._attributes = 0
        if settings.append_time is not None:
            self._times = np.full(len(fields), settings.append_time)
            self._attributes = v2.LOG_APPEND_TIME

    def refuse_long_messages(self) -> None:
        """Raise if a single message is longer than a batch may be."""
        is_long = self._sizes > self._settings.batch_bytes_max
        if is_long.any():
            row = int(is_long.argmax())
            raise self._too_long(row, int(self._sizes[row]))

    def _too_long(self, row: int, size_bytes: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            f"row {row} makes a batch of {size_bytes} bytes alone, "
            f"and max.message.bytes is {self._settings.batch_bytes_max}"
        )

    def messages(self, first_row: int, end_row: int, base_offset: int) -> memoryview:
        """Return the messages of some rows, one after another.

        Parameters
        ----------
        first_row, end_row : int
            The range of rows.
        base_offset : int
            The base that the written offsets are relative to.
        """
        fields, settings = self._fields, self._settings
        out: Octets = np.empty(int(self._sizes[first_row:end_row].sum()), np.uint8)
        is_whole = write_messages(
            fields.records,
            fields.keys,
            fields.values,
            self._offsets,
            self._times,
            first_row,
            end_row,
            base_offset,
            settings.magic,
            self._attributes,
            out,
        )
        if not is_whole:
            raise AssertionError("messages were not as long as they were measured to be")
        return memoryview(out.data)

    def wrappers(self, first_row: int, end_row: int) -> Iterator[_Wrapper]:
        """Yield the wrappers of some rows, in order."""
        settings = self._settings
        messages_bytes_max = min(settings.batch_bytes - self._overhead_bytes, settings.decompressed_bytes_max)
        while first_row < end_row:
            done_bytes = int(self._ends[first_row] - self._sizes[first_row])
            fitting = int(np.searchsorted(self._ends, done_bytes + messages_bytes_max, side="right"))
            border = min(max(fitting, first_row + 1), end_row)
            self._refuse_unreadable(first_row, border)
            yield from self._wrapped(first_row, border)
            first_row = border

    def _refuse_unreadable(self, first_row: int, end_row: int) -> None:
        """Raise if no reader with the same limit would decompress a single record."""
        bytes_max, size_bytes = self._settings.decompressed_bytes_max, int(self._sizes[first_row])
        if end_row == first_row + 1 and size_bytes > bytes_max:
            raise RecordTooLargeError(
                f"row {first_row} has {size_bytes} bytes before it is compressed, "
                f"and max.decompressed.message.bytes is {bytes_max}"
            )

    def _wrapped(self, first_row: int, end_row: int) -> Iterator[_Wrapper]:
        """Yield one wrapper of some rows, or several if it would be too long."""
        settings, last_row = self._settings, end_row - 1
        base_offset = int(self._offsets[first_row]) if settings.magic == 1 else 0
        data = wrapper(
            self.messages(first_row, end_row, base_offset),
            magic=settings.magic,
            codec=settings.codec,
            level=settings.level,
            offset=int(self._offsets[last_row]),
            timestamp=max(-1, int(self._times[first_row:end_row].max())),
            is_append_time=settings.append_time is not None,
        )
        if len(data) <= settings.batch_bytes_max:
            yield _Wrapper(data, first_row)
            return
        if first_row == last_row:
            raise self._too_long(first_row, len(data))
        middle = (first_row + end_row) // 2
        yield from self._wrapped(first_row, middle)
        yield from self._wrapped(middle, end_row)
