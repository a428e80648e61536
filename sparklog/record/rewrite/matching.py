"""Selects records: by their key, from a set of keys, or with a filter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.record.decode.where_program import Mask
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import match as kernels
from sparklog.record.kernels.filter import Program
from sparklog.record.rewrite.spans import RecordSpans

_KEY_TYPES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


class Matcher(Protocol):
    """Selects records."""

    def matches(self, spans: RecordSpans) -> Mask | None:
        """Return whether each record is selected, shape (n_records,); None if none is."""


@dataclass(frozen=True)
class KeySet:
    """Selects records with one of these keys. Keys are compared byte by byte; a null key matches none.

    Attributes
    ----------
    borders : int64 array, shape (n_keys + 1,)
    octets : uint8 array
        Key i is ``octets[borders[i]:borders[i + 1]]``.
    slots : int64 array, shape (n_slots, kernels_match.SLOT_FIELDS)
        The hash table.
    count : int
        The number of different keys.
    """

    borders: Int64s
    octets: Octets
    slots: Int64s
    count: int

    def __reduce__(self) -> tuple[Callable[[Int64s, Octets], KeySet], tuple[Int64s, Octets]]:
        # Workers get the keys alone: the table is larger, and is made faster than it is sent.
        return _hashed, (self.borders, self.octets)

    def matches(self, spans: RecordSpans) -> Mask | None:
        """Return whether each record has one of the keys; None if none has."""
        out = np.zeros(len(spans.table), np.uint8)
        found = kernels.match_keys(spans.octets, spans.table, self.slots, self.borders, self.octets, out)
        return out.view(np.bool_) if found else None


def key_set(keys: pa.Array | pa.ChunkedArray) -> KeySet:
    """Make a set of keys.

    Parameters
    ----------
    keys : pyarrow.Array or ChunkedArray
        The keys, binary or text, which stands for its bytes in UTF-8. A key may occur twice.

    Raises
    ------
    InvalidOptionError
        The type is another, or a key is null: records without a key cannot be selected by it.
    """
    if keys.type not in _KEY_TYPES:
        raise InvalidOptionError(f"keys must be binary or text, not {keys.type}: a key is compared by its bytes")
    if keys.null_count:
        raise InvalidOptionError("a key is null: records without a key cannot be told apart by it")
    whole = keys.cast(pa.large_binary())
    array = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.large_binary())
    _, offsets, data = array.buffers()
    borders = np.zeros(1, np.int64)
    if len(array):
        borders = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    # The array may be a slice, whose buffers hold the whole array.
    octets = octets[borders[0] : borders[-1]]
    return _hashed(borders - borders[0], octets)


def _hashed(borders: Int64s, octets: Octets) -> KeySet:
    slots = np.zeros((1 << (2 * (len(borders) - 1)).bit_length(), kernels.SLOT_FIELDS), dtype=np.int64)
    count = kernels.fill_slots(borders, octets, slots)
    return KeySet(borders, octets, slots, int(count))


@dataclass(frozen=True)
class Passing:
    """Selects records that pass a filter, by its program (`sparklog.record.decode.where_program.program_of`)."""

    program: Program

    def matches(self, spans: RecordSpans) -> Mask | None:
        """Return whether each record passes; None if none does."""
        out = np.zeros(len(spans.table), np.uint8)
        types: Any = np.ascontiguousarray(spans.headers.timestamp_types)
        found = kernels.match_program(spans.octets, spans.table, spans.batch_ends, types, self.program, out)
        return out.view(np.bool_) if found else None


@dataclass(frozen=True)
class AnyOf:
    """Selects records that any of some matchers selects."""

    parts: tuple[Matcher, ...]

    def matches(self, spans: RecordSpans) -> Mask | None:
        """Return whether each record is selected; None if none is."""
        masks = [mask for part in self.parts if (mask := part.matches(spans)) is not None]
        return np.logical_or.reduce(masks) if masks else None


def is_data(spans: RecordSpans) -> Mask:
    """Return whether each record is data for consumers, and not, for example, a transaction's marker."""
    counts = np.diff(spans.batch_ends, prepend=0)
    mask: Mask = np.repeat(~spans.headers.is_control, counts)
    return mask
