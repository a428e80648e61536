"""Reads ``__consumer_offsets``: the offsets that each group has committed, and the members of each group.

A key is an int16 type and the fields of that type. Types 0 and 1 are offsets, of a group, topic and partition
each; all others describe groups. A value is an int16 version and its fields; null is a tombstone.

    types        of
    0, 1         committed offsets (0: brokers before 0.9)
    2            a group of the classic protocol, with its members
    3 to 8, 16   a group of the consumer protocol: epoch, members, target and current assignments
    10 to 15     a share group
    17 to 23     a streams group

A group's state follows from these as when a coordinator loads the log. Some facts are in no log: for
a classic group, whether a rebalance is under way; for a streams group, whether its topics exist; and which members
have stopped sending heartbeats since.

Source: apache/kafka, GroupCoordinatorRecordHelpers.java, ClassicGroup.java, ConsumerGroup.java, StreamsGroup.java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import MessageDecodeError
from sparklog.system.codecs import NO_UUID, MessageFields
from sparklog.system.messages import json_of, message
from sparklog.system.records import (
    HISTORY_FIELDS,
    TIMESTAMP,
    DecodedMessage,
    InternalLog,
    Undecodable,
    arrays_of,
    decode_coordinator_records,
    history,
    known,
    last_records,
)

TOPIC: Final = "__consumer_offsets"
_COMPONENT: Final = "group-coordinator"
_OFFSETS: Final = (0, 1)

_OFFSET_FIELDS: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp", TIMESTAMP),
        ("expire_timestamp", TIMESTAMP),
        ("topic_id", pa.string()),
    ]
)
"""A committed offset. Fields that the commit lacks are null; in a tombstone all but the first three are."""

OFFSETS_SCHEMA: Final = pa.schema([*_OFFSET_FIELDS, pa.field("committed_in", pa.string())])
"""A group's current offset. ``committed_in`` is where it is committed: in this topic, or in a file of sparklog's."""

OFFSETS_HISTORY_SCHEMA: Final = pa.schema([*_OFFSET_FIELDS, *HISTORY_FIELDS])

_PARTITIONS_TYPE: Final = pa.list_(
    pa.struct(
        [
            ("topic", pa.string()),
            ("topic_id", pa.string()),
            ("subtopology_id", pa.string()),
            ("partitions", pa.list_(pa.int32())),
        ]
    )
)
MEMBER_TYPE: Final = pa.struct(
    [
        ("member_id", pa.string()),
        ("instance_id", pa.string()),
        ("rack_id", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("member_epoch", pa.int32()),
        ("subscribed_topics", pa.list_(pa.string())),
        ("subscribed_topic_regex", pa.string()),
        ("assigned_partitions", _PARTITIONS_TYPE),
    ]
)
GROUPS_SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("type", pa.string()),
        ("state", pa.string()),
        ("epoch", pa.int32()),
        ("protocol_type", pa.string()),
        ("protocol", pa.string()),
        ("leader", pa.string()),
        ("state_timestamp", TIMESTAMP),
        ("members", pa.list_(MEMBER_TYPE)),
    ]
)
"""A group. ``epoch`` is the generation of a classic group, and the group epoch of any other.

If some records of a group cannot be decoded, its state is Unknown and all other fields but its name are null.
"""

GROUPS_HISTORY_SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("member_id", pa.string()),
        ("record", pa.string()),
        ("version", pa.int32()),
        ("fields", pa.string()),
        *HISTORY_FIELDS,
    ]
)
"""A record about a group: ``record`` is its name in Kafka, ``fields`` its value as JSON."""


def _is_offset(kind: int | None) -> bool:
    return kind is None or kind in _OFFSETS


def _is_of_group(kind: int | None) -> bool:
    return kind is None or kind not in _OFFSETS


def current_offsets(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the current offsets, one row for each group, topic and partition."""
    last = last_records(log, _without_legacy_types)
    rows = [
        (*_offset_row(found), TOPIC)
        for _, found in decode_coordinator_records(log, last, _COMPONENT, unreadable, _is_offset)
        if found.is_there
    ]
    return pa.table(arrays_of(rows, OFFSETS_SCHEMA), schema=OFFSETS_SCHEMA)


