"""Declares the arguments of every job that reads logs, which select partitions and records of them.

`Selection` declares the name, default, check and help text of each. The functions of Python take them as the keywords
of `SelectionArguments`, the terminal as options. `sparklog.topic.places.discovery.Discovery.select` finds the
partitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from sparklog.errors import InvalidOptionError
from sparklog.log.clock import Time, to_ms
from sparklog.log.damage_rows import OnDamage
from sparklog.log.files import TopicPartition, checked_partition
from sparklog.log.properties import option
from sparklog.storage.registry import PathText, paths_of

if TYPE_CHECKING:
    from sparklog.log.reader import IsolationLevel


class PartitionArguments(TypedDict, total=False):
    """The options of `PartitionSelection`, as a caller of Python passes them."""

    topics: str | Sequence[str]
    topic_pattern: str | None
    partitions: Sequence[tuple[str, int]]


class SelectionArguments(PartitionArguments, total=False):
    """The options of `Selection`, as a caller of Python passes them."""

    replicas: Literal["refuse", "merge"]
    replicas_min: int | None
    quarantine: PathText | None
    start_offsets: Mapping[tuple[str, int], int] | None
    end_offsets: Mapping[tuple[str, int], int] | None
    start_time: Time | None
    end_time: Time | None
    start_group: str | None
    end_group: str | None
    offsets_path: PathText | Sequence[PathText]
    isolation_level: IsolationLevel
    stops_at_high_watermark: bool
    fail_on_data_loss: bool
    on_damage: OnDamage


def _topics(_: str, given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _pattern(_: str, given: str) -> re.Pattern[str]:
    try:
        return re.compile(given)
    except re.error as error:
        raise InvalidOptionError(f"no regular expression: {given!r}, {error}") from error


def _partitions(_: str, given: Sequence[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(checked_partition(*each) for each in given)


def _offsets(name: str, given: Mapping[Any, int]) -> dict[TopicPartition, int] | None:
    for each in given:
        if not isinstance(each, tuple) or len(each) != 2:
            raise InvalidOptionError(f"{name} has {each!r}: it is given by topic and partition, ('topic', 0)")
    return {checked_partition(*each): offset for each, offset in given.items()} or None


def _paths(_: str, given: PathText | Sequence[PathText]) -> tuple[PathText, ...]:
    return tuple(paths_of(given))


def _offsets_option(name: str, doc: str) -> Any:
    return option(name, None, kind=dict, parser=_offsets, takes="mapping of (topic, partition) to int", doc=doc)


def _time_option(name: str, doc: str) -> Any:
    return option(name, None, kind=object, parser=lambda n, time: to_ms(time, n), takes="int or datetime", doc=doc)


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions:
    """Says how the same partition in several log directories is read.

    Raises
    ------
    InvalidOptionError
        A minimum of replicas is given, and they are not merged.
    """

    replicas: Literal["refuse", "merge"] = option(
        "replicas",
        "refuse",
        choices=("refuse", "merge"),
        doc="merge reads the same partition in several log directories as one log, by Kafka's leader epochs; otherwise "
        "it is an error.",
    )
    replicas_min: int | None = option(
        "replicas_min",
        None,
        kind=int,
        at_least=1,
        doc="With replicas=merge, end where fewer replicas have the records than this; by default at the high "
        "watermark.",
    )

    def __post_init__(self) -> None:
        if self.replicas_min is not None and not isinstance(self.replicas_min, int):
            raise InvalidOptionError(f"replicas_min is {self.replicas_min!r}, and must be a whole number")
        if self.replicas_min is not None and not self.merges_replicas:
            raise InvalidOptionError(
                f"replicas_min is {self.replicas_min}, and replicas are not merged: set replicas to merge"
            )

    @property
    def merges_replicas(self) -> bool:
        return self.replicas == "merge"


@dataclass(frozen=True)
class PartitionSelection:
    """The selected partitions, checked; by default all partitions of all topics except Kafka's internal ones.

    Raises
    ------
    InvalidOptionError
        Two arguments are given that exclude each other.
    """

    topics: tuple[str, ...] = option(
        "topics", (), parser=_topics, takes="str or sequence of str", doc="Only these topics; internal ones too."
    )
    topic_pattern: re.Pattern[str] | None = option(  # noqa: RUF009 - a field, like the others
        "topic_pattern",
        None,
        kind=str,
        parser=_pattern,
        doc="Only topics whose whole name matches this regular expression.",
    )
    partitions: tuple[TopicPartition, ...] = option(
        "partitions",
        (),
        parser=_partitions,
        takes="sequence of (topic, partition)",
        doc="Only these partitions; at the terminal topic:partition. Give topics, a pattern or partitions.",
    )

    def __post_init__(self) -> None:
        self._refuse_two("topics", "topic_pattern", "partitions")

    def _refuse_two(self, *names: str) -> None:
        given = [name for name in names if getattr(self, name) not in (None, ())]
        if len(given) > 1:
            raise InvalidOptionError(f"{' and '.join(given)} are given: give one of them")


@dataclass(frozen=True)
class QuarantineOption:
    """The folder that keeps damaged bytes; see `sparklog.topic.quarantine`."""

    quarantine: PathText | None = option(  # noqa: RUF009 - a field, like the others
        "quarantine",
        None,
        kind=str,
        takes="str or os.PathLike",
        doc="A folder that keeps the bytes of skipped damage, and a table of them; outside of the log directories.",
    )


@dataclass(frozen=True)
class Selection(QuarantineOption, ReplicaOptions, PartitionSelection):
    """The selected records, checked; by default all records of all topics except Kafka's internal ones.

    Raises
    ------
    InvalidOptionError
        Two arguments are given that exclude each other.
    """

    start_offsets: Mapping[TopicPartition, int] | None = _offsets_option(
        "start_offsets", "Begin at these offsets of partitions; a copy begins at the start of their batches."
    )
    end_offsets: Mapping[TopicPartition, int] | None = _offsets_option(
        "end_offsets", "Stop before these offsets of partitions; a copy stops at the end of a batch that it has begun."
    )
    start_time: int | None = _time_option(
        "start_time", "Begin at the first record at or after it: ms since the epoch, or a datetime with a time zone."
    )
    end_time: int | None = _time_option("end_time", "Stop before the first record at or after it.")
    start_group: str | None = option(
        "start_group",
        None,
        kind=str,
        also=("from_group",),
        doc="Begin at the offsets that this consumer group has committed; without one, at the start of the partition.",
    )
    end_group: str | None = option(
        "end_group",
        None,
        kind=str,
        also=("to_group",),
        doc="Stop at the offsets that this consumer group has committed.",
    )
    offsets_path: tuple[PathText, ...] = option(
        "offsets_path",
        (),
        parser=_paths,
        takes="str, os.PathLike or a sequence of them",
        doc="The log directories with ``__consumer_offsets``; by default those of the source.",
    )
    isolation_level: IsolationLevel = option(  # noqa: RUF009 - a field, like the others
        "isolation_level",
        "read_committed",
        choices=("read_committed", "read_uncommitted"),
        doc="read_committed stops at the last stable offset, before open transactions; an export then leaves out "
        "aborted records.",
    )
    stops_at_high_watermark: bool = option(
        "stops_at_high_watermark",
        False,
        also=("high_watermark",),
        doc="Stop at the high watermark that the broker last wrote to ``replication-offset-checkpoint``.",
    )
    fail_on_data_loss: bool = option(
        "fail_on_data_loss",
        True,
        doc="Whether offsets that are gone and were never moved are an error; otherwise a warning.",
    )
    on_damage: OnDamage = option(  # noqa: RUF009 - a field, like the others
        "on_damage",
        "fail",
        choices=("fail", "skip", "best_effort"),
        doc="Whether damage keeps its partition from being moved, or is left out and recorded in the ledger. "
        "best_effort also exports the records that decode of a batch with a wrong checksum.",
    )

    def __post_init__(self) -> None:
        PartitionSelection.__post_init__(self)
        ReplicaOptions.__post_init__(self)
        self._refuse_two("start_offsets", "start_time", "start_group")
        self._refuse_two("end_offsets", "end_time", "end_group")
        if self.quarantine is not None and self.on_damage == "fail":
            raise InvalidOptionError("quarantine keeps damage that is skipped: set on_damage to skip as well")
