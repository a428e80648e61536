"""A consumer of the topics in a log directory that others write to, with the interface of kafka-python.

    with sparklog.Consumer("/logs", "events", group_id="app", auto_offset_reset="earliest") as consumer:
        for record in consumer:
            print(record.offset, record.value)

It reads records as soon as one of sparklog's producers, a write of Spark or a running broker has put them into the
files, and changes nothing but ``seglog.offsets``, for its commits; see `sparklog.log.group_offsets`. If its group has
committed in ``__consumer_offsets`` as well, it continues from the later commit.

A group is only a name for committed offsets: nobody coordinates its members, and each consumer that subscribes
to a topic gets all of its partitions. To share the work, `Consumer.assign` partitions.

A consumer belongs to one thread and one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from sparklog.clients.commits import COMMIT_SECONDS, Commits
from sparklog.clients.consumer_records import ConsumerRecord, RecordMaker
from sparklog.clients.fetcher import Fetcher, OffsetAndTimestamp, first_from
from sparklog.clients.futures import FutureCommit
from sparklog.clients.settings import ConsumerSettings
from sparklog.clients.subscription import Subscription
from sparklog.errors import IllegalStateError, InvalidOptionError, UnknownTopicOrPartitionError
from sparklog.log.files import TopicPartition
from sparklog.log.places import PartitionFolder
from sparklog.log.reader import LogReader
from sparklog.storage.process import process_id
from sparklog.storage.registry import PathText
from sparklog.topic.internal.given_offsets import ConsumerGroupMetadata, named_partition
from sparklog.topic.log_manager import LogManager
from sparklog.topic.places.discovery import INTERNAL_PREFIX, layouts_by_partition

Partitions = Iterable[tuple[str, int]]


class Consumer:
    """Reads topics while others write them.

    Parameters
    ----------
    log_directory : str, os.PathLike or a sequence of them
        A log directory, or all directories with partitions of its topics; commits go to the first.
    *topics : str
        The topics to subscribe to.
    **config
        The names and defaults of kafka-python's KafkaConsumer: ``group_id``, ``key_deserializer``,
        ``value_deserializer``, ``auto_offset_reset`` (earliest, latest or none), ``enable_auto_commit``,
        ``auto_commit_interval_ms``, ``isolation_level``, ``max_poll_records``, ``fetch_max_bytes``,
        ``consumer_timeout_ms``. Settings that only concern a broker are ignored, with a warning.

    Raises
    ------
    KafkaConfigurationError
        There is no such configuration, or a value is wrong.
    PathNotFoundError
        The path is no log directory.
    """

    def __init__(self, log_directory: PathText | Sequence[PathText], *topics: str, **config: Any) -> None:
        self._settings = ConsumerSettings.of(config)
        self._maker = RecordMaker(self._settings)
        self._manager = LogManager(log_directory)
        self._commits = Commits(self._manager.directories, self._settings)
        self._fetcher = Fetcher(
            self._settings.isolation_level, self._commits.first_positions, self._settings.auto_offset_reset
        )
        self._subscription = Subscription()
        self._is_assigned, self._is_closed, self._process = False, False, process_id()
        if topics:
            self.subscribe(topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        # Records that the caller did not finish with are not committed.
        self.close(autocommit=kind is None)

    def __repr__(self) -> str:
        return f"Consumer({', '.join(each.path for each in self._manager.directories)})"

    def subscribe(self, topics: str | Iterable[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Read all partitions of topics, including partitions made later.

        Parameters
        ----------
        topics : str or iterable of str
            Names of topics, which need not exist yet.
        pattern : str
            Instead of topics: a regular expression for the beginning of their names; Kafka's own topics never match.
        listener : object, optional
            An object with methods ``on_partitions_revoked`` and ``on_partitions_assigned``, called with sets of
            partitions, the first time and on changes.

        Raises
        ------
        IllegalStateError
            Partitions are assigned by `assign`.
        InvalidOptionError
            Neither topics nor a pattern is given, or both are; or a name is not valid.
        """
        self._refuse_closed()
        if self._is_assigned:
            raise IllegalStateError("partitions are assigned: call unsubscribe before subscribe")
        self._subscription = Subscription.of(topics, pattern, listener)
        self._find_partitions()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read the given partitions instead of earlier ones; without any, like `unsubscribe`.

        With ``enable_auto_commit``, positions in the partitions given up are committed first.

        Raises
        ------
        IllegalStateError
            The consumer subscribes to topics.
        UnknownTopicOrPartitionError
            One does not exist.
        """
        self._refuse_closed()
        if self._subscription.is_active:
            raise IllegalStateError("topics are subscribed to: call unsubscribe before assign")
        self._read(folders := self._folders_of(partitions))
        self._is_assigned = bool(folders)

    def unsubscribe(self) -> None:
        """Stop reading."""
        self._refuse_closed()
        self._subscription, self._is_assigned = Subscription(), False
        self._read({})

    def subscription(self) -> set[str] | None:
        """Return the subscribed topics; None if partitions are assigned, or nothing is."""
        if self._subscription.pattern is not None:
            return {at.topic for at in self._fetcher.partitions}
        return set(self._subscription.topics) or None

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions being read."""
        return set(self._fetcher.partitions)

    def topics(self) -> set[str]:
        """Return the existing topics, without Kafka's own."""
        self._refuse_closed()
        return {topic for topic in self._manager.folders.by_topic() if not topic.startswith(INTERNAL_PREFIX)}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic; None if it does not exist."""
        self._refuse_closed()
        return set(self._manager.folders.by_topic().get(topic, ())) or None

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, max_bytes: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records, waiting for some if there are none.

        Parameters
        ----------
        timeout_ms : float
            How long to wait.
        max_records : int, optional
            By default ``max_poll_records``.
        max_bytes : int, optional
            The most bytes of keys, values and headers together; one record may have more. By default
            ``fetch_max_bytes``, 50 MiB.

        Returns
        -------
        dict of TopicPartition to list of ConsumerRecord
            Records by partition, in offset order; empty if nothing came in time.

        Raises
        ------
        NoOffsetForPartitionError, OffsetOutOfRangeError
            A partition has no position, or one outside the log, and ``auto_offset_reset`` is none.
        CorruptLogError
            A log is damaged.
        IllegalStateError
            The consumer is closed, or belongs to another process.

        Notes
        -----
        Errors of a deserializer are raised unchanged, with the position at the record at fault.
        """
        self._refuse_closed()
        most = self._settings.max_poll_records if max_records is None else max_records
        if timeout_ms < 0:
            raise InvalidOptionError(f"timeout_ms must be at least 0, and is {timeout_ms!r}")
        bytes_max = self._settings.fetch_max_bytes if max_bytes is None else max_bytes
        for name, bound in (("max_records", most), ("max_bytes", bytes_max)):
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
                raise InvalidOptionError(f"{name} must be a whole number, at least 1, and is {bound!r}")
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            self._find_partitions()
            self._commits.commit_if_due(self._fetcher.positions)
            found = self._maker.make_all(self._fetcher.fetch(most, bytes_max))
            if found or time.monotonic() >= deadline:
                return found
            self._fetcher.wait(min(deadline, self._subscription.due, self._commits.due))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record; stop when none comes within ``consumer_timeout_ms`` (-1: never), or after `close`."""
        if self._is_closed:
            raise StopIteration
        timeout_ms = self._settings.consumer_timeout_ms
        deadline = time.monotonic() + (timeout_ms / 1000 if timeout_ms >= 0 else float("inf"))
        while True:
            left_ms = min(1000.0, max(0.0, (deadline - time.monotonic()) * 1000))
            for records in self.poll(left_ms, max_records=1).values():
                return records[0]
            if time.monotonic() >= deadline:
                raise StopIteration

    def position(self, partition: tuple[str, int], timeout_ms: Any = None) -> int | None:  # noqa: ARG002
        """Return the offset of the next record of a partition; None while its log does not exist.

        Here as elsewhere ``timeout_ms`` is accepted for compatibility; nothing is waited for.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        """
        self._refuse_closed()
        return self._fetcher.locate(self._assigned(partition))

    def metrics(self) -> dict[str, dict[str, int]]:
        """Return how many records, and bytes of keys and values, were read, and the largest lag of a partition."""
        return {"consumer-fetch-manager-metrics": self._maker.metrics() | {"records-lag-max": self._fetcher.lag_max}}

    def highwater(self, partition: tuple[str, int]) -> int | None:
        """Return the end of the readable part of a partition at the last look; None before that."""
        log = self._fetcher.partitions[self._assigned(partition)].log
        return None if log is None else log.latest

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue at an offset.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        InvalidOptionError
            The offset is not valid.
        """
        self._refuse_closed()
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise InvalidOptionError(f"an offset is a whole number, at least 0, and not {offset!r}")
        self._fetcher.partitions[self._assigned(partition)].seek(offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue at the beginning of partitions, by default all assigned ones."""
        for at, log in self._fetcher.logs_of(self._all_or(partitions)).items():
            self._fetcher.partitions[at].seek(0 if log is None else log.layout.start_offset)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue at the end of partitions, by default all assigned ones."""
        for at, log in self._fetcher.logs_of(self._all_or(partitions)).items():
            self._fetcher.partitions[at].seek(0 if log is None else log.latest)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no record of partitions until `resume`; their positions stay."""
        for each in partitions:
            self._fetcher.partitions[self._assigned(each)].is_paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Return records of partitions again."""
        for each in partitions:
            self._fetcher.partitions[self._assigned(each)].is_paused = False

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {at for at, each in self._fetcher.partitions.items() if each.is_paused}

    def beginning_offsets(self, partitions: Partitions, timeout_ms: Any = None) -> dict[TopicPartition, int]:  # noqa: ARG002
        """Return the log start offsets of partitions, which need not be assigned."""
        return {at: log.start_offset for at, log in self._readers(partitions).items()}

    def end_offsets(self, partitions: Partitions, timeout_ms: Any = None) -> dict[TopicPartition, int]:  # noqa: ARG002
        """Return the ends of partitions: the offset of the next record, or the last stable offset."""
        is_committed = self._settings.isolation_level == "read_committed"
        logs = self._readers(partitions)
        return {at: log.last_stable_offset if is_committed else log.end_offset for at, log in logs.items()}

    def offsets_for_times(
        self,
        timestamps: Mapping[tuple[str, int], int],
        timeout_ms: Any = None,  # noqa: ARG002
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time, ms since the epoch; None if there is none.

        Raises
        ------
        UnknownTopicOrPartitionError
            A partition does not exist.
        InvalidOptionError
            A time is before 1970, or not valid.
        """
        logs = self._readers(timestamps)
        return {(at := named_partition(each)): first_from(logs[at], ms) for each, ms in timestamps.items()}

    def commit(self, offsets: Mapping[tuple[str, int], Any] | None = None, timeout_ms: float | None = None) -> None:
        """Commit offsets of the group, in one step, and return when they are on the disk.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata or int, optional
            By default the positions of all assigned partitions.
        timeout_ms : float, optional
            How long to wait for other consumers that commit; by default a minute.

        Raises
        ------
        IllegalStateError
            There is no ``group_id``.
        LockedError
            Other consumers held the lock for that long.
        """
        self._refuse_closed()
        chosen: Mapping[Any, Any] = self._fetcher.positions if offsets is None else offsets
        self._commits.commit(chosen, COMMIT_SECONDS if timeout_ms is None else timeout_ms / 1000)

    def commit_async(
        self,
        offsets: Mapping[tuple[str, int], Any] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> FutureCommit:
        """Commit like `commit`, and return a finished future.

        Then call ``callback`` with the offsets, and with the error of the commit or None. Without a callback an error
        becomes a warning.
        """
        self._refuse_closed()
        given: dict[Any, Any] = dict(self._fetcher.positions if offsets is None else offsets)
        return self._commits.commit_async(given, callback)

    def committed(self, partition: tuple[str, int], metadata: bool = False, timeout_ms: Any = None) -> Any:  # noqa: ARG002
        """Return the group's committed offset for a partition, assigned or not.

        Returns
        -------
        int, OffsetAndMetadata or None
            None if it has committed none.
        """
        self._refuse_closed()
        at = named_partition(partition)
        found = self._commits.committed([at]).get(at)
        return found if metadata or found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the group's metadata for `Producer.send_offsets_to_transaction`."""
        return self._commits.group_metadata

    def close(self, autocommit: bool = True, timeout_ms: Any = None) -> None:  # noqa: ARG002
        """Commit if ``enable_auto_commit`` is on, and stop reading. A second call does nothing.

        The listener of `subscribe` is told about the partitions given up, and may still commit.
        """
        if self._is_closed or self._process != process_id():
            return
        try:
            if autocommit:
                self._commits.commit_if_due(self._fetcher.positions, is_last=True)
            if self._subscription.listener is not None and self._fetcher.partitions:
                self._subscription.listener.on_partitions_revoked(self.assignment())
        finally:
            self._is_closed = True
            self._fetcher.assign({})

    def _find_partitions(self) -> None:
        """Find the partitions of subscribed topics, from time to time."""
        found = self._subscription.find_if_due(self._manager)
        before = self._fetcher.partitions.keys()
        if found is None or (found.keys() == before and self._subscription.has_joined):
            return
        self._subscription.has_joined = True
        self._fetcher.forget_gone()
        self._commits.commit_if_due(self._fetcher.positions, is_last=True)
        if self._subscription.listener is not None:
            self._subscription.listener.on_partitions_revoked(set(before))
        self._fetcher.assign(found)
        if self._subscription.listener is not None:
            self._subscription.listener.on_partitions_assigned(set(found))

    def _read(self, folders: Mapping[TopicPartition, PartitionFolder]) -> None:
        """Read these partitions from now on, and commit the positions in the others."""
        self._commits.commit_if_due(self._fetcher.positions, is_last=True)
        self._fetcher.assign(folders)

    def _folders_of(self, partitions: Partitions) -> dict[TopicPartition, PartitionFolder]:
        self._refuse_closed()
        wanted = [named_partition(each) for each in partitions]
        found = self._manager.folders.find_partitions(wanted)
        for at in wanted:
            if at not in found and self._manager.partitions(at.topic):
                raise UnknownTopicOrPartitionError(f"no partition {at.partition} of {at.topic} in {self._manager!r}")
        return found

    def _readers(self, partitions: Partitions) -> dict[TopicPartition, LogReader]:
        """Return readers of partitions as they were at one time."""
        layouts = layouts_by_partition(self._folders_of(partitions).values())
        return {at: LogReader(layout) for at, layout in layouts.items()}

    def _assigned(self, partition: tuple[str, int]) -> TopicPartition:
        at = named_partition(partition)
        if at not in self._fetcher.partitions:
            raise IllegalStateError(f"{at} is not assigned to this consumer")
        return at

    def _all_or(self, partitions: Sequence[tuple[str, int]]) -> list[TopicPartition]:
        self._refuse_closed()
        if not partitions and not self._fetcher.partitions:
            raise IllegalStateError("no partition is assigned to this consumer")
        return [self._assigned(each) for each in partitions] or list(self._fetcher.partitions)

    def _refuse_closed(self) -> None:
        if self._process != process_id():
            raise IllegalStateError("this consumer is of the process that this one was forked from: make one here")
        if self._is_closed:
            raise IllegalStateError("the consumer is closed")
