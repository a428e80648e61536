"""Declares the arguments of every job that reads logs, which select partitions and records of them.

`Selection` declares the name, default, check and help text of each. The functions of Python take them as the keywords
of `SelectionArguments`, the terminal as options. `sparklog.topic.places.discovery.Discovery.select` finds the
partitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from sparklog.errors import InvalidOptionError
from sparklog.log.clock import Time, to_ms
from sparklog.log.files import TopicPartition, checked_partition
from sparklog.log.properties import option
from sparklog.storage.registry import PathText, paths_of

if TYPE_CHECKING:
    from sparklog.log.reader import IsolationLevel


class SelectionArguments(TypedDict, total=False):
    """The options of `Selection`, as a caller of Python passes them."""

    topics: str | Sequence[str]
    topic_pattern: str | None
    partitions: Sequence[tuple[str, int]]
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


@dataclass(frozen=True)
class Selection:
    """The selected records, checked; by default all records of all topics except Kafka's internal ones.

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

    def __post_init__(self) -> None:
        for names in (
            ("topics", "topic_pattern", "partitions"),
            ("start_offsets", "start_time", "start_group"),
            ("end_offsets", "end_time", "end_group"),
        ):
            given = [name for name in names if getattr(self, name) not in (None, ())]
            if len(given) > 1:
                raise InvalidOptionError(f"{' and '.join(given)} are given: give one of them")
