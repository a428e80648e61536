"""Allocates the memory of Arrow columns, which the kernels fill, and makes the record columns from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.record.codecs.table import codec_name
from sparklog.record.format import v2
from sparklog.record.format.arrays import array_of, array_of_texts, numbers_of
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.schema import RECORD_COLUMNS, RECORD_SCHEMA
from sparklog.record.kernels import scan as kernels

Integers = np.ndarray[Any, np.dtype[np.integer[Any]]]

ROWS_MAX: Final = 1 << 16
"""The most rows of an Arrow batch."""

RECORD_HEADERS_MAX: Final = 1 << 16
"""The most record headers of an Arrow batch, unless a single record has more."""
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
BYTES_WITHOUT_END: Final = 1 << 62
"""The limit on an Arrow batch's bytes if no bytes are copied."""

_ALIGNMENT_BYTES: Final = 64
_STRINGS: Final = ("key", "value", "name", "content")
_NOTHING: Final = kernels.Strings(np.zeros(1, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.uint8))
_CODEC_NAMES: Final = array_of_texts([codec_name(codec_id) for codec_id in range(v2.CODEC_MASK + 1)])


def wanted_bits(names: Collection[str]) -> int:
    """Return the bits KEYS, VALUES and HEADERS, as far as columns of these names need them."""
    return sum(bit for name, bit in _WANTED_BITS.items() if name in names)


class _ArrowMemory:
    """An Arrow buffer that a kernel fills as an array; `take` cuts it to the filled part.

    It comes from Arrow's memory pool, which, unlike numpy, reuses its pages.
    """

    def __init__(self, kind: type[np.generic], count: int) -> None:
        self._buffer = pa.allocate_buffer(count * np.dtype(kind).itemsize, resizable=True)
        self.array: np.ndarray[Any, Any] = np.frombuffer(self._buffer, dtype=kind)

    def take(self, count: int) -> pa.Buffer:
        """Return the first ``count`` items; the array must not be used afterwards."""
        taken_bytes = count * self.array.itemsize
        # A buffer that is nearly full keeps its spare bytes, but a few rows must not hold the memory of many.
        self._buffer.resize(taken_bytes, shrink_to_fit=2 * taken_bytes < self._buffer.size)
        return self._buffer


