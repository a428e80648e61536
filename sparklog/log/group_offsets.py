"""The file of what consumers of ours have committed: ``seglog.offsets`` of a log directory.

One JSON object, replaced as a whole:

    version        1
    transactions   the number of the last transaction that has committed offsets here; 0 where the field is missing
    groups         by group: by topic: by partition, as text: [offset, metadata, commit timestamp in ms since the
                   epoch]; an offset of -1 says that from that time on nothing is committed
    topics         the ids that the topics had when offsets of them were last committed; a topic with another id is
                   another one, of which nothing is committed
    before         what the groups had, in the same form, where the last transaction has committed; while that is not
                   carried out, its records are not visible, and nor are its offsets

A transaction commits offsets by its journal, which has the first two fields: the offsets of the transaction, and its
number. A transaction is in the file where the number of the file is not below its own, and so a journal that is carried
out late, or twice, changes nothing that was committed after it. That needs no clock. A number is not below the time of
the transaction either: one of before a file was lost is above none of those after it.

The time of a commit is never below that of the one before it, since by it the commit is compared with those of
``__consumer_offsets``: a broker does not read this file, and what a cluster's own groups have committed is there.
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
    """A committed offset: that of the next record to be read; ``metadata`` is the consumer's own."""

    offset: int
    metadata: str
    timestamp: int


GroupOffsets = Mapping[str, Mapping[TopicPartition, OffsetCommit]]


def latest(*sources: Mapping[Key, OffsetCommit]) -> dict[Key, OffsetCommit]:
    """Return the last commit of each key: the one of the latest time, and of the first source where times are equal."""
    found: dict[Key, OffsetCommit] = {}
    for source in sources:
        for key, commit in source.items():
            known = found.get(key)
            found[key] = commit if known is None or known.timestamp < commit.timestamp else known
    return found


@dataclass(frozen=True)
class CommittedOffsets:
    """What groups have committed, in all or in one transaction; see the module for the fields."""

    groups: GroupOffsets = field(default_factory=dict)
    transactions: int = 0
    before: GroupOffsets = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)

    def updated(self, groups: GroupOffsets, topics: Mapping[str, str] | None = None) -> CommittedOffsets:
        """Return the offsets with newer ones; those of partitions that these do not name stay.

        Parameters
        ----------
        topics : mapping of str to str, optional
            The ids that topics have now.
        """
        before = self.of(topics or {})
        newer, overtaken = dict(before.groups), dict(before.before)
        for group, offsets in groups.items():
            known = newer.get(group, {})
            newer[group] = {**known, **{at: _behind(known.get(at), commit) for at, commit in offsets.items()}}
            overtaken[group] = {at: each for at, each in overtaken.get(group, {}).items() if at not in offsets}
        return CommittedOffsets(newer, self.transactions, overtaken, {**self.topics, **(topics or {})})

    def of(self, topics: Mapping[str, str]) -> CommittedOffsets:
        """Return the offsets of topics that still are those of which they were committed; ``topics`` has their ids."""
        others = {topic for topic, topic_id in topics.items() if self.topics.get(topic, topic_id) != topic_id}
        if not others:
            return self
        groups, before = (
            {group: {at: each for at, each in of.items() if at.topic not in others} for group, of in offsets.items()}
            for offsets in (self.groups, self.before)
        )
        return CommittedOffsets(groups, self.transactions, before, self.topics)

    def after(self, transaction: CommittedOffsets | None) -> CommittedOffsets:
        """Return the offsets with those of a transaction that was decided, unless it is among them."""
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
        """Return the offsets as they are while a transaction is decided and not carried out."""
        if transaction is None or transaction.transactions != self.transactions:
            return self
        groups = {group: {**offsets, **self.before.get(group, {})} for group, offsets in self.groups.items()}
        return CommittedOffsets(groups, self.transactions, topics=self.topics)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields as they are in JSON."""
        fields = {"topics": dict(self.topics), "before": _nested(self.before)}
        kept = {name: value for name, value in fields.items() if value}
        return {"transactions": self.transactions, "groups": _nested(self.groups), **kept}

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"version": _VERSION, **self.to_fields()}, indent=1).encode()


def _behind(known: OffsetCommit | None, commit: OffsetCommit) -> OffsetCommit:
    """Return a commit with a time that is not before that of the one which it replaces."""
    return commit if known is None else commit._replace(timestamp=max(known.timestamp, commit.timestamp))


def _nested(groups: GroupOffsets) -> dict[str, dict[str, dict[str, Any]]]:
    of_groups: dict[str, dict[str, dict[str, Any]]] = {}
    for group, offsets in groups.items():
        topics = of_groups.setdefault(group, {})
        for at, commit in offsets.items():
            topics.setdefault(at.topic, {})[str(at.partition)] = list(commit)
    return {group: topics for group, topics in of_groups.items() if topics}


def offsets_of_fields(found: Mapping[str, Any]) -> CommittedOffsets:
    """Read the fields as they are in JSON; one of the errors of wrong types and values where they are none."""
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
        # Earlier versions wrote null where a consumer gave None.
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
    # Half of a pair of UTF-16 is no text to those who read it.
    found.encode()
    return found


def parse_group_offsets(data: bytes, path: str) -> CommittedOffsets:
    """Read the content of the file.

    Raises
    ------
    CorruptCheckpointError
        It is not JSON, or of another version.
    """
    try:
        found = json.loads(data)
        if found["version"] == _VERSION:
            return offsets_of_fields(found)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CorruptCheckpointError(f"not a file of committed offsets: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {found['version']!r} of a file of committed offsets", path=path)
