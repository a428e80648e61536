"""Reads ``__cluster_metadata``, the state of a KRaft cluster, from its newest snapshot and the log after it.

The records between a BeginTransactionRecord and an EndTransactionRecord count together, from the latter on; those
before an AbortTransactionRecord, or in a transaction that is open at the end of the log, do not count. The offset that
the controllers had agreed on is on no disk: the last records in the log of a controller that left may never count.

A record that cannot be decoded may change anything, so the state after it is unknown: that is an error. Only a record
of an unknown type is skipped, with a warning. The history shows such records as their bytes.

Source: apache/kafka, MetadataBatchLoader.java, metadata/; KIP-500, KIP-630, KIP-868.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import CorruptLogError, MessageDecodeError
from sparklog.log.files import METADATA_TOPIC
from sparklog.system.cluster_state import ClusterState
from sparklog.system.codecs import NO_UUID, MessageFields
from sparklog.system.framed import RECORD_FIELDS, FramedRecord, decode_frame, framed_history
from sparklog.system.messages import is_known_frame, message
from sparklog.system.metadata_snapshots import control_batches, newest_snapshot
from sparklog.system.records import TIMESTAMP, TRANSACTION_COLUMN, InternalLog, Undecodable, arrays_of, known

_log = logging.getLogger("sparklog")

TOPIC: Final = METADATA_TOPIC
_COMPONENT: Final = "metadata"
_COLUMNS: Final = ("value", "offset", "timestamp")
_BEGIN, _END, _ABORT = "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"
# Frame 1 and the type, as the two first bytes of a value.
_MARKERS: Final = {b"\x01\x17": _BEGIN, b"\x01\x18": _END, b"\x01\x19": _ABORT}

# A control record's key is its version and its type, int16 each; the value begins with its version.
_KRAFT_VERSION, _KRAFT_VERSION_TYPE = "kraft.version", b"\0\5"
RECORDS_SCHEMA: Final = pa.schema(
    [*RECORD_FIELDS, ("log_offset", pa.int64()), ("timestamp", TIMESTAMP), ("snapshot", pa.int64())]
)
"""A record that counts. A record of the snapshot has no offset; ``snapshot`` is the snapshot's end offset."""

TOPICS_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partitions", pa.int32()),
        ("replication_factor", pa.int32()),
        ("configs", pa.map_(pa.string(), pa.string())),
    ]
)
_BROKERS: Final = pa.list_(pa.int32())
PARTITIONS_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("partition_epoch", pa.int32()),
        ("replicas", _BROKERS),
        ("isr", _BROKERS),
        ("adding_replicas", _BROKERS),
        ("removing_replicas", _BROKERS),
        ("eligible_leader_replicas", _BROKERS),
        ("last_known_elr", _BROKERS),
        ("leader_recovery_state", pa.string()),
        ("directories", pa.list_(pa.string())),
    ]
)
"""A partition; ``leader`` is null where it has none. ``directories`` are ids of log directories, one a replica."""

CONFIGS_SCHEMA: Final = pa.schema(
    [
        ("resource_type", pa.string()),
        ("resource_name", pa.string()),
        ("name", pa.string()),
        ("value", pa.string()),
    ]
)
"""A config that was set. ``resource_name`` is empty if it is set for all brokers."""

_ENDPOINT: Final = pa.struct(
    [("name", pa.string()), ("host", pa.string()), ("port", pa.int32()), ("security_protocol", pa.string())]
)
_RANGE: Final = pa.struct([("name", pa.string()), ("min_version", pa.int32()), ("max_version", pa.int32())])
BROKERS_SCHEMA: Final = pa.schema(
    [
        ("broker_id", pa.int32()),
        ("broker_epoch", pa.int64()),
        ("incarnation_id", pa.string()),
        ("rack", pa.string()),
        ("fenced", pa.bool_()),
        ("in_controlled_shutdown", pa.bool_()),
        ("endpoints", pa.list_(_ENDPOINT)),
        ("features", pa.list_(_RANGE)),
        ("log_directories", pa.list_(pa.string())),
        ("cordoned_log_directories", pa.list_(pa.string())),
    ]
)
"""A registered broker, with the versions of features that it supports."""

FEATURES_SCHEMA: Final = pa.schema([("feature", pa.string()), ("level", pa.int32())])
"""An enabled feature of the cluster, such as ``metadata.version``."""

RESOURCE_TYPES: Final = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
RECOVERY_STATES: Final = ("RECOVERED", "RECOVERING")


class Counting(NamedTuple):
    """A record that counts: ``offset`` is None in a snapshot, and ``snapshot`` its end offset there."""

    record: FramedRecord
    offset: int | None
    timestamp: int
    snapshot: int | None


