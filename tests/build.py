"""Builders of Kafka's bytes for tests: slow, flexible, and as willing to write damage as sense.

Every field can be set by hand; what is not given is what Kafka would write. `tests.strategies` draws from these.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import crc32c
import lz4.block
import snappy
import zstandard

# How a stream can be written: the id in the attributes, by the name of the writer.
CODEC_IDS = {
    "none": 0,
    "gzip": 1,
    "gzip-members": 1,  # two members, one after another
    "snappy": 2,  # xerial's framing
    "snappy-bare": 2,  # one block without it, as old librdkafka wrote
    "lz4": 3,
    "lz4-broken-checksum": 3,  # the header checksum that brokers of magic 0 wrote (KAFKA-3160)
    "zstd": 4,
    "zstd-sized": 4,  # with the content size, which zstd-jni leaves out
}
LEGACY_CODECS = [codec for codec, code in CODEC_IDS.items() if code < 4]

V2_HEADER = struct.Struct(">qiibIhiqqqhii")
V2_OVERHEAD = 61
assert V2_HEADER.size == V2_OVERHEAD

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 << 10
LZ4_BLOCK_BYTES = 64 << 10
LZ4_HEADER = bytes.fromhex("04224d18604082")
LZ4_HEADER_BROKEN = bytes.fromhex("04224d1860401a")
# What an index of the active segment is preallocated to here; Kafka takes segment.index.bytes.
PREALLOCATED_BYTES = 1 << 10


@dataclass(frozen=True)
class Record:
    """One record to write; the timestamp is absolute, in ms, and a header's key may be bytes that are no UTF-8."""

    offset_delta: int = 0
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str | bytes, bytes | None]] = ()


# Primitives


def uvarint(n: int, *, bits: int = 32) -> bytes:
    """Base-128, low bits first; a negative number is written as its two's complement of `bits` bits."""
    n &= (1 << bits) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def varint(n: int) -> bytes:
    return uvarint(n << 1 ^ n >> 31)


def varlong(n: int) -> bytes:
    return uvarint(n << 1 ^ n >> 63, bits=64)


def int64(n: int) -> int:
    """Wrap as Java's long does."""
    return (n + 2**63) % 2**64 - 2**63


# Codecs


def compress(codec: str, data: bytes) -> bytes:
    """Compress one stream as the writer of that name does (keys of `CODEC_IDS`)."""
    match codec:
        case "none":
            return data
        case "gzip":
            return gzip.compress(data, mtime=0)
        case "gzip-members":
            half = len(data) // 2
            return gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)
        case "snappy":
            blocks = [bytes(snappy.compress(block)) for block in _cut(data, XERIAL_BLOCK_BYTES)]
            return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        case "snappy-bare":
            return bytes(snappy.compress(data))
        case "lz4":
            return LZ4_HEADER + _lz4_blocks(data)
        case "lz4-broken-checksum":
            return LZ4_HEADER_BROKEN + _lz4_blocks(data)
        case "zstd":
            stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
            return stream.compress(data) + stream.flush()
        case "zstd-sized":
            return zstandard.ZstdCompressor().compress(data)
    raise ValueError(f"no writer named {codec}")


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _lz4_blocks(data: bytes) -> bytes:
    out = b""
    for block in _cut(data, LZ4_BLOCK_BYTES):
        packed = lz4.block.compress(block, store_size=False)
        if len(packed) < len(block):
            out += struct.pack("<I", len(packed)) + packed
        else:
            out += struct.pack("<I", len(block) | 0x80000000) + block
    return out + struct.pack("<I", 0)


# Magic 2


def v2_record(record: Record, base_timestamp: int = 0) -> bytes:
    body = b"\0" + varlong(int64(record.timestamp - base_timestamp)) + varint(record.offset_delta)
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += _sized(key.encode() if isinstance(key, str) else key) + _sized(value)
    return varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def v2_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: str = "none",
    leader_epoch: int = 0,
    log_append_time: bool = False,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    transactional: bool = False,
    control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    attributes: int | None = None,
    crc: int | None = None,
    raw_records: bytes | None = None,
    compressed_records: bytes | None = None,
    length: int | None = None,
    magic: int = 2,
) -> bytes:
    """Encode a batch of magic 2.

    Parameters
    ----------
    base_timestamp : int, optional
        What the records' deltas count from: the delete horizon if there is one, else the first record's timestamp.
    raw_records : bytes, optional
        Written, compressed, in place of the encoded records.
    compressed_records : bytes, optional
        Written as they are in place of the compressed records.
    """
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else -1
        base_timestamp = base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=-1)
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset_delta if records else 0
    if attributes is None:
        attributes = CODEC_IDS[codec] | log_append_time << 3 | transactional << 4 | control << 5
        attributes |= (delete_horizon_ms is not None) << 6
    if raw_records is None:
        raw_records = b"".join(v2_record(record, base_timestamp) for record in records)
    if compressed_records is None:
        # A batch that the cleaner emptied has no stream, not an empty one.
        compressed_records = compress(codec, raw_records) if records or raw_records else b""
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if record_count is None else record_count,
    )
    checked += compressed_records
    crc = crc32c.crc32c(checked) if crc is None else crc
    length = 9 + len(checked) if length is None else length
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + checked


