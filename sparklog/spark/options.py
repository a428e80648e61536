"""Declares the options of a read, and reads and checks them; no other module does.

Names, JSON forms, precedence and messages are those of Spark's own Kafka connector, so that a query needs a new format
name and a path, and nothing else. An option that only makes sense with a broker is accepted with a warning.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.log.properties import option, shown
from sparklog.log.times import iso_milliseconds
from sparklog.record.limits import DECOMPRESSED_BYTES_LIMIT, DECOMPRESSED_BYTES_MAX
from sparklog.spark.limits import TASKS_MAX
from sparklog.spark.parsing import (
    NO_PATH,
    declared_names,
    integer,
    is_long,
    location_or_none,
    read_declared,
    refuse_unknown,
    settle_alias,
)
from sparklog.spark.schema import HEADERS, check_columns
from sparklog.storage.registry import canonical
from sparklog.topic.packing import PACK_BYTES

LATEST: Final = -1
"""An offset in JSON that stands for the end of the log."""

EARLIEST: Final = -2
"""An offset in JSON that stands for its start."""

if TYPE_CHECKING:
    from sparklog.log.reader import IsolationLevel

_log = logging.getLogger("sparklog")

_OFFSETS_FORM: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_FORM: Final = (
    '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'  # as the connector's
)
_TIME_FORMS: Final = "ms since the epoch, as 1772442000000, or ISO 8601, as 2026-03-02T09:00:00Z"
_PARTITIONS_FORM: Final = '{"topicA":[0,1],"topicB":[0,1]}'


@dataclass(frozen=True)
class OffsetSpec:
    """Where a read begins or ends: the first attribute that is not None says it, and ``word`` where all others are.

    Attributes
    ----------
    time : int, optional
        ms since the epoch, for every partition.
    times : mapping, optional
        The same for each partition.
    group : str, optional
        The consumer group whose committed offsets it is.
    offsets : mapping, optional
        An offset for each partition, which may be `LATEST` or `EARLIEST`.
    word : str
        "earliest" or "latest".
    """

    time: int | None = None
    times: Mapping[TopicPartition, int] | None = None
    group: str | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    word: str = ""


def _paths(name: str, text: str) -> tuple[str, ...]:
    found = _json(name, text)
    if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):
        raise InvalidOptionError(f"{name} must be a JSON list of paths, got {shown(text)}")
    return tuple(canonical(each, name) for each in found)


def _path_or_paths(name: str, text: str) -> tuple[str, ...]:
    return _paths(name, text) if text.lstrip().startswith("[") else (canonical(text, name),)


def _group(name: str, text: str) -> str:
    if not text:
        raise InvalidOptionError(f"{name} names no group")
    return text


def _time(_: str, text: str) -> int:
    number = integer(text)
    time = iso_milliseconds(text) if number is None else number
    if time is None:
        raise InvalidOptionError(f"Expected a single long value, got {shown(text)}: give {_TIME_FORMS}")
    return time


def _names(_: str, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _topics(name: str, text: str) -> tuple[str, ...]:
    found = _names(name, text)
    if not found:
        raise InvalidOptionError(f"No topics to subscribe to as specified value for option '{name}' is '{shown(text)}'")
    return found


def _pattern(name: str, text: str) -> re.Pattern[str]:
    if not text.strip():
        raise InvalidOptionError(
            f"Pattern to subscribe is empty as specified value for option '{name}' is '{shown(text)}'"
        )
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise InvalidOptionError(f"{name} is not a regular expression: {shown(text)!r}, {error}") from error
    except (OverflowError, RecursionError, MemoryError) as error:
        raise InvalidOptionError(f"{name} is too large a regular expression: {shown(text)!r}, {error}") from error


def _assignment(name: str, text: str) -> dict[str, tuple[int, ...]]:
    if not text.strip().startswith("{"):
        raise InvalidOptionError(
            f"No topicpartitions to assign as specified value for option '{name}' is '{shown(text)}'"
        )
    found = _json(name, text)
    if not isinstance(found, dict) or not all(
        isinstance(numbers, list) and all(type(number) is int for number in numbers) for numbers in found.values()
    ):
        raise InvalidOptionError(f"Expected e.g. {_PARTITIONS_FORM}, got {shown(text)}")
    if not any(found.values()):
        raise InvalidOptionError(
            f"No topicpartitions to assign as specified value for option '{name}' is '{shown(text)}'"
        )
    return {topic: tuple(numbers) for topic, numbers in found.items()}


def _offsets(name: str, text: str) -> str | dict[TopicPartition, int]:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    found = _by_partition(name, text, _OFFSETS_FORM)
    for topic_partition, offset in found.items():
        if offset < EARLIEST:
            raise InvalidOptionError(f"{name} for {topic_partition} is {offset}: offsets are not negative")
    return found


def _times(name: str, text: str) -> dict[TopicPartition, int]:
    return _by_partition(name, text, _TIMES_FORM, f"; a time is {_TIME_FORMS}", iso_milliseconds)


def _by_partition(
    name: str, text: str, form: str, hint: str = "", read_text: Callable[[str], int | None] = lambda _: None
) -> dict[TopicPartition, int]:
    """Read a number for each partition; ``read_text`` reads one that is not a number in JSON."""
    found = _json(name, text)
    if not isinstance(found, dict):
        raise InvalidOptionError(f"Expected e.g. {form}, got {shown(text)}{hint}")
    values: dict[TopicPartition, int] = {}
    for topic, numbers in found.items():
        for partition, value in numbers.items() if isinstance(numbers, dict) else [("", None)]:
            number = integer(partition)
            value = read_text(value) if isinstance(value, str) else value
            if number is None or type(value) is not int or not is_long(value):
                raise InvalidOptionError(f"Expected e.g. {form}, got {shown(text)}{hint}")
            values[TopicPartition(topic, number)] = value
    return values


def _view(name: str, text: str) -> str:
    if not text.strip():
        raise InvalidOptionError(f"{name} names no view: {text!r}")
    return text.strip()


def _columns(name: str, text: str) -> tuple[str, ...]:
    found = tuple(check_columns(_names(name, text)))
    if not found:
        raise InvalidOptionError(f"{name} names no column: {text!r}")
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
    except RecursionError as error:
        raise InvalidOptionError(f"{name} is JSON that is nested too deep: {shown(text)}") from error


_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BROKER_ONLY: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
_ALIASES: Final = {"kafka.isolation.level": "isolationLevel"}
_KAFKA_PREFIX: Final = "kafka."
# The first of each row that is given counts.
_PRECEDENCE: Final = (
    ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByGroup", "startingOffsets"),
    ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsetsByGroup", "endingOffsets"),
)
# Options of a write alone; `sparklog.spark.write_options` declares them, and takes long to import.
WRITE_ONLY: Final = (
    "topic",
    "numPartitions",
    "partitioner",
    "topicId",
    "txnAppId",
    "txnVersion",
    "lockTimeoutMs",
    "reportPath",
)
# What Spark adds to the options of a table in its catalog.
_TABLE_PROPERTIES: Final = frozenset({"provider", "owner", "location", "external", "comment", "is_managed_location"})


@dataclass(frozen=True)
class SeglogOptions:
    """The options that a user gave for a read. Made by `parse`."""

    path: str = option(
        "path",
        "",
        parser=location_or_none,
        is_required=True,
        doc="A log directory, a topic's path, or a partition's folder.",
    )
    paths: tuple[str, ...] = option(
        "paths", (), parser=_paths, doc="Several paths as a JSON list; `load([...])` sets it, and `path` is not needed."
    )
    assign: Mapping[str, tuple[int, ...]] | None = option(
        "assign", None, parser=_assignment, doc=f"Partitions to read: {_PARTITIONS_FORM}."
    )
    subscribe: tuple[str, ...] = option("subscribe", (), parser=_topics, doc="Topics to read, with commas between.")
    subscribe_pattern: re.Pattern[str] | None = option(  # noqa: RUF009 - a field, like the others
        "subscribePattern",
        None,
        parser=_pattern,
        doc="Topics to read: those whose whole name this regular expression matches.",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        None,
        parser=_time,
        doc="Read from the first record at or after this time, ms since the epoch or ISO 8601 (UTC).",
    )
    starting_times: Mapping[TopicPartition, int] | None = option(
        "startingOffsetsByTimestamp", None, parser=_times, doc=f"The same for each partition: {_TIMES_FORM}."
    )
    starting_group: str | None = option(
        "startingOffsetsByGroup",
        None,
        parser=_group,
        doc="Read from the offsets that this consumer group has committed; a partition of which it has none from its "
        "start.",
    )
    starting_offsets: str | Mapping[TopicPartition, int] = option(
        "startingOffsets",
        "earliest",
        parser=_offsets,
        doc=f"Read from here: earliest, or an offset for each partition, -2 for earliest: {_OFFSETS_FORM}.",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        None,
        parser=_time,
        doc="Read up to the first record at or after this time, ms since the epoch or ISO 8601 (UTC).",
    )
    ending_times: Mapping[TopicPartition, int] | None = option(
        "endingOffsetsByTimestamp", None, parser=_times, doc=f"The same for each partition: {_TIMES_FORM}."
    )
    ending_group: str | None = option(
        "endingOffsetsByGroup",
        None,
        parser=_group,
        doc="Read up to the offsets that this consumer group has committed, so what it has read; nothing of a "
        "partition of which it has none.",
    )
    ending_offsets: str | Mapping[TopicPartition, int] = option(
        "endingOffsets",
        "latest",
        parser=_offsets,
        doc=f"Read up to here, exclusive: latest, or an offset for each partition, -1 for latest: {_OFFSETS_FORM}.",
    )
    offsets_path: tuple[str, ...] = option(
        "consumerOffsetsPath",
        (),
        parser=_path_or_paths,
        doc="The log directory, or a JSON list of them, where `__consumer_offsets` is; by default those that are read.",
    )
    timestamp_strategy: str = option(
        "startingOffsetsByTimestampStrategy",
        "error",
        choices=("error", "latest"),
        ignores_case=True,
        doc="Where no record is as late as the starting time: error, or latest to read nothing of that partition.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        doc="Whether it is an error that offsets which were asked for are gone, or only a warning.",
    )
    include_headers: bool = option("includeHeaders", False, doc="Whether to read the column headers as well.")
    min_partitions: int | None = option(
        "minPartitions",
        None,
        kind=int,
        at_least=1,
        at_most=TASKS_MAX,
        too_low="minPartitions must be positive",
        doc="Split large partitions into about this many tasks in all.",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        None,
        kind=int,
        at_least=1,
        too_low="maxrecordsperpartition must be positive",
        doc="Split partitions so that no task reads more offsets than this.",
    )
    pack_bytes: int = option(
        "packBytes",
        PACK_BYTES,
        doc="Give neighbouring small partitions to one task, until it has this many bytes of log to read; 0 gives each "
        "partition its own task.",
    )
    isolation_level: IsolationLevel = option(  # noqa: RUF009 - a field, like the others
        "isolationLevel",
        "read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        ignores_case=True,
        doc="read_committed leaves out aborted and open transactions. Also spelled kafka.isolation.level.",
    )
    columns: tuple[str, ...] = option(
        "columns",
        (),
        parser=_columns,
        doc="Columns to read, with commas between; a schema given to Spark does the same.",
    )
    view: str = option(
        "view",
        "",
        parser=_view,
        doc="Read an internal topic as a table, not as records: `consumer_offsets`, `transactions`, ...; "
        "`sparklog.views.NAMES` has all names.",
    )
    view_history: bool = option(
        "viewHistory", False, doc="With `view`: whether every record is a row, and not the state that they make."
    )
    decompressed_bytes_max: int = option(
        "max.decompressed.message.bytes",
        DECOMPRESSED_BYTES_MAX,
        at_least=1,
        at_most=DECOMPRESSED_BYTES_LIMIT,
        too_low="max.decompressed.message.bytes must be positive",
        doc="Refuse a batch that decompresses to more bytes than this.",
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read options as Spark hands them over.

        Parameters
        ----------
        given : mapping of str to str
            Names in any case.

        Raises
        ------
        InvalidOptionError
            An option is unknown, malformed or contradicts another, or there is no path.
        """
        given = {name.lower(): text for name, text in given.items()}
        if "provider" in given:
            given = {name: text for name, text in given.items() if not _is_of_table(name)}
        for alias, name in _ALIASES.items():
            settle_alias(given, alias, name)
        _refuse_of_write(given)
        names = [*declared_names(cls), *_STREAM_ONLY, *_BROKER_ONLY, *_ALIASES]
        known = {name.lower(): name for name in names}
        refuse_unknown((name for name in given if not name.startswith(_KAFKA_PREFIX)), known, "", sorted(names))
        options = cls(**read_declared(cls, given))
        if not options.all_paths:
            raise InvalidOptionError(NO_PATH)
        chosen = [name for name in ("subscribe", "subscribepattern", "assign") if name in given]
        if len(chosen) > 1:
            raise InvalidOptionError(
                "Only one of the following options can be specified for Kafka source: "
                "subscribe, subscribepattern, assign. See the docs for more details."
            )
        return options

    @property
    def all_paths(self) -> tuple[str, ...]:
        return tuple(path for path in (self.path, *self.paths) if path)

    @property
    def starting(self) -> OffsetSpec:
        """Where the read begins. A time goes before times for each partition, then a group, then offsets."""
        return _bound(self.starting_timestamp, self.starting_times, self.starting_group, self.starting_offsets)

    @property
    def ending(self) -> OffsetSpec:
        """Where the read ends, exclusive, by the same precedence."""
        return _bound(self.ending_timestamp, self.ending_times, self.ending_group, self.ending_offsets)

    def check_batch(self) -> None:
        """Refuse bounds that only a stream can have."""
        if self.starting.word == "latest":
            raise InvalidOptionError("starting offset can't be latest for batch queries on Kafka")
        if self.ending.word == "earliest":
            raise InvalidOptionError("ending offset can't be earliest for batch queries on Kafka")
        for topic_partition, offset in (self.starting.offsets or {}).items():
            if offset == LATEST:
                raise InvalidOptionError(
                    f"startingOffsets for {topic_partition} can't be latest for batch queries on Kafka"
                )
        for topic_partition, offset in (self.ending.offsets or {}).items():
            if offset == EARLIEST:
                raise InvalidOptionError(
                    f"ending offset for {topic_partition} can't be earliest for batch queries on Kafka"
                )


