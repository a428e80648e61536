"""Compiled code: processes many streams of a codec in one call; with a call of Python for each, threads would wait.

Libraries implement the codecs. A kernel finds the blocks of each stream, and calls the library's C function by its
address, which `sparklog.record.codecs.native` finds; snappy has no such function, so the kernel lists its blocks for
the caller. Only streams as Kafka's producers usually write them are processed. A kernel stops before any other stream
and before one that the library refuses; `sparklog.record.codecs.table` then reads that one or reports its fault.

Formats: `sparklog.record.format.streams` and, for zstd, `sparklog.record.codecs.zstd`. No C function is called with an
unchecked length: each reads and writes only within the given bounds, whatever the bytes.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sparklog.record.format.streams import (
    LZ4_KAFKA_BLOCK_BYTES,
    LZ4_KAFKA_HEADERS,
    LZ4_MAGIC,
    LZ4_SIZE_MASK,
    LZ4_STORED,
    XERIAL_MAGIC,
    XERIAL_START,
)
from sparklog.record.kernels.compile import inlined, kernel
from sparklog.record.kernels.memory import big_endian_32, item, little_endian_32, memcpy, pointer_to, set_item

BLOCK_FIELDS: Final = 5
(STREAM, SOURCE, SOURCE_END, TARGET, TARGET_END) = range(BLOCK_FIELDS)
"""The columns of the table of `snappy_blocks`: the row of a block's stream, where it is read from, and written to."""

_NOT_TAKEN: Final = -1
_OCTETS = types.Array(types.uint8, 1, "C", readonly=True)
_OCTETS_OUT = types.Array(types.uint8, 1, "C")
_PLACES = types.Array(types.int64, 1, "C", readonly=True)
_PLACES_OUT = types.Array(types.int64, 1, "C")
_TABLE_OUT = types.Array(types.int64, 2, "C")
_LONG = types.int64

_LZ4_HEADER_BYTES, _LZ4_FLAGS = 7, 0x60
# The header of a frame with blocks of the size that Kafka's producers choose.
_LZ4_HEADER: Final = tuple(next(header for header, size in LZ4_KAFKA_HEADERS.items() if size == LZ4_KAFKA_BLOCK_BYTES))
# The size class and the checksum of the header, which follow the flags.
_LZ4_CLASSES: Final = tuple((header[5], header[6], size) for header, size in LZ4_KAFKA_HEADERS.items())
_SIZE_BYTES: Final = 4
_STREAM_BYTES_MAX: Final = (1 << 31) - 1

_XERIAL_HIGH = int.from_bytes(XERIAL_MAGIC[:4], "big", signed=True)
_XERIAL_LOW = int.from_bytes(XERIAL_MAGIC[4:], "big", signed=True)
_XERIAL_START_BYTES: Final = XERIAL_START.size
_VARINT_BYTES_MAX: Final = 5

_ZSTD_MAGIC, _ZSTD_HEADER_BYTES_MIN = 0xFD2FB528, 6
_ZSTD_CHECKSUM, _ZSTD_KNOWN_FLAGS = 0x04, 0x04
_ZSTD_WINDOW_LOG_MIN, _ZSTD_WINDOW_BYTES_MAX = 10, 1 << 27
_ZSTD_BLOCK_HEADER_BYTES, _ZSTD_BLOCK_BYTES_MAX, _ZSTD_RLE, _ZSTD_RESERVED = 3, 1 << 17, 1, 3


