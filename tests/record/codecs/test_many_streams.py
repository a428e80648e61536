"""Many streams at once: what is taken is what one by one gives, and nothing else is written to."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record.batches.framing import scan_headers
from sparklog.record.codecs import native
from sparklog.record.codecs.many_streams import many_frames, many_into
from sparklog.record.codecs.table import compressed_bytes_max, compressor, decompressor, to_corrupt_error
from sparklog.record.format.v2 import HEADER_BYTES
from tests import build
from tests.kafka.verdicts import verdicts
from tests.record.codecs.test_table import bombs

TARGET_BYTES = 1 << 19
LIMIT = 1 << 20
GUARD = 0xA5
USUAL = ["snappy", "snappy-bare", "lz4", "zstd"]
CONTENTS = st.one_of(
    st.binary(max_size=60).map(lambda piece: piece * 7),
    # Around the size of a block of each codec.
    st.sampled_from([32 << 10, 64 << 10, 128 << 10]).flatmap(lambda size: st.integers(size - 1, size + 1).map(bytes)),
    st.integers(1, 500).map(lambda size: random.Random(size).randbytes(size)),
)


def one_by_one(codec_id: int, stream: bytes) -> bytes | None:
    """Return what the reader of single streams makes of one; None where that is an error."""
    try:
        return bytes(decompressor(codec_id, 2)(memoryview(stream), LIMIT))
    except Exception as error:
        to_corrupt_error(error, codec_id)
        return None


def taken(
    codec_id: int, streams: list[bytes], *, target_bytes: int = TARGET_BYTES, filled: int = 0, full_bytes: int = 1 << 40
) -> list[bytes]:
    """Return the contents of the streams that are taken; nothing outside of the target may be written to."""
    many = many_into(codec_id)
    assert many is not None
    before = random.Random(1).randbytes(37)
    data = np.frombuffer(before + b"".join(streams), np.uint8)
    borders = len(before) + np.cumsum([0, *map(len, streams)], dtype=np.int64)
    memory = np.full(target_bytes + 64, GUARD, np.uint8)
    ends = many(data, borders[:-1], borders[1:], memory[:target_bytes], filled, full_bytes).tolist()
    assert (memory[target_bytes:] == GUARD).all()
    assert (memory[:filled] == GUARD).all()
    return [memory[start:end].tobytes() for start, end in zip([filled, *ends], ends, strict=False)]


@given(st.sampled_from(USUAL), st.lists(CONTENTS, min_size=1, max_size=8), st.integers(0, 100))
def test_usual_streams_are_taken_together(codec: str, contents: list[bytes], filled: int) -> None:
    found = taken(build.CODEC_IDS[codec], [build.compress(codec, each) for each in contents], filled=filled)
    left = contents[len(found) :]
    assert found == contents[: len(found)]
    is_too_much = left and sum(map(len, found)) + len(left[0]) > TARGET_BYTES - filled
    is_unusual = left and ((codec == "zstd" and len(left[0]) > 128 << 10) or (codec == "snappy" and not left[0]))
    assert not left or is_too_much or is_unusual


@pytest.mark.parametrize("codec", USUAL)
def test_no_more_are_taken_than_fill_the_target(codec: str) -> None:
    contents = [b"some content %d" % n for n in range(9)]
    streams, codec_id = [build.compress(codec, each) for each in contents], build.CODEC_IDS[codec]
    assert taken(codec_id, streams, full_bytes=30) == contents[:3]
    assert taken(codec_id, streams, filled=7, full_bytes=7) == []
    for target_bytes in range(40):
        assert taken(codec_id, streams, target_bytes=target_bytes) == contents[: target_bytes // len(contents[0])]


@pytest.mark.parametrize("codec", [*USUAL, "zstd-sized"])
def test_stream_cut_anywhere_or_flipped_is_taken_as_it_is_one_by_one_or_not(codec: str) -> None:
    content, codec_id = b"some content, some content, 0123456789" * 3, build.CODEC_IDS[codec]
    stream = build.compress(codec, content)
    variants = [stream[:cut] for cut in range(len(stream))]
    for bit in range(len(stream) * 8):
        flipped = bytearray(stream)
        flipped[bit // 8] ^= 1 << bit % 8
        variants.append(bytes(flipped))
    usual = build.compress("snappy" if codec_id == 2 else codec, b"usual")
    for variant in variants:
        found = taken(codec_id, [usual, variant, usual])
        want = one_by_one(codec_id, variant)
        assert found in ([], [b"usual"], [b"usual", want, b"usual"]), variant.hex()


def test_crafted_streams_are_taken_as_one_by_one_or_not() -> None:
    cases = 0
    for verdict in verdicts():
        headers = scan_headers(verdict.data)
        for batch in headers.table:
            codec_id, start = int(batch["attributes"] & 7), int(batch["position"]) + HEADER_BYTES
            if batch["magic"] == 2 and many_into(codec_id) is not None:
                stream = verdict.data[start : int(batch["position"] + batch["batch_bytes"])]
                assert taken(codec_id, [stream]) in ([], [one_by_one(codec_id, stream)]), verdict.name
                cases += 1
    assert cases > 500


@pytest.mark.parametrize("name", [name for name in bombs() if not name.startswith("gzip")])
def test_bomb_is_not_taken(name: str) -> None:
    assert taken(build.CODEC_IDS[name.partition("-")[0]], [bombs()[name]]) == []


@pytest.mark.parametrize("codec", USUAL)
def test_stream_outside_of_the_bytes_is_not_looked_at(codec: str) -> None:
    many, stream = many_into(build.CODEC_IDS[codec]), build.compress(codec, b"content")
    assert many is not None
    octets, target = np.frombuffer(stream, np.uint8), np.zeros(100, np.uint8)
    end = len(stream)
    for start, stop in ((-1, end), (0, end + 1), (end, 0), (2**62, 2**62 + 1), (-(2**62), 2**62)):
        assert not len(many(octets, np.array([start]), np.array([stop]), target, 0, 100))


@pytest.mark.parametrize("codec", USUAL)
def test_threads_take_streams_side_by_side(codec: str) -> None:
    contents = [random.Random(n).randbytes(500) * 9 for n in range(40)]
    streams = [build.compress(codec, each) for each in contents]
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: taken(build.CODEC_IDS[codec], streams), range(40)):
            assert found == contents


def test_functions_are_found_in_the_libraries_that_are_installed() -> None:
    assert native.lz4_decompress_safe()
    assert native.zstd_decompress()
    assert native.zstd_state() == native.zstd_state()


WITHOUT_FUNCTIONS = """
from sparklog.record.codecs import native
native._LZ4_MODULE, native._ZSTD_MODULE = "lz4.nothing", "nothing.at.all"
from sparklog.record.codecs.many_streams import many_frames, many_into
from tests.record.decode.test_columns import table_rows
from tests import build
from tests.build import Record
assert not native.lz4_decompress_safe() and not native.zstd_decompress()
assert many_into(3) is None and many_into(4) is None
for codec in ("lz4", "zstd"):
    log = b"".join(build.v2_batch([Record(0, 5, b"key", b"x" * 70)], base_offset=n, codec=codec) for n in range(20))
    assert [row["value"] for row in table_rows(log)] == [b"x" * 70] * 20
