"""Codecs: golden streams, what peers frame otherwise, and streams that lie about their size."""

from __future__ import annotations

import contextlib
import functools
import gzip
import random
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError, DecompressedSizeError
from sparklog.record.codecs.table import (
    TARGET_TOO_SMALL,
    codec_name,
    compressed_bytes_max,
    compressor,
    decompressor,
    decompressor_into,
    to_corrupt_error,
)
from tests import build

LIMIT = 1 << 20
GOLDEN = {
    "gzip": "1f8b08000000000000ffcb48cdc9c9070086a6103605000000",
    "snappy": "82534e4150505900000000010000000100000007051068656c6c6f",
    "snappy-bare": "051068656c6c6f",
    "lz4": "04224d186040820500008068656c6c6f00000000",
    "zstd": "28b52ffd005829000068656c6c6f",
}


def decompress(codec: str, data: bytes, *, magic: int = 2, limit_bytes: int = LIMIT) -> bytes:
    """Decompress in all ways that there are, which must agree."""
    codec_id, target = build.CODEC_IDS[codec], memoryview(bytearray(LIMIT))
    try:
        whole = bytes(decompressor(codec_id, magic)(memoryview(data), limit_bytes))
        size = decompressor_into(codec_id, magic)(memoryview(data), target, limit_bytes)
    except Exception as error:
        raise to_corrupt_error(error, codec_id) from error
    assert size == TARGET_TOO_SMALL or target[:size] == whole
    return whole


@pytest.mark.parametrize("codec", GOLDEN)
def test_stream_is_the_golden_bytes(codec: str) -> None:
    assert decompress(codec, bytes.fromhex(GOLDEN[codec])) == b"hello"


@given(st.sampled_from([codec for codec in build.CODEC_IDS if codec != "none"]), st.binary(max_size=300), st.data())
def test_round_trip_at_any_limit(codec: str, piece: bytes, data: st.DataObject) -> None:
    content = piece * data.draw(st.sampled_from([1, 7, 700]))
    stream = build.compress(codec, content)
    magic = 0 if codec == "lz4-broken-checksum" else 2
    assert decompress(codec, stream, magic=magic) == content
    assert decompress(codec, stream, magic=magic, limit_bytes=len(content) or 1) == content
    if content:
        with pytest.raises(DecompressedSizeError):
            decompress(codec, stream, magic=magic, limit_bytes=len(content) - 1)


BLOCK_BYTES = 32 << 10
LEVELS = [("none", None), ("gzip", None), ("gzip", 1), ("gzip", 9), ("snappy", None), ("lz4", None), ("lz4", 17)]


@pytest.mark.parametrize(("codec", "level"), [*LEVELS, ("zstd", None), ("zstd", -131072), ("zstd", 19)])
@pytest.mark.parametrize("size", [0, 1, 17, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES])
def test_what_cannot_be_compressed_fits_into_the_room_for_it(codec: str, level: int | None, size: int) -> None:
    content = random.Random(size).randbytes(size)
    target = memoryview(bytearray(compressed_bytes_max(size)))
    filled_bytes = compressor(codec, level)(memoryview(content), target)
    stream = bytes(target[:filled_bytes])
    assert (stream if codec == "none" else decompress(codec, stream)) == content


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_room_that_is_too_small_is_an_error_and_no_short_stream(codec: str) -> None:
    with pytest.raises((ValueError, cramjam.CompressionError)):
        compressor(codec)(memoryview(random.Random(1).randbytes(500)), memoryview(bytearray(100)))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "snappy-bare", "lz4", "zstd", "zstd-sized"])