def _caller(arguments_of: Any, result_bits: int) -> Any:
    """Make the step that calls a C function by its address, from one region into another.

    Parameters
    ----------
    arguments_of : callable of (builder, context_address, source, source_bytes, target, target_bytes)
        Returns the arguments in the order and with the types of the C function.
    result_bits : int
        The width of the C function's result, which is negative for an error.
    """

    def call(
        typingctx: Any,  # noqa: ARG001
        function: Any,  # noqa: ARG001
        state: Any,  # noqa: ARG001
        source: Any,
        start: Any,  # noqa: ARG001
        length: Any,  # noqa: ARG001
        target: Any,
        at: Any,  # noqa: ARG001
        room: Any,  # noqa: ARG001
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            address, state, source, start, length, target, at, room = values
            of = pointer_to(context, builder, signature.args[2], source, start, length)
            to = pointer_to(context, builder, signature.args[5], target, at, room)
            given = arguments_of(builder, state, of, length, to, room)
            kind = ir.FunctionType(ir.IntType(result_bits), [each.type for each in given])
            result = builder.call(builder.inttoptr(address, kind.as_pointer()), given)
            return builder.sext(result, ir.IntType(64)) if result_bits < 64 else result

        return _LONG(_LONG, _LONG, source, _LONG, _LONG, target, _LONG, _LONG), codegen

    return intrinsic(call)


def _lz4_arguments(builder: Any, state: Any, source: Any, length: Any, target: Any, room: Any) -> list[Any]:  # noqa: ARG001
    number = ir.IntType(32)
    return [source, target, builder.trunc(length, number), builder.trunc(room, number)]


def _zstd_arguments(builder: Any, state: Any, source: Any, length: Any, target: Any, room: Any) -> list[Any]:  # noqa: ARG001
    return [state, target, room, source, length]


# int LZ4_decompress_safe(const char *source, char *target, int source_bytes, int target_bytes)
# int LZ4_compress_default(const char *source, char *target, int source_bytes, int target_bytes)
_call_lz4 = _caller(_lz4_arguments, 32)
# size_t ZSTD_decompressDCtx(ZSTD_DCtx *, void *target, size_t target_bytes, const void *source, size_t source_bytes)
_call_zstd = _caller(_zstd_arguments, 64)


@inlined
def _is_within(octets, starts, ends, row):
    """Return whether a stream is inside the bytes, and short enough for the length types of the C functions."""
    return 0 <= starts[row] <= ends[row] <= octets.shape[0] and ends[row] - starts[row] <= _STREAM_BYTES_MAX


@inlined
def _lz4_stream(function, octets, position, end, target, filled):
    """Decompress a frame's blocks into the free part of the target; return the bytes then filled, or `_NOT_TAKEN`."""
    if (
        end - position < _LZ4_HEADER_BYTES + _SIZE_BYTES
        or little_endian_32(octets, position) & 0xFFFFFFFF != LZ4_MAGIC
        or item(octets, position + 4) != _LZ4_FLAGS
    ):
        return _NOT_TAKEN
    block_bytes_max = _LONG(0)
    for size_class, checksum, bytes_max in _LZ4_CLASSES:
        if item(octets, position + 5) == size_class and item(octets, position + 6) == checksum:
            block_bytes_max = _LONG(bytes_max)
    position += _LZ4_HEADER_BYTES
    while end - position >= _SIZE_BYTES:
        size = little_endian_32(octets, position)
        position += _SIZE_BYTES
        block_bytes, is_stored = size & LZ4_SIZE_MASK, size < 0
        if block_bytes == 0 and block_bytes_max > 0:
            return filled
        room = min(target.shape[0] - filled, block_bytes_max)
        if size == 1 or block_bytes > min(end - position, block_bytes_max) or (is_stored and block_bytes > room):
            return _NOT_TAKEN
        done = block_bytes
        if is_stored:
            memcpy(target, filled, octets, position, block_bytes)
        else:
            done = _call_lz4(function, 0, octets, position, block_bytes, target, filled, room)
            if done < 0:
                return _NOT_TAKEN
        filled += done
        position += block_bytes
    return _NOT_TAKEN


@kernel(_LONG(_LONG, _OCTETS, _PLACES, _PLACES, _OCTETS_OUT, _LONG, _LONG, _PLACES_OUT))
def lz4_streams(function, octets, starts, ends, target, filled, full_bytes, filled_out):
    """Decompress lz4 frames, one after another, until the target has ``full_bytes``.

    Parameters
    ----------
    function : int64
        The address of ``LZ4_decompress_safe``.
    octets : uint8 array
    starts, ends : int64 array, shape (n_streams,)
        The positions in ``octets`` at which each stream begins and ends.
    target : uint8 array
    filled : int64
        The number of bytes of the target that are filled already.
    full_bytes : int64
    filled_out : int64 array, shape (n_streams,)
        Written: the number of filled bytes after each stream that was decompressed.

    Returns
    -------
    int64
        The number of streams that were decompressed, from the first on.
    """
    for row in range(filled_out.shape[0]):
        if filled < 0 or filled >= full_bytes or filled > target.shape[0] or not _is_within(octets, starts, ends, row):
            return row
        filled = _lz4_stream(function, octets, starts[row], ends[row], target, filled)
        if filled == _NOT_TAKEN:
            return row
        filled_out[row] = filled
    return filled_out.shape[0]


@inlined
def _put_little_endian_32(octets, position, number):
    for n in range(_SIZE_BYTES):
        set_item(octets, position + n, types.uint8((number >> (8 * n)) & 0xFF))


@inlined
def _lz4_frame(function, octets, position, end, target, filled):
    """Compress bytes as one frame into the target's free part; return the bytes then filled; `_NOT_TAKEN` if full."""
    if target.shape[0] - filled < _LZ4_HEADER_BYTES + _SIZE_BYTES:
        return _NOT_TAKEN
    for n in range(_LZ4_HEADER_BYTES):
        set_item(target, filled + n, _LZ4_HEADER[n])
    filled += _LZ4_HEADER_BYTES
    while position < end:
        block_bytes = min(end - position, _LONG(LZ4_KAFKA_BLOCK_BYTES))
        # Room is kept for the end of the frame.
        room = min(target.shape[0] - filled - 2 * _SIZE_BYTES, _LONG(_STREAM_BYTES_MAX))
        if room < block_bytes:
            return _NOT_TAKEN
        size = _call_lz4(function, 0, octets, position, block_bytes, target, filled + _SIZE_BYTES, room)
        is_stored = size <= 0 or size >= block_bytes
        if is_stored:
            size = block_bytes
            memcpy(target, filled + _SIZE_BYTES, octets, position, block_bytes)
        _put_little_endian_32(target, filled, size | LZ4_STORED if is_stored else size)
        filled += _SIZE_BYTES + size
        position += block_bytes
    _put_little_endian_32(target, filled, _LONG(0))
    return filled + _SIZE_BYTES


@kernel(_LONG(_LONG, _OCTETS, _PLACES, _LONG, _OCTETS_OUT, _PLACES_OUT))
def lz4_frames(function, octets, ends, free_bytes, target, filled_out):
    """Compress consecutive parts of some bytes as one lz4 frame each, with free bytes before each frame.

    Parameters
    ----------
    function : int64
        The address of ``LZ4_compress_default``.
    octets : uint8 array
    ends : int64 array, shape (n_streams,)
        The end of each part in ``octets``; the first begins at 0, the others at the end before.
    free_bytes : int64
        The number of bytes of the target to leave free before each frame.
    target : uint8 array
    filled_out : int64 array, shape (n_streams,)
        Written: the number of filled bytes of the target after each frame.

    Returns
    -------
    int64
        The number of frames that were made, from the first on: all if the target has room.
    """
    position, filled = _LONG(0), _LONG(0)
    for row in range(filled_out.shape[0]):
        if not position <= ends[row] <= octets.shape[0] or free_bytes < 0:
            return row
        filled = _lz4_frame(function, octets, position, ends[row], target, filled + free_bytes)
        if filled == _NOT_TAKEN:
            return row
        filled_out[row], position = filled, ends[row]
    return filled_out.shape[0]


@inlined
def _zstd_content_bytes_max(octets, position, end):
    """Return the most content of a stream of one frame of one block without a content size; `_NOT_TAKEN` for others.

    Such a frame reads the same with a reader of streams, such as Kafka's, as with a function that gets all of it at
    once. An empty block may follow the block.
    """
    if end - position < _ZSTD_HEADER_BYTES_MIN or little_endian_32(octets, position) & 0xFFFFFFFF != _ZSTD_MAGIC:
        return _NOT_TAKEN
    descriptor, window = _LONG(item(octets, position + 4)), _LONG(item(octets, position + 5))
    base_bytes = _LONG(1) << (_ZSTD_WINDOW_LOG_MIN + (window >> 3))
    window_bytes = base_bytes + (base_bytes >> 3) * (window & 7)
    if descriptor & ~_ZSTD_KNOWN_FLAGS or window_bytes > _ZSTD_WINDOW_BYTES_MAX:
        return _NOT_TAKEN
    content_bytes_max = min(window_bytes, _ZSTD_BLOCK_BYTES_MAX)
    position += _ZSTD_HEADER_BYTES_MIN
    is_last, is_done = False, False
    while not is_last:
        if end - position < _ZSTD_BLOCK_HEADER_BYTES:
            return _NOT_TAKEN
        low, high = _LONG(item(octets, position)), _LONG(item(octets, position + 2))
        block = low | _LONG(item(octets, position + 1)) << 8 | high << 16
        is_last, kind, block_bytes = block & 1 == 1, block >> 1 & 3, block >> 3
        if kind == _ZSTD_RESERVED or block_bytes > content_bytes_max or (block_bytes and is_done):
            return _NOT_TAKEN
        is_done = is_done or block_bytes > 0
        position += _ZSTD_BLOCK_HEADER_BYTES + (1 if kind == _ZSTD_RLE else block_bytes)
    position += _SIZE_BYTES if descriptor & _ZSTD_CHECKSUM else 0
    return content_bytes_max if position == end else _LONG(_NOT_TAKEN)


@kernel(_LONG(_LONG, _LONG, _OCTETS, _PLACES, _PLACES, _OCTETS_OUT, _LONG, _LONG, _PLACES_OUT))
def zstd_streams(function, state, octets, starts, ends, target, filled, full_bytes, filled_out):
    """Decompress zstd frames; like `lz4_streams`, with ``ZSTD_decompressDCtx`` and the address of its state."""
    for row in range(filled_out.shape[0]):
        if filled < 0 or filled >= full_bytes or filled > target.shape[0] or not _is_within(octets, starts, ends, row):
            return row
        content_bytes_max, start = _zstd_content_bytes_max(octets, starts[row], ends[row]), starts[row]
        if content_bytes_max == _NOT_TAKEN:
            return row
        room = min(target.shape[0] - filled, content_bytes_max)
        done = _call_zstd(function, state, octets, start, ends[row] - start, target, filled, room)
        if done < 0 or done > room:
            return row
        filled += done
        filled_out[row] = filled
    return filled_out.shape[0]


@inlined
def _snappy_length(octets, position, end):
    """Return the size that a raw block claims for its content, or `_NOT_TAKEN`."""
    length = _LONG(0)
    for n in range(min(end - position, _VARINT_BYTES_MAX)):
        octet = _LONG(item(octets, position + n))
        length |= (octet & 0x7F) << (7 * n)
        if octet < 0x80:
            return length
    return _LONG(_NOT_TAKEN)


@inlined
def _list_snappy_blocks(octets, position, end, stream, filled, target_bytes, table, row):
    """List the blocks of one stream; return the row after them, or `_NOT_TAKEN`."""
    first = row
    is_framed = (
        end - position >= _XERIAL_START_BYTES
        and big_endian_32(octets, position) == _XERIAL_HIGH
        and big_endian_32(octets, position + 4) == _XERIAL_LOW
    )
    if is_framed:
        position += _XERIAL_START_BYTES
    # As in xerial's reader, fewer bytes at the end than a length has are ignored.
    while row == first or (is_framed and end - position >= _SIZE_BYTES):
        block_bytes = end - position
        if is_framed:
            if block_bytes < _SIZE_BYTES:
                return _LONG(_NOT_TAKEN)
            block_bytes = big_endian_32(octets, position)
            position += _SIZE_BYTES
        if block_bytes < 0 or block_bytes > end - position or row == table.shape[0]:
            return _LONG(_NOT_TAKEN)
        length = _snappy_length(octets, position, position + block_bytes)
        if length < 0 or length > target_bytes - filled:
            return _LONG(_NOT_TAKEN)
        table[row, STREAM] = stream
        table[row, SOURCE], table[row, SOURCE_END] = position, position + block_bytes
        table[row, TARGET], table[row, TARGET_END] = filled, filled + length
        filled += length
        position += block_bytes
        row += 1
    return row


@kernel(_LONG(_OCTETS, _PLACES, _PLACES, _LONG, _LONG, _LONG, _TABLE_OUT))
def snappy_blocks(octets, starts, ends, target_bytes, filled, full_bytes, table):
    """List the blocks of snappy streams, whose contents will fill a target one after another.

    Parameters
    ----------
    octets : uint8 array
    starts, ends : int64 array, shape (n_streams,)
        The positions in ``octets`` at which each stream begins and ends.
    target_bytes, filled, full_bytes : int64
        The size of the target, the number of filled bytes, and the number at which to stop.
    table : int64 array, shape (n_rows, BLOCK_FIELDS)
        Written: the blocks, with the sizes that they claim.

    Returns
    -------
    int64
        The number of listed blocks; all belong to whole streams.
    """
    row = 0
    for stream in range(starts.shape[0]):
        if filled < 0 or filled >= full_bytes or not _is_within(octets, starts, ends, stream):
            return row
        after = _list_snappy_blocks(
            octets, starts[stream], ends[stream], stream, filled, target_bytes, table, _LONG(row)
        )
        if after == _NOT_TAKEN:
            return row
        row = after
        filled = table[row - 1, TARGET_END]
    return row
