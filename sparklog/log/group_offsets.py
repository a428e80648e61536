"""Reads and writes ``seglog.offsets`` of a log directory, the offsets committed by sparklog's consumers.

One JSON object, replaced as a whole:

    version        1
    transactions   the number of the last transaction that has committed offsets here; 0 if the field is missing
    groups         by group: by topic: by partition, as text: [offset, metadata, commit timestamp in ms since the
                   epoch]; an offset of -1 means that from that time on nothing is committed
    topics         the topics' ids at their last commits; a topic with another id is
                   a new one, without committed offsets
    before         the groups' offsets before the last transaction's commit, in the same form; until that is
                   carried out, neither its records nor its offsets are visible

A transaction commits offsets by its journal, which has the first two fields: the offsets of the transaction, and its
number. A transaction is in the file if the number in the file is not below its own, so a journal that is carried out
late, or twice, changes nothing that was committed after it. That needs no clock. A number is never below the time of
the transaction either: if the file is lost, numbers from before are never above later ones.

The time of a commit is never below the previous commit's, since it decides between this commit and the ones in
``__consumer_offsets``: a broker does not read this file, and a cluster's own groups commit there.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from sparklog.errors import CorruptCheckpointError
from sparklog.log.files import PARTITION_MAX, TopicPartition, is_topic_name

NO_OFFSET: Final = -1
_VERSION: Final = 1
_INT64_END: Final = 1 << 63
Key = TypeVar("Key", bound=Hashable)


class OffsetCommit(NamedTuple):
    """A committed offset: the offset of the next record to read. ``metadata`` is the consumer's own."""

    offset: int
    metadata: str
    timestamp: int


GroupOffsets = Mapping[str, Mapping[TopicPartition, OffsetCommit]]


def latest(*sources: Mapping[Key, OffsetCommit]) -> dict[Key, OffsetCommit]:
    """Return the latest commit of each key; among equal times, the one from the first source."""
    found: dict[Key, OffsetCommit] = {}
    for source in sources:
        for key, commit in source.items():
            known = found.get(key)
            found[key] = commit if known is None or known.timestamp < commit.timestamp else known
    return found


@dataclass(frozen=True)
class CommittedOffsets:
    """The committed offsets of groups, in all or in one transaction; see the module for the fields."""

    groups: GroupOffsets = field(default_factory=dict)
    transactions: int = 0
    before: GroupOffsets = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)

    def updated(self, groups: GroupOffsets, topics: Mapping[str, str] | None = None) -> CommittedOffsets:
        """Return the offsets updated by newer ones; offsets of other partitions stay.

        Parameters
        ----------
        topics : mapping of str to str, optional
            The current ids of topics.
        """
        before = self.of(topics or {})
        newer, overtaken = dict(before.groups), dict(before.before)
        for group, offsets in groups.items():
            known = newer.get(group, {})
            newer[group] = {**known, **{at: _behind(known.get(at), commit) for at, commit in offsets.items()}}
            overtaken[group] = {at: each for at, each in overtaken.get(group, {}).items() if at not in offsets}
        return CommittedOffsets(newer, self.transactions, overtaken, {**self.topics, **(topics or {})})

    def of(self, topics: Mapping[str, str]) -> CommittedOffsets:
        """Return the offsets of topics that still have the ids they were committed for; ``topics`` has today's ids."""
        others = {topic for topic, topic_id in topics.items() if self.topics.get(topic, topic_id) != topic_id}
        if not others:
            return self
        groups, before = (
            {group: {at: each for at, each in of.items() if at.topic not in others} for group, of in offsets.items()}
            for offsets in (self.groups, self.before)
        )
        return CommittedOffsets(groups, self.transactions, before, self.topics)

    def after(self, transaction: CommittedOffsets | None) -> CommittedOffsets:
        """Return the offsets updated by a decided transaction, unless they include it."""
        if transaction is None or transaction.transactions <= self.transactions:
            return self
        nothing = OffsetCommit(NO_OFFSET, "", 0)
        before = {
            group: {at: self.groups.get(group, {}).get(at, nothing) for at in offsets}
            for group, offsets in transaction.groups.items()
        }
        after = self.updated(transaction.groups, transaction.topics)
        return CommittedOffsets(after.groups, transaction.transactions, before, after.topics)

    def without(self, transaction: CommittedOffsets | None) -> CommittedOffsets:
        """Return the offsets as visible while a transaction is decided and not carried out."""
        if transaction is None or transaction.transactions != self.transactions:
            return self
        groups = {group: {**offsets, **self.before.get(group, {})} for group, offsets in self.groups.items()}
        return CommittedOffsets(groups, self.transactions, topics=self.topics)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        fields = {"topics": dict(self.topics), "before": _nested(self.before)}
        kept = {name: value for name, value in fields.items() if value}
        return {"transactions": self.transactions, "groups": _nested(self.groups), **kept}

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"version": _VERSION, **self.to_fields()}, indent=1).encode()