def offsets_history(log: InternalLog, unreadable: Undecodable) -> Iterator[pa.RecordBatch]:
    """Return every commit of an offset and every tombstone, in the order of the log."""
    return history(log, _COMPONENT, unreadable, _is_offset, _offset_row, OFFSETS_HISTORY_SCHEMA)


def current_groups(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the current groups.

    A group that has only committed offsets counts, as it does to a broker: as classic, and empty. So does a group
    that has committed them in an open transaction.
    """
    groups: defaultdict[str, _Group] = defaultdict(_Group)
    last = last_records(log, _without_legacy_types, with_open=True)
    for _, found in decode_coordinator_records(log, last, _COMPONENT, unreadable, lambda _: True):
        if found.key and (found.is_there or found.is_raw):
            groups[_group_of(found.key)].apply(found)
    rows = [groups[name].row(name, log.topic_names) for name in sorted(groups)]
    return pa.table(arrays_of(rows, GROUPS_SCHEMA), schema=GROUPS_SCHEMA)


def groups_history(log: InternalLog, unreadable: Undecodable) -> Iterator[pa.RecordBatch]:
    """Return every record about groups, in the order of the log."""
    return history(log, _COMPONENT, unreadable, _is_of_group, _record_row, GROUPS_HISTORY_SCHEMA)


def _without_legacy_types(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn keys of type 0 into type 1: they have the same fields, and mean the same offset."""
    is_legacy = pc.fill_null(pc.starts_with(keys, b"\0\0"), False)
    if not pc.any(is_legacy).as_py():
        return keys
    return pc.if_else(is_legacy, pc.binary_replace_slice(keys, 0, 2, b"\0\1"), keys)


def _group_of(key: MessageFields) -> str:
    group: str = key["group"] if "group" in key else key["groupId"]
    return group


def _offset_row(found: DecodedMessage) -> tuple[Any, ...]:
    key, value = found.key, found.value
    named = key["group"], key["topic"], key["partition"]
    if value is None:
        return (*named, None, None, None, None, None, None)
    topic_id = value.get("topicId", NO_UUID)
    return (
        *named,
        value["offset"],
        known(value.get("leaderEpoch", -1)),
        value["metadata"],
        known(value["commitTimestamp"]),
        known(value.get("expireTimestamp", -1)),
        None if topic_id == NO_UUID else topic_id,
    )


def _record_row(found: DecodedMessage) -> tuple[Any, ...]:
    fields = None if found.value is None else json_of(found.value)
    return _group_of(found.key), found.key.get("memberId"), found.name, found.version, fields


_TYPES: Final = (("ConsumerGroup", "consumer"), ("ShareGroup", "share"), ("StreamsGroup", "streams"))
_STABLE_MEMBER: Final = 0
_STABLE, _EMPTY, _ASSIGNING, _RECONCILING = "Stable", "Empty", "Assigning", "Reconciling"
_NOT_READY, _UNKNOWN = "NotReady", "Unknown"


@dataclass
class _Group:
    """The state of a group, from its last records.

    Attributes
    ----------
    kind : str
        Its type, from its latest record that has one.
    is_known : bool
        Whether all of its records can be decoded.
    records : dict of str to dict
        Its own records by their names.
    members : dict of str to dict
        Records of members by their names, by member id.
    """

    kind: str = "classic"
    is_known: bool = True
    records: dict[str, MessageFields] = field(default_factory=dict)
    members: defaultdict[str, dict[str, MessageFields]] = field(default_factory=lambda: defaultdict(dict))

    def apply(self, found: DecodedMessage) -> None:
        """Add a record; they come in offset order."""
        name, value = found.name, found.value or {}
        self.is_known &= not found.is_raw
        for prefix, kind in _TYPES:
            if name.startswith(prefix):
                self.kind, name = kind, name.removeprefix(prefix)
        if name == "GroupMetadata":
            self.kind = "classic"
        if "memberId" in found.key:
            self.members[found.key["memberId"]][name] = value
        else:
            self.records[name] = value

    def row(self, group: str, topic_names: Mapping[str, str]) -> tuple[Any, ...]:
        """Make the row of `GROUPS_SCHEMA`."""
        if not self.is_known:
            return group, None, _UNKNOWN, None, None, None, None, None, None
        if self.kind == "classic":
            return self._classic_row(group)
        members = [
            _modern_member(member_id, records, topic_names)
            for member_id, records in sorted(self.members.items())
            if "MemberMetadata" in records
        ]
        epoch = self.records.get("Metadata", {}).get("epoch")
        return group, self.kind, self._modern_state(len(members)), epoch, self.kind, None, None, None, members

    def _classic_row(self, group: str) -> tuple[Any, ...]:
        value = self.records.get("GroupMetadata", {})
        protocol_type = value.get("protocolType") or None
        return (
            group,
            self.kind,
            _STABLE if value.get("members") else _EMPTY,
            value.get("generation"),
            protocol_type,
            value.get("protocol"),
            value.get("leader"),
            known(value.get("currentStateTimestamp", -1)),
            [_classic_member(member, protocol_type) for member in value.get("members", ())],
        )

    def _modern_state(self, members: int) -> str:
        if not members:
            return _EMPTY
        if self.kind == "share":
            return _STABLE
        if self.kind == "streams" and "Topology" not in self.records:
            return _NOT_READY
        epoch = self.records.get("Metadata", {}).get("epoch", 0)
        assigned = self.records.get("TargetAssignmentMetadata", {}).get("assignmentEpoch", 0)
        if epoch > assigned:
            return _ASSIGNING
        current = [records.get("CurrentMemberAssignment", {}) for records in self.members.values()]
        is_reconciled = all(
            each.get("state") == _STABLE_MEMBER and each.get("memberEpoch") == assigned for each in current
        )
        return _STABLE if is_reconciled else _RECONCILING


def _modern_member(
    member_id: str, records: Mapping[str, MessageFields], topic_names: Mapping[str, str]
) -> MessageFields:
    """Make a member of a group whose members have records of their own."""
    value, current = records["MemberMetadata"], records.get("CurrentMemberAssignment", {})
    assigned: Iterable[MessageFields] = current.get("assignedPartitions") or current.get("activeTasks") or ()
    return {
        "member_id": member_id,
        "instance_id": value.get("instanceId"),
        "rack_id": value.get("rackId"),
        "client_id": value["clientId"],
        "client_host": value["clientHost"],
        "member_epoch": current.get("memberEpoch"),
        "subscribed_topics": value.get("subscribedTopicNames"),
        "subscribed_topic_regex": value.get("subscribedTopicRegex") or None,
        "assigned_partitions": [
            {
                "topic": topic_names.get(each.get("topicId", "")),
                "topic_id": each.get("topicId"),
                "subtopology_id": each.get("subtopologyId"),
                "partitions": sorted(each["partitions"]),
            }
            for each in assigned
        ],
    }


def _classic_member(member: MessageFields, protocol_type: str | None) -> MessageFields:
    """Make a member of a classic group. Subscriptions are known for consumers only."""
    topics, assigned = None, None
    if protocol_type == "consumer":
        topics, assigned = _subscription(member["subscription"]), _assignment(member["assignment"])
    return {
        "member_id": member["memberId"],
        "instance_id": member["groupInstanceId"],
        "client_id": member["clientId"],
        "client_host": member["clientHost"],
        "subscribed_topics": topics,
        "assigned_partitions": assigned,
    }


def _subscription(data: bytes) -> list[str] | None:
    fields = _of_consumer("ConsumerProtocolSubscription", data)
    return None if fields is None else fields["topics"]


def _assignment(data: bytes) -> list[MessageFields] | None:
    fields = _of_consumer("ConsumerProtocolAssignment", data)
    assigned: Iterable[MessageFields] = () if fields is None else fields["assignedPartitions"]
    return [{"topic": each["topic"], "partitions": sorted(each["partitions"])} for each in assigned]


def _of_consumer(name: str, data: bytes) -> MessageFields | None:
    """Decode bytes that a client made and a broker only keeps; return None if Kafka's own client did not write them."""
    try:
        return message(name).decode_versioned(data)
    except MessageDecodeError:
        return None
