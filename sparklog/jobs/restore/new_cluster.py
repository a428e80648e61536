"""Makes the metadata of a new KRaft cluster that knows given topics: a snapshot, from which its controller starts.

A node that begins with a snapshot and an empty metadata log behind it is a usual state: a follower that has fetched the
snapshot and was stopped. So the snapshot is all that a controller needs; `sparklog.system.metadata_snapshots` has the
format. Partitions have no leader in it. A broker of their ISR becomes the leader when it registers, and begins a
leader epoch above every epoch that the logs had, so that consumers which have committed such an epoch are not misled.
With eligible leader replicas, a controller removes a broker from the ISR that registers without a clean shutdown; then
the ISR is empty, and one broker is the last known leader, which becomes the leader again.

The set of voters is a control record of the snapshot. Kafka's storage tool writes it for a controller that finds the
quorum by ``controller.quorum.bootstrap.servers``; with ``controller.quorum.voters`` there is none.

Source: apache/kafka, Snapshots.java, RecordsSnapshotWriter.java, Formatter.java, PartitionRegistration.java,
KafkaMetadataLog.java (truncateToLatestSnapshot); KIP-630, KIP-853, KIP-858, KIP-1170.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.record.format import v2
from sparklog.system.codecs import MessageFields, write_uvarint
from sparklog.system.messages import message
from sparklog.write.pipeline import encode_records

METADATA_VERSION: Final = "metadata.version"
FEATURES: Final = {METADATA_VERSION: 25, "group.version": 1, "transaction.version": 2}
"""The features of Kafka 4.0, for a cluster without known features; later releases start with them as well."""
SNAPSHOT_END_OFFSET: Final = 1
SNAPSHOT_EPOCH: Final = 1
"""The controller's log begins after the snapshot, which stands for one record of epoch 1."""

_ELR: Final = "eligible.leader.replicas.version"
_DIRECTORIES_SINCE: Final = 17
"""The level of ``metadata.version`` from which partitions name the directories of their replicas."""
_PRODUCER_ID_BLOCK: Final = 1000
_TOPIC_CONFIG: Final = 2
_RECORDS_OF_BATCH: Final = 1000
_CONTROL_TYPES: Final = {
    "SnapshotHeaderRecord": 3,
    "SnapshotFooterRecord": 4,
    "KRaftVersionRecord": 5,
    "VotersRecord": 6,
}
_BATCH_BYTES_MAX: Final = 1 << 30
_CONFIG: Final = LogConfig.from_properties(
    {
        "compression.type": "uncompressed",
        "batch.size": str(_BATCH_BYTES_MAX),
        "max.message.bytes": str(_BATCH_BYTES_MAX),
    }
)
_EPOCH: Final = slice(12, 16)
_ATTRIBUTES_AT: Final = v2.CRC_COVERS_FROM + 1
_CRC_AT: Final = v2.CRC_COVERS_FROM - 4


class NewPartition(NamedTuple):
    """A partition of a new cluster: the last leader epoch, its brokers, and the ids of its directories."""

    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    directories: Sequence[str]


class NewTopic(NamedTuple):
    """A topic of a new cluster, with its id in Kafka's form."""

    name: str
    topic_id: str
    partitions: Sequence[NewPartition]
    configs: Mapping[str, str]


