"""Describes record batches of magic 2, which Kafka has written since 0.11.

A batch is a header of 61 bytes and its records. All integers are big-endian.

    byte  size  field
    0     8     base_offset             offset of the first record when the batch was made
    8     4     size                    bytes after this field
    12    4     leader_epoch            of the leader that appended it; not covered by the CRC, like all before it
    16    1     magic                   2
    17    4     crc                     CRC-32C of the bytes from `attributes` to the end of the batch
    21    2     attributes              bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
    23    4     last_offset_delta       last offset - base offset; kept by compaction, so it may pass the last record
    27    8     base_timestamp          ms; record deltas count from it; with bit 6 it is the delete horizon
    35    8     max_timestamp           ms; with bit 3 the timestamp of every record
    43    8     producer_id             -1 none
    51    2     producer_epoch          -1 none
    53    4     base_sequence           -1 none
    57    4     record_count
    61          records                 one compressed stream if a codec is set

A record is a run of zigzag variable-length numbers and bytes; lengths of -1 mean null:

    length, attributes (1 byte, unused), timestamp delta (64 bits), offset delta, key length, key, value length, value,
    header count, then for each header: name length, name (UTF-8, never null), content length, content

A control batch holds one record that is never given to a reader. Its key is int16 version, int16 type.

Source: apache/kafka, DefaultRecordBatch.java, DefaultRecord.java, ControlRecordType.java; KIP-98, KIP-534.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("size", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "u1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
HEADER_BYTES: Final = 61
assert HEADER.itemsize == HEADER_BYTES

# The same header in two parts: the fields before the bytes that the checksum covers, and the others.
LEAD: Final = struct.Struct(">qiibI")
COVERED: Final = struct.Struct(">hiqqqhii")
assert LEAD.size + COVERED.size == HEADER_BYTES

CRC_COVERS_FROM: Final = 21
RECORD_BYTES_MIN: Final = 7
RECORD_HEADER_BYTES_MIN: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

OFFSET_MAX: Final = (1 << 63) - 1
ABORT: Final = 0
COMMIT: Final = 1
SEQUENCE_MAX: Final = (1 << 31) - 1


class EndMarker(NamedTuple):
    """The end of a transaction: commit or abort, and the epoch of the coordinator that wrote it."""

    is_abort: bool
    coordinator_epoch: int


def end_marker(batch: memoryview) -> EndMarker | None:
    """Return the marker in a control batch; None if its record is something else, or missing."""
    kind = control_type(batch)
    if kind not in (ABORT, COMMIT):
        return None
    _, value = _control_record(batch)
    # int16 version, int32 coordinator epoch
    return EndMarker(kind == ABORT, int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1)


def control_type(batch: memoryview) -> int | None:
    """Return the type of the control record in a control batch.

    Parameters
    ----------
    batch : memoryview
        The whole batch. Control batches are never compressed.

    Returns
    -------
    int or None
        `ABORT`, `COMMIT` or another type; None if the batch holds no record (compaction leaves such batches), or
        its key is too short for a marker, or of a negative version.
    """
    key, _ = _control_record(batch)
    if len(key) < 4 or int.from_bytes(key[:2], "big", signed=True) < 0:
        return None
    return int.from_bytes(key[2:4], "big", signed=True)


def _control_record(batch: memoryview) -> tuple[memoryview, memoryview]:
    """Return the key and value of a control batch's record, as far as they are there; empty if there is no record."""
    nothing = batch[:0]
    if int.from_bytes(batch[57:61], "big", signed=True) < 1:
        return nothing, nothing
    position = HEADER_BYTES
    _, position = _number(batch, position)
    position += 1
    _, position = _number(batch, position)
    _, position = _number(batch, position)
    key_length, position = _number(batch, position)
    key = batch[position : position + max(key_length, 0)]
    value_length, position = _number(batch, position + max(key_length, 0))
    return (key if len(key) == key_length else nothing), batch[position : position + max(value_length, 0)]


def _number(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read one zigzag number, and return it with the position after it; past the end of the buffer it is 0."""
    raw = shift = 0
    while position < len(buffer) and shift < 70:
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return (raw >> 1) ^ -(raw & 1), position


def emptied(batch: bytes | memoryview) -> bytes:
    """Return an empty batch to replace a batch that loses all records.

    It keeps the offsets, producer, sequence, leader epoch, timestamp type and max timestamp. So the log ends at the
    same offset, and the producer's sequence continues. ``batch`` begins with the whole header.
    """
    _, delta, _, max_timestamp, producer_id, epoch, sequence, _ = COVERED.unpack_from(batch, CRC_COVERS_FROM)
    attributes = int.from_bytes(batch[CRC_COVERS_FROM : CRC_COVERS_FROM + 2], "big", signed=True)
    attributes &= ~(CODEC_MASK | DELETE_HORIZON)
    covered = COVERED.pack(attributes, delta, max_timestamp, max_timestamp, producer_id, epoch, sequence, 0)
    base_offset, _, leader_epoch, magic, _ = LEAD.unpack_from(batch)
    return LEAD.pack(base_offset, HEADER_BYTES - 12, leader_epoch, magic, crc32c(covered)) + covered


def empty_at(offset: int, leader_epoch: int) -> bytes:
    """Return a batch without records and producer for one offset: a log with it goes on at the offset after it."""
    covered = COVERED.pack(0, 0, -1, -1, -1, -1, -1, 0)
    return LEAD.pack(offset, HEADER_BYTES - 12, leader_epoch, 2, crc32c(covered)) + covered
