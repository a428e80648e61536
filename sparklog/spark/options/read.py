"""Declares, parses and checks the options of a read; no other module does.

Names, JSON forms, precedence and messages are the same as in Spark's own Kafka connector, so that a query needs only a
new format name and a path. An option that only makes sense with a broker is accepted with a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from sparklog.errors import InvalidOptionError
from sparklog.log.damage_rows import DamagePolicy, OnDamage, UnknownFate
from sparklog.log.files import TopicPartition
from sparklog.log.filters.where_parser import parse_where
from sparklog.log.properties import option
from sparklog.record.codecs.table import DECOMPRESSED_BYTES_LIMIT, DECOMPRESSED_BYTES_MAX
from sparklog.record.decode.where import Where
from sparklog.spark.options.limits import TASKS_MAX
from sparklog.spark.options.parsing import (
    NO_PATH,
    declared_names,
    in_lower_case,
    location_or_none,
    read_declared,
    refuse_unknown,
)
from sparklog.spark.options.values import (
    OFFSETS_FORM,
    PARTITIONS_FORM,
    TIMES_FORM,
    OffsetSpec,
    ValueForm,
    bound_of,
    parse_assignment,
    parse_column_names,
    parse_duration,
    parse_group,
    parse_offsets,
    parse_path_or_paths,
    parse_paths,
    parse_pattern,
    parse_time,
    parse_times,
    parse_topics,
    parse_view,
    refuse_stream_bounds,
)
from sparklog.storage.given_options import GivenOptions, parse_storage_options, split_options
from sparklog.storage.registry import Location
from sparklog.topic.places.packing import PACK_BYTES
from sparklog.topic.quarantine import Quarantine
from sparklog.topic.selection import Selection

if TYPE_CHECKING:
    from sparklog.log.reader import IsolationLevel

_log = logging.getLogger("sparklog")


BROKER_ONLY_OPTIONS: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
ALIASES: Final = {"kafka.isolation.level": "isolationLevel"}
KAFKA_PREFIX: Final = "kafka."
# In each row, the first given option counts.
PRECEDENCE: Final = (
    ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByGroup", "startingOffsets"),
    ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsetsByGroup", "endingOffsets"),
)
_ENDINGS: Final = {
    "endingTimestamp": "ending timestamp",
    "endingOffsetsByTimestamp": "ending timestamp",
    "endingOffsetsByGroup": "ending offset",
    "endingOffsets": "ending offset",
}
# Options that only a write has; `sparklog.spark.options.write` declares them, but takes long to import.
WRITE_ONLY: Final = (
    "topic",
    "numPartitions",
    "partitioner",
    "topicId",
    "txnAppId",
    "txnVersion",
    "onReplay",
    "transactional",
    "lockTimeoutMs",
    "reportPath",
)
# Options that Spark adds for a table in its catalog.
_TABLE_PROPERTIES: Final = frozenset({"provider", "owner", "location", "external", "comment", "is_managed_location"})


_DECODING: Final[dict[str, dict[str, Any]]] = {
    "Format": {
        "takes": "raw, string, json, json-schema, avro, protobuf or package.module:function",
        "doc": "The format to decode {0}s from; the column {0} then has the schema's type. By default {0}s stay bytes.",
    },
    "Schema": {
        "doc": "The schema of {0}s: its text, columns such as `id bigint, name string`, or a path of schema files."
    },
    "Wire": {
        "takes": "confluent or none",
        "doc": "Whether {0}s begin with Confluent's prefix; by default json does not, and all other formats do.",
    },
    "SchemaId": {"kind": int, "doc": "The id of the schema whose columns are read; by default the highest."},
    "Message": {"doc": "The full name of the protobuf message of {0}s; by default the schema's first."},
}


def decoding_option(column: str, name: str) -> Any:
    """Declare one of the options for decoding a column, key or value."""
    declared = _DECODING[name]
    default = None if "kind" in declared else ""
    return option(column + name, default, **declared | {"doc": declared["doc"].format(column)})


@dataclass(frozen=True)
class SeglogOptions:
    """The options of a read, made by `parse`."""

    path: Location | None = option(  # noqa: RUF009 - a field, like the others
        "path",
        None,
        parser=location_or_none,
        is_required=True,
        doc="A log directory, a topic's path, or a partition's folder.",
    )
    paths: tuple[Location, ...] = option(
        "paths",
        (),
        parser=parse_paths,
        doc="Several paths as a JSON list; `load([...])` sets it, and `path` is not needed.",
    )
    assign: Mapping[str, tuple[int, ...]] | None = option(
        "assign", None, parser=parse_assignment, doc=f"Partitions to read: {PARTITIONS_FORM}."
    )
    subscribe: tuple[str, ...] = option(
        "subscribe", (), parser=parse_topics, doc="Topics to read, with commas between."
    )
    subscribe_pattern: re.Pattern[str] | None = option(  # noqa: RUF009 - a field, like the others
        "subscribePattern",
        None,
        parser=parse_pattern,
        doc="Topics to read: those whose whole name this regular expression matches.",
    )
    exclude_pattern: re.Pattern[str] | None = option(  # noqa: RUF009 - a field, like the others
        "excludePattern",
        None,
        parser=parse_pattern,
        doc="Topics to leave out of a directory or a pattern: those whose whole name this regular expression matches.",
    )
    replicas: Literal["refuse", "merge"] = option(
        "replicas",
        "refuse",
        choices=("refuse", "merge"),
        ignores_case=True,
        doc="merge reads the same partition in several log directories as one log, by Kafka's leader epochs; otherwise "
        "it is an error. For batch queries.",
    )
    replicas_min: int | None = option(
        "replicas.min",
        None,
        kind=int,
        at_least=1,
        doc="With replicas=merge, end where fewer replicas have the records than this; by default at the high "
        "watermark.",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        None,
        parser=parse_time,
        doc="Read from the first record at or after this time, ms since the epoch or ISO 8601 (UTC).",
    )
    starting_times: Mapping[TopicPartition, int] | None = option(
        "startingOffsetsByTimestamp", None, parser=parse_times, doc=f"The same for each partition: {TIMES_FORM}."
    )
    starting_group: str | None = option(
        "startingOffsetsByGroup",
        None,
        parser=parse_group,
        doc="Read from the offsets that this consumer group has committed; partitions without one from their start.",
    )
    starting_offsets: str | Mapping[TopicPartition, int] = option(
        "startingOffsets",
        "earliest",
        parser=parse_offsets,
        doc=f"Read from here: earliest, or an offset for each partition, -2 for earliest: {OFFSETS_FORM}.",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        None,
        parser=parse_time,
        doc="Read up to the first record at or after this time, ms since the epoch or ISO 8601 (UTC).",
    )
    ending_times: Mapping[TopicPartition, int] | None = option(
        "endingOffsetsByTimestamp", None, parser=parse_times, doc=f"The same for each partition: {TIMES_FORM}."
    )
    ending_group: str | None = option(
        "endingOffsetsByGroup",
        None,
        parser=parse_group,
        doc="Read up to the offsets that this consumer group has committed, so what it has read; nothing of "
        "partitions without one.",
    )
    ending_offsets: str | Mapping[TopicPartition, int] = option(
        "endingOffsets",
        "latest",
        parser=parse_offsets,
        doc=f"Read up to here, exclusive: latest, or an offset for each partition, -1 for latest: {OFFSETS_FORM}.",
    )
    offsets_path: tuple[Location, ...] = option(
        "consumerOffsetsPath",
        (),
        parser=parse_path_or_paths,
        doc="The log directory, or a JSON list of them, that has `__consumer_offsets`; by default those that are read.",
    )
    timestamp_strategy: str = option(
        "startingOffsetsByTimestampStrategy",
        "error",
        choices=("error", "latest"),
        ignores_case=True,
        doc="If a partition has no record as late as the starting time: error, or latest to read nothing of it.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        doc="Whether offsets of the range that the logs have lost are an error, or only a warning.",
    )
    on_damage: OnDamage = option(  # noqa: RUF009 - a field, like the others
        "onDamage",
        "fail",
        choices=("fail", "skip", "best_effort"),
        ignores_case=True,
        doc="Whether damage is an error (fail), or is left out and counted in one warning of its task (skip). "
        "best_effort also gives the records that decode of a batch with a wrong checksum, and the column `damaged`.",
    )
    unknown: UnknownFate = option(  # noqa: RUF009 - a field, like the others
        "unknown",
        "drop",
        choices=("drop", "keep"),
        ignores_case=True,
        doc="With onDamage and read_committed: whether records of a transaction whose marker may be lost are left out "
        "(drop) or read (keep).",
    )
    quarantine_path: Location | None = option(  # noqa: RUF009 - a field, like the others
        "quarantine",
        None,
        parser=location_or_none,
        doc="With onDamage: a folder that keeps the bytes of skipped damage, and a table of them.",
    )
    include_headers: bool = option("includeHeaders", False, doc="Whether to read the column headers as well.")
    headers_as_map: bool = option(
        "headersAsMap",
        False,
        doc="Read the column headers as a map of names to values; of several with one name the last counts.",
    )
    key_format: str = decoding_option("key", "Format")
    key_schema: str = decoding_option("key", "Schema")
    key_wire: str = decoding_option("key", "Wire")
    key_schema_id: int | None = decoding_option("key", "SchemaId")
    key_message: str = decoding_option("key", "Message")
    value_format: str = decoding_option("value", "Format")
    value_schema: str = decoding_option("value", "Schema")
    value_wire: str = decoding_option("value", "Wire")
    value_schema_id: int | None = decoding_option("value", "SchemaId")
    value_message: str = decoding_option("value", "Message")
    on_decode_error: str = option(
        "onDecodeError",
        "fail",
        choices=("fail", "null"),
        ignores_case=True,
        doc="How to treat a key or a value that does not decode: as an error (fail), or as null.",
    )
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
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        None,
        kind=int,
        at_least=1,
        doc="Of a stream: read about this many offsets a trigger, from each partition in proportion to its new ones.",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        None,
        kind=int,
        at_least=1,
        doc="Of a stream: wait until this many offsets are new, or until maxTriggerDelay is over.",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay",
        15 * 60 * 1000,
        parser=parse_duration,
        takes="a duration, as 15m",
        doc="Of a stream: how long to wait for minOffsetsPerTrigger; ms, or with a unit: s, m, h.",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        None,
        kind=int,
        at_least=1,
        doc="Of a stream: read about this many bytes of log a trigger.",
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
        parser=parse_column_names,
        doc="Columns to read, with commas between; a schema given to Spark does the same.",
    )
    view: str = option(
        "view",
        "",
        parser=parse_view,
        doc="Read an internal topic as a table, not as records: `consumer_offsets`, `transactions`, ...; "
        "`sparklog.views.NAMES` has all names. `damage` has a row for each stretch that cannot be read.",
    )
    view_history: bool = option(
        "viewHistory",
        False,
        doc="With `view`: read every record as a row, instead of the current state; `seglog.offsets` has no history.",
    )
    where: Where | None = option(  # noqa: RUF009 - a field, like the others
        "where",
        None,
        parser=lambda _, text: parse_where(text),
        doc="Which records to read, such as key = 'user-1' AND timestamp >= '2026-03-02T09:00:00Z': see Filters.",
    )
    decompressed_bytes_max: int = option(
        "max.decompressed.message.bytes",
        DECOMPRESSED_BYTES_MAX,
        at_least=1,
        at_most=DECOMPRESSED_BYTES_LIMIT,
        too_low="max.decompressed.message.bytes must be positive",
        doc="Refuse a batch that decompresses to more bytes than this.",
    )
    storage_options: GivenOptions = field(default_factory=GivenOptions)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them.

        Parameters
        ----------
        given : mapping of str to str
            The given options, names in any case.

        Raises
        ------
        InvalidOptionError
            An option is unknown, malformed or contradicts another, or the path is missing.
        """
        of_storages, given = split_options(in_lower_case(given, ALIASES))
        if "provider" in given:
            given = {name: text for name, text in given.items() if not _is_of_table(name)}
        _refuse_of_write(given)
        names = [*declared_names(cls), *BROKER_ONLY_OPTIONS, *ALIASES]
        known = {name.lower(): name for name in names}
        refuse_unknown((name for name in given if not name.startswith(KAFKA_PREFIX)), known, "", sorted(names))
        storage_options = parse_storage_options(of_storages)
        with storage_options.in_force():
            options = cls(**read_declared(cls, given), storage_options=storage_options)
        if not options.all_paths:
            raise InvalidOptionError(NO_PATH)
        if options.policy.is_fail:
            for name in ("unknown", "quarantine"):
                if name in given:
                    raise InvalidOptionError(f"{name} is about damage that is skipped: set onDamage to skip as well")
        chosen = [name for name in ("subscribe", "subscribepattern", "assign") if name in given]
        if len(chosen) > 1:
            raise InvalidOptionError(
                "Only one of the following options can be specified for Kafka source: "
                "subscribe, subscribepattern, assign. See the docs for more details."
            )
        return options

    @classmethod
    def parse_stream(cls, given: Mapping[str, str]) -> Self:
        """Parse the options of a stream, which by default begins at the end of the logs.

        Raises
        ------
        InvalidOptionError
            See `parse`; or an end is given.
        """
        options = cls.parse(given)
        names = {name.lower() for name in given}
        for name, what in _ENDINGS.items():
            if name.lower() in names:
                raise InvalidOptionError(f"{what} not valid in streaming queries: {name}")
        if options.replicas == "merge":
            raise InvalidOptionError("replicas are merged in batch queries only: a stream reads one replica")
        most, least = options.max_offsets_per_trigger, options.min_offsets_per_trigger
        if most is not None and least is not None and least > most:
            raise InvalidOptionError(
                f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})"
            )
        return options if "startingoffsets" in names else replace(options, starting_offsets="latest")

    @property
    def policy(self) -> DamagePolicy:
        return DamagePolicy(self.on_damage, self.unknown)

    @property
    def quarantine(self) -> Quarantine | None:
        return None if self.quarantine_path is None else Quarantine(self.quarantine_path)

    @property
    def has_limits(self) -> bool:
        """Whether an option limits how much a stream's trigger reads."""
        limits = (self.max_offsets_per_trigger, self.min_offsets_per_trigger, self.max_bytes_per_trigger)
        return any(limit is not None for limit in limits)

    @property
    def selection(self) -> Selection:
        """The partitions that the options select, before ``excludePattern`` and the bounds of the read."""
        assigned = tuple(TopicPartition(topic, n) for topic, numbers in (self.assign or {}).items() for n in numbers)
        topics = (self.subscribe, self.subscribe_pattern, assigned)
        return Selection(*topics, replicas=self.replicas, replicas_min=self.replicas_min)

    @property
    def all_paths(self) -> tuple[Location, ...]:
        return tuple(path for path in (self.path, *self.paths) if path)

    @property
    def starting(self) -> OffsetSpec:
        """Where the read begins. A time takes precedence over times per partition, then a group, then offsets."""
        return bound_of(self.starting_timestamp, self.starting_times, self.starting_group, self.starting_offsets)

    @property
    def ending(self) -> OffsetSpec:
        """Where the read ends, exclusive, by the same precedence."""
        return bound_of(self.ending_timestamp, self.ending_times, self.ending_group, self.ending_offsets)

    @property
    def forms(self) -> dict[str, ValueForm]:
        """The decoding of the key and the value, if options give one."""
        key = ValueForm(self.key_format, self.key_schema, self.key_wire, self.key_schema_id, self.key_message)
        value = ValueForm(
            self.value_format, self.value_schema, self.value_wire, self.value_schema_id, self.value_message
        )
        return {name: form for name, form in (("key", key), ("value", value)) if form.is_given}

    def check_batch(self) -> None:
        """Refuse bounds that only a stream can have."""
        refuse_stream_bounds(self.starting, self.ending)


def _refuse_of_write(given: Mapping[str, str]) -> None:
    """Refuse options that only a write has, such as ``topic``, also in the definition of a SQL view."""
    for name in WRITE_ONLY:
        if name.lower() in given:
            instead = "; to read one topic, set subscribe to its name" if name == "topic" else ""
            raise InvalidOptionError(
                f"the option {name} is of a write, and this is a read, as every use of a view is{instead}"
            )


def _is_of_table(name: str) -> bool:
    return name.startswith("option.") or name in _TABLE_PROPERTIES
