"""The slow, obvious decoder of Kafka logs that the compiled one is compared with.

It shares no code with the package: pure Python, `struct` and the codec libraries. Its rules are those of Kafka's own
reader (DefaultRecordBatch, AbstractLegacyRecordBatch, CompletedFetch); where Kafka passes over damage in silence
(a message cut short inside a compressed wrapper) it raises instead.

    byte  size  magic 0 and 1             byte  size  magic 2
    0     8     offset (the last inner)   0     8     base_offset
    8     4     size of what follows      8     4     size of what follows
    12    4     crc32 of what follows     12    4     leader_epoch
    16    1     magic                     16    1     magic
    17    1     attributes                17    4     crc32c of what follows
    18    8     timestamp (magic 1)       21    2     attributes
          4     key length, key           23    4     last_offset_delta
          4     value length, value       27    8     base_timestamp, or the delete horizon
                                          35    8     max_timestamp
                                          43    8     producer_id
                                          51    2     producer_epoch
                                          53    4     base_sequence
                                          57    4     record_count
                                          61          records, compressed as one stream
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import crc32c

from tests.oracle_codecs import OracleError, Reader, decompress

__all__ = [
    "ABORT",
    "COMMIT",
    "OracleBatch",
    "OracleError",
    "OracleRecord",
    "control_type",
    "decode_log",
    "increment_sequence",
    "java_utf8",
    "last_stable_offset",
    "read_committed",
    "whole_bytes",
]

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
LOG_OVERHEAD = 12
MAGIC_POSITION = 16
MESSAGE_BYTES_MIN = 14
LEGACY_HEADERS = {0: struct.Struct(">qiIbb"), 1: struct.Struct(">qiIbbq")}
V2_HEADER = struct.Struct(">qiibIhiqqqhii")
assert V2_HEADER.size == 61

TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, CONTROL_BIT = 0x08, 0x10, 0x20
ABORT, COMMIT = 0, 1
INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class OracleRecord:
    """One record as a consumer is given it.

    `timestamp_type` is that of the batch (what `ConsumerRecord.timestampType` says), even where a magic 1 wrapper
    holds magic 0 messages, whose timestamp is -1.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    sequence: int = -1


@dataclass(frozen=True, kw_only=True)
class OracleBatch:
    """One batch; of magic 0 and 1, one message or one compressed wrapper.

    Notes
    -----
    `last_offset` is what the header says: a wrapper of old librdkafka says 0 although its records go further.
    `base_timestamp` is the field of the header: the delete horizon where attribute bit 6 is set; of magic 1 the
    message's timestamp. `record_count` is the header's: 1 for a plain message, -1 for a wrapper, which does not say.
    """

    position: int
    size_bytes: int
    magic: int
    attributes: int
    codec: str
    is_control: bool = False
    is_transactional: bool = False
    timestamp_type: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    leader_epoch: int = -1
    record_count: int
    records: list[OracleRecord]


# The walk over batches


def whole_bytes(data: bytes) -> int:
    """Position after the last whole batch: where a torn tail, or one of zeros, begins."""
    end = 0
    for position, size_bytes in _frames(data):
        if size_bytes - LOG_OVERHEAD < MESSAGE_BYTES_MIN:
            break
        end = position + size_bytes
    return end


def decode_log(data: bytes) -> list[OracleBatch]:
    """Decode every whole batch; a torn tail ends the log, as it does for Kafka, and anything else wrong raises."""
    return [_decode_batch(data[position : position + size], position) for position, size in _frames(data)]


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    position = 0
    while len(data) - position > MAGIC_POSITION:
        (size,) = struct.unpack_from(">i", data, position + 8)
        if size >= MESSAGE_BYTES_MIN and position + LOG_OVERHEAD + size > len(data):
            return
        yield position, LOG_OVERHEAD + size
        position += LOG_OVERHEAD + size
        if size < MESSAGE_BYTES_MIN:
            return


def _decode_batch(batch: bytes, position: int) -> OracleBatch:
    if len(batch) - LOG_OVERHEAD < MESSAGE_BYTES_MIN:
        raise OracleError(f"the batch at {position} is smaller than the smallest message")
    magic = batch[MAGIC_POSITION]
    try:
        if magic == 2:
            return _decode_v2(batch, position)
        if magic in LEGACY_HEADERS:
            return _decode_legacy(batch, position)
    except struct.error as err:
        raise OracleError(f"the batch at {position} ends early") from err
    raise OracleError(f"the batch at {position} has magic {magic}")