def _behind(known: OffsetCommit | None, commit: OffsetCommit) -> OffsetCommit:
    """Return a commit whose time is not before the time of the commit that it replaces."""
    return commit if known is None else commit._replace(timestamp=max(known.timestamp, commit.timestamp))


def _nested(groups: GroupOffsets) -> dict[str, dict[str, dict[str, Any]]]:
    of_groups: dict[str, dict[str, dict[str, Any]]] = {}
    for group, offsets in groups.items():
        topics = of_groups.setdefault(group, {})
        for at, commit in offsets.items():
            topics.setdefault(at.topic, {})[str(at.partition)] = list(commit)
    return {group: topics for group, topics in of_groups.items() if topics}


def offsets_of_fields(found: Mapping[str, Any]) -> CommittedOffsets:
    """Read the fields from JSON; wrong ones raise one of Python's errors of types and values."""
    transactions = _number(found.get("transactions", 0), "a number of transactions")
    topics = {topic: _text(topic_id, "an id") for topic, topic_id in found.get("topics", {}).items()}
    return CommittedOffsets(_groups(found["groups"]), transactions, _groups(found.get("before", {})), topics)


def _groups(found: Any) -> GroupOffsets:
    return {
        _text(group, "a group"): {
            _partition(topic, number): _commit(of)
            for topic, partitions in topics.items()
            for number, of in partitions.items()
        }
        for group, topics in found.items()
    }


def _partition(topic: Any, number: str) -> TopicPartition:
    if not isinstance(topic, str) or not is_topic_name(topic):
        raise ValueError(f"not a topic's name: {topic!r}")
    if not number.isdecimal() or str(int(number)) != number or int(number) > PARTITION_MAX:
        raise ValueError(f"not a partition of {topic}: {number!r}")
    return TopicPartition(topic, int(number))


def _commit(found: Any) -> OffsetCommit:
    offset, metadata, timestamp = found
    return OffsetCommit(
        _number(offset, "an offset", NO_OFFSET),
        # Earlier versions wrote null if a consumer gave None.
        "" if metadata is None else _text(metadata, "metadata"),
        _number(timestamp, "a time"),
    )


def _number(found: Any, what: str, at_least: int = 0) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not at_least <= found < _INT64_END:
        raise ValueError(f"not {what}: {found!r}")
    return found


def _text(found: Any, what: str) -> str:
    if not isinstance(found, str):
        raise ValueError(f"not {what}: {found!r}")
    # Other readers take no lone surrogate for text.
    found.encode()
    return found


def parse_group_offsets(data: bytes, path: str) -> CommittedOffsets:
    """Read the content of the file.

    Raises
    ------
    CorruptCheckpointError
        It is not JSON, or has another version.
    """
    try:
        found = json.loads(data)
        if found["version"] == _VERSION:
            return offsets_of_fields(found)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CorruptCheckpointError(f"not a file of committed offsets: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {found['version']!r} of a file of committed offsets", path=path)