def warn_batch(given: Mapping[str, str], columns: Collection[str]) -> None:
    """Warn of each option that has no effect on a batch read of some columns, by its own name."""
    lower = {name.lower(): text for name, text in given.items()}
    for name, reason in _without_effect(lower, columns):
        _log.warning("the option %s does nothing here: %s", name, reason)
    for name in _STREAM_ONLY:
        if name.lower() in lower:
            _log.warning("%s option ignored in batch queries", name)
    broker = [name for name in _BROKER_ONLY if name.lower() in lower]
    broker += sorted(name for name in lower if name.startswith(_KAFKA_PREFIX) and name not in _ALIASES)
    if broker:
        _log.warning("no broker is asked, so these options mean nothing here: %s", ", ".join(broker))


def _without_effect(given: Mapping[str, str], columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the given options that have no effect beside the others, and why; ``given`` has names in lower case."""
    for precedence in _PRECEDENCE:
        there = [name for name in precedence if name.lower() in given]
        for name in there[1:]:
            yield name, f"{there[0]} goes before it"
    if (
        "startingoffsetsbytimestampstrategy" in given
        and not {name.lower() for name in _PRECEDENCE[0][:2]} & given.keys()
    ):
        yield "startingOffsetsByTimestampStrategy", "no starting time is given"
    if "consumeroffsetspath" in given and not {"startingoffsetsbygroup", "endingoffsetsbygroup"} & given.keys():
        yield "consumerOffsetsPath", "no group is given to begin or to end at"
    if given.get("includeheaders", "").strip().lower() == "true" and HEADERS not in columns:
        yield "includeHeaders", "the columns are chosen, and headers is not among them"


def _bound(
    time: int | None,
    times: Mapping[TopicPartition, int] | None,
    group: str | None,
    offsets: str | Mapping[TopicPartition, int],
) -> OffsetSpec:
    if time is not None:
        return OffsetSpec(time=time)
    if times is not None:
        return OffsetSpec(times=times)
    if group is not None:
        return OffsetSpec(group=group)
    return OffsetSpec(word=offsets) if isinstance(offsets, str) else OffsetSpec(offsets=offsets)


def _refuse_of_write(given: Mapping[str, str]) -> None:
    """Refuse options that only a write has, such as the topic that a view is made with."""
    for name in WRITE_ONLY:
        if name.lower() in given:
            instead = "; to read one topic, set subscribe to its name" if name == "topic" else ""
            raise InvalidOptionError(
                f"the option {name} is of a write, and this is a read, as every use of a view is{instead}"
            )


def _is_of_table(name: str) -> bool:
    return name.startswith("option.") or name in _TABLE_PROPERTIES
