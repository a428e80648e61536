"""Crafted batches, and what Kafka's own classes make of each; ``python -m tests.kafka.verdicts`` makes the table.

The table is ``tests/data/verdicts/verdicts.jsonl.gz``, one JSON object a line: ``name``, ``data`` (base64, the
batches), ``rows`` (as `KafkaReader` prints them) and ``error``, null where Kafka reads all of it. The tests hold the
package to it offline, and with ``-m kafka`` they hold it to the classes.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lz4.block
import zstandard

from tests import build
from tests.build import Record
from tests.golden import DATA
from tests.kafka.jars import NEWEST_TOOLS
from tests.kafka.jvm import run_java
from tests.oracle_codecs import xxh32

VERDICTS = DATA / "verdicts" / "verdicts.jsonl.gz"
RECORDS = [Record(n, 1000 + n, b"key-%d" % n, b"value " * (n + 1)) for n in range(3)]
GZIP_BUFFER_BYTES = 8192

Stream = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Verdict:
    """Some batches, the rows that Kafka reads from them, and the error that ends them if there is one.

    A row is base offset of the batch, offset, timestamp, key, value.
    """

    name: str
    data: bytes
    rows: list[tuple[int, int, int, bytes | None, bytes | None]]
    error: str | None


def verdicts() -> list[Verdict]:
    """Return the table as it is in the tests' data."""
    lines = gzip.decompress(VERDICTS.read_bytes()).splitlines()
    return [_verdict(row["name"], base64.b64decode(row["data"]), row) for row in map(json.loads, lines)]


