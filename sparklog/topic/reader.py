"""Reads the partitions of a topic, of several, or of a log directory as one, in threads that decode side by side.

`open_topic` is for Python users; Spark plans its own tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Self

import pyarrow as pa

from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.log.clock import Time, to_ms
from sparklog.log.damage_rows import FAIL, DamagePolicy, OnDamage, UnknownFate
from sparklog.log.files import TopicPartition
from sparklog.log.filters.where_parser import parse_where
from sparklog.log.properties import taken
from sparklog.log.reader import IsolationLevel, LogReader
from sparklog.log.reads.columns import DAMAGED_COLUMN, DAMAGED_SCHEMA, LOG_SCHEMA
from sparklog.log.reads.damage_table import damage_table
from sparklog.log.replicas.table import replica_table
from sparklog.record.decode.columns import LIMITS, DecodeLimits
from sparklog.record.decode.where import Where
from sparklog.record.format.arrays import bounded, scalar_of
from sparklog.record.format.schema import chosen_columns, selector
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.looks import one_look
from sparklog.storage.registry import PathText, paths_of
from sparklog.topic.found_damage import FoundDamage, warn_of_damage
from sparklog.topic.places.discovery import discover, place_at, places_at, read_found
from sparklog.topic.places.threads import merged
from sparklog.topic.quarantine import Quarantine
from sparklog.topic.selection import ReplicaOptions

TOPIC_COLUMN, PARTITION_COLUMN = "topic", "partition"
TOPIC_SCHEMA: Final = LOG_SCHEMA.append(pa.field(TOPIC_COLUMN, pa.string())).append(
    pa.field(PARTITION_COLUMN, pa.int32())
)
"""The columns of a topic: the columns of a log, and each record's topic and partition."""

TOPIC_DEFAULT_COLUMNS: Final = (
    "key",
    "value",
    TOPIC_COLUMN,
    PARTITION_COLUMN,
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)

_LIMITS_SIDE_BY_SIDE: Final = DecodeLimits(chunk_bytes=1 << 22, output_bytes_max=1 << 23)
"""Threads decode larger pieces, because they wait for Python's lock between two calls of compiled code."""

_GivenOffsets = Mapping[Any, int]
"""Offsets of some partitions, by topic and partition, or by partition alone if there is one topic."""