@dataclass(frozen=True)
class NewCluster:
    """The contents of the first snapshot of a cluster.

    Attributes
    ----------
    node_id : int
        The broker that has the first block of producer ids.
    features : mapping of str to int
        Levels by names, with ``metadata.version``.
    voters : tuple of dict
        The fields of `VotersRecord`'s voters; none if the quorum is static.
    next_producer_id : int
        The first producer id that no log has.
    """

    node_id: int
    features: Mapping[str, int]
    voters: Sequence[MessageFields]
    topics: Sequence[NewTopic]
    next_producer_id: int = 0

    def encode(self, now_ms: int) -> bytes:
        """Return the bytes of the snapshot."""
        out = bytearray()
        control: list[tuple[str, MessageFields]] = [
            ("SnapshotHeaderRecord", {"version": 0, "lastContainedLogTimestamp": now_ms})
        ]
        if self.voters:
            control += [
                ("KRaftVersionRecord", {"version": 0, "kRaftVersion": 1}),
                ("VotersRecord", {"version": 0, "voters": list(self.voters)}),
            ]
        next_offset = _add(out, map(_control_record, control), 0, now_ms, is_control=True)
        records = self._records()
        while some := list(islice(records, _RECORDS_OF_BATCH)):
            next_offset = _add(out, some, next_offset, now_ms)
        footer = _control_record(("SnapshotFooterRecord", {"version": 0}))
        _add(out, [footer], next_offset, now_ms, is_control=True)
        return bytes(out)

    def _records(self) -> Iterator[_KeyValue]:
        # The level decides how a controller reads what follows.
        names = sorted(self.features, key=lambda name: (name != METADATA_VERSION, name))
        for name in names:
            yield _framed("FeatureLevelRecord", {"name": name, "featureLevel": self.features[name]})
        for topic in self.topics:
            yield _framed("TopicRecord", {"name": topic.name, "topicId": topic.topic_id})
            for number, partition in enumerate(topic.partitions):
                yield self._partition(topic, number, partition)
        for topic in self.topics:
            of_topic = {"resourceType": _TOPIC_CONFIG, "resourceName": topic.name}
            for name, value in sorted(topic.configs.items()):
                yield _framed("ConfigRecord", {**of_topic, "name": name, "value": value})
        if self.next_producer_id:
            # Brokers get whole blocks of ids.
            blocks = -(-self.next_producer_id // _PRODUCER_ID_BLOCK)
            given = {"brokerId": self.node_id, "brokerEpoch": -1, "nextProducerId": blocks * _PRODUCER_ID_BLOCK}
            yield _framed("ProducerIdsRecord", given)

    def _partition(self, topic: NewTopic, number: int, partition: NewPartition) -> _KeyValue:
        has_elr = bool(self.features.get(_ELR))
        fields: MessageFields = {
            "partitionId": number,
            "topicId": topic.topic_id,
            "replicas": partition.replicas,
            "isr": [] if has_elr else partition.isr,
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": -1,
            "leaderEpoch": partition.leader_epoch,
            "partitionEpoch": 0,
            "directories": partition.directories,
            "lastKnownElr": partition.isr[:1] if has_elr else None,
        }
        version = 2 if has_elr else int(self.features[METADATA_VERSION] >= _DIRECTORIES_SINCE)
        return _framed("PartitionRecord", fields, version)


def snapshot_name(end_offset: int = SNAPSHOT_END_OFFSET, epoch: int = SNAPSHOT_EPOCH) -> str:
    """Return the name of a snapshot's file."""
    return f"{end_offset:020d}-{epoch:010d}{files.METADATA_SNAPSHOT}"


_KeyValue = tuple[bytes | None, bytes]


def _framed(name: str, fields: Mapping[str, Any], version: int = 0) -> _KeyValue:
    found, out = message(name), bytearray()
    for number in (1, found.api_key or 0, version):
        write_uvarint(number, out)
    return None, bytes(out) + found.encode(fields, version)


def _control_record(record: tuple[str, Mapping[str, Any]]) -> _KeyValue:
    name, fields = record
    return b"\0\0" + _CONTROL_TYPES[name].to_bytes(2, "big"), message(name).encode(fields, 0)


def keyed_rows(records: Iterable[tuple[bytes | None, bytes]], now_ms: int) -> pa.RecordBatch:
    """Return records with keys and values, and the time of all, to be encoded."""
    keys, values = zip(*records, strict=True)
    times = pa.repeat(pa.scalar(now_ms, pa.int64()), len(keys))
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "timestamp": times}
    return pa.RecordBatch.from_pydict(columns)


def _add(
    out: bytearray, records: Iterable[_KeyValue], base_offset: int, now_ms: int, *, is_control: bool = False
) -> int:
    """Append a batch of records, and return the next offset."""
    rows = keyed_rows(records, now_ms)
    batch = bytearray(encode_records(rows, _CONFIG, base_offset, now_ms, name=files.METADATA_FOLDER).data)
    batch[_EPOCH] = SNAPSHOT_EPOCH.to_bytes(4, "big")
    if is_control:
        batch[_ATTRIBUTES_AT] |= v2.CONTROL
        batch[_CRC_AT : v2.CRC_COVERS_FROM] = crc32c(batch[v2.CRC_COVERS_FROM :]).to_bytes(4, "big")
    out += batch
    return base_offset + len(rows["key"])
