"""Decompresses many streams of one codec in one call, if its library can and the streams are usual ones.

If the streams of a log are decompressed one by one, calls take about as long as the codec, and between two calls a
thread may have to wait for others. Unusual, damaged and too long streams are left to `sparklog.record.codecs.table`,
which takes them one by one. For the same reason `many_frames` compresses the records of many batches at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import cramjam
import numpy as np

from sparklog.record.codecs import native
from sparklog.record.codecs.lz4 import FAST_LEVEL
from sparklog.record.codecs.table import codec_name
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import streams as kernels_streams

ManyInto = Callable[[Octets, Int64s, Int64s, Octets, int, int], Int64s]

ManyFrames = Callable[[Octets, Int64s, int, Octets], Int64s]

_SNAPPY_BLOCKS_MAX: Final = 1 << 10


def many_into(codec_id: int) -> ManyInto | None:
    """Return the function that decompresses v2 streams of a codec into the caller's memory; None if there is none.

    Returns
    -------
    callable of (octets, starts, ends, target, filled, full_bytes)
        ``octets`` holds the streams, which begin and end at ``starts`` and ``ends``. Their contents are written to
        ``target`` one after another from ``filled`` on, until ``full_bytes`` of it are filled. The function returns how
        many bytes are filled after each stream that it has taken, from the first on. No stream makes it raise.
    """
    name = codec_name(codec_id)
    if name == "snappy":
        return _snappy
    if name == "lz4" and native.lz4_decompress_safe():
        return _lz4
    if name == "zstd" and native.zstd_decompress():
        return _zstd
    return None


def many_frames(codec: str, level: int | None) -> ManyFrames | None:
    """Return the function that compresses many streams at once; None if there is none.

    Returns
    -------
    callable of (octets, ends, free_bytes, target) or None
        Each stream is made of the bytes between two consecutive ``ends``; the first begins at 0. The streams are
        written to ``target`` one after another, with ``free_bytes`` left free before each. The function returns how
        many bytes of the target are filled after each. The target must have room for the free bytes and for
        `sparklog.record.codecs.table.compressed_bytes_max` of all streams.
    """
    is_fast_lz4 = codec == "lz4" and level in (None, FAST_LEVEL)
    return _lz4_frames if is_fast_lz4 and native.lz4_compress_default() else None


def _lz4_frames(octets: Octets, ends: Int64s, free_bytes: int, target: Octets) -> Int64s:
    filled = np.empty(len(ends), dtype=np.int64)
    taken = kernels_streams.lz4_frames(native.lz4_compress_default(), octets, ends, free_bytes, target, filled)
    if taken < len(ends):
        raise AssertionError("a target is too small for the compressed records")
    return filled


def _lz4(octets: Octets, starts: Int64s, ends: Int64s, target: Octets, filled: int, full_bytes: int) -> Int64s:
    borders = np.empty(len(starts), dtype=np.int64)
    function = native.lz4_decompress_safe()
    return borders[: kernels_streams.lz4_streams(function, octets, starts, ends, target, filled, full_bytes, borders)]


def _zstd(octets: Octets, starts: Int64s, ends: Int64s, target: Octets, filled: int, full_bytes: int) -> Int64s:
    borders = np.empty(len(starts), dtype=np.int64)
    function, state = native.zstd_decompress(), native.zstd_state()
    if not state:
        return borders[:0]
    taken = kernels_streams.zstd_streams(function, state, octets, starts, ends, target, filled, full_bytes, borders)
    return borders[:taken]


def _snappy(octets: Octets, starts: Int64s, ends: Int64s, target: Octets, filled: int, full_bytes: int) -> Int64s:
    """Decompress the blocks one by one, with little work between them: the library has no C function."""
    table = np.empty((_SNAPPY_BLOCKS_MAX, kernels_streams.BLOCK_FIELDS), dtype=np.int64)
    table = table[: kernels_streams.snappy_blocks(octets, starts, ends, len(target), filled, full_bytes, table)]
    source, room = octets.data, target.data
    streams, *places = (column.tolist() for column in table.T)
    sources = [source[start:end] for start, end in zip(*places[:2], strict=True)]
    rooms = [room[start:end] for start, end in zip(*places[2:], strict=True)]
    done = 0
    try:
        for size, piece in zip(map(cramjam.snappy.decompress_raw_into, sources, rooms), rooms, strict=True):
            if size != len(piece):
                break
            done += 1
    except cramjam.DecompressionError:
        pass  # The block is damaged: its stream is not taken.
    # The last block of each whole stream.
    taken = streams[done] if done < len(streams) else (streams[-1] + 1 if streams else 0)
    last = np.searchsorted(table[:, kernels_streams.STREAM], np.arange(taken), side="right") - 1
    return np.ascontiguousarray(table[last, kernels_streams.TARGET_END])