def current_records(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the records that make the state: the newest snapshot's, then the log's after it."""
    rows = [
        (*each.record.row(), each.offset, each.timestamp, each.snapshot) for each in counting_records(log, unreadable)
    ]
    return pa.table(arrays_of(rows, RECORDS_SCHEMA), schema=RECORDS_SCHEMA)


def records_history(
    log: InternalLog, unreadable: Undecodable, names: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Return every record of the log in order, or only records of some names, without the contents of snapshots."""
    spans = _transactions(log)
    is_wanted: Callable[[str], bool] = (lambda _: True) if names is None else frozenset(names).__contains__
    return framed_history(
        log, (_with_transactions(each, spans) for each in log.batches()), _COMPONENT, unreadable, is_wanted
    )


def counting_records(log: InternalLog, unreadable: Undecodable) -> Iterator[Counting]:
    """Yield the records that count, in order.

    Raises
    ------
    CorruptLogError
        The records before the log's start are in no whole snapshot.
    MessageDecodeError
        A record of a known type cannot be decoded.
    """
    snapshot, layout, start = newest_snapshot(log.layout.folder), log.layout, 0
    if snapshot is not None:
        start = snapshot.end_offset
        for batch in snapshot.batches(_COLUMNS):
            for value, _, timestamp in _rows_of(batch):
                found = _decoded(log, value, None, unreadable)
                if found is not None:
                    yield Counting(found, None, timestamp, start)
    if start < layout.start_offset:
        raise CorruptLogError(
            f"the log begins at offset {layout.start_offset}, and no whole snapshot has the records from {start} on",
            path=layout.path,
            hint="Restore the newest .checkpoint file beside the segments",
        )
    if start < layout.end_offset:
        yield from _without_undecided(_log_records(log, start, unreadable))


def _log_records(log: InternalLog, start: int, unreadable: Undecodable) -> Iterator[Counting]:
    for batch in log.batches(start):
        for value, offset, timestamp in _rows_of(batch):
            found = _decoded(log, value, offset, unreadable)
            if found is not None:
                yield Counting(found, offset, timestamp, None)


def _rows_of(batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, int, int]]:
    """Yield value, offset and timestamp, in ms, of each record."""
    values, offsets = batch.column("value").to_pylist(), batch.column("offset").to_pylist()
    return zip(values, offsets, batch.column("timestamp").cast(pa.int64()).to_pylist(), strict=True)


def _decoded(log: InternalLog, value: bytes | None, offset: int | None, unreadable: Undecodable) -> FramedRecord | None:
    """Decode a record; return None for a record of an unknown type, which is counted."""
    try:
        return decode_frame(value, _COMPONENT)
    except MessageDecodeError as error:
        if is_known_frame(value, _COMPONENT):
            raise MessageDecodeError(
                f"{error.message} ({log.path}, {'in the snapshot' if offset is None else f'offset {offset}'}): what it "
                f"changes is not known, so the state cannot be told; the history shows its bytes"
            ) from error
        unreadable.note(log, offset or 0, error.message)
        return None


def _without_undecided(records: Iterable[Counting]) -> Iterator[Counting]:
    """Leave out the records of aborted and open transactions. The markers themselves change nothing."""
    waiting: list[Counting] | None = None
    for each in records:
        name = each.record.name
        if name == _BEGIN:
            waiting = []
        elif name in (_END, _ABORT):
            yield from waiting or () if name == _END else ()
            waiting = None
        elif waiting is None:
            yield each
        else:
            waiting.append(each)


def _transactions(log: InternalLog) -> list[tuple[int, int, str]]:
    """Find the transactions of a log: the first offset, the last one, and how each ended."""
    found: list[tuple[int, int, str]] = []
    begun: int | None = None
    for batch in log.batches():
        starts = pc.binary_slice(batch.column("value"), 0, 2)
        rows = np.flatnonzero(np.asarray(pc.is_in(starts, pa.array(list(_MARKERS), pa.binary())).cast(pa.uint8())))
        for row in rows.tolist():
            name, offset = _MARKERS[starts[row].as_py()], batch.column("offset")[row].as_py()
            if name == _BEGIN:
                begun = offset
            elif begun is not None:
                found.append((begun, offset, "committed" if name == _END else "aborted"))
                begun = None
    return found if begun is None else [*found, (begun, log.layout.end_offset, "open")]


def _with_transactions(batch: pa.RecordBatch, spans: Sequence[tuple[int, int, str]]) -> pa.RecordBatch:
    offsets = np.asarray(batch.column("offset"))
    states = np.full(len(offsets), None, object)
    for first, last, state in spans:
        states[(offsets >= first) & (offsets <= last)] = state
    column = batch.schema.get_field_index(TRANSACTION_COLUMN)
    return batch.set_column(column, TRANSACTION_COLUMN, pa.array(states, pa.string()))


def cluster_state(log: InternalLog, unreadable: Undecodable) -> ClusterState:
    """Return the state of the cluster; a warning tells of records that change objects which do not exist."""
    state = ClusterState()
    for each in counting_records(log, unreadable):
        state.apply(each.record)
    if state.missing:
        _log.warning(
            "%d records of %s change objects that do not exist, first %s: records before them are missing",
            len(state.missing),
            log.path,
            state.missing[0],
        )
    return state


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    return pa.table(arrays_of(rows, schema), schema=schema)