def judged(cases: dict[str, bytes]) -> list[Verdict]:
    """Have Kafka's classes read each case, and return what they make of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases"
        path.write_text("".join(f"{data.hex()}\n" for data in cases.values()))
        answers = run_java(NEWEST_TOOLS, ["KafkaReader", str(path)], Path(folder)).splitlines()
    return [
        _verdict(name, data, json.loads(answer)) for (name, data), answer in zip(cases.items(), answers, strict=True)
    ]


def _verdict(name: str, data: bytes, answer: dict[str, Any]) -> Verdict:
    rows = [(base, offset, time, _bytes(key), _bytes(value)) for base, offset, time, key, value in answer["rows"]]
    return Verdict(name, data, rows, answer.get("error"))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def main() -> None:
    """Write the table."""
    lines = [
        json.dumps(
            {
                "name": verdict.name,
                "data": _text(verdict.data),
                "rows": [[*row[:3], _text(row[3]), _text(row[4])] for row in verdict.rows],
                "error": verdict.error,
            }
        )
        for verdict in judged(cases())
    ]
    VERDICTS.parent.mkdir(exist_ok=True)
    VERDICTS.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    print(f"{len(lines)} cases, {VERDICTS.stat().st_size:,} bytes")


# The cases


def cases() -> dict[str, bytes]:
    """Make every case by its name, which begins with what it is about."""
    made = {
        **gzip_cases(),
        **snappy_cases(),
        **lz4_cases(),
        **zstd_cases(),
        **dict(record_cases()),
        **dict(wrapper_cases()),
    }
    assert len(made) == len({*made})
    return made


def in_v2(codec: str, stream: Stream, records: list[Record] = RECORDS) -> bytes:
    raw = b"".join(build.v2_record(record, records[0].timestamp) for record in records)
    return build.v2_batch(records, base_offset=100, codec=codec, compressed_records=stream(raw))


def in_wrapper(codec: str, stream: Stream, magic: int) -> bytes:
    inner = build.message_set(RECORDS, base_offset=100 if magic == 0 else 0, magic=magic)
    return build.legacy_wrapper(RECORDS, base_offset=100, magic=magic, codec=codec, value=stream(inner))


def cut_everywhere(stream: Stream) -> dict[str, Stream]:
    """Make each stream that a cut of the whole one may leave."""
    size = len(stream(b"".join(build.v2_record(record, 1000) for record in RECORDS)))
    return {f"cut to {end}": lambda content, end=end: stream(content)[:end] for end in range(size)}  # type: ignore[misc]


def gzip_header(flags: int = 0, *, extra: bytes = b"extra", checksum: int | None = None, method: int = 8) -> bytes:
    header = struct.pack("<HBB6s", 0x8B1F, method, flags, b"time\0\3")
    header += struct.pack("<H", len(extra)) + extra if flags & 4 else b""
    header += b"name\0" if flags & 8 else b""
    header += b"a comment\0" if flags & 16 else b""
    if flags & 2:
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF if checksum is None else checksum)
    return header


def deflated(content: bytes, level: int = 9) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, -15)
    return stream.compress(content) + stream.flush()


def member(
    content: bytes, header: bytes | None = None, *, crc: int = 0, size: int = 0, body: bytes | None = None
) -> bytes:
    trailer = struct.pack("<II", zlib.crc32(content) ^ crc, len(content) ^ size)
    return (gzip_header() if header is None else header) + (deflated(content) if body is None else body) + trailer


def members(content: bytes, count: int) -> bytes:
    step = -(-len(content) // count)
    return b"".join(member(content[n * step : (n + 1) * step]) for n in range(count))


def gzip_cases() -> dict[str, bytes]:
    streams: dict[str, Stream] = {"whole": member, "empty": lambda _: b"", "nonsense": lambda content: content}
    for count in (2, 3, 10, 300):
        streams[f"{count} members"] = lambda content, count=count: members(content, count)  # type: ignore[misc]
    for flags in range(256):
        streams[f"flags {flags}"] = lambda content, flags=flags: member(content, gzip_header(flags))  # type: ignore[misc]
        if flags < 32:
            streams[f"flags {flags} of the second member"] = (
                lambda content, flags=flags: (  # type: ignore[misc]
                    member(content[:9]) + member(content[9:], gzip_header(flags))
                )
            )
    headers = {
        "wrong header checksum": gzip_header(2, checksum=1),
        "long extra field": gzip_header(4, extra=bytes(9000)),
        "extra field past the end": gzip_header()[:3] + b"\4" + gzip_header()[4:] + b"\xff\xff",
        "name without end": gzip_header()[:3] + b"\x08" + gzip_header()[4:] + b"n" * 30,
        "another method": gzip_header(method=7),
        "another magic": b"\x1f\x8c" + gzip_header()[2:],
    }
    for name, header in headers.items():
        streams[name] = lambda content, header=header: member(content, header)  # type: ignore[misc]
        streams[f"{name}, second member"] = lambda content, header=header: member(content) + member(b"more", header)  # type: ignore[misc]
        streams[f"{name}, behind it"] = lambda content, header=header: member(content) + header  # type: ignore[misc]
    streams |= {
        "wrong crc": lambda content: member(content, crc=1),
        "wrong size": lambda content: member(content, size=1 << 31),
        "wrong crc, second member": lambda content: member(content) + member(b"", crc=1),
        "wrong size, second member": lambda content: member(content) + member(b"", size=1),
        "wrong crc, first member": lambda content: member(content[:9], crc=1) + member(content[9:]),
        "broken deflate": lambda content: member(content, body=b"\xff" + deflated(content)[1:]),
        "broken deflate, second member": lambda content: member(content) + gzip_header() + b"\xff" * 30,
        "stored block": lambda content: member(content, body=deflated(content, 0)),
        "more records, second member": lambda content: member(content) + member(b"abc"),
    }
    tails = {f"{count} zeros": bytes(count) for count in (*range(1, 40), 100, 9000)}
    tails |= {f"{count} bytes of noise": b"\xfe\x01" * (count // 2) for count in (2, 18, 20, 200, 20_000)}
    tails |= {f"{size} bytes of an empty member": member(b"")[:size] for size in range(1, 21)}
    tails |= {f"a header and {count} zeros": gzip_header() + bytes(count) for count in (*range(13), 40, 300)}
    tails |= {f"an empty member and {count} zeros": member(b"") + bytes(count) for count in (1, 18, 19, 100)}
    for name, tail in tails.items():
        streams[f"behind it {name}"] = lambda content, tail=tail: member(content) + tail  # type: ignore[misc]
    streams |= cut_everywhere(member)
    made = {f"gzip, {name}": in_v2("gzip", stream) for name, stream in streams.items()}
    for name in ("whole", "3 members", "wrong crc", "behind it 30 zeros", "broken deflate, second member"):
        for magic in (0, 1):
            made[f"gzip in magic {magic}, {name}"] = in_wrapper("gzip", streams[name], magic)
    return {**made, **dict(at_buffer_ends())}


def at_buffer_ends() -> Iterator[tuple[str, bytes]]:
    """Make streams of which the first member ends where the buffer of the JDK's reader does, or nearly."""
    noise = random.Random(5).randbytes(2 * GZIP_BUFFER_BYTES)
    tails = {"nothing": b"", "a member": member(b""), "a header": gzip_header(), "18 zeros": bytes(18)}
    for left in (-30, -20, -10, -1, 0, 1, 7, 8, 9, 17, 18, 19, 26, 27, 28):
        # Stored blocks: a byte of the stream for each of the content, and 5 a block of the header.
        records = [Record(0, 1, None, noise[: GZIP_BUFFER_BYTES - 5 - left - 12])]
        for name, tail in tails.items():
            stored = in_v2("gzip", lambda raw, tail=tail: member(raw, body=deflated(raw, 0)) + tail, records)  # type: ignore[misc]
            yield f"gzip, at the buffer's end {left}, {name}", stored


