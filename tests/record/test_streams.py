"""Streams of blocks: those of a single one are told from all others, whatever stands where they should."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record.compression import block_decompressor_into
from sparklog.record.streams import LZ4, SNAPPY, single_blocks, snappy_blocks
from tests import build

TARGET_BYTES = 1 << 18
CONTENTS = st.one_of(
    st.binary(max_size=60).map(lambda piece: piece * 7),
    # Around the size of a block of either codec.
    st.sampled_from([32 << 10, 64 << 10]).flatmap(lambda size: st.integers(size - 1, size + 1).map(bytes)),
    st.integers(1, 500).map(lambda size: random.Random(size).randbytes(size)),
)
STREAMS = st.tuples(st.sampled_from(sorted(build.CODEC_IDS)), CONTENTS)


def oracle(codec: str, stream: bytes) -> bytes | None:
    """Return the one compressed block of a stream, slowly; None where it has none or more."""
    if codec == "snappy":
        blocks = snappy_blocks(memoryview(stream))
        return bytes(blocks[0]) if len(blocks) == 1 else None
    if codec == "lz4":
        (size,) = struct.unpack_from("<I", stream, 7)
        is_one = 0 < size < 1 << 31 and stream[11 + size :] == bytes(4)
        return stream[11 : 11 + size] if is_one else None
    return None


@given(st.lists(STREAMS, max_size=8), st.binary(max_size=5))
def test_single_blocks_are_found_among_streams_of_every_codec(streams: list[tuple[str, bytes]], before: bytes) -> None:
    made = [build.compress(codec, content) for codec, content in streams]
    data = before + b"".join(made)
    ends = len(before) + np.cumsum([0, *map(len, made)], dtype=np.int64)
    codec_ids = np.array([build.CODEC_IDS[codec] for codec, _ in streams], dtype=np.int8)
    found = single_blocks(np.frombuffer(data, np.uint8), ends[:-1], ends[1:], codec_ids)
    assert len(found[0]) == len(made)
    for is_single, start, end, stream, (codec, content) in zip(*found, made, streams, strict=True):
        block = oracle(codec, stream)
        assert is_single == (block is not None)
        assert data[start:end] == (stream if block is None else block)
        if is_single:
            target = memoryview(bytearray(TARGET_BYTES))
            size = block_decompressor_into(build.CODEC_IDS[codec])(memoryview(data)[start:end], target, TARGET_BYTES)
            assert target[:size] == content


@pytest.mark.parametrize(("codec", "codec_id"), [("snappy", SNAPPY), ("lz4", LZ4)])
def test_stream_cut_anywhere_is_not_single_and_nothing_outside_is_looked_at(codec: str, codec_id: int) -> None:
    stream = build.compress(codec, b"some content, some content, 0123456789" * 3)
    for cut in range(len(stream)):
        octets = np.frombuffer(stream[:cut], np.uint8)
        found, start, end = single_blocks(octets, np.array([0]), np.array([cut]), np.array([codec_id]))
        assert (found.tolist(), start.tolist(), end.tolist()) == ([False], [0], [cut])