def current_topics(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the topics, each with its configs."""
    state = cluster_state(log, unreadable)
    rows = [
        (
            name,
            topic_id,
            len(state.partitions[topic_id]),
            max((len(each["replicas"]) for each in state.partitions[topic_id].values()), default=0),
            sorted(state.configs.get((2, name), {}).items()),
        )
        for topic_id, name in sorted(state.topics.items(), key=lambda each: each[1])
    ]
    return _table(rows, TOPICS_SCHEMA)


def current_partitions(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the partitions of all topics: leaders, epochs and replicas."""
    state = cluster_state(log, unreadable)
    rows = [
        _partition_row(name, topic_id, number, fields)
        for topic_id, name in sorted(state.topics.items(), key=lambda each: each[1])
        for number, fields in sorted(state.partitions[topic_id].items())
    ]
    return _table(rows, PARTITIONS_SCHEMA)


def _partition_row(topic: str, topic_id: str, number: int, fields: MessageFields) -> tuple[Any, ...]:
    recovery = fields["leaderRecoveryState"]
    return (
        topic,
        topic_id,
        number,
        known(fields["leader"]),
        fields["leaderEpoch"],
        fields["partitionEpoch"],
        fields["replicas"],
        fields["isr"],
        fields["addingReplicas"],
        fields["removingReplicas"],
        fields["eligibleLeaderReplicas"] or [],
        fields["lastKnownElr"] or [],
        _named(dict(enumerate(RECOVERY_STATES)), recovery),
        fields["directories"],
    )


def current_configs(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the configs of topics, brokers, groups and others."""
    state = cluster_state(log, unreadable)
    rows = sorted(
        (_named(RESOURCE_TYPES, kind), of, name, value)
        for (kind, of), configs in state.configs.items()
        for name, value in configs.items()
    )
    return _table(rows, CONFIGS_SCHEMA)


def current_brokers(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the registered brokers."""
    state = cluster_state(log, unreadable)
    return _table([_broker_row(fields) for _, fields in sorted(state.brokers.items())], BROKERS_SCHEMA)


def _broker_row(fields: MessageFields) -> tuple[Any, ...]:
    return (
        fields["brokerId"],
        fields["brokerEpoch"],
        None if fields["incarnationId"] == NO_UUID else fields["incarnationId"],
        fields["rack"],
        fields["fenced"],
        fields["inControlledShutdown"],
        [
            {
                "name": each["name"],
                "host": each["host"],
                "port": each["port"],
                "security_protocol": _named(dict(enumerate(SECURITY_PROTOCOLS)), each["securityProtocol"]),
            }
            for each in _by_name(fields["endPoints"])
        ],
        [
            {
                "name": each["name"],
                "min_version": each["minSupportedVersion"],
                "max_version": each["maxSupportedVersion"],
            }
            for each in _by_name(fields["features"])
        ],
        fields["logDirs"],
        fields["cordonedLogDirs"] or [],
    )


def _by_name(listed: list[MessageFields]) -> list[MessageFields]:
    """Sort by name, since a snapshot has another order than the log."""
    return sorted(listed, key=lambda each: str(each["name"]))


def current_features(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the enabled features, and their levels."""
    features = dict(cluster_state(log, unreadable).features)
    level = _kraft_version(log, unreadable)
    if level:
        features[_KRAFT_VERSION] = level
    return _table(sorted(features.items()), FEATURES_SCHEMA)


def _kraft_version(log: InternalLog, unreadable: Undecodable) -> int:
    """Return the level of ``kraft.version``, which only a control record of the log or the snapshot has."""
    snapshot, columns, level = newest_snapshot(log.layout.folder), ("key", "value", "offset"), 0
    start = 0 if snapshot is None else snapshot.end_offset
    of_snapshot = () if snapshot is None else snapshot.control_batches(columns)
    of_log = control_batches(log.layout, start, columns) if start < log.layout.end_offset else ()
    for batch in chain(of_snapshot, of_log):
        for key, value, offset in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
            if key is None or value is None or key[2:4] != _KRAFT_VERSION_TYPE:
                continue
            try:
                level = message("KRaftVersionRecord").decode(value, int.from_bytes(value[:2], "big"))["kRaftVersion"]
            except MessageDecodeError as error:
                unreadable.note(log, offset, error.message)
    return level


topics_history = partial(records_history, names=("TopicRecord", "RemoveTopicRecord"))
partitions_history = partial(records_history, names=("PartitionRecord", "PartitionChangeRecord", "ClearElrRecord"))
configs_history = partial(records_history, names=("ConfigRecord",))
brokers_history = partial(
    records_history,
    names=(
        "RegisterBrokerRecord",
        "UnregisterBrokerRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "BrokerRegistrationChangeRecord",
    ),
)
features_history = partial(records_history, names=("FeatureLevelRecord",))


def _named(names: dict[int, str], number: int) -> str:
    return names.get(number, f"Unknown({number})")