def snappy_block(content: bytes) -> bytes:
    packed = build.compress("snappy-bare", content)
    return struct.pack(">i", len(packed)) + packed


def snappy_cases() -> dict[str, bytes]:
    def header(version: int = 1, compatible_version: int = 1) -> bytes:
        return build.XERIAL_MAGIC + struct.pack(">ii", version, compatible_version)

    def two_blocks(content: bytes) -> bytes:
        return header() + snappy_block(content[:9]) + snappy_block(content[9:])

    def bare(content: bytes) -> bytes:
        return build.compress("snappy-bare", content)

    nothing = struct.pack(">i", 0)
    streams: dict[str, Stream] = {
        "empty": lambda _: b"",
        "nonsense": lambda content: content,
        "only a header": lambda _: header(),
        "a block of nothing": lambda content: (
            header() + snappy_block(content[:9]) + snappy_block(b"") + snappy_block(content[9:])
        ),
        "no bytes for a block": lambda content: (
            header() + snappy_block(content[:9]) + nothing + snappy_block(content[9:])
        ),
        "another magic in the middle": lambda content: (
            header() + snappy_block(content) + b"\x82SNAPPX\0" + struct.pack(">ii", 1, 1)
        ),
    }
    for versions in [(version, compatible) for version in (-1, 0, 1, 2) for compatible in (-1, 0, 1, 2)]:
        streams |= {
            f"versions {versions}": lambda content, versions=versions: header(*versions) + snappy_block(content),  # type: ignore[misc]
            f"versions {versions} in the middle": lambda content, versions=versions: (  # type: ignore[misc]
                header() + snappy_block(content[:9]) + header(*versions) + snappy_block(content[9:])
            ),
            f"versions {versions} at the end": lambda content, versions=versions: (  # type: ignore[misc]
                header() + snappy_block(content) + header(*versions)
            ),
        }
    for tail in (*(bytes(count) for count in (1, 2, 3, 4, 5, 8, 9)), b"\xff" * 3, b"\xff" * 4, header()[:12]):
        streams[f"behind it {tail.hex()}"] = lambda content, tail=tail: two_blocks(content) + tail  # type: ignore[misc]
        streams[f"bare, behind it {tail.hex()}"] = lambda content, tail=tail: bare(content) + tail  # type: ignore[misc]
    streams |= cut_everywhere(two_blocks) | {f"bare, {name}": cut for name, cut in cut_everywhere(bare).items()}
    made = {f"snappy, {name}": in_v2("snappy", stream) for name, stream in streams.items()}
    for magic in (0, 1):
        made[f"snappy in magic {magic}, two blocks"] = in_wrapper("snappy", two_blocks, magic)
        made[f"snappy in magic {magic}, bare"] = in_wrapper("snappy", bare, magic)
    return made


def lz4_block(content: bytes, *, stored: bool = False, checksum: int | None = None) -> bytes:
    packed = content if stored else lz4.block.compress(content, store_size=False)
    block = struct.pack("<I", len(packed) | stored << 31) + packed
    return block + (b"" if checksum is None else struct.pack("<I", xxh32(packed) ^ checksum))


def lz4_header(flags: int = 0x60, size_class: int = 0x40, *, content_size: int = 0, checksum: int = 0) -> bytes:
    descriptor = bytes([flags, size_class]) + (struct.pack("<Q", content_size) if flags & 8 else b"")
    return b"\x04\x22\x4d\x18" + descriptor + bytes([(xxh32(descriptor) >> 8 & 0xFF) ^ checksum])


