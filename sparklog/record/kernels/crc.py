"""Compiled code: computes CRC-32 and CRC-32C, with tables, and CRC-32C with the instruction of x86."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from sparklog.record.kernels.cache import NUMBA
from sparklog.record.kernels.compile import inlined, step
from sparklog.record.kernels.memory import item, little_endian_32, load_64


def _crc32c_instruction(bits: int) -> Any:
    """Make the step that adds ``bits`` bits to a CRC-32C with the instruction of x86."""
    # The processor keeps a CRC of 32 bits in a register of 64 if it takes 64 bits at a time.
    crc_type, word_type = ir.IntType(max(bits, 32)), ir.IntType(bits)
    name = f"llvm.x86.sse42.crc32.{crc_type.width}.{bits}"

    def move(typingctx: Any, crc: Any, word: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            kind = ir.FunctionType(crc_type, [crc_type, word_type])
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            crc, word = (
                builder.trunc(number, of) if of.width < _WORD.width else number
                for number, of in zip(arguments, kind.args, strict=True)
            )
            moved = builder.call(function, [crc, word])
            return builder.zext(moved, _WORD) if crc_type.width < _WORD.width else moved

        return types.uint64(types.uint64, types.uint64), codegen

    return intrinsic(move)


_WORD: Final = ir.IntType(64)
_crc32c_64, _crc32c_32, _crc32c_8 = _crc32c_instruction(64), _crc32c_instruction(32), _crc32c_instruction(8)


def _crc_tables(polynomial: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Make the eight tables of a reflected CRC-32: table k moves a byte over k further zero bytes."""
    tables = np.zeros((8, 256), dtype=np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(polynomial), values >> 1)
    tables[0] = values
    for k in range(1, 8):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> 8)
    return tables


def _crc_skip(tables: np.ndarray[Any, np.dtype[np.uint32]], lane_bytes: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Make the tables, shape (4, 256), that move the four bytes of a CRC over a lane of zeros."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(lane_bytes):
        bits = tables[0][bits & 0xFF] ^ (bits >> 8)
    values = np.arange(256, dtype=np.uint32)
    skip = np.zeros((4, 256), dtype=np.uint32)
    for bit in range(32):
        skip[bit // 8] ^= np.where(values >> (bit % 8) & 1, bits[bit], 0).astype(np.uint32)
    return skip


_CRC_LANE_BYTES = 512
_CRC32 = _crc_tables(0xEDB88320)
_CRC32C = _crc_tables(0x82F63B78)
_CRC32C_SKIP = _crc_skip(_CRC32C, _CRC_LANE_BYTES)


def has_crc32c_instruction(named: str | None, of_host: str) -> bool:
    """Return whether numba compiles for the CRC-32C instruction, by the features that the user set, or the host's."""
    return "+sse4.2" in (of_host if named is None else named).split(",")


@step
def _crc_by_tables(tables, buffer, position, end):
    """Compute CRC-32 or CRC-32C with its tables, eight bytes at a time."""
    crc = np.uint32(0xFFFFFFFF)
    while position + 8 <= end:
        low = crc ^ (
            np.uint32(buffer[position])
            | np.uint32(buffer[position + 1]) << np.uint32(8)
            | np.uint32(buffer[position + 2]) << np.uint32(16)
            | np.uint32(buffer[position + 3]) << np.uint32(24)
        )
        crc = (
            tables[7, low & np.uint32(0xFF)]
            ^ tables[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ tables[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ tables[4, low >> np.uint32(24)]
            ^ tables[3, buffer[position + 4]]
            ^ tables[2, buffer[position + 5]]
            ^ tables[1, buffer[position + 6]]
            ^ tables[0, buffer[position + 7]]
        )
        position += 8
    while position < end:
        crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(buffer[position])) & np.uint32(0xFF)]
        position += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@inlined
def _skip_lane(crc):
    byte = np.uint64(0xFF)
    # Each mention of a table compiles another copy of it.
    skip = _CRC32C_SKIP
    return np.uint64(
        skip[0, crc & byte]
        ^ skip[1, (crc >> np.uint64(8)) & byte]
        ^ skip[2, (crc >> np.uint64(16)) & byte]
        ^ skip[3, (crc >> np.uint64(24)) & byte]
    )


@step
def crc32c_by_instruction(buffer, position, end):
    """Compute the CRC-32C of ``buffer[position:end]`` in three lanes: the instruction takes 3 cycles, and overlaps."""
    crc = np.uint64(0xFFFFFFFF)
    lane = _CRC_LANE_BYTES
    while position + 3 * lane <= end:
        second, third = np.uint64(0), np.uint64(0)
        for place in range(position, position + lane, 8):
            crc = _crc32c_64(crc, load_64(buffer, place))
            second = _crc32c_64(second, load_64(buffer, place + lane))
            third = _crc32c_64(third, load_64(buffer, place + 2 * lane))
        crc = _skip_lane(_skip_lane(crc) ^ second) ^ third
        position += 3 * lane
    while position + 32 <= end:
        for place in range(position, position + 32, 8):
            crc = _crc32c_64(crc, load_64(buffer, place))
        position += 32
    while position + 8 <= end:
        crc = _crc32c_64(crc, load_64(buffer, position))
        position += 8
    if position + 4 <= end:
        crc = _crc32c_32(crc, np.uint64(little_endian_32(buffer, position)))
        position += 4
    while position < end:
        crc = _crc32c_8(crc, np.uint64(item(buffer, position)))
        position += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))


@step
def crc32(buffer, position, end):
    """Compute the CRC-32 of ``buffer[position:end]``; the caller has checked the bounds."""
    return _crc_by_tables(_CRC32, buffer, position, end)


@step
def crc32c_by_tables(buffer, position, end):
    """Compute the CRC-32C of ``buffer[position:end]``, on any processor."""
    return _crc_by_tables(_CRC32C, buffer, position, end)


HAS_CRC32C_INSTRUCTION: Final = has_crc32c_instruction(NUMBA.CPU_FEATURES, get_host_cpu_features())

# Computes the CRC-32C of ``buffer[position:end]``; the caller has checked the bounds. On machines with tables only, the
# library computes the checksums of whole batches instead: see `sparklog.record.batches.checksums`.
crc32c = crc32c_by_instruction if HAS_CRC32C_INSTRUCTION else crc32c_by_tables
