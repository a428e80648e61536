"""Decoders that a test's user brings, named as ``tests.values.decoders:...``."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def lengths(values: pa.Array) -> pa.Array:
    return pc.binary_length(values)


def evens(values: pa.Array) -> pa.Array:
    """Refuse a block that has a value of odd length."""
    wrong = [len(each) for each in values.to_pylist() if len(each) % 2]
    if wrong:
        raise KeyError(wrong[0])
    return pa.array([{"half": len(each) // 2} for each in values.to_pylist()], EVENS)


EVENS = pa.struct([("half", pa.int64())])
evens.type = EVENS  # type: ignore[attr-defined]


def too_short(values: pa.Array) -> pa.Array:
    return pc.binary_length(values)[1:]


def of_another_type(values: pa.Array) -> pa.Array:
    return pc.binary_length(values).cast(pa.int64() if len(values) else pa.int32())


def no_array(values: pa.Array) -> list[int]:
    return [0] * len(values)


def untyped(values: pa.Array) -> pa.Array:
    return pa.array([values[0].as_py()])


number = 1