def empty_batch(base_offset: int, last_offset: int, **fields: Any) -> bytes:
    """Encode a batch whose records are all compacted away: 61 bytes, kept for its offsets and producer."""
    return v2_batch([], base_offset=base_offset, last_offset_delta=last_offset - base_offset, **fields)


CONTROL_TYPES = {"abort": 0, "commit": 1, "leader-change": 2, "snapshot-header": 3, "snapshot-footer": 4}


def control_batch(
    kind: str | int,
    offset: int,
    producer_id: int,
    producer_epoch: int = 0,
    timestamp: int = 0,
    *,
    key_version: int = 0,
    coordinator_epoch: int = 0,
    key: bytes | None = None,
    value: bytes | None = None,
    **fields: Any,
) -> bytes:
    """Encode a marker: ``"commit"``, ``"abort"``, or any number as the type of a control record."""
    code = CONTROL_TYPES[kind] if isinstance(kind, str) else kind
    key = struct.pack(">hh", key_version, code) if key is None else key
    value = struct.pack(">hi", 0, coordinator_epoch) if value is None else value
    fields = {"transactional": True, "control": True, **fields}
    record = Record(0, timestamp, key, value)
    return v2_batch([record], base_offset=offset, producer_id=producer_id, producer_epoch=producer_epoch, **fields)


# Magic 0 and 1


def legacy_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp: int = -1,
    codec_bits: int = 0,
    log_append_time: bool = False,
    attributes: int | None = None,
    size: int | None = None,
    crc: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """Encode one message; `tail` follows the value inside it."""
    if attributes is None:
        attributes = codec_bits | log_append_time << 3
    checked = struct.pack(">bb", magic, attributes)
    if magic > 0:
        checked += struct.pack(">q", timestamp)
    for data in (key, value):
        checked += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    checked += tail
    crc = zlib.crc32(checked) if crc is None else crc
    size = 4 + len(checked) if size is None else size
    return struct.pack(">qiI", offset, size, crc) + checked


def legacy_wrapper(
    records: Sequence[Record],
    *,
    magic: int = 1,
    codec: str = "gzip",
    base_offset: int = 0,
    offset: int | None = None,
    relative: bool | None = None,
    timestamp: int | None = None,
    log_append_time: bool = False,
    inner_magic: int | None = None,
    inner: bytes | None = None,
    value: bytes | None = None,
    **fields: Any,
) -> bytes:
    """Encode a compressed wrapper around messages.

    Parameters
    ----------
    base_offset : int
        What the records' offset deltas are added to.
    offset : int, optional
        The wrapper's own; that of the last record, unless given. Old librdkafka wrote 0.
    relative : bool, optional
        Whether the inner offsets are the deltas (magic 1) or absolute (magic 0).
    timestamp : int, optional
        The wrapper's own; the largest of the records', unless given.
    inner : bytes, optional
        Written, compressed, in place of the encoded messages.
    value : bytes, optional
        Written as it is in place of the compressed messages.
    **fields
        Of `legacy_message`, for the wrapper.
    """
    relative = magic > 0 if relative is None else relative
    start = 0 if relative else base_offset
    if offset is None:
        offset = base_offset + (records[-1].offset_delta if records else 0)
    if timestamp is None:
        timestamp = max((record.timestamp for record in records), default=-1)
    if inner is None:
        inner = message_set(records, base_offset=start, magic=magic if inner_magic is None else inner_magic)
    value = compress(codec, inner) if value is None else value
    fields = {"codec_bits": CODEC_IDS[codec], **fields}
    return legacy_message(
        offset, None, value, magic=magic, timestamp=timestamp, log_append_time=log_append_time, **fields
    )


def message_set(records: Iterable[Record], *, base_offset: int = 0, magic: int = 1) -> bytes:
    """Encode plain messages one after another."""
    return b"".join(
        legacy_message(
            base_offset + record.offset_delta, record.key, record.value, magic=magic, timestamp=record.timestamp
        )
        for record in records
    )


# The files of a partition