def lz4_frame(content: bytes, flags: int = 0x60, size_class: int = 0x40) -> bytes:
    """Make a frame that is right, of one block, for any flags."""
    frame = lz4_header(flags, size_class, content_size=len(content))
    frame += lz4_block(content, checksum=0 if flags & 0x10 else None) + bytes(4)
    return frame + (struct.pack("<I", xxh32(content)) if flags & 4 else b"")


def lz4_cases() -> dict[str, bytes]:
    end = bytes(4)
    streams: dict[str, Stream] = {"empty": lambda _: b"", "nonsense": lambda content: content}
    for flags in range(256):
        streams[f"flags {flags:02x}"] = lambda content, flags=flags: lz4_frame(content, flags)  # type: ignore[misc]
    for size_class in range(256):
        streams[f"size class {size_class:02x}"] = lambda content, size=size_class: lz4_frame(content, 0x60, size)  # type: ignore[misc]
    streams |= {
        "wrong header checksum": lambda content: lz4_header(checksum=1) + lz4_block(content) + end,
        "wrong content size": lambda content: lz4_header(0x68, content_size=5) + lz4_block(content) + end,
        "huge content size": lambda content: lz4_header(0x68, content_size=1 << 63) + lz4_block(content) + end,
        "wrong header checksum behind a content size": lambda content: (
            lz4_header(0x68, content_size=len(content), checksum=1) + lz4_block(content) + end
        ),
        "wrong content checksum": lambda content: lz4_frame(content, 0x64)[:-1] + b"?",
        "wrong block checksum": lambda content: lz4_header(0x70) + lz4_block(content, checksum=1) + end,
        "stored": lambda content: lz4_header() + lz4_block(content, stored=True) + end,
        "stored, with a checksum": lambda content: lz4_header(0x70) + lz4_block(content, stored=True, checksum=0) + end,
        "stored, with a wrong checksum": lambda content: (
            lz4_header(0x70) + lz4_block(content, stored=True, checksum=1) + end
        ),
        "two blocks": lambda content: lz4_header() + lz4_block(content[:9]) + lz4_block(content[9:]) + end,
        "a block and a stored one": lambda content: (
            lz4_header() + lz4_block(content[:9]) + lz4_block(content[9:], stored=True) + end
        ),
        "a stored block of nothing ends it": lambda content: lz4_header() + lz4_block(content) + b"\0\0\0\x80",
        "a stored block of nothing in the middle": lambda content: (
            lz4_header() + lz4_block(content[:9]) + b"\0\0\0\x80" + lz4_block(content[9:]) + end
        ),
        "a block of nothing": lambda content: lz4_header() + lz4_block(content) + lz4_block(b"") + end,
        "a block of nothing in the middle": lambda content: (
            lz4_header() + lz4_block(content[:9]) + lz4_block(b"") + lz4_block(content[9:]) + end
        ),
        "a block of nothing first": lambda content: lz4_header() + lz4_block(b"") + lz4_block(content) + end,
        "no end": lambda content: lz4_header() + lz4_block(content),
        "broken block": lambda _: lz4_header() + struct.pack("<I", 2) + b"\xff\xff" + end,
        "linked blocks": lambda content: lz4_frame(content, 0x40),
        "skippable frame first": lambda content: struct.pack("<II", 0x184D2A50, 2) + b"ab" + lz4_frame(content),
        "two frames": lambda content: lz4_frame(content[:9]) + lz4_frame(content[9:]),
        "legacy frame": lambda content: b"\x02\x21\x4c\x18" + lz4_block(content),
        "only a header": lambda _: lz4_header(),
        "only a header and an end": lambda _: lz4_header() + end,
    }
    for count in (1, 2, 4, 7, 30, 9000):
        streams[f"behind it {count} zeros"] = lambda content, count=count: lz4_frame(content) + bytes(count)  # type: ignore[misc]
        streams[f"behind it {count} bytes"] = lambda content, count=count: lz4_frame(content) + b"\xfe" * count  # type: ignore[misc]
        streams[f"behind a checksum {count} bytes"] = lambda content, n=count: lz4_frame(content, 0x64) + b"\xfe" * n  # type: ignore[misc]
    for flags in (0x60, 0x64, 0x68, 0x70, 0x7C):
        cuts = cut_everywhere(lambda content, flags=flags: lz4_frame(content, flags))  # type: ignore[misc]
        streams |= {f"flags {flags:02x}, {name}": stream for name, stream in cuts.items()}
    made = {f"lz4, {name}": in_v2("lz4", stream) for name, stream in streams.items()}
    for name, stream in streams.items():
        if "cut" not in name and "class" not in name and ("flags" not in name or name[6:7] in "67"):
            made |= {f"lz4 in magic {magic}, {name}": in_wrapper("lz4", stream, magic) for magic in (0, 1)}
    return {**made, **dict(lz4_blocks_of_any_length())}


