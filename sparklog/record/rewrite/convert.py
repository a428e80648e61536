"""Converts batches to another format: records become messages of magic 0 or 1, or messages become records of magic 2.

Records keep their offsets, keys and values, and all else that the new format has room for. Uncompressed messages stand
alone; adjacent ones are put together when they become batches of magic 2 or go into wrappers. A batch of magic 2
becomes one wrapper, or messages that stand alone. Conversion to magic 0 and 1 loses headers, producers with their
sequence numbers, control batches and empty batches, and in magic 0 timestamps. `losses` counts them.

Source: apache/kafka, RecordsUtil.java, MemoryRecordsBuilder.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from sparklog.record.batches.wrappers import wrapper
from sparklog.record.codecs.table import CODEC_IDS, codec_name, refuse_codec
from sparklog.record.decode.where_program import Mask
from sparklog.record.format import v2
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels import convert as kernels
from sparklog.record.kernels import rewrite as sealing
from sparklog.record.kernels.spans import END, HEADER_COUNT, OFFSET, START, TIMESTAMP
from sparklog.record.rewrite.batches import rewritten
from sparklog.record.rewrite.changes import Changes
from sparklog.record.rewrite.matching import is_data
from sparklog.record.rewrite.new_batches import compressed, sealed
from sparklog.record.rewrite.spans import RecordSpans

GROUP_BYTES: Final = 16_384
"""The approximate most bytes of messages that are put together: the default of Kafka's ``batch.size``."""

_DELTA_MAX: Final = (1 << 31) - 1
_NO_EPOCH: Final = -1


@dataclass(frozen=True)
class Losses:
    """Counts of the things that a conversion loses.

    Attributes
    ----------
    headers, timestamps, sequences : int
        How many records lose each.
    control_batches, empty_batches : int
        How many of each are dropped; with markers, their transactions are lost, too.
    """

    headers: int = 0
    timestamps: int = 0
    sequences: int = 0
    control_batches: int = 0
    empty_batches: int = 0

    def __add__(self, other: Losses) -> Losses:
        return Losses(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Losses)))

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(Losses))

    def __str__(self) -> str:
        counts = ((getattr(self, each.name), each.name.replace("_", " ")) for each in fields(Losses))
        return ", ".join(f"{count} {name}" for count, name in counts if count)


def losses(spans: RecordSpans, magic: int | None) -> Losses:
    """Count the losses of converting batches to a format; None is their own format."""
    headers = spans.headers
    if magic is None or magic == 2 or not len(headers):
        return Losses()
    counts, is_of_data = np.diff(spans.batch_ends, prepend=0), is_data(spans)
    has_time = is_of_data & (spans.table[:, TIMESTAMP] != -1)
    return Losses(
        headers=int((spans.table[is_of_data, HEADER_COUNT] > 0).sum()),
        timestamps=int(has_time.sum()) if magic == 0 else 0,
        sequences=int(counts[(headers.column("producer_id") >= 0) & ~headers.is_control].sum()),
        control_batches=int(headers.is_control.sum()),
        empty_batches=int(((counts == 0) & ~headers.is_control).sum()),
    )


def converted(
    spans: RecordSpans, magic: int | None, codec: str | None, level: int | None = None, keep: Mask | None = None
) -> Iterator[memoryview]:
    """Convert batches to another format or codec.

    Parameters
    ----------
    spans : RecordSpans
        The batches, of magic 2 or of magic 0 and 1.
    magic : int or None
        The new format; None keeps the format of each batch.
    codec : str or None
        Kafka's name of the new codec; None keeps the codec of each batch.
    level : int, optional
        The level of the codec; the codec's default if None.
    keep : bool array, shape (n_records,), optional
        Whether each record stays if the format changes to magic 0 or 1.

    Yields
    ------
    memoryview
        Whole batches, in order; unchanged ones are a part of ``spans.buffer``.

    Raises
    ------
    InvalidOptionError
        Magic 0 and 1 do not have the codec.
    """
    magics = spans.headers.column("magic")
    for rows in _runs(magics):
        part = _part(spans, rows)
        is_legacy = int(magics[rows.start]) < 2
        target = int(magics[rows.start]) if magic is None else magic
        if target == magics[rows.start] and not (is_legacy and _needs_new_wrappers(part, codec)):
            yield from rewritten(part, Changes(codec=codec, level=level))
        elif target == 2:
            yield from _to_batches(part, codec, level)
        else:
            stays = is_data(part)
            if keep is not None:
                stays &= keep[slice(*_records_of(spans, rows))]
            yield from _to_messages(part if stays.all() else _without(part, stays), target, codec, level)


