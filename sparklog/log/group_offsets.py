"""Reads and writes the offsets committed by sparklog's consumers: ``seglog.offsets`` and its journal.

``seglog.offsets`` of a log directory is one JSON object on one line, replaced as a whole:

    version        2; 1 in a file of earlier versions of sparklog, which refuse 2: it has no generation, no checksum,
                   and no journal
    generation     any text that no other such file has
    transactions   the number of the last transaction that has committed offsets here; 0 if the field is missing
    groups         by group: by topic: by partition, as text: [offset, metadata, commit timestamp in ms since the
                   epoch]; an offset of -1 means that from that time on nothing is committed
    topics         the topics' ids at their last commits; a topic with another id is
                   a new one, without committed offsets
    before         the groups' offsets before the last transaction's commit, in the same form; until that is
                   carried out, neither its records nor its offsets are visible
    crc32c         its checksum; see `sparklog.log.checked_lines`

``seglog.offsets.journal`` has the commits since then. A line is a commit, with a checksum as well:

    generation     of the ``seglog.offsets`` that the commits follow
    transactions   the number of the transaction that commits; 0 if a consumer does
    groups, topics as above, of this commit

A commit writes a line, so its work does not grow with the offsets of others. Before the journal grows larger than both
64 KiB and ``seglog.offsets``, that is replaced by one with all commits, and the journal is removed. A journal of
another generation counts for nothing: its commits are in the file already, or somebody has put another file there.
A backup needs both files.

A transaction commits offsets by its own journal, which has some of these fields: the offsets of the transaction, its
number, and the ids of topics. A transaction is in the files if the number in them is not below its own, so a journal
that is carried out late, or twice, changes nothing that was committed after it. That needs no clock. A number is never
below the time of the transaction either: if the files are lost, numbers from before are never above later ones.

The time of a commit is never below the previous commit's, since it decides between this commit and the ones in
``__consumer_offsets``: a broker does not read these files, and a cluster's own groups commit there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from sparklog.errors import CorruptCheckpointError
from sparklog.log.checked_lines import encode_line, line_checksum, line_ending, whole_lines
from sparklog.log.files import PARTITION_MAX, TopicPartition, is_topic_name

NO_OFFSET: Final = -1
_VERSION: Final = 2
_VERSION_WITHOUT_JOURNAL: Final = 1
_JOURNAL_BYTES_MIN: Final = 1 << 16
"""The size up to which a journal may grow in any case."""
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
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


class _Changing(dict[str, dict[TopicPartition, OffsetCommit]]):
    """The offsets of groups while they are changed: a group's are copied once, before their first change."""

    def __init__(self, groups: GroupOffsets) -> None:
        super().__init__(groups)  # type: ignore[arg-type]
        self._copied = set[str]()

    def of(self, group: str) -> dict[TopicPartition, OffsetCommit]:
        if group not in self._copied:
            self._copied.add(group)
            self[group] = dict(self.get(group, {}))
        return self[group]


@dataclass(frozen=True)
class CommittedOffsets:
    """The committed offsets of groups, in all or in one commit; see the module for the fields."""

    groups: GroupOffsets = field(default_factory=dict)
    transactions: int = 0
    before: GroupOffsets = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)

    def updated(self, commits: Iterable[CommittedOffsets]) -> CommittedOffsets:
        """Return the offsets updated by later commits, in order; offsets of other partitions stay.

        A commit with a number is a transaction's, and changes nothing if it is among the offsets already.
        """
        groups, before, topics = _Changing(self.groups), _Changing(self.before), dict(self.topics)
        transactions = self.transactions
        for commit in commits:
            if 0 < commit.transactions <= transactions:
                continue
            overtaken = {group: _known(groups.get(group, {}), at) for group, at in commit.groups.items()}
            others = _other_topics(topics, commit.topics)
            if others:
                groups, before = _Changing(_without(groups, others)), _Changing(_without(before, others))
            for group, offsets in commit.groups.items():
                newer = groups.of(group)
                newer.update({at: _behind(newer.get(at), each) for at, each in offsets.items()})
                for at in offsets if group in before else ():
                    before.of(group).pop(at, None)
            topics.update(commit.topics)
            if commit.transactions:
                transactions, before = commit.transactions, _Changing(overtaken)
        return CommittedOffsets(groups, transactions, before, topics)

    def of_group(self, group: str) -> CommittedOffsets:
        """Return the offsets of one group."""
        groups, before = ({group: each[group]} if group in each else {} for each in (self.groups, self.before))
        return replace(self, groups=groups, before=before)

    def of(self, topics: Mapping[str, str]) -> CommittedOffsets:
        """Return the offsets of topics that still have the ids they were committed for; ``topics`` has today's ids."""
        others = _other_topics(self.topics, topics)
        if not others:
            return self
        return replace(self, groups=_without(self.groups, others), before=_without(self.before, others))

    def after(self, transaction: CommittedOffsets | None) -> CommittedOffsets:
        """Return the offsets updated by a decided transaction, unless they include it."""
        if transaction is None or transaction.transactions <= self.transactions:
            return self
        return self.updated([transaction])

    def without(self, transaction: CommittedOffsets | None) -> CommittedOffsets:
        """Return the offsets as visible while a transaction is decided and not carried out."""
        if transaction is None or transaction.transactions != self.transactions:
            return self
        earlier = {group: {**self.groups.get(group, {}), **before} for group, before in self.before.items()}
        return CommittedOffsets({**self.groups, **earlier}, self.transactions, topics=self.topics)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        fields = {"topics": dict(self.topics), "before": _nested(self.before)}
        kept = {name: value for name, value in fields.items() if value}
        return {"transactions": self.transactions, "groups": _nested(self.groups), **kept}

    def to_json(self, generation: str) -> bytes:
        """Return the content of ``seglog.offsets``."""
        return encode_line({"version": _VERSION, "generation": generation, **self.to_fields()})