def lz4_blocks_of_any_length() -> Iterator[tuple[str, bytes]]:
    for size_class in (0x40, 0x50, 0x60, 0x70):
        most = 1 << 2 * (size_class >> 4) + 8
        for more in (-1, 0, 1):
            # A record that makes the content as long as a block may be, or a byte more or less.
            records = [Record(0, 1, None, bytes(most + more - 14))]
            frame = lambda raw, size_class=size_class: lz4_frame(raw, 0x60, size_class)  # noqa: E731
            yield f"lz4, class {size_class:02x}, {more:+d} bytes", in_v2("lz4", frame, records)
            if size_class == 0x40:
                stored = lambda raw: lz4_header() + lz4_block(raw, stored=True) + bytes(4)  # noqa: E731
                yield f"lz4, stored, {more:+d} bytes", in_v2("lz4", stored, records)


def zstd_frame(content: bytes, **options: Any) -> bytes:
    options = {"write_content_size": False, "write_checksum": False, **options}
    stream = zstandard.ZstdCompressor(**options).compressobj(size=len(content) if options["write_content_size"] else -1)
    return stream.compress(content) + stream.flush()


def zstd_cases() -> dict[str, bytes]:
    def checked(content: bytes) -> bytes:
        return zstd_frame(content, write_checksum=True)

    skippable = struct.pack("<II", 0x184D2A5F, 4) + b"skip"
    streams: dict[str, Stream] = {
        "whole": zstd_frame,
        "empty": lambda _: b"",
        "nonsense": lambda content: content,
        "with its size": lambda content: zstd_frame(content, write_content_size=True),
        "checksum": checked,
        "wrong checksum": lambda content: checked(content)[:-1] + b"?",
        "two frames": lambda content: zstd_frame(content[:9]) + zstd_frame(content[9:]),
        "an empty frame behind it": lambda content: zstd_frame(content) + zstd_frame(b""),
        "an empty frame before it": lambda content: zstd_frame(b"") + zstd_frame(content),
        "skippable before it": lambda content: skippable + zstd_frame(content),
        "skippable behind it": lambda content: zstd_frame(content) + skippable,
        "skippable cut behind it": lambda content: zstd_frame(content) + skippable[:-1],
        "only skippable": lambda _: skippable,
        "raw block": lambda content: b"\x28\xb5\x2f\xfd\0\x58" + struct.pack("<I", 1 | len(content) << 3)[:3] + content,
        "reserved block": lambda content: (
            b"\x28\xb5\x2f\xfd\0\x58" + struct.pack("<I", 7 | len(content) << 3)[:3] + content
        ),
        "window of 2 GiB": lambda content: (
            b"\x28\xb5\x2f\xfd\0\xa8" + struct.pack("<I", 1 | len(content) << 3)[:3] + content
        ),
        "reserved bit": lambda content: zstd_frame(content)[:4] + b"\x08" + zstd_frame(content)[5:],
        "another magic": lambda content: b"\x27" + zstd_frame(content)[1:],
        "more records behind it": lambda content: zstd_frame(content) + zstd_frame(b"abc"),
    }
    for count in (*range(1, 12), 40, 9000):
        streams[f"behind it {count} zeros"] = lambda content, count=count: zstd_frame(content) + bytes(count)  # type: ignore[misc]
    for name, stream in {"": zstd_frame, "checksum, ": checked}.items():
        streams |= {f"{name}{cut}": found for cut, found in cut_everywhere(stream).items()}
        streams |= {
            f"{name}second frame cut to {size}": lambda content, stream=stream, size=size: (  # type: ignore[misc]
                stream(content) + stream(b"")[:size]
            )
            for size in range(1, 13)
        }
    return {f"zstd, {name}": in_v2("zstd", stream) for name, stream in streams.items()}


