"""Makes the records that commit offsets of a consumer group, as a broker makes them.

A value is written in the newest version that the log has already, but never above 3, which brokers since 2.1 read: 4
only adds the topic's id, which a broker does not need.

The record of an empty classic group has the time since when it is empty. Its offsets expire by that time, not by their
commits': new offsets of a group that has long been empty would expire minutes after a broker starts. So the record
of such a group is written again as well, empty since now.

Source: apache/kafka, GroupCoordinatorRecordHelpers.java, ClassicGroup.java (offsetExpirationCondition).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.system.codecs import MessageFields
from sparklog.system.messages import message
from sparklog.system.records import InternalLog, Undecodable, decode_coordinator_records, last_records

OFFSET_VERSION_MAX: Final = 3
_COMPONENT: Final = "group-coordinator"
_OFFSET, _GROUP = "OffsetCommit", "GroupMetadata"
_TIME_SINCE: Final = 2
"""The first version of a group's record that has the time of the group's last change of state."""


class KeyValue(NamedTuple):
    """A record to append."""

    key: bytes
    value: bytes


@dataclass(frozen=True)
class GroupRecords:
    """The records of one group in a log of ``__consumer_offsets``, and the versions to write new ones in.

    Attributes
    ----------
    offsets : mapping of TopicPartition to OffsetCommit
        The offsets that the group has committed.
    offset_version : int
        The version of the values of new commits.
    classic : dict or None
        The fields of the group's own record, if it is of the classic protocol and has one.
    classic_version : int
        The version of that record.
    groups : frozenset of str
        All groups in the log.
    """

    offsets: Mapping[TopicPartition, OffsetCommit]
    offset_version: int
    classic: MessageFields | None
    classic_version: int
    groups: frozenset[str]


def read_group(log: InternalLog, group: str) -> GroupRecords:
    """Read the records of a group."""
    offsets: dict[TopicPartition, OffsetCommit] = {}
    versions, groups = set[int](), set[str]()
    classic: tuple[MessageFields | None, int] = (None, 0)
    unreadable = Undecodable()
    for _, found in decode_coordinator_records(log, last_records(log), _COMPONENT, unreadable, lambda _: True):
        if found.value is None:
            continue
        name, key, version = found.name, found.key, found.version or 0
        groups.add(key["group"] if "group" in key else key["groupId"])
        if name == _OFFSET:
            versions.add(version)
            if key["group"] == group:
                value = found.value
                commit = OffsetCommit(value["offset"], value["metadata"], value["commitTimestamp"])
                offsets[TopicPartition(key["topic"], key["partition"])] = commit
        elif name == _GROUP and key["group"] == group:
            classic = found.value, version
    unreadable.warn(is_history=False)
    version = min(max(versions, default=OFFSET_VERSION_MAX), OFFSET_VERSION_MAX)
    return GroupRecords(offsets, version, *classic, frozenset(groups))


def commit_records(
    group: str, offsets: Mapping[TopicPartition, int], before: GroupRecords, now_ms: int
) -> Sequence[KeyValue]:
    """Make the records that commit offsets of a group.

    Parameters
    ----------
    before : GroupRecords
        The group's records so far.
    now_ms : int
        The time of the commit, ms since the epoch.
    """
    made = [
        KeyValue(
            _key(_OFFSET, {"group": group, "topic": at.topic, "partition": at.partition}),
            message(f"{_OFFSET}Value").encode_versioned(
                {"offset": offset, "metadata": "", "commitTimestamp": now_ms}, before.offset_version
            ),
        )
        for at, offset in offsets.items()
    ]
    classic = before.classic
    if classic is not None and not classic["members"] and before.classic_version >= _TIME_SINCE:
        since_now = {**classic, "currentStateTimestamp": now_ms}
        value = message(f"{_GROUP}Value").encode_versioned(since_now, before.classic_version)
        made.append(KeyValue(_key(_GROUP, {"group": group}), value))
    return made


def renewed_commits(
    log: InternalLog, ends: Mapping[TopicPartition, int], now_ms: int
) -> tuple[list[KeyValue], dict[tuple[str, TopicPartition], int]]:
    """Make records that commit all offsets of a log again, no later than the ends of the partitions.

    All offsets get the time of the commit, and groups without members are empty since then: a broker would soon remove
    the offsets of a log that is old.

    Parameters
    ----------
    ends : mapping of TopicPartition to int
        The log end offsets; offsets of other partitions stay.
    now_ms : int
        The time of the commit, ms since the epoch.

    Returns
    -------
    list of KeyValue, and the times of the commits before by groups and partitions
    """
    made: list[KeyValue] = []
    times: dict[tuple[str, TopicPartition], int] = {}
    unreadable = Undecodable()
    rows = last_records(log)
    for row, found in decode_coordinator_records(log, rows, _COMPONENT, unreadable, lambda _: True):
        value, version = found.value, found.version or 0
        if value is None:
            continue
        if found.name == _OFFSET:
            at = TopicPartition(found.key["topic"], found.key["partition"])
            times[found.key["group"], at] = value["commitTimestamp"]
            end = ends.get(at, value["offset"])
            is_lowered = end < value["offset"]
            changed = {"offset": end, "leaderEpoch": -1} if is_lowered else {}
            changed |= {"commitTimestamp": now_ms}
            if value.get("expireTimestamp", -1) >= 0:
                changed |= {"expireTimestamp": now_ms + value["expireTimestamp"] - value["commitTimestamp"]}
        elif found.name == _GROUP and not value["members"] and version >= _TIME_SINCE:
            changed = {"currentStateTimestamp": now_ms}
        else:
            continue
        encoded = message(f"{found.name}Value").encode_versioned({**value, **changed}, version)
        made.append(KeyValue(rows["key"][row].as_py(), encoded))
    unreadable.warn(is_history=False)
    return made, times


def _key(name: str, fields: MessageFields) -> bytes:
    found = message(f"{name}Key")
    return (found.api_key or 0).to_bytes(2, "big") + found.encode(fields, 0)