"""


def test_logs_are_read_where_libraries_show_no_functions() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_FUNCTIONS], check=True, timeout=300)


def framed(contents: list[bytes], free_bytes: int, target_bytes: int) -> list[bytes]:
    """Compress together; nothing may be written behind the target or into the bytes that are free before each."""
    many = many_frames("lz4", None)
    assert many is not None
    memory = np.full(target_bytes + 64, GUARD, np.uint8)
    octets, ends = np.frombuffer(b"".join(contents), np.uint8), np.cumsum([len(each) for each in contents])
    borders = [0, *many(octets, ends, free_bytes, memory[:target_bytes]).tolist()]
    assert (memory[target_bytes:] == GUARD).all()
    pieces = [memory[start:end].tobytes() for start, end in pairwise(borders)]
    assert all(piece[:free_bytes] == bytes([GUARD]) * free_bytes for piece in pieces)
    return [piece[free_bytes:] for piece in pieces]


@given(st.lists(CONTENTS, min_size=1, max_size=8), st.sampled_from([0, HEADER_BYTES]))
def test_streams_compressed_together_are_those_compressed_one_by_one(contents: list[bytes], free_bytes: int) -> None:
    single, expected = compressor("lz4"), []
    for each in contents:
        target = memoryview(bytearray(compressed_bytes_max(len(each))))
        expected.append(bytes(target[: single(memoryview(each), target)]))
    room = sum(compressed_bytes_max(len(each)) + free_bytes for each in contents)
    assert framed(contents, free_bytes, room) == expected


@pytest.mark.parametrize("content", [b"", b"x" * 900, random.Random(1).randbytes(900)])
def test_target_without_room_is_refused_and_not_written_past(content: bytes) -> None:
    """A frame of a single block needs its header, the sizes of the block and of the end, and what the block has."""
    sizes = list[int]()
    for target_bytes in range(1000):
        with suppress(AssertionError):
            sizes.append(len(framed([content], 0, target_bytes)[0]))
    # Given room, the library takes no more than it needs.
    assert set(sizes) == {len(framed([content], 0, 2000)[0])}


def test_only_the_fast_lz4_is_compressed_together() -> None:
    assert many_frames("lz4", 9) is not None
    assert [many_frames(codec, level) for codec, level in (("lz4", 5), ("none", None), ("zstd", None))] == [None] * 3


def test_without_the_function_streams_are_compressed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "lz4_compress_default", lambda: 0)
    assert many_frames("lz4", None) is None
