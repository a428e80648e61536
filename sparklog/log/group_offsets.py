"""The file of what consumers of ours have committed: ``seglog.offsets`` of a log directory.

One JSON object, replaced as a whole:

    version        1
    transactions   how many transactions have committed offsets here; 0 where the field is missing
    groups         by group: by topic: by partition, as text: [offset, metadata, commit timestamp in ms since the epoch]

A transaction commits offsets by its journal, which has the same two fields: the offsets of the transaction, and its
number. A transaction is in the file where the number of the file is not below its own, and so a journal that is carried
out late, or twice, changes nothing that was committed after it. That needs no clock.

A broker does not read the file; what a cluster's own groups have committed is in ``__consumer_offsets``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sparklog.errors import CorruptCheckpointError
from sparklog.log.files import TopicPartition

_VERSION: Final = 1


class OffsetCommit(NamedTuple):
    """A committed offset: that of the next record to be read; ``metadata`` is the consumer's own."""

    offset: int
    metadata: str
    timestamp: int


GroupOffsets = Mapping[str, Mapping[TopicPartition, OffsetCommit]]


@dataclass(frozen=True)
class CommittedOffsets:
    """What groups have committed, in all or in one transaction; see the module for the fields."""

    groups: GroupOffsets = field(default_factory=dict)
    transactions: int = 0

    def updated(self, groups: GroupOffsets) -> CommittedOffsets:
        """Return the offsets with newer ones; those of partitions that these do not name stay."""
        newer = {group: {**self.groups.get(group, {}), **offsets} for group, offsets in groups.items()}
        return CommittedOffsets({**self.groups, **newer}, self.transactions)

    def without(self, topic: str) -> CommittedOffsets:
        """Return the offsets without those in a topic."""
        left = {
            group: {at: commit for at, commit in offsets.items() if at.topic != topic}
            for group, offsets in self.groups.items()
        }
        return CommittedOffsets({group: offsets for group, offsets in left.items() if offsets}, self.transactions)

    def after(self, transaction: CommittedOffsets | None) -> CommittedOffsets:
        """Return the offsets with those of a transaction that was decided, unless it is among them."""
        if transaction is None or transaction.transactions <= self.transactions:
            return self
        return CommittedOffsets(self.updated(transaction.groups).groups, transaction.transactions)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields as they are in JSON."""
        of_groups: dict[str, dict[str, dict[str, Any]]] = {}
        for group, offsets in self.groups.items():
            topics = of_groups.setdefault(group, {})
            for at, commit in offsets.items():
                topics.setdefault(at.topic, {})[str(at.partition)] = list(commit)
        return {"transactions": self.transactions, "groups": of_groups}

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"version": _VERSION, **self.to_fields()}, indent=1).encode()


def offsets_of_fields(found: Mapping[str, Any]) -> CommittedOffsets:
    """Read the fields as they are in JSON; one of the errors of wrong types and values where they are none."""
    groups = {
        str(group): {
            TopicPartition(str(topic), int(number)): OffsetCommit(int(of[0]), str(of[1]), int(of[2]))
            for topic, partitions in topics.items()
            for number, of in partitions.items()
        }
        for group, topics in found["groups"].items()
    }
    transactions = found.get("transactions", 0)
    if not isinstance(transactions, int) or isinstance(transactions, bool) or transactions < 0:
        raise ValueError(f"not a number of transactions: {transactions!r}")
    return CommittedOffsets(groups, transactions)


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