def offset_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """Encode (relative offset, position) pairs."""
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """Encode (timestamp, relative offset) pairs."""
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def txn_index(entries: Iterable[tuple[int, int, int, int]], *, version: int = 0) -> bytes:
    """Encode aborted transactions: (producer id, first offset, last offset, last stable offset)."""
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


@dataclass(frozen=True)
class ProducerEntry:
    """One producer in a snapshot, as ProducerSnapshot.json names its fields."""

    producer_id: int
    producer_epoch: int = 0
    last_sequence: int = 0
    last_offset: int = 0
    offset_delta: int = 0
    timestamp: int = 0
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1


def producer_snapshot(entries: Iterable[ProducerEntry], *, version: int = 1, crc: int | None = None) -> bytes:
    """Encode a producer snapshot; its offset is in the file's name only (`producer_snapshot_name`)."""
    packed = [
        struct.pack(
            ">qhiqiqiq",
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    checked = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", version, crc32c.crc32c(checked) if crc is None else crc) + checked


def producer_snapshot_name(offset: int) -> str:
    return f"{offset:020d}.snapshot"


def offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> str:
    """Encode a checkpoint of (topic, partition) to offset."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines])


def leader_epoch_checkpoint(entries: Sequence[tuple[int, int]]) -> str:
    """Encode (epoch, start offset) pairs."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines])


@dataclass
class SegmentWriter:
    """One segment and its indexes, grown batch by batch as Kafka's LogSegment.append does."""

    base_offset: int
    index_interval_bytes: int
    log: bytearray = field(default_factory=bytearray)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    bytes_since_entry: int = 0
    max_timestamp: int = -1
    max_timestamp_offset: int = -1

    def append(self, batch: bytes) -> None:
        last_offset, max_timestamp = _last_offset(batch), _max_timestamp(batch)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            self.offsets.append((last_offset - self.base_offset, len(self.log)))
            self.append_time_entry()
            self.bytes_since_entry = 0
        self.log += batch
        self.bytes_since_entry += len(batch)

    def append_time_entry(self) -> None:
        if self.max_timestamp > (self.times[-1][0] if self.times else -1):
            self.times.append((self.max_timestamp, self.max_timestamp_offset - self.base_offset))

    def write(self, folder: Path, *, with_indexes: bool, is_closed: bool) -> None:
        if is_closed:
            self.append_time_entry()
        stem = f"{self.base_offset:020d}"
        (folder / f"{stem}.log").write_bytes(self.log)
        if not with_indexes:
            return
        for suffix, index, entry_bytes in (
            ("index", offset_index(self.offsets), 8),
            ("timeindex", time_index(self.times), 12),
        ):
            preallocated_bytes = 0 if is_closed else PREALLOCATED_BYTES // entry_bytes * entry_bytes
            (folder / f"{stem}.{suffix}").write_bytes(index.ljust(preallocated_bytes, b"\0"))


def write_partition(
    folder: Path,
    batches: Sequence[bytes],
    *,
    base_offset: int = 0,
    index_interval_bytes: int = 4096,
    segment_bytes: int | None = None,
    with_indexes: bool = True,
    is_clean: bool = True,
) -> None:
    """Write batches as the segments of a partition, as Kafka 4 would.

    Parameters
    ----------
    batches : sequence of bytes
        Each one whole batch, or one message or wrapper of magic 0 and 1.
    base_offset : int
        Of the first segment. A later one begins at its first batch (magic 2), or after the batch before it.
    segment_bytes : int, optional
        Roll before a segment grows past this.
    is_clean : bool
        As a broker that was stopped leaves the last segment; else as one that died does: its indexes end in zeros and
        the final time entry is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    segment = SegmentWriter(base_offset, index_interval_bytes)
    next_offset = base_offset
    for batch in batches:
        if segment_bytes is not None and segment.log and len(segment.log) + len(batch) > segment_bytes:
            segment.write(folder, with_indexes=with_indexes, is_closed=True)
            first_offset = struct.unpack_from(">q", batch)[0] if batch[16] == 2 else next_offset
            segment = SegmentWriter(first_offset, index_interval_bytes)
        segment.append(batch)
        next_offset = _last_offset(batch) + 1
    segment.write(folder, with_indexes=with_indexes, is_closed=is_clean)


def _last_offset(batch: bytes) -> int:
    (offset,) = struct.unpack_from(">q", batch)
    if batch[16] == 2:
        offset += struct.unpack_from(">i", batch, 23)[0]
    return int(offset)


def _max_timestamp(batch: bytes) -> int:
    position = {0: None, 1: 18, 2: 35}[batch[16]]
    return -1 if position is None else int(struct.unpack_from(">q", batch, position)[0])