def _runs(magics: Int64s) -> Iterator[slice]:
    borders = [0, *(np.flatnonzero(np.diff(magics)) + 1).tolist(), len(magics)]
    for place in range(len(borders) - 1):
        if borders[place] < borders[place + 1]:
            yield slice(borders[place], borders[place + 1])


def _records_of(spans: RecordSpans, rows: slice) -> tuple[int, int]:
    return (int(spans.batch_ends[rows.start - 1]) if rows.start else 0), int(spans.batch_ends[rows.stop - 1])


def _part(spans: RecordSpans, rows: slice) -> RecordSpans:
    first, end = _records_of(spans, rows)
    return replace(
        spans, headers=spans.headers[rows], batch_ends=spans.batch_ends[rows] - first, table=spans.table[first:end]
    )


def _without(spans: RecordSpans, keep: Mask) -> RecordSpans:
    sums = np.concatenate(([0], np.cumsum(keep, dtype=np.int64)))
    return replace(spans, batch_ends=sums[spans.batch_ends], table=np.ascontiguousarray(spans.table[keep]))


def _needs_new_wrappers(spans: RecordSpans, codec: str | None) -> bool:
    """Return whether messages must go into wrappers, or come out of them."""
    if codec is None:
        return False
    is_plain = spans.headers.codec_ids == 0
    return bool((~is_plain).any() if codec == "none" else is_plain.any())


@dataclass(frozen=True)
class _Unit:
    """Records that become one batch or wrapper: rows of the table, with attributes of their old batch."""

    first_row: int
    end_row: int
    codec_id: int
    timestamp_type: int
    max_timestamp: int


def _units(spans: RecordSpans) -> list[_Unit]:
    """Group the records that become one batch: a batch's records, or adjacent plain messages."""
    headers, table = spans.headers, spans.table
    units: list[_Unit] = []
    first, is_open = 0, False
    columns = (headers.codec_ids, headers.timestamp_types, headers.column("max_timestamp"), headers.column("magic"))
    rows = zip(spans.batch_ends.tolist(), *(column.tolist() for column in columns), strict=True)
    for end, codec_id, timestamp_type, max_timestamp, magic in rows:
        is_plain = magic < 2 and codec_id == 0
        last = units[-1] if units else None
        if (
            last is not None
            and is_open
            and is_plain
            and last.timestamp_type == timestamp_type
            and (timestamp_type != 1 or last.max_timestamp == max_timestamp)
            and table[end - 1, END] - table[last.first_row, START] <= GROUP_BYTES
            and table[end - 1, OFFSET] - table[last.first_row, OFFSET] <= _DELTA_MAX
        ):
            units[-1] = replace(last, end_row=end)
        elif first < end:
            units += _cut(table, _Unit(first, end, codec_id, timestamp_type, max_timestamp))
        first, is_open = end, is_plain
    return units


def _cut(table: Int64s, unit: _Unit) -> list[_Unit]:
    """Cut a unit into several if its offsets are too far apart for one batch."""
    units = []
    while int(table[unit.end_row - 1, OFFSET]) - int(table[unit.first_row, OFFSET]) > _DELTA_MAX:
        offsets = table[unit.first_row : unit.end_row, OFFSET]
        border = unit.first_row + int(np.searchsorted(offsets, int(offsets[0]) + _DELTA_MAX, side="right"))
        units.append(replace(unit, end_row=border))
        unit = replace(unit, first_row=border)
    return [*units, unit]


def _table_of(units: list[_Unit]) -> Int64s:
    numbers = np.zeros((len(units), kernels.UNIT_FIELDS), dtype=np.int64)
    numbers[:, kernels.FIRST_ROW] = [unit.first_row for unit in units]
    numbers[:, kernels.END_ROW] = [unit.end_row for unit in units]
    return numbers