def test_stream_cut_anywhere_or_flipped_is_an_error_or_bytes_within_the_limit(codec: str) -> None:
    stream = build.compress(codec, b"some content, some content, 0123456789" * 3)
    variants = [stream[:cut] for cut in range(len(stream))]
    for bit in range(len(stream) * 8):
        flipped = bytearray(stream)
        flipped[bit // 8] ^= 1 << bit % 8
        variants.append(bytes(flipped))
    for variant in variants:
        with contextlib.suppress(CorruptBatchError):
            assert len(decompress(codec, variant)) <= LIMIT


def test_lz4_checksum_of_magic_0_is_forgiven_there_only() -> None:
    stream = build.compress("lz4-broken-checksum", b"hello")
    assert stream[:7] == bytes.fromhex("04224d1860401a")
    assert decompress("lz4", stream, magic=0) == b"hello"
    with pytest.raises(CorruptBatchError, match="lz4"):
        decompress("lz4", stream, magic=1)


@pytest.mark.parametrize("content_bytes", [0, 4, 1 << 40, 1 << 63])
def test_content_size_of_an_lz4_frame_is_not_compared_as_in_kafka(content_bytes: int) -> None:
    # The compressor writes the claim and a right checksum over it.
    header = bytes(lz4.frame.LZ4FrameCompressor(block_linked=False).begin(content_bytes or 1))
    assert decompress("lz4", header + build.compress("lz4", b"hello")[7:]) == b"hello"


def test_members_of_gzip_cost_linear_time_and_little_memory() -> None:
    def seconds(count: int) -> float:
        stream = memoryview(gzip.compress(b"abc", mtime=0) * count)
        start = time.process_time()
        assert decompressor(1, 2)(stream, LIMIT) == b"abc" * count
        return time.process_time() - start

    # Linear is 10 times as long; where each member copied the rest it was 100 times.
    assert min(seconds(200_000) for _ in range(2)) < 40 * min(seconds(20_000) for _ in range(3))
    stream = memoryview(gzip.compress(b"", mtime=0) * 200_000)
    tracemalloc.start()
    try:
        assert decompressor(1, 2)(stream[: 20 * 20_000], LIMIT) == b""
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("codec", ["gzip", "gzip-members", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("size", [1 << 10, 100 << 10])
def test_size_error_names_the_limit_that_is_set(codec: str, size: int) -> None:
    content = random.Random(1).randbytes(size)
    with pytest.raises(DecompressedSizeError, match=rf"more than {size - 1} bytes.*max.decompressed.message.bytes"):
        decompress(codec, build.compress(codec, content), limit_bytes=size - 1)
    with pytest.raises(DecompressedSizeError, match="more than 1 bytes"):
        decompress(codec, build.compress(codec, content), limit_bytes=1)


def test_streams_one_after_another_are_read_to_the_end() -> None:
    for codec in ("gzip", "zstd", "zstd-sized", "snappy"):
        assert (
            decompress(codec, build.compress(codec, b"a" * 10) + build.compress(codec, b"b" * 10))
            == b"a" * 10 + b"b" * 10
        )


@pytest.mark.parametrize("target_bytes", [14, 15, 100, 1 << 17, 1 << 20])
@pytest.mark.parametrize("content", [bytes(14), bytes(20), b"\x10\0\0\0ab" * 3, b"ab" * 40])
def test_lz4_block_that_begins_as_if_with_its_size_is_right_or_does_not_fit(content: bytes, target_bytes: int) -> None:
    stream, target = build.compress("lz4", content), memoryview(bytearray(target_bytes))
    size = decompressor_into(3, 2)(memoryview(stream), target, LIMIT)
    assert target[:size] == content if target_bytes >= len(content) else size == TARGET_TOO_SMALL


def test_snappy_bytes_that_are_no_length_are_passed_over_at_the_end() -> None:
    assert decompress("snappy", build.compress("snappy", b"hello") + b"\0\0\0") == b"hello"


@pytest.mark.parametrize(("codec_id", "magic"), [(5, 2), (6, 2), (7, 2), (4, 1), (4, 0), (5, 1)])
def test_codec_that_is_not_legal_is_refused(codec_id: int, magic: int) -> None:
    with pytest.raises(CorruptBatchError, match=f"codec {codec_id} in a batch of magic {magic}"):
        decompressor(codec_id, magic)(memoryview(b"x"), LIMIT)


def test_codecs_have_names() -> None:
    assert [codec_name(i) for i in range(6)] == ["none", "gzip", "snappy", "lz4", "zstd", "unknown-5"]


@functools.cache
def bombs() -> dict[str, bytes]:
    """Make streams of 256 MiB and more, and streams that only say so."""
    zeros = bytes(1 << 20)
    gzipped = zlib.compressobj(9, zlib.DEFLATED, 31)
    zstd = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    lz4_stream = lz4.frame.LZ4FrameCompressor(block_linked=False)
    block = build.compress("snappy-bare", zeros)
    streams = {
        "gzip": b"".join(gzipped.compress(zeros) for _ in range(256)) + gzipped.flush(),
        "gzip-members": gzip.compress(zeros) * 256,
        "zstd": b"".join(zstd.compress(zeros) for _ in range(256)) + zstd.flush(),
        "zstd-frames": build.compress("zstd", zeros) * 256,
        "lz4": lz4_stream.begin() + b"".join(lz4_stream.compress(zeros) for _ in range(256)) + lz4_stream.flush(),
        "snappy": build.XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * 256,
    }
    # Sizes that headers claim and no bytes bear out.
    streams["zstd-claim"] = bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 40) + bytes(20)
    streams["zstd-window"] = bytes.fromhex("28b52ffd00b0") + bytes.fromhex("290000") + b"hello"
    streams["snappy-claim"] = b"\xff\xff\xff\xff\x0f" + bytes(20)
    streams["snappy-block-claim"] = build.XERIAL_HEADER + struct.pack(">i", 2**31 - 1) + bytes(20)
    streams["snappy-block-negative"] = build.XERIAL_HEADER + struct.pack(">i", -1) + bytes(20)
    return streams


@pytest.mark.parametrize("name", bombs())
def test_bomb_is_refused_within_the_limit(name: str) -> None:
    stream = bombs()[name]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatchError):
            decompress(name.partition("-")[0], stream)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * LIMIT + 4 * len(stream)


BOMBS_IN_LITTLE_MEMORY = """
import resource
from tests.record.codecs.test_table import LIMIT, bombs, decompress
from sparklog.errors import CorruptBatchError
from sparklog.record.codecs.table import CODECS
streams = bombs()
libraries = [codec.functions for codec in CODECS.values()]
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (64 << 20), resource.RLIM_INFINITY))
for name, stream in streams.items():
    try:
        decompress(name.partition("-")[0], stream)
    except CorruptBatchError as error:
        assert not isinstance(error.__cause__, MemoryError), name
    else:
        raise SystemExit(f"{name} was let through")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc are Linux's")
def test_bombs_fit_a_process_of_little_memory() -> None:
    subprocess.run([sys.executable, "-c", BOMBS_IN_LITTLE_MEMORY], check=True, timeout=60)