class _Numbers:
    """Several columns of numbers in one Arrow buffer; `take` cuts each to its filled part.

    Each begins at a multiple of 64 bytes, as Arrow recommends. Allocating a buffer for each would take longer.
    """

    def __init__(self, *kinds: type[np.generic], count: int) -> None:
        self._kinds, self._count = kinds, count
        sizes_bytes = [-(-count * np.dtype(kind).itemsize // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for kind in kinds]
        self._starts = [0, *accumulate(sizes_bytes)]
        self._buffer = pa.allocate_buffer(self._starts.pop())
        octets = np.frombuffer(self._buffer, np.uint8)
        self.arrays = [
            octets[start : start + size].view(kind)[:count]
            for start, size, kind in zip(self._starts, sizes_bytes, kinds, strict=True)
        ]

    def take(self, place: int, count: int) -> pa.Buffer:
        """Return the first ``count`` numbers of the column with an index."""
        array = self.arrays[place]
        # A few rows must not hold the memory of many.
        if 2 * count < self._count:
            return pa.py_buffer(array[:count].copy())
        return self._buffer.slice(self._starts[place], count * array.itemsize)


class _StringMemory:
    """The memory of a column of byte strings: their bytes, which of them are null, and the caller's Arrow offsets."""

    def __init__(self, count: int, bytes_max: int, numbers: _Numbers, place: int) -> None:
        self._numbers, self._place, self._data = numbers, place, _ArrowMemory(np.uint8, bytes_max)
        self.strings = kernels.Strings(numbers.arrays[place], self._data.array, np.ones(count, np.uint8))
        self.strings.offsets[0] = 0

    def take(self, count: int, kind: pa.DataType) -> pa.Array:
        """Return the first ``count`` strings; the arrays must not be used afterwards."""
        valid = self.strings.valid[:count]
        data = self._data.take(int(self.strings.offsets[count]))
        validity = None if valid.view(np.bool_).all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(kind, count, [validity, self._numbers.take(self._place, count + 1), data])


class ColumnBuffers:
    """The columns that a kernel fills; only the wanted ones have memory.

    Attributes
    ----------
    output : kernels.Output
        The arrays, as a kernel takes them.
    wanted : int
        The bits KEYS, VALUES and HEADERS of the wanted columns.
    bytes_max : int
        The most bytes of records that fit the columns.

    Notes
    -----
    Few records have headers, so ``headers_max`` may be 0, and then there is no memory for headers.
    """

    def __init__(self, names: Collection[str], rows_max: int, bytes_max: int, headers_max: int) -> None:
        self.wanted = wanted_bits(names)
        self.bytes_max = bytes_max if self.wanted else BYTES_WITHOUT_END
        strings = [name for name in ("key", "value") if name in names]
        has_lists = bool(headers_max and self.wanted & kernels.HEADERS)
        # Arrow has one offset more than strings or lists.
        self._numbers = _Numbers(np.int64, np.int64, *[np.int32] * (len(strings) + has_lists), count=rows_max + 1)
        offsets, timestamps, *int32s = self._numbers.arrays
        self._strings = {
            name: _StringMemory(rows_max, bytes_max, self._numbers, place) for place, name in enumerate(strings, 2)
        }
        if has_lists:
            int32s[-1][0] = 0
            for name in ("name", "content"):
                self._strings[name] = _StringMemory(
                    headers_max, bytes_max, _Numbers(np.int32, count=headers_max + 1), 0
                )
        self._batches = _ArrowMemory(np.int32, rows_max)
        self._pieces: list[tuple[int, BatchPiece]] = []
        self.output = kernels.Output(
            offsets[:rows_max],
            timestamps[:rows_max],
            self._batches.array,
            int32s[-1] if has_lists else _NOTHING.offsets[:0],
            *(self._strings[name].strings if name in self._strings else _NOTHING for name in _STRINGS),
        )

    def begin(self, piece: BatchPiece, row: int) -> None:
        """Note that the records from a row on belong to another piece, and their batches to its table of headers."""
        self._pieces.append((row, piece))

    def take(self, count: int) -> DecodedRecords:
        """Return the first ``count`` rows; the object must not be used afterwards."""
        strings: dict[str, pa.Array] = {}
        for name in ("key", "value"):
            if name in self._strings:
                strings[name] = self._strings[name].take(count, pa.binary())
        if self.wanted & kernels.HEADERS:
            strings["headers"] = self._take_headers(count)
        offsets = pa.Array.from_buffers(pa.int64(), count, [None, self._numbers.take(0, count)])
        timestamps = pa.Array.from_buffers(_TIMESTAMP, count, [None, self._numbers.take(1, count)])
        return DecodedRecords(self._take_runs(count), offsets, timestamps, strings)

    def _take_runs(self, count: int) -> list[_Run]:
        rows = [row for row, _ in self._pieces]
        ends = [*rows[1:], count]
        return [
            _Run(piece, self._batches.array[row:end])
            for (row, piece), end in zip(self._pieces, ends, strict=True)
            if row < end
        ]

    def _take_headers(self, count: int) -> pa.Array:
        """Build the lists of headers; a record without headers has null, as in Spark's connector."""
        kind = RECORD_SCHEMA.field("headers").type
        lists = self.output.lists[: count + 1]
        total = int(lists[count]) if len(lists) else 0
        if not total:
            return _no_headers(count)
        there = np.diff(lists) > 0
        validity = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
        names, contents = (
            self._strings["name"].take(total, pa.string()),
            self._strings["content"].take(total, pa.binary()),
        )
        pairs = pa.StructArray.from_arrays([_text(names), contents], fields=list(kind.value_type))
        offsets = self._numbers.take(len(self._numbers.arrays) - 1, count + 1)
        return pa.Array.from_buffers(kind, count, [validity, offsets], children=[pairs])


@dataclass(frozen=True)
class BatchPiece:
    """Batches that are decoded together.

    Attributes
    ----------
    headers : BatchHeaders
    timestamp_type : int or None
        The timestamp type of all the batches; None unless it is known to be the same.
    """

    headers: BatchHeaders
    timestamp_type: int | None


@lru_cache(maxsize=1)
def _nothing() -> tuple[pa.Buffer, pa.Array]:
    """Return the buffers for the headers of records without headers: zeros, and no pair of name and content."""
    pairs = pa.nulls(0, RECORD_SCHEMA.field("headers").type.value_type)
    return pa.py_buffer(bytes((ROWS_MAX + 1) * np.dtype(np.int32).itemsize)), pairs


def _no_headers(count: int) -> pa.Array:
    """Make the header column of records without headers, in shared memory."""
    zeros, pairs = _nothing()
    validity, offsets = zeros.slice(0, (count + 7) // 8), zeros.slice(0, (count + 1) * np.dtype(np.int32).itemsize)
    kind = RECORD_SCHEMA.field("headers").type
    return pa.Array.from_buffers(kind, count, [validity, offsets], null_count=count, children=[pairs])


def _text(names: pa.StringArray) -> pa.StringArray:
    """Replace the bytes that are not UTF-8, as Java does when it reads the name of a header."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_java_text(name) for name in names.cast(pa.binary()).to_pylist()], pa.string())
    return names


def _java_text(name: bytes) -> str:
    # Java replaces an encoded surrogate by one character, Python replaces each of its bytes.
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), name).decode("utf-8", "replace")


@dataclass(frozen=True)
class _Run:
    """Consecutive records of one piece; ``batches`` has the row of each record's batch in its table, ascending."""

    piece: BatchPiece
    batches: Integers

    def of_batch(self, number: Callable[[BatchHeaders], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return for each record its batch's number, which a function finds in a table of headers."""
        first, last = int(self.batches[0]), int(self.batches[-1])
        values = number(self.piece.headers[first : last + 1])
        if (values == values[0]).all():
            return np.full(len(self.batches), values[0], dtype=values.dtype)
        chosen: np.ndarray[Any, Any] = values[self.batches - first]
        return chosen


@dataclass(frozen=True)
class DecodedRecords:
    """Decoded records.

    Attributes
    ----------
    runs : list of _Run
        The batch of each record.
    offsets, timestamps : pyarrow.Array, length n_rows
    strings : dict of pyarrow.Array, length n_rows
        The columns ``key``, ``value`` and ``headers``, as far as they are wanted.
    """

    runs: list[_Run]
    offsets: pa.Array
    timestamps: pa.Array
    strings: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.offsets)

    def column(self, name: str) -> pa.Array:
        """Return a column of `RECORD_SCHEMA`."""
        return self.strings[name] if name in self.strings else _BUILDERS[name](self)

    def of_batch(self, number: Callable[[BatchHeaders], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return for each record its batch's number, which a function takes from a table of headers."""
        found = [run.of_batch(number) for run in self.runs]
        return found[0] if len(found) == 1 else np.concatenate(found)

    @property
    def timestamp_type(self) -> int | None:
        """The timestamp type of all the records; None unless it is known to be the same."""
        kinds = {run.piece.timestamp_type for run in self.runs}
        return kinds.pop() if len(kinds) == 1 else None


def _fixed(values: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


@lru_cache(maxsize=3)
def _one_timestamp_type(timestamp_type: int) -> pa.Array:
    return _fixed(np.full(ROWS_MAX, timestamp_type, dtype=np.int32), pa.int32())


def _timestamp_types(rows: DecodedRecords) -> pa.Array:
    if rows.timestamp_type is not None:
        return _one_timestamp_type(rows.timestamp_type).slice(0, len(rows))
    return _fixed(rows.of_batch(lambda headers: headers.timestamp_types.astype(np.int32)), pa.int32())


def _sequences(rows: DecodedRecords) -> pa.Array:
    base = rows.of_batch(lambda headers: headers.column("base_sequence"))
    delta = numbers_of(rows.offsets) - rows.of_batch(lambda headers: headers.column("base_offset"))
    return _fixed(np.where(base < 0, -1, (base + delta) & v2.SEQUENCE_MAX).astype(np.int32), pa.int32())


def _of_batch(name: str) -> Callable[[DecodedRecords], pa.Array]:
    """Return the builder of a column whose value is the same for all records of a batch."""
    kind = RECORD_SCHEMA.field(name).type
    numbers = np.dtype(str(kind))
    return lambda rows: _fixed(rows.of_batch(lambda headers: headers.column(name).astype(numbers)), kind)


_WANTED_BITS: Final = {"key": kernels.KEYS, "value": kernels.VALUES, "headers": kernels.HEADERS}
_TIMESTAMP: Final = RECORD_SCHEMA.field("timestamp").type
_BUILDERS: Final[dict[str, Callable[[DecodedRecords], pa.Array]]] = {
    "offset": lambda rows: rows.offsets,
    "timestamp": lambda rows: rows.timestamps,
    "timestampType": _timestamp_types,
    "leader_epoch": _of_batch("leader_epoch"),
    "producer_id": _of_batch("producer_id"),
    "producer_epoch": _of_batch("producer_epoch"),
    "sequence": _sequences,
    "is_transactional": lambda rows: array_of(rows.of_batch(lambda headers: headers.is_transactional)),
    "compression": lambda rows: _CODEC_NAMES.take(array_of(rows.of_batch(lambda headers: headers.codec_ids))),
    "magic": _of_batch("magic"),
    "base_offset": _of_batch("base_offset"),
    "position": _of_batch("position"),
}
assert {*_BUILDERS, *_WANTED_BITS} == set(RECORD_COLUMNS)