def _room(spans: RecordSpans, units: int, gap_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    records_bytes = int((spans.table[:, END] - spans.table[:, START] + sealing.NEW_BYTES_MAX).sum())
    return np.empty(records_bytes + (gap_bytes + sealing.NEW_BYTES_MAX) * units, np.uint8)


def _to_batches(spans: RecordSpans, codec: str | None, level: int | None) -> list[memoryview]:
    """Make batches of magic 2, without producer and leader epoch, from messages."""
    units, table = _units(spans), spans.table
    if not units:
        return []
    numbers = _table_of(units)
    first, last = numbers[:, kernels.FIRST_ROW], numbers[:, kernels.END_ROW] - 1
    numbers[:, kernels.BASE_OFFSET], numbers[:, kernels.BASE_TIMESTAMP] = table[first, OFFSET], table[first, TIMESTAMP]
    out = _room(spans, len(units), v2.HEADER_BYTES)
    if not kernels.convert_records(spans.octets, table, numbers, v2.HEADER_BYTES, out):
        raise AssertionError("records were not where they were found")
    codec_ids = np.array([unit.codec_id for unit in units]) if codec is None else np.full(len(units), CODEC_IDS[codec])
    places = numbers[:, [kernels.UNIT_START, kernels.UNIT_END]]
    batches, starts, ends = compressed(out, places, codec_ids, level)
    is_append_time = np.array([unit.timestamp_type == 1 for unit in units])
    latest = np.maximum(np.maximum.reduceat(table[:, TIMESTAMP], first), -1)
    seals = np.full((len(units), sealing.REWRITTEN_SEAL_FIELDS), _NO_EPOCH, dtype=np.int64)
    seals[:, sealing.SEAL_START], seals[:, sealing.SEAL_END] = starts, ends
    seals[:, sealing.SEAL_ATTRIBUTES] = codec_ids | np.where(is_append_time, v2.LOG_APPEND_TIME, 0)
    seals[:, sealing.SEAL_OFFSET] = numbers[:, kernels.BASE_OFFSET]
    seals[:, sealing.SEAL_DELTA] = table[last, OFFSET] - table[first, OFFSET]
    seals[:, sealing.SEAL_BASE_TIMESTAMP] = numbers[:, kernels.BASE_TIMESTAMP]
    seals[:, sealing.SEAL_MAX_TIMESTAMP] = np.where(is_append_time, [unit.max_timestamp for unit in units], latest)
    seals[:, sealing.SEAL_COUNT] = numbers[:, kernels.END_ROW] - first
    return sealed(batches, seals)


def _to_messages(spans: RecordSpans, magic: int, codec: str | None, level: int | None) -> list[memoryview]:
    """Make messages of magic 0 or 1, or wrappers of them, from records or other messages."""
    units, table = _units(spans), spans.table
    if not units:
        return []
    numbers = _table_of(units)
    codecs = [codec_name(unit.codec_id) if codec is None else codec for unit in units]
    for each in set(codecs):
        refuse_codec(each, magic)
    is_relative = np.array([magic == 1 and each != "none" for each in codecs])
    is_append_time = np.array([magic == 1 and unit.timestamp_type == 1 for unit in units])
    numbers[:, kernels.BASE_OFFSET] = np.where(is_relative, table[numbers[:, kernels.FIRST_ROW], OFFSET], 0)
    numbers[:, kernels.ATTRIBUTES] = np.where(is_append_time, v2.LOG_APPEND_TIME, 0)
    out = _room(spans, len(units), 0)
    if not kernels.convert_messages(spans.octets, table, numbers, magic, out):
        raise AssertionError("records were not where they were found")
    octets, made = memoryview(out.data), []
    for unit, row, name in zip(units, numbers.tolist(), codecs, strict=True):
        messages = octets[row[kernels.UNIT_START] : row[kernels.UNIT_END]]
        if name != "none":
            times = table[unit.first_row : unit.end_row, TIMESTAMP]
            messages = wrapper(
                messages,
                magic=magic,
                codec=name,
                level=level,
                offset=int(table[unit.end_row - 1, OFFSET]),
                timestamp=unit.max_timestamp if unit.timestamp_type == 1 else max(-1, int(times.max())),
                is_append_time=magic == 1 and unit.timestamp_type == 1,
            )
        made.append(messages)
    return made
