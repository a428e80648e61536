"""Compiled code: reads numbers from bytes, and copies bytes, at positions that the caller has checked.

An index in Python may count from the end, and checking that at each access takes as long as the access itself. With
``NUMBA_BOUNDSCHECK=1`` every position is checked here once more, so that tests can find callers that did not check.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sparklog.record.kernels.cache import NUMBA

COPY_STEP_BYTES: Final = 64
"""The number of bytes that `copy_step` reads and writes at a time."""

_WORD: Final = ir.IntType(64)


def pointer_to(context: Any, builder: Any, kind: Any, array: Any, index: Any, count: Any) -> Any:
    """Return the address of ``count`` items of an array."""
    of = cgutils.create_struct_proxy(kind)(context, builder, value=array)
    if NUMBA.BOUNDSCHECK:
        past = builder.add(of.nitems, _WORD(1))
        cgutils.do_boundscheck(context, builder, index, past)
        cgutils.do_boundscheck(context, builder, builder.add(index, count), past)
    return builder.gep(of.data, [index])


@intrinsic
def item(typingctx: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Return an item of an array of one dimension."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], _WORD(1))
        return builder.load(pointer)

    return array.dtype(array, types.intp), codegen


@intrinsic
def set_item(typingctx: Any, array: Any, index: Any, number: Any) -> Any:  # noqa: ARG001
    """Set an item of an array of one dimension."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], _WORD(1))
        builder.store(arguments[2], pointer)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


def _loader(bits: int, *, is_swapped: bool, is_signed: bool) -> Any:
    """Make the step that reads a number from bytes: ``(array, index) -> int64``, or uint64 if it has no sign."""

    def load(typingctx: Any, source: Any, index: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], _WORD(bits // 8))
            number = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            number.align = 1
            if is_swapped:
                number = builder.bswap(number)
            return builder.sext(number, _WORD) if bits < _WORD.width else number

        return (types.int64 if is_signed else types.uint64)(source, types.intp), codegen

    return intrinsic(load)


_IS_LITTLE: Final = sys.byteorder == "little"

load_64 = _loader(64, is_swapped=False, is_signed=False)
little_endian_64 = _loader(64, is_swapped=not _IS_LITTLE, is_signed=False)
little_endian_32 = _loader(32, is_swapped=not _IS_LITTLE, is_signed=True)
big_endian_32 = _loader(32, is_swapped=_IS_LITTLE, is_signed=True)
big_endian_64 = _loader(64, is_swapped=_IS_LITTLE, is_signed=True)


@intrinsic
def memcpy(typingctx: Any, target: Any, target_index: Any, source: Any, source_index: Any, length: Any) -> Any:  # noqa: ARG001
    """Copy ``length`` bytes between two uint8 arrays."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], arguments[4])
        of = pointer_to(context, builder, signature.args[2], arguments[2], arguments[3], arguments[4])
        cgutils.raw_memcpy(builder, to, of, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), codegen


@intrinsic
def copy_step(typingctx: Any, target: Any, target_index: Any, source: Any, source_index: Any) -> Any:  # noqa: ARG001
    """Copy `COPY_STEP_BYTES` bytes between two uint8 arrays, without a call."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        step_bytes = _WORD(COPY_STEP_BYTES)
        to = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], step_bytes)
        of = pointer_to(context, builder, signature.args[2], arguments[2], arguments[3], step_bytes)
        vector = ir.VectorType(ir.IntType(8), COPY_STEP_BYTES).as_pointer()
        piece = builder.load(builder.bitcast(of, vector))
        piece.align = 1
        builder.store(piece, builder.bitcast(to, vector)).align = 1
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), codegen