@dataclass(frozen=True)
class StoredOffsets:
    """The offsets in ``seglog.offsets`` and in the part of its journal that was read.

    Attributes
    ----------
    generation : str
        Of ``seglog.offsets``; empty if no journal can follow it.
    size_bytes : int
        The size of ``seglog.offsets``.
    end_position : int
        The end of the last commit that was read in the journal.
    checksum : int
        The checksum there.
    """

    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    generation: str = ""
    size_bytes: int = 0
    end_position: int = 0
    checksum: int = 0

    @property
    def ending(self) -> bytes:
        """The last bytes that were read in the journal, which no journal with other lines has there."""
        return line_ending(self.checksum) if self.end_position else b""

    def line(self, commit: CommittedOffsets) -> bytes | None:
        """Return the next line of the journal; None if ``seglog.offsets`` is to be replaced instead."""
        line = encode_line({"generation": self.generation, **commit.to_fields()}, self.checksum)
        fits = self.end_position + len(line) <= max(self.size_bytes, _JOURNAL_BYTES_MIN)
        return line if self.generation and fits else None


def _other_topics(known: Mapping[str, str], topics: Mapping[str, str]) -> set[str]:
    return {topic for topic, topic_id in topics.items() if known.get(topic, topic_id) != topic_id}


def _without(groups: GroupOffsets, topics: Collection[str]) -> GroupOffsets:
    return {group: {at: each for at, each in of.items() if at.topic not in topics} for group, of in groups.items()}


def _known(
    offsets: Mapping[TopicPartition, OffsetCommit], wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetCommit]:
    nothing = OffsetCommit(NO_OFFSET, "", 0)
    return {at: offsets.get(at, nothing) for at in wanted}


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


def parse_group_offsets(data: bytes, path: str) -> StoredOffsets:
    """Read the content of ``seglog.offsets``.

    Raises
    ------
    CorruptCheckpointError
        It is not JSON, has another version, or its checksum is wrong.
    """
    try:
        found = json.loads(data)
        version = found["version"]
        if version == _VERSION_WITHOUT_JOURNAL:
            return StoredOffsets(offsets_of_fields(found))
        if version == _VERSION:
            line_checksum(data)
            return StoredOffsets(offsets_of_fields(found), _text(found["generation"], "a generation"), len(data))
    except _UNREADABLE as error:
        raise CorruptCheckpointError(f"not a file of committed offsets: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {version!r} of a file of committed offsets", path=path)


def add_lines(found: StoredOffsets, data: bytes, path: str) -> StoredOffsets:
    """Return the offsets after more of the journal, without a line that a crash has left in part.

    Parameters
    ----------
    data : bytes
        The bytes of the journal from ``found.end_position`` on.

    Raises
    ------
    CorruptCheckpointError
        A line is damaged.
    """
    commits, position, checksum = [], found.end_position, found.checksum
    for line in whole_lines(data):
        try:
            checksum = line_checksum(line, checksum)
            fields = json.loads(line)
            if fields["generation"] != found.generation:
                if position:
                    raise ValueError(f"its generation is {fields['generation']!r}")
                return found
            commits.append(offsets_of_fields(fields))
        except _UNREADABLE as error:
            raise CorruptCheckpointError(
                f"not a line of committed offsets: {error!r}", path=path, position=position, hint=_WAY_OUT
            ) from error
        position += len(line)
    if not commits:
        return found
    return replace(found, offsets=found.offsets.updated(commits), end_position=position, checksum=checksum)


_WAY_OUT: Final = (
    "Nothing is changed while it cannot be read. Restore this file and the one without .journal together; or remove "
    "this file: the groups' last commits are then undone, and they consume some records again"
)