# Magic 2


def _decode_v2(batch: bytes, position: int) -> OracleBatch:
    if len(batch) < V2_HEADER.size:
        raise OracleError("the batch is smaller than its header")
    (
        base_offset,
        _size,
        leader_epoch,
        _magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = V2_HEADER.unpack_from(batch)
    if crc != crc32c.crc32c(batch[21:]):
        raise OracleError("CRC-32C differs")
    if record_count < 0:
        raise OracleError("the record count is negative")
    codec = _codec_name(attributes)
    timestamp_type = 1 if attributes & TIMESTAMP_TYPE_BIT else 0

    records: list[OracleRecord] = []
    # An empty batch may name a codec and still has no stream.
    if record_count > 0:
        reader = Reader(decompress(codec, batch[61:], magic=2))
        for _ in range(record_count):
            delta, offset_delta, key, value, headers = _decode_record_v2(reader)
            records.append(
                OracleRecord(
                    offset=_int64(base_offset + offset_delta),
                    timestamp=max_timestamp if timestamp_type == 1 else _int64(base_timestamp + delta),
                    timestamp_type=timestamp_type,
                    key=key,
                    value=value,
                    headers=headers,
                    sequence=-1 if base_sequence < 0 else increment_sequence(base_sequence, offset_delta),
                )
            )
        if reader.remaining:
            raise OracleError("bytes are left after the last record")
    return OracleBatch(
        position=position,
        size_bytes=len(batch),
        magic=2,
        attributes=attributes,
        codec=codec,
        is_control=bool(attributes & CONTROL_BIT),
        is_transactional=bool(attributes & TRANSACTIONAL_BIT),
        timestamp_type=timestamp_type,
        base_offset=base_offset,
        last_offset=_int64(base_offset + last_offset_delta),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        record_count=record_count,
        records=records,
    )


def _decode_record_v2(batch: Reader) -> tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Timestamp delta, offset delta, key, value and headers of the next record."""
    size = batch.varint()
    if size < 0:
        raise OracleError("the record length is negative")
    body = Reader(batch.take(size))
    body.take(1)  # attributes, unused
    timestamp_delta = body.varlong()
    offset_delta = body.varint()
    key = body.nullable(body.varint())
    value = body.nullable(body.varint())
    header_count = body.varint()
    if not 0 <= header_count <= body.remaining:
        raise OracleError("the header count does not fit the record")
    headers = []
    for _ in range(header_count):
        name_size = body.varint()
        if name_size < 0:
            raise OracleError("the header key length is negative")
        name = java_utf8(body.take(name_size))
        headers.append((name, body.nullable(body.varint())))
    if body.remaining:
        raise OracleError("the record is longer than its fields")
    return timestamp_delta, offset_delta, key, value, headers


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap to 0 after 2^31-1, not to the negatives."""
    if sequence + increment > INT32_MAX:
        return sequence + increment - INT32_MAX - 1
    return sequence + increment


def java_utf8(data: bytes) -> str:
    """Decode as Java's ``new String(bytes, UTF_8)`` does.

    Both languages write one U+FFFD for a maximal part of a sequence, but Java takes an encoded surrogate, whole or
    cut short, as one such part and Python takes each of its bytes as one.
    """
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", "\ufffd".encode(), data).decode("utf-8", errors="replace")


# Magic 0 and 1


@dataclass(frozen=True)
class _Message:
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def timestamp_type(self) -> int:
        if self.magic == 0:
            return -1
        return 1 if self.attributes & TIMESTAMP_TYPE_BIT else 0


def _decode_message(data: bytes) -> _Message:
    magic = data[MAGIC_POSITION]
    if magic not in LEGACY_HEADERS:
        raise OracleError(f"an inner message has magic {magic}")
    header = LEGACY_HEADERS[magic]
    offset, _size, crc, _magic, attributes, *timestamp = header.unpack_from(data)
    if crc != zlib.crc32(data[16:]):
        raise OracleError("CRC-32 differs")
    reader = Reader(data, header.size)
    key = reader.nullable(reader.int32())
    value = reader.nullable(reader.int32())
    # Kafka never looks at bytes after the value.
    return _Message(offset, magic, attributes, timestamp[0] if timestamp else -1, key, value)


def _decode_legacy(batch: bytes, position: int) -> OracleBatch:
    outer = _decode_message(batch)
    codec = _codec_name(outer.attributes)
    timestamp_type = outer.timestamp_type
    if codec == "none":
        records = [OracleRecord(outer.offset, outer.timestamp, timestamp_type, outer.key, outer.value)]
    else:
        records = list(_unwrap(outer, codec))
    return OracleBatch(
        position=position,
        size_bytes=len(batch),
        magic=outer.magic,
        attributes=outer.attributes,
        codec=codec,
        timestamp_type=timestamp_type,
        base_offset=records[0].offset,
        last_offset=outer.offset,
        base_timestamp=outer.timestamp,
        max_timestamp=outer.timestamp,
        record_count=1 if codec == "none" else -1,
        records=records,
    )


def _unwrap(wrapper: _Message, codec: str) -> Iterator[OracleRecord]:
    if codec == "zstd":
        raise OracleError("zstd needs magic 2")
    if wrapper.value is None:
        raise OracleError("the value of a compressed wrapper is null")
    messages = list(_inner_messages(decompress(codec, wrapper.value, wrapper.magic)))
    if not messages:
        raise OracleError("a compressed wrapper holds no message")

    # Kafka looks at the offset of a wrapper of magic 0 only to skip it; under no checksum, it must be right here.
    if wrapper.magic == 0 and wrapper.offset != messages[-1].offset:
        raise OracleError("the wrapper's offset is not that of its last message")
    shift = 0
    # Old librdkafka left the wrapper's offset 0; the inner ones are absolute then.
    if wrapper.magic == 1 and wrapper.offset != 0:
        shift = wrapper.offset - messages[-1].offset
        if shift < 0:
            raise OracleError("the wrapper's offset is below its last message's")
    for message in messages:
        # An inner message of magic 0 has no timestamp to replace, whatever its wrapper is.
        replaced = wrapper.timestamp_type == 1 and message.magic == 1
        yield OracleRecord(
            offset=_int64(message.offset + shift),
            timestamp=wrapper.timestamp if replaced else message.timestamp,
            timestamp_type=wrapper.timestamp_type,
            key=message.key,
            value=message.value,
        )


def _inner_messages(data: bytes) -> Iterator[_Message]:
    reader = Reader(data)
    while reader.remaining:
        (size,) = struct.unpack_from(">8xi", data, reader.position)
        if size < MESSAGE_BYTES_MIN:
            raise OracleError("an inner message is smaller than the smallest message")
        message = _decode_message(reader.take(LOG_OVERHEAD + size))
        if _codec_name(message.attributes) != "none":
            raise OracleError("an inner message is compressed")
        yield message


# Transactions


def control_type(batch: OracleBatch) -> int | None:
    """Type of a control batch: `ABORT`, `COMMIT`, another of Kafka's; None where the cleaner emptied the batch."""
    if not batch.records:
        return None
    key = batch.records[0].key
    if key is None or len(key) < 4:
        raise OracleError("the key of a control record is too short")
    version, kind = struct.unpack_from(">hh", key)
    if version < 0:
        raise OracleError("the version of a control record is negative")
    return int(kind)


def last_stable_offset(batches: Sequence[OracleBatch]) -> int:
    """First offset of the oldest transaction still open, else the end of the log (0 for an empty one)."""
    open_from: dict[int, int] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        if batch.is_control:
            # An emptied marker ends nothing: all of its transaction is gone.
            if control_type(batch) in (ABORT, COMMIT):
                open_from.pop(batch.producer_id, None)
        elif batch.is_transactional:
            open_from.setdefault(batch.producer_id, batch.base_offset)
    if open_from:
        return min(open_from.values())
    return batches[-1].last_offset + 1 if batches else 0


def read_committed(batches: Sequence[OracleBatch]) -> list[OracleBatch]:
    """Batches of data that a read_committed consumer is given, decided by the markers in the log alone."""
    end_offset = last_stable_offset(batches)
    marker_after: dict[int, int] = {}
    committed = []
    for batch in reversed(batches):
        if batch.is_control:
            kind = control_type(batch)
            if batch.producer_id >= 0 and kind in (ABORT, COMMIT):
                marker_after[batch.producer_id] = kind
            continue
        is_aborted = batch.is_transactional and marker_after.get(batch.producer_id) == ABORT
        if not is_aborted and batch.base_offset < end_offset:
            committed.append(batch)
    return committed[::-1]


def _codec_name(attributes: int) -> str:
    code = attributes & 0x07
    if code not in CODECS:
        raise OracleError(f"codec {code} is unknown")
    return CODECS[code]


def _int64(value: int) -> int:
    """Wrap as Java's long does."""
    return (value + 2**63) % 2**64 - 2**63
