"""Encodes the control batches that end transactions.

Such a batch has the attributes transactional and control, the producer of the transaction, no sequence number, and one
uncompressed record. The record's key is int16 version 0 and int16 type, 0 abort or 1 commit; its value is int16 version
0 and the int32 epoch of the transaction coordinator.

Source: apache/kafka, EndTransactionMarker.java, MemoryRecordsBuilder.java; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from sparklog.record.batches.framing import OVERHEAD_BYTES, scan_headers
from sparklog.record.encode.batches import EncodedBatches
from sparklog.record.format import v2

_RECORD: Final = struct.Struct(">bbbbbhhbhib")
"""The record: length, attributes, deltas of timestamp and offset, key, value, and the number of headers."""
_RECORD_LENGTH: Final = _RECORD.size - 1


class MarkerBatch(NamedTuple):
    """The end of a producer's transaction in one log.

    Attributes
    ----------
    base_offset : int
        The base offset of the batch.
    """

    producer_id: int
    producer_epoch: int
    is_abort: bool
    coordinator_epoch: int = 0
    base_offset: int = 0


def encode_end_markers(markers: Sequence[MarkerBatch], timestamp: int) -> EncodedBatches:
    """Encode a batch for each marker; ``timestamp`` is in ms since the epoch."""
    data = bytearray()
    for marker in markers:
        covered = v2.COVERED.pack(
            v2.TRANSACTIONAL | v2.CONTROL, 0, timestamp, timestamp, marker.producer_id, marker.producer_epoch, -1, 1
        ) + _record(marker)
        size = v2.LEAD.size - OVERHEAD_BYTES + len(covered)
        data += v2.LEAD.pack(marker.base_offset, size, 0, 2, crc32c(covered)) + covered
    view = memoryview(data)
    return EncodedBatches(view, scan_headers(view))


def _record(marker: MarkerBatch) -> bytes:
    # Numbers of variable length are zigzag: each of these is one byte, twice its value.
    kind = v2.ABORT if marker.is_abort else v2.COMMIT
    return _RECORD.pack(2 * _RECORD_LENGTH, 0, 0, 0, 2 * 4, 0, kind, 2 * 6, 0, marker.coordinator_epoch, 0)