def record_cases() -> Iterator[tuple[str, bytes]]:
    """Make v2 batches whose header and records do not agree."""

    def rows(*deltas: int) -> list[Record]:
        return [Record(delta, 1000 + n, b"k", b"v") for n, delta in enumerate(deltas)]

    three = rows(0, 1, 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for last in (0, 1, 2, 5):
            batch = build.v2_batch(three, base_offset=10, codec=codec, last_offset_delta=last)
            yield f"records {codec}, last offset delta {last}", batch
            after = build.v2_batch(three, base_offset=20, codec=codec)
            yield f"records {codec}, last offset delta {last}, and a batch", batch + after
        yield (
            f"records {codec}, deltas above the last, with a gap",
            build.v2_batch(rows(0, 1, 6), base_offset=10, codec=codec, last_offset_delta=1),
        )
        overlap = build.v2_batch(rows(0, 1, 6), base_offset=10, codec=codec, last_offset_delta=1)
        yield (
            f"records {codec}, overlap by deltas above the last",
            overlap + build.v2_batch(three, base_offset=14, codec=codec),
        )
        for name, deltas in {"negative": (-1, 0), "equal": (0, 0), "descending": (2, 1)}.items():
            batch = build.v2_batch(rows(*deltas), base_offset=10, codec=codec, last_offset_delta=2)
            yield f"records {codec}, disorder: {name} deltas", batch
        for count in (0, 1, 2, 4, 50_000_000, 2**31 - 1):
            last = max(count, 3) - 1
            batch = build.v2_batch(three, base_offset=10, codec=codec, record_count=count, last_offset_delta=last)
            yield f"records {codec}, count {count}", batch
        for name, raw in {"nothing": b"", "7 zeros": bytes(7), "21 zeros": bytes(21)}.items():
            batch = build.v2_batch(three, codec=codec, compressed_records=build.compress(codec, raw))
            yield f"records {codec}, {name} inside", batch
        yield f"records {codec}, no body", build.v2_batch(three, codec=codec, compressed_records=b"")
        yield f"records {codec}, body of noise", build.v2_batch(three, codec=codec, compressed_records=b"\xa5" * 40)
        yield f"records {codec}, none, and no body", build.v2_batch([], codec=codec, record_count=0)
        yield (
            f"records {codec}, none, and a body",
            build.v2_batch([], codec=codec, record_count=0, compressed_records=b"abc"),
        )


def wrapper_cases() -> Iterator[tuple[str, bytes]]:
    """Make wrappers of magic 0 and 1 whose own offset says one thing and what is inside another."""
    gaps = [Record(0, 1000, b"a", b"1"), Record(2, 1001, None, b"2"), Record(5, 1002, b"c", None)]
    for codec in ("gzip", "snappy", "lz4"):
        for magic in (0, 1):
            options: dict[str, Any] = {"codec": codec, "magic": magic}
            lead = f"wrapper of magic {magic}, {codec}"
            yield f"{lead}, right", build.legacy_wrapper(gaps, base_offset=40, **options)
            yield f"{lead}, at 0", build.legacy_wrapper(RECORDS, base_offset=0, **options)
            yield f"{lead}, offset 0", build.legacy_wrapper(RECORDS, base_offset=0, offset=0, **options)
            yield (
                f"{lead}, offset 0 over absolute",
                (build.legacy_wrapper(gaps, base_offset=40, offset=0, relative=False, **options)),
            )
            yield f"{lead}, one message at 0", build.legacy_wrapper(RECORDS[:1], base_offset=0, **options)
            for offset in (3, 39, 40, 44, 46, 1000):
                wrapper = build.legacy_wrapper(gaps, base_offset=40, offset=offset, **options)
                yield f"{lead}, offset {offset} instead of 45", wrapper
            absolute = build.legacy_wrapper(gaps, base_offset=40, relative=False, offset=44, **options)
            yield f"{lead}, offset below the last inside", absolute
            inner = build.message_set(RECORDS, magic=magic)
            yield f"{lead}, inner cut short", build.legacy_wrapper(RECORDS, inner=inner[:-1], **options)
            yield f"{lead}, nothing inside", build.legacy_wrapper(RECORDS, inner=b"", **options)
            yield f"{lead}, inner twice", build.legacy_wrapper(RECORDS, inner=inner + inner, **options)
    # Kafka's testIterateCompressedRecordWithWrapperOffsetZero.
    zero = [Record(n, n + 1, b"%d" % n, b"%d" % n) for n in range(3)]
    yield "wrapper of Kafka's own test, offset zero", build.legacy_wrapper(zero, codec="gzip", offset=0)


if __name__ == "__main__":
    main()
