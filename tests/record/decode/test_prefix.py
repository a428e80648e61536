"""Records of the beginning of a damaged batch: those before the damage are right, and nothing else is made of it."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from itertools import accumulate
from typing import Any

import lz4.block
import pytest
import snappy
import zstandard

from sparklog.record.batches.framing import scan_headers
from sparklog.record.codecs.table import decompressed_prefix
from sparklog.record.decode.columns import decode_batches
from sparklog.record.decode.prefix import readable_prefix
from tests.build import CODEC_IDS, LEGACY_CODECS, V2_OVERHEAD, Record, compress, legacy_wrapper, v2_batch, v2_record

Row = tuple[int, int, bytes | None, bytes | None]
FIRST = 7
# An error of a library costs the content of at most so many bytes before it.
STEP_BYTES = 64
COMPRESSED = [codec for codec in CODEC_IDS if codec not in ("none", "gzip-members")]


def records_of(count: int, bytes_max: int) -> list[Record]:
    rng = random.Random(count)
    return [
        Record(n, timestamp=n, key=b"k%d" % n, value=rng.randbytes(rng.randint(1, bytes_max)) + b"x" * rng.randrange(9))
        for n in range(count)
    ]


def rows_of(records: list[Record]) -> list[Row]:
    return [(FIRST + each.offset_delta, each.timestamp, each.key, each.value) for each in records]


def given(batch: bytes, count: int) -> list[Row]:
    """Return the rows that the prefix of a batch has; its neighbours leave it the offsets of `count` records."""
    prefix = readable_prefix(memoryview(batch), FIRST, FIRST + count)
    if prefix is None:
        return []
    headers = scan_headers(memoryview(prefix))
    assert headers.valid_bytes == len(prefix)
    rows: list[Row] = []
    for part in decode_batches(memoryview(prefix), headers):
        times = part["timestamp"].cast("int64").to_pylist()
        rows += zip(part["offset"].to_pylist(), times, part["key"].to_pylist(), part["value"].to_pylist(), strict=True)
    offsets = [row[0] for row in rows]
    assert offsets == sorted({each for each in offsets if FIRST <= each < FIRST + count})
    return rows


def damaged(batch: bytes, position: int) -> list[bytes]:
    """Return a batch with a flipped byte at a position, and with zeros from there on."""
    flipped = batch[:position] + bytes([batch[position] ^ 0x41]) + batch[position + 1 :]
    return [flipped, batch[:position] + bytes(len(batch[position : position + 16])) + batch[position + 16 :]]


def content_before(codec: str, stream: bytes, position: int) -> bytes:
    """Return the content that is whole in the bytes of a stream before a position, as the slow way finds it."""
    if codec == "none":
        return stream[:position]
    if codec == "gzip":
        return zlib.decompressobj(31).decompress(stream[: max(position - STEP_BYTES, 0)])
    if codec.startswith("zstd"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(stream[: max(position - STEP_BYTES, 0)])
    if codec == "snappy-bare":
        return b""
    content, at, is_lz4 = b"", 7 if codec.startswith("lz4") else 16, codec.startswith("lz4")
    while at + 4 <= position:
        (size,) = struct.unpack_from("<I" if is_lz4 else ">I", stream, at)
        block, at = stream[at + 4 :][: size & 0x7FFFFFFF], at + 4 + (size & 0x7FFFFFFF)
        if at > position - (STEP_BYTES if is_lz4 else 0) or not size:
            break
        if is_lz4:
            stored = size & 0x80000000
            content += block if stored else lz4.block.decompress(block, uncompressed_size=1 << 16)
        else:
            content += snappy.uncompress(block)
    return content


@pytest.mark.parametrize("codec", [*COMPRESSED, "none"])
@pytest.mark.parametrize(("count", "bytes_max", "step"), [(6, 30, 1), (260, 1500, 1999)], ids=["small", "large"])
def test_records_before_damage_are_given_and_no_others_are_made(
    codec: str, count: int, bytes_max: int, step: int
) -> None:
    records = records_of(count, bytes_max)
    rows, batch = rows_of(records), v2_batch(records, base_offset=FIRST, codec=codec)
    ends, most = list(accumulate(len(v2_record(each)) for each in records)), 0
    for position in range(17, len(batch), step):
        whole = content_before(codec, batch[V2_OVERHEAD:], max(position - V2_OVERHEAD, 0))
        exact = sum(end <= len(whole) for end in ends)
        for other in damaged(batch, position):
            found = given(other, count)
            assert len(found) >= exact, position
            assert found[:exact] == rows[:exact], position
            if codec != "none" and position >= V2_OVERHEAD:
                most = max(most, exact)
            elif codec == "none" and position >= V2_OVERHEAD:
                # Only the records in the damaged bytes are wrong, up to the first that does not decode.
                last = sum(end <= position - V2_OVERHEAD + 16 for end in ends)
                assert found[last + 1 :] == rows[last + 1 :][: len(found[last + 1 :])], position
                most = max(most, exact)
    assert codec == "snappy-bare" or count == 6 or most > count // 2


@pytest.mark.parametrize("codec", [codec for codec in LEGACY_CODECS if codec not in ("none", "gzip-members")])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("count", "bytes_max", "step"), [(6, 30, 1), (130, 1500, 1999)], ids=["small", "large"])
def test_messages_of_a_damaged_wrapper_are_exact(codec: str, magic: int, count: int, bytes_max: int, step: int) -> None:
    """Each message has a checksum of its own: all that are given are right, and have their offsets."""
    records = records_of(count, bytes_max)
    fields: dict[str, Any] = {"magic": magic, "codec": codec, "base_offset": FIRST}
    rows, most = rows_of(records), 0
    if magic == 0:
        rows = [(offset, -1, key, value) for offset, _, key, value in rows]
    wrapper = legacy_wrapper(records, **fields)
    for position in range(18 if magic else 17, len(wrapper), step):
        for other in damaged(wrapper, position):
            found = [(offset, -1 if magic == 0 else time, *rest) for offset, time, *rest in given(other, count)]
            assert found == rows[: len(found)], position
            most = max(most, len(found))
    assert most > count // 2 or (magic, codec) == (1, "lz4-broken-checksum")


def test_append_time_of_a_wrapper_is_that_of_its_messages() -> None:
    records = records_of(4, 20)
    wrapper = legacy_wrapper(records, base_offset=FIRST, timestamp=99, log_append_time=True)
    found = given(wrapper[:12] + bytes(4) + wrapper[16:], 4)
    assert found == [(offset, 99, key, value) for offset, _, key, value in rows_of(records)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_offsets_in_a_wrapper_of_magic_1_that_are_not_known_give_no_record(codec: str) -> None:
    """The last message is gone, or compaction left a gap before it."""
    records = records_of(6, 20)
    gapped = legacy_wrapper([records[0], *records[2:]], codec=codec, base_offset=FIRST)
    assert given(gapped[:12] + bytes(4) + gapped[16:], 6) == []
    inner = b"".join(struct.pack(">q", n) + legacy_wrapper([each], codec="gzip")[8:] for n, each in enumerate(records))
    nested = legacy_wrapper(records, codec=codec, base_offset=FIRST, inner=inner)
    assert given(nested[:12] + bytes(4) + nested[16:], 6) == []
    assert given(nested[:30] + bytes(4) + nested[34:], 6) == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_content_stops_at_the_limit_and_memory_does_not_follow_the_stream(codec: str) -> None:
    stream = memoryview(compress(codec, bytes(1 << 26))[:-1])
    tracemalloc.start()
    content = decompressed_prefix(CODEC_IDS[codec], 2, stream, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert content == bytes(1 << 20)
    assert peak < 1 << 24
    assert decompressed_prefix(5, 2, stream, 1 << 20) == decompressed_prefix(4, 1, stream, 1 << 20) == b""


def test_raw_block_of_snappy_that_claims_more_than_the_limit_gives_nothing() -> None:
    stream = memoryview(compress("snappy-bare", bytes(1 << 22)))
    assert decompressed_prefix(2, 2, stream, 1 << 20) == b""
    assert len(decompressed_prefix(2, 2, stream, 1 << 22)) == 1 << 22