def open_topic(
    path: PathText | Sequence[PathText],
    *,
    threads: int = 1,
    on_damage: OnDamage = "fail",
    quarantine: PathText | None = None,
    replicas: Literal["refuse", "merge"] = "refuse",
    replicas_min: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> TopicReader:
    """Open all partitions of a topic, or of a log directory, for reading.

    Parameters
    ----------
    path : str, os.PathLike or a sequence of them
        A topic's path (``/logs/events`` stands for ``/logs/events-0``, ``/logs/events-1``, ...), a log directory (all
        topics except internal ones, whose names begin with ``__``), a partition's folder, or a pattern.
    threads : int
        How many partitions are decoded at a time; 1 means the calling thread alone.
    on_damage : {"fail", "skip", "best_effort"}
        What reads do about damage, unless a read says otherwise; see `LogReader.batches`. Unless it is ``fail``, a log
        whose end is damaged ends after its last sound batch.
    quarantine : str or os.PathLike, optional
        A folder that keeps the bytes of damage that reads skip, and a table of them; see `sparklog.topic.quarantine`.
    replicas : {"refuse", "merge"}
        Whether the same partition in several log directories is an error, or is read as one log: its replicas are
        merged by Kafka's leader epochs, and damaged batches are read from another replica.
    replicas_min : int, optional
        With ``replicas="merge"``, a log ends where fewer replicas have the records than this; by default at the highest
        high watermark that a broker wrote down.
    storage_options : mapping of str to str, optional
        The options of paths that are URLs, such as ``endpoint``; see `sparklog.place`.

    Returns
    -------
    TopicReader
        The partitions, all as of one moment: a commit over several of them is read wholly or not at all. Use it with
        ``with``.

    Raises
    ------
    PathNotFoundError
        The path does not exist, or holds no partition; the message says what it holds.
    InvalidOptionError
        No file can have such a path, ``threads`` is less than 1, the quarantine is in a log directory, or a partition
        is in several places that are not to be merged, or are no replicas of one log.
    CorruptLogError
        The end of a log is unknown, because its last segment is damaged there.
    """
    if threads < 1:
        raise InvalidOptionError(f"threads is {threads}, and must be at least 1")
    options, policy = (
        taken(ReplicaOptions, {"replicas": replicas, "replicas_min": replicas_min}),
        DamagePolicy(on_damage),
    )
    with with_storage_options(storage_options):
        paths = places_at(path)
        kept = None if quarantine is None else Quarantine(place_at(quarantine, "quarantine"))
    with one_look():
        layouts = read_found(lambda: discover(paths, options).select(), on_damage)
    if kept is not None:
        kept.check({layout.folder.directory for layout in layouts.values()})
    logs = {found: LogReader(layout, policy=policy) for found, layout in layouts.items()}
    return TopicReader(logs, threads, policy, kept)


class TopicReader:
    """Reads partitions as one, in their state at opening. Made by `open_topic`.

    Any library that reads Arrow streams can read it, like a `LogReader`. It has no ``len``, for the same reason.

    Threads may share it, and so may a forked process. An iterator of `batches` belongs to one thread at a time, and to
    the process that began it, because its threads are there.

    Parameters
    ----------
    logs : mapping of TopicPartition to LogReader
    threads : int
        How many partitions are decoded at a time.
    policy : DamagePolicy
        What reads do about damage, unless a read says otherwise.
    quarantine : Quarantine or None
        Keeps the bytes of damage that reads skip.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, LogReader],
        threads: int = 1,
        policy: DamagePolicy = FAIL,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._logs = {found: logs[found] for found in sorted(logs)}
        self._threads, self._policy, self._quarantine = threads, policy, quarantine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: no file stays open between reads."""

    def __repr__(self) -> str:
        topics = ", ".join(self.topics) or "no topic"
        return f"TopicReader({topics}: {len(self._logs)} partitions, threads={self._threads})"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return all records as an Arrow stream, in the columns of `schema`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    @property
    def schema(self) -> pa.Schema:
        """The default columns, `TOPIC_DEFAULT_COLUMNS`, with their types."""
        return topic_schema_of(None, is_best_effort=self._policy.is_best_effort)

    @property
    def topics(self) -> list[str]:
        """The topics, sorted."""
        return sorted({found.topic for found in self._logs})

    @property
    def logs(self) -> dict[TopicPartition, LogReader]:
        """The log of each partition, sorted by topic and partition."""
        return dict(self._logs)

    @property
    def start_offsets(self) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return {found: log.start_offset for found, log in self._logs.items()}

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        """The log end offset of each partition, exclusive; for errors see `LogReader.end_offset`."""
        return {found: log.end_offset for found, log in self._logs.items()}

    @property
    def replicas(self) -> pa.Table:
        """The replicas that the logs are merged from: which offsets of each are used, and why; see `REPLICA_SCHEMA`."""
        return replica_table([each for log in self._logs.values() for each in log.replicas])

    def offsets_for_time(self, timestamp: Time) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset of the first record at or after a time.

        Parameters
        ----------
        timestamp : int or datetime
            ms since the epoch, or a datetime with a time zone.

        Returns
        -------
        dict of TopicPartition to int
            Start or end offsets for a read; the log end offset if a partition has no record at or after the time.
        """
        time_ms = to_ms(timestamp)
        found = {each: log.offset_for_time(time_ms) for each, log in self._logs.items()}
        return {each: self._logs[each].end_offset if offset is None else offset for each, offset in found.items()}

    def offsets_for_group(
        self, group: str, offsets_path: PathText | Sequence[PathText] = ()
    ) -> dict[TopicPartition, int]:
        """Return the offsets that a consumer group has committed.

        Parameters
        ----------
        group : str
        offsets_path : str, os.PathLike or a sequence of them
            The log directories that have ``__consumer_offsets``; by default the ones of this reader.

        Returns
        -------
        dict of TopicPartition to int
            As start offsets, they make a read continue where the group would; as end offsets, they make it read what
            the group has read. For a partition without a committed offset it is the log start offset.

        Raises
        ------
        InvalidOptionError
            The group has committed no offset in ``seglog.offsets`` or in ``__consumer_offsets``.
        """
        # The decoder of offsets takes long to import, which reads without a group should not pay for.
        from sparklog.topic.internal.groups import committed_by_groups

        directories = (log.directory for log in self._logs.values())
        committed = committed_by_groups([group], directories, paths_of(offsets_path))[group]
        return {each: committed.get(each, log.start_offset) for each, log in self._logs.items()}

    def read(
        self,
        start_offsets: _GivenOffsets | None = None,
        end_offsets: _GivenOffsets | None = None,
        columns: str | Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        where: str | Where | None = None,
        max_bytes: int | None = None,
        on_damage: OnDamage | None = None,
        unknown: UnknownFate | None = None,
    ) -> pa.Table:
        """Read records into one table; for other parameters and errors see `batches`.

        Parameters
        ----------
        max_bytes : int, optional
            The limit of `LogReader.read`, for all partitions together: the table has the beginning of each partition's
            range, or nothing of it.

        Returns
        -------
        pyarrow.Table
            One row per record, by topic, partition and offset.
        """
        policy = self._policy_of(on_damage, unknown)
        schema = topic_schema_of(columns, is_best_effort=policy.is_best_effort)
        pieces: dict[TopicPartition, list[pa.RecordBatch]] = {found: [] for found in self._logs}
        limits = self._limits(None, max_bytes)
        tagged = self._tagged(start_offsets, end_offsets, schema, isolation_level, limits, policy, where=where)
        for found, batch in bounded(tagged, max_bytes):
            pieces[found].append(batch)
        return pa.Table.from_batches([batch for found in pieces.values() for batch in found], schema=schema)

    def batches(
        self,
        start_offsets: _GivenOffsets | None = None,
        end_offsets: _GivenOffsets | None = None,
        columns: str | Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        limits: DecodeLimits | None = None,
        fail_on_data_loss: bool = True,
        where: str | Where | None = None,
        max_bytes: int | None = None,
        on_damage: OnDamage | None = None,
        unknown: UnknownFate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read records in batches.

        Parameters
        ----------
        start_offsets, end_offsets : mapping, optional
            The first offset of a partition, and the one after the last, by topic and partition, ``("events", 0)``, or
            by partition alone if there is one topic. By default, and for partitions that are not named, all are read.
        columns : str or sequence of str, optional
            One or more names of `TOPIC_SCHEMA`, in the order wanted; by default `TOPIC_DEFAULT_COLUMNS`.
        isolation_level, limits, fail_on_data_loss, where, max_bytes
            See `LogReader.batches`. At most two batches per thread wait to be taken.
        on_damage, unknown
            See `LogReader.batches`; by default as the topic was opened. One warning has the counts of all partitions.

        Yields
        ------
        pyarrow.RecordBatch
            A batch of one partition; the batches of each partition are in offset order. With one thread, partition
            follows partition; with more, batches come as they are decoded. The threads end when the iterator is closed
            or dropped.

        Raises
        ------
        InvalidOptionError
            A column, an isolation level or a partition does not exist, or the filter is malformed.
        OffsetOutOfRangeError, CorruptLogError, DataLossError
            See `LogReader.batches`; they name the partition. Decoded batches of other partitions may be lost then.
        SeglogError
            Another process, from which this one was forked, began the iterator.
        """
        policy, limits = self._policy_of(on_damage, unknown), self._limits(limits, max_bytes)
        schema = topic_schema_of(columns, is_best_effort=policy.is_best_effort)
        tagged = self._tagged(
            start_offsets, end_offsets, schema, isolation_level, limits, policy, fail_on_data_loss, where
        )
        return (batch for _, batch in tagged)

    def damage(self) -> pa.Table:
        """Return what cannot be read: the rows of `LogReader.damage` of all partitions, one partition after another."""
        return pa.concat_tables([damage_table(()), *(log.damage() for log in self._logs.values())])

    def _policy_of(self, on_damage: OnDamage | None, unknown: UnknownFate | None) -> DamagePolicy:
        return DamagePolicy(on_damage or self._policy.on_damage, unknown or self._policy.unknown)

    def _tagged(
        self,
        start_offsets: _GivenOffsets | None,
        end_offsets: _GivenOffsets | None,
        schema: pa.Schema,
        isolation_level: IsolationLevel,
        limits: DecodeLimits,
        policy: DamagePolicy,
        fail_on_data_loss: bool = True,
        where: str | Where | None = None,
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Return an iterator of batches with their partitions; refuse wrong arguments before reading anything."""
        starts, ends = self._by_partition(start_offsets, "start"), self._by_partition(end_offsets, "end")
        chosen = None if where is None else parse_where(where)
        of_log = [name for name in schema.names if name not in TopicPartition._fields]
        damage = [FoundDamage(self._quarantine) for _ in self._logs]
        readers: list[Iterator[tuple[TopicPartition, pa.RecordBatch]]] = []
        for (found, log), of_one in zip(self._logs.items(), damage, strict=True):
            wanted = (starts.get(found), ends.get(found), of_log, isolation_level, limits)
            try:
                if policy.is_fail:
                    batches = log.batches(*wanted, fail_on_data_loss, chosen, on_damage="fail")
                else:
                    parts = log.batches_and_damage(*wanted, chosen, policy.on_damage, policy.unknown)
                    batches = of_one.pass_on(parts, log.directory.storage)
            except SeglogError as error:
                error.add_note(f"in partition {found}")
                raise
            readers.append(_tagged_with(found, of_partition(batches, found, schema)))
        return _warning_of(damage, ", ".join(self.topics), merged(readers, self._threads))

    def _limits(self, limits: DecodeLimits | None, bytes_max: int | None) -> DecodeLimits:
        return (limits or (LIMITS if self._threads == 1 else _LIMITS_SIDE_BY_SIDE)).within(bytes_max)

    def _by_partition(self, offsets: _GivenOffsets | None, which: str) -> dict[TopicPartition, int]:
        """Return offsets by topic and partition; raise `InvalidOptionError` for a partition that does not exist."""
        topics, found = self.topics, {}
        for each, offset in (offsets or {}).items():
            is_number = isinstance(each, int) and len(topics) == 1
            named = (topics[0], each) if is_number else each
            if named not in self._logs:
                there = ", ".join(str(known) for known in list(self._logs)[:9])
                raise InvalidOptionError(
                    f"{which}_offsets has {each!r}, which is no partition here: they are given as ('topic', 0), "
                    f"or of a single topic as 0; there is {there or 'none'}"
                )
            found[TopicPartition(*named)] = offset
        return found


def topic_schema_of(columns: str | Sequence[str] | None, *, is_best_effort: bool = False) -> pa.Schema:
    """Return the schema of a read of some columns; with ``best_effort`` also of ``damaged``, by default the last one.

    Raises
    ------
    InvalidOptionError
        There is no such column.
    """
    default = (*TOPIC_DEFAULT_COLUMNS, *([DAMAGED_COLUMN] if is_best_effort else []))
    known = _WITH_DAMAGED if is_best_effort else TOPIC_SCHEMA
    return _schema_of(chosen_columns(columns, default, known.names))


_WITH_DAMAGED: Final = TOPIC_SCHEMA.append(DAMAGED_SCHEMA.field(DAMAGED_COLUMN))
_schema_of: Final = selector(_WITH_DAMAGED)


def _warning_of(
    damage: Sequence[FoundDamage], topics: str, tagged: Iterator[tuple[TopicPartition, pa.RecordBatch]]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the batches of a read, and warn at its end of the damage that was found meanwhile."""
    try:
        yield from tagged
    finally:
        warn_of_damage(damage, topics)


def of_partition(
    batches: Iterator[pa.RecordBatch], found: TopicPartition, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one partition's log in the columns of a schema, with the topic and partition if wanted.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        Batches with the columns of the schema, except topic and partition.
    schema : pyarrow.Schema
        Columns of `TOPIC_SCHEMA`.
    """
    values: dict[str, str | int] = {TOPIC_COLUMN: found.topic, PARTITION_COLUMN: found.partition}
    # These values are the same in every row, so batches share them.
    repeated: dict[str, pa.Array] = {}
    try:
        for batch in batches:
            rows = batch.num_rows
            for name in values.keys() & set(schema.names):
                if name not in repeated or len(repeated[name]) < rows:
                    repeated[name] = pa.repeat(scalar_of(values[name], schema.field(name).type), rows)
            arrays = [repeated[name][:rows] if name in repeated else batch.column(name) for name in schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch
    except Exception as error:
        error.add_note(f"in partition {found}")
        raise


def _tagged_with(
    found: TopicPartition, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    for batch in batches:
        yield found, batch
