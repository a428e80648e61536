"""Reads ``__remote_log_metadata``: which segments of tiered topics are in remote storage.

A value names its type: a segment whose copy began (`RemoteLogSegmentMetadataRecord`), its later state, or that the
remote log of a partition is deleted. Keys have no meaning. All records of a segment are in one partition of the topic.

Source: apache/kafka, RemoteLogMetadataCache.java, RemotePartitionMetadataStore.java; KIP-405.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sparklog.errors import MessageDecodeError
from sparklog.system.codecs import MessageFields
from sparklog.system.framed import FramedRecord, decode_frame, framed_history
from sparklog.system.records import TIMESTAMP, InternalLog, Undecodable, arrays_of, known

TOPIC: Final = "__remote_log_metadata"
_COMPONENT: Final = "storage"

_STATES: Final = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
"""The states of a segment by their numbers, as Kafka names them."""
_SEGMENT_GONE: Final = 3
_PARTITION_GONE: Final = 2

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("segment_id", pa.string()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("state", pa.string()),
        ("size_bytes", pa.int32()),
        ("max_timestamp", TIMESTAMP),
        ("event_timestamp", TIMESTAMP),
        ("broker_id", pa.int32()),
        ("leader_epochs", pa.list_(pa.struct([("epoch", pa.int32()), ("start_offset", pa.int64())]))),
        ("custom_metadata", pa.binary()),
        ("txn_index_empty", pa.bool_()),
    ]
)
"""A segment in remote storage. ``end_offset`` is the offset of its last record, as Kafka has it there."""


def current_segments(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the segments in remote storage, including those only partly there."""
    segments: dict[str, MessageFields] = {}
    for batch in log.batches():
        values, offsets = batch.column("value").to_pylist(), batch.column("offset").to_pylist()
        for value, offset in zip(values, offsets, strict=True):
            try:
                _apply(segments, decode_frame(value, _COMPONENT))
            except MessageDecodeError as error:
                unreadable.note(log, offset, error.message)
    rows = sorted((_row(segment_id, fields) for segment_id, fields in segments.items()), key=lambda row: row[:5])
    return pa.table(arrays_of(rows, SCHEMA), schema=SCHEMA)


def segments_history(log: InternalLog, unreadable: Undecodable) -> Iterator[pa.RecordBatch]:
    """Return every record, in the order of the log."""
    return framed_history(log, log.batches(), _COMPONENT, unreadable, lambda _: True)


def _apply(segments: dict[str, MessageFields], found: FramedRecord) -> None:
    fields = found.fields
    if found.name == "RemotePartitionDeleteMetadataRecord":
        if fields["remotePartitionDeleteState"] == _PARTITION_GONE:
            place = fields["topicIdPartition"]["id"], fields["topicIdPartition"]["partition"]
            for segment_id in [each for each, of in segments.items() if _place(of) == place]:
                del segments[segment_id]
    elif "remoteLogSegmentId" in fields:
        segment_id = fields["remoteLogSegmentId"]["id"]
        # A later record has the segment's state and who changed it; all else is in the record that began the copy.
        merged = {**segments.get(segment_id, {}), **fields}
        if merged["remoteLogSegmentState"] == _SEGMENT_GONE:
            segments.pop(segment_id, None)
        elif "startOffset" in merged:
            segments[segment_id] = merged


def _place(fields: MessageFields) -> tuple[str, int]:
    at = fields["remoteLogSegmentId"]["topicIdPartition"]
    return at["id"], at["partition"]


def _row(segment_id: str, fields: MessageFields) -> tuple[Any, ...]:
    at, state = fields["remoteLogSegmentId"]["topicIdPartition"], fields["remoteLogSegmentState"]
    return (
        at["name"],
        at["id"],
        at["partition"],
        segment_id,
        fields["startOffset"],
        fields["endOffset"],
        _STATES[state] if 0 <= state < len(_STATES) else f"Unknown({state})",
        fields["segmentSizeInBytes"],
        known(fields["maxTimestampMs"]),
        known(fields["eventTimestampMs"]),
        fields["brokerId"],
        [{"epoch": each["leaderEpoch"], "start_offset": each["offset"]} for each in fields["segmentLeaderEpochs"]],
        fields["customMetadata"],
        fields["txnIndexEmpty"],
    )
