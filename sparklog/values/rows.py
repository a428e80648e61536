"""Keeps track of rows that failed to decode, and finds them when a whole block fails.

Libraries decode a block of rows at once, and seldom say which row of a failed block is to blame. `decode_rows`
halves such a block until it has the rows that fail. A row fails alone: its result never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.record.format.arrays import numbers_of
from sparklog.record.format.streams import Int64s

_REASON_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, eq=False)
class Failures:
    """Rows that could not be decoded.

    Attributes
    ----------
    rows : int64 array, shape (n_failures,)
        The numbers of the rows, ascending.
    reasons : list of str, length n_failures
        The reason for each failure.
    """

    rows: Int64s
    reasons: list[str]

    def __len__(self) -> int:
        return len(self.reasons)

    @classmethod
    def of(cls, reasons: dict[int, str]) -> Failures:
        """Make failures from the reasons by row."""
        rows = sorted(reasons)
        return cls(np.array(rows, np.int64), [reasons[row] for row in rows])

    def at(self, rows: Int64s) -> Failures:
        """Return the failures with new row numbers: row ``i`` becomes ``rows[i]``, which ascend."""
        return Failures(rows[self.rows], self.reasons)

    def by_row(self) -> dict[int, str]:
        return dict(zip(self.rows.tolist(), self.reasons, strict=True))


class DecodedValues(NamedTuple):
    """Decoded values.

    Attributes
    ----------
    array : pyarrow.Array
        The result, as long as the input. Null if a value is null or could not be decoded.
    failures : Failures
        The rows that could not be decoded.
    """

    array: pa.Array
    failures: Failures


def no_failures() -> Failures:
    return Failures.of({})


def join_decoded(parts: Sequence[DecodedValues], kind: pa.DataType) -> DecodedValues:
    """Join the decoded parts of a column, in order."""
    reasons: dict[int, str] = {}
    start = 0
    for array, failures in parts:
        reasons.update(failures.at(np.arange(start, start + len(array))).by_row())
        start += len(array)
    return DecodedValues(pa.concat_arrays([part.array for part in parts] or [pa.array([], kind)]), Failures.of(reasons))


def decode_rows(items: Any, decode: Callable[[Any], pa.Array], kind: pa.DataType) -> DecodedValues:
    """Decode a block; if that fails, find the rows at fault, and decode the others.

    Parameters
    ----------
    items : pyarrow.Array or list
        The rows.
    decode : callable
        Makes an array of type ``kind`` and the same length from a part of the rows, or raises any exception.
    kind : pyarrow.DataType
        The type.

    Notes
    -----
    A block with ``k`` rows that fail is decoded in at most ``2 k log2(n)`` parts.
    """
    pieces: list[pa.Array] = []
    reasons: dict[int, str] = {}
    waiting = [(0, len(items))] if len(items) else []
    while waiting:
        start, end = waiting.pop()
        try:
            piece = decode(items[start:end])
        except (MemoryError, InvalidOptionError):
            raise  # no row is to blame
        except Exception as error:
            if end - start > 1:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
                continue
            reasons[start] = reason_of(error)
            piece = pa.nulls(1, kind)
        pieces.append(piece)
    return DecodedValues(pa.concat_arrays(pieces or [pa.array([], kind)]), Failures.of(reasons))


def call_rows(function: Callable[[Any], Any], items: Sequence[Any]) -> tuple[list[Any], dict[int, str]]:
    """Call a function with each item that is not None.

    Returns
    -------
    results : list, length n_items
        The results; None if the item is None or the function raised.
    reasons : dict of int to str
        The reason why the function raised, by the number of the item.
    """
    results: list[Any] = [None] * len(items)
    reasons: dict[int, str] = {}
    for row, item in enumerate(items):
        if item is None:
            continue
        try:
            results[row] = function(item)
        except MemoryError:
            raise
        except Exception as error:
            reasons[row] = reason_of(error)
    return results, reasons


def reason_of(error: Exception) -> str:
    """Return the message of an exception, in one line of limited length."""
    if isinstance(error, RecursionError):
        return "the value is nested too deeply"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_CHARACTERS_MAX else f"{text[:_REASON_CHARACTERS_MAX]}..."


def only_where(data: pa.Array, wanted: pa.Array) -> pa.Array:
    """Return the wanted values, and null for the others.

    It uses ``take``, since ``if_else`` of pyarrow 18 returns wrong bytes for a sliced array.
    """
    is_wanted = numbers_of(wanted) & numbers_of(wanted.is_valid())
    rows, valid = np.arange(len(data)), np.packbits(is_wanted, bitorder="little")
    return data.take(pa.Array.from_buffers(pa.int64(), len(data), [pa.py_buffer(valid), pa.py_buffer(rows)]))
