"""Widens Arrow types that Spark does not have, and turns headers into Spark's maps."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

_WIDER: Final = MappingProxyType(
    {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
        pa.string_view(): pa.string(),
        pa.binary_view(): pa.binary(),
        pa.time32("s"): pa.time64("us"),
        pa.time32("ms"): pa.time64("us"),
        pa.date64(): pa.date32(),
    }
)


def widened(kind: pa.DataType) -> pa.DataType:
    """Return a type, with its nested types, as wide as Spark needs it.

    Parameters
    ----------
    kind : pyarrow.DataType

    Returns
    -------
    pyarrow.DataType
        The same type if Spark has it, or has no wider one either.
    """
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(widened(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(widened(kind.key_type), widened(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(widened(kind.value_type))
    return _WIDER.get(kind, kind)


def headers_map(headers: pa.ListArray) -> pa.MapArray:
    """Turn the headers of records into maps; of headers with the same name the last one counts.

    Parameters
    ----------
    headers : pyarrow.ListArray of struct<key: string, value: binary>, length n_records
        The headers; null if a record has none.

    Returns
    -------
    pyarrow.MapArray of string to binary, length n_records
        Null where ``headers`` is.
    """
    pairs = headers.flatten()
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    names, values = pairs.flatten()
    kept = _last_of_each(np.repeat(np.arange(len(headers)), counts), names)
    if len(kept) < len(pairs):
        names, values = names.take(pa.array(kept)), values.take(pa.array(kept))
        rows = np.repeat(np.arange(len(headers)), counts)[kept]
        counts = np.bincount(rows, minlength=len(headers))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    is_null = np.append(headers.is_null().to_numpy(zero_copy_only=False), False)
    return pa.MapArray.from_arrays(pa.array(ends, mask=is_null), names, values)


def _last_of_each(rows: np.ndarray, names: pa.Array) -> np.ndarray:
    """Return the positions of the last header of each name in each row, ascending."""
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    marks = rows * max(len(encoded.dictionary), 1) + codes
    _, from_end = np.unique(marks[::-1], return_index=True)
    return np.sort(len(marks) - 1 - from_end)
