"""A producer for the topics of a log directory, with the interface of kafka-python, and no broker.

    with sparklog.Producer("/logs", value_serializer=str.encode) as producer:
        future = producer.send("events", "hello", key=b"user-1")
        print(future.get(timeout=10).offset)

`Producer.send` puts a record into a buffer and returns; the producer's own thread writes the buffer, many records at a
time. The meaning of a future depends on ``acks``: with 0, the record may not be written; with 1, it is in the log,
readers see it, and it survives the end of the process; with ``all``, the default, it is on the disk and survives a
power cut.

**Who may write.** One process at a time writes to a log directory. All producers of a process share its open logs, and
its threads may share a producer. Other processes wait for up to ``max_block_ms``: a producer releases the directory
when it has had nothing to write for ``idle_release_ms``, when it has written for that long and others wait, and when it
is closed. The future of a record that waits longer fails with `LockedError`, which names the directory; if a broker
runs, it fails with `BrokerRunningError` at once.

**Forks.** A forked process cannot use its parent's producer: `Producer.send` raises `IllegalStateError` there, and the
parent writes its waiting records once. Make a producer after the fork.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, Self

from sparklog.clients.accumulator import Accumulator
from sparklog.clients.futures import FutureRecordMetadata, FutureTableMetadata
from sparklog.clients.routes import Route, Routes
from sparklog.clients.sender import Sender
from sparklog.clients.settings import (
    ProducerSettings,
    checked_headers,
    chooser,
    converter,
    partition_column,
    read_settings,
    to_bytes,
)
from sparklog.clients.transactions import ProducerTransactions
from sparklog.errors import (
    IllegalStateError,
    InvalidOptionError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    SeglogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.clock import NS_PER_MS, wall_clock_ms, wall_clock_ns
from sparklog.log.config import LogConfig
from sparklog.log.files import checked_partition
from sparklog.record.encode.intake import NO_TIMESTAMP, Records
from sparklog.storage.process import in_forked_child
from sparklog.storage.registry import PathText
from sparklog.topic.log_manager import LogManager
from sparklog.topic.write.open_logs import SharedLogs
from sparklog.write.pipeline import check_records

_TIMESTAMP_MAX: Final = (1 << 63) - 1
_RECORD_BYTES: Final = 21
_BATCH_BYTES: Final = 61
_IN_CHILD: Final = "this producer was made by the process that this one was forked from: make one after the fork"
_CLOSED: Final = "the producer is closed"

_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
_running: Final[weakref.WeakKeyDictionary[threading.Thread, Sender]] = weakref.WeakKeyDictionary()
"""The threads of all producers, even of producers without a remaining reference."""


class Producer:
    """Sends records to topics. Threads may share it; a forked process may not.

    Parameters
    ----------
    log_directory : str, os.PathLike or a sequence of them
        A log directory, or all directories with partitions of its topics.
    **config
        The names and defaults of kafka-python's KafkaProducer, except ``linger_ms``, which is 5 as in Kafka 4:
        ``key_serializer``, ``value_serializer``, ``partitioner``, ``acks``, ``enable_idempotence``,
        ``compression_type`` (by default the topic's stored one, or lz4), ``batch_size``, ``linger_ms``,
        ``buffer_memory``, ``max_block_ms``, ``max_request_size``, ``allow_auto_create_topics``, ``transactional_id``,
        ``transaction_timeout_ms``, ``metadata_max_age_ms`` (after which it looks at a topic's partitions and properties
        again). In addition ``num_partitions`` of topics that a send creates; ``topic_config``, properties that override
        the topics' stored ones; and ``idle_release_ms``. Settings that only concern a broker are ignored, with a
        warning.

    Raises
    ------
    KafkaConfigurationError
        There is no such configuration, or a value is wrong.
    """

    def __init__(self, log_directory: PathText | Sequence[PathText], **config: Any) -> None:
        settings = self._settings = read_settings(ProducerSettings, config)
        config_of_all = settings.log_config({})
        self._serialize_key = converter(settings.key_serializer, "serialize", "key_serializer")
        self._serialize_value = converter(settings.value_serializer, "serialize", "value_serializer")
        self._choose = chooser(settings.partitioner)
        self._manager = LogManager(
            log_directory,
            num_partitions=settings.num_partitions,
            lock_timeout_seconds=settings.max_block_ms / 1000,
        )
        self._record_bytes_max = settings.max_request_size - _BATCH_BYTES
        self._routes = Routes(self._manager, settings)
        self._refusal: SeglogError | None = None
        self._accumulator = Accumulator(settings.linger_ms / 1000, settings.buffer_memory, settings.max_block_ms / 1000)
        # The thread has no reference to the producer, which ends the thread when the last reference goes.
        logs = SharedLogs(self._routes.config_of_log, lock_timeout_seconds=settings.max_block_ms / 1000)
        self._transactions = self._transactions_over(logs, config_of_all)
        self._sender = Sender(
            self._accumulator,
            self._routes,
            acks=settings.waits_for,
            is_idempotent=settings.enable_idempotence and self._transactions is None,
            logs=logs,
            transactions=self._transactions,
            idle_seconds=settings.idle_release_ms / 1000,
        )
        self._thread = threading.Thread(target=self._sender.run, name="sparklog producer", daemon=True)
        self._thread.start()
        _running[self._thread] = self._sender
        self._end = weakref.finalize(self, self._sender.end, IllegalStateError(_CLOSED))
        self._end.atexit = False
        _producers.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Producer({', '.join(each.path for each in self._manager.directories)})"

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Send a record, and return before it is written.

        Parameters
        ----------
        topic : str
            It is created if it does not exist, unless ``allow_auto_create_topics`` is False.
        value, key : bytes, or input of the serializer
            One of them at least; a record without a value is a tombstone.
        headers : sequence of (str, bytes), optional
        partition : int, optional
            By default the partitioner chooses: by the hash of the key, as in Kafka, and for records without a key the
            same for a while, then another.
        timestamp_ms : int, optional
            ms since the epoch; by default now.

        Returns
        -------
        FutureRecordMetadata
            `RecordMetadata` when it is written, or the error.

        Raises
        ------
        KafkaTimeoutError
            The buffer was full for ``max_block_ms``.
        MessageSizeTooLargeError
            The record is larger than ``max_request_size``.
        SerializationError
            Key, value or a header are not bytes; it is a TypeError. Errors of a serializer are raised unchanged.
        UnknownTopicOrPartitionError
            The topic has no such partition, or does not exist.
        InvalidOptionError
            There is neither a key nor a value, or the time is before 1970; it is a ValueError.
        IllegalStateError
            The producer is closed, or belongs to another process; or it has a transactional id, and no transaction has
            begun or a record of the transaction has failed.
        ProducerFencedError
            Somebody has started the transactional id since.
        LockedError
            The topic must be created, and another process writes to the directory, or a broker runs on it.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._transactions is not None:
            self._transactions.refuse_record()
        size_bytes = _RECORD_BYTES
        if headers is not None:
            headers = checked_headers(headers)
            size_bytes += sum(len(name) + len(data or b"") for name, data in headers)
        if value is None and key is None:
            raise InvalidOptionError("a record has a key or a value, and this has neither")
        if self._serialize_key is not None:
            key = self._serialize_key(topic, headers or [], key)
        if key is not None:
            if key.__class__ is not bytes:
                key = to_bytes(key, "key")
            size_bytes += len(key)
        if self._serialize_value is not None:
            value = self._serialize_value(topic, headers or [], value)
        if value is not None:
            if value.__class__ is not bytes:
                value = to_bytes(value, "value")
            size_bytes += len(value)
        if size_bytes > self._record_bytes_max:
            raise MessageSizeTooLargeError(
                f"a record for {topic} has {size_bytes + _BATCH_BYTES} bytes, and max_request_size is "
                f"{self._settings.max_request_size}"
            )
        if timestamp_ms is not None and (timestamp_ms.__class__ is not int or not 0 <= timestamp_ms <= _TIMESTAMP_MAX):
            raise InvalidOptionError(f"timestamp_ms must be ms since 1970, and is {timestamp_ms!r}")
        route = self._routes.known.get(topic) or self._routes.find(topic, None)
        if timestamp_ms is None:
            timestamp_ms = wall_clock_ns() // NS_PER_MS if route.has_times else NO_TIMESTAMP
        if partition is not None:
            if partition.__class__ is not int:
                partition = checked_partition(topic, partition).partition
            if partition not in route.folders:
                # The topic may have got more partitions.
                route = self._routes.find(topic, route)
            if partition not in route.folders:
                _refuse_partition(route, partition)
        elif self._choose is not None:
            partition = self._chosen(route, key)
        return self._accumulator.append(
            topic, value, key, headers, partition, timestamp_ms, size_bytes, route.full_bytes
        )

    def send_table(self, topic: str, table: Records) -> FutureTableMetadata:
        """Send the rows of a table, after all records sent before, and return before they are written.

        No serializer is used, and ``max_request_size`` does not apply. The rows of each partition are appended at once:
        if one of them is refused, none of that partition's is written.

        Parameters
        ----------
        table : Records
            The columns of `PartitionLog.append`: ``value``, and optionally ``key``, ``headers`` and ``timestamp``;
            also ``partition``.

        Returns
        -------
        FutureTableMetadata
            `TableMetadata` when all rows are written.

        Raises
        ------
        InvalidOptionError
            A column is missing or of a wrong type, or a broker would refuse a record.
        KafkaTimeoutError, UnknownTopicOrPartitionError, IllegalStateError
            See `send`.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._transactions is not None:
            self._transactions.refuse_record()
        route, now_ms = self._routes.known.get(topic) or self._routes.find(topic, None), wall_clock_ms()
        rows = check_records(table, route.config, now_ms, now_ms)
        if not route.has_times:
            # All of them exist: others were refused.
            rows = rows.drop_columns(["timestamp"])
        partitions = partition_column(table)
        if partitions is not None:
            rows = rows.append_column("partition", partitions)
        return self._accumulator.append_table(topic, rows, rows.nbytes)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic; for errors see `send`."""
        return set(self._routes.current(topic).folders)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all sent records are written or have failed, and callbacks have run. Does not wait for
        ``linger_ms``.

        Parameters
        ----------
        timeout : float, optional
            In seconds.

        Raises
        ------
        KafkaTimeoutError
            It took longer.
        IllegalStateError
            The producer belongs to another process.
        """
        if self._refusal is not None and self._refusal.message == _IN_CHILD:
            raise self._refusal
        deadline = None if timeout is None else time.monotonic() + timeout
        for pending in self._accumulator.unwritten():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not pending.wait(left):
                raise KafkaTimeoutError(f"not all that was sent is written after {timeout} s; it may be yet")

    def close(self, timeout: float | None = None) -> None:
        """Write all sent records, close the logs and end the thread. A second call does nothing.

        An open transaction is aborted.

        Parameters
        ----------
        timeout : float, optional
            In seconds. Records not begun by then fail with `IllegalStateError`; a write in progress is finished.
        """
        if self._refusal is not None:
            if self._refusal.message == _IN_CHILD:
                self._sender.forget()
            return
        self._refusal = IllegalStateError(_CLOSED)
        self._end.detach()
        self._sender.end(self._refusal)
        if threading.current_thread() is self._thread:
            # In a callback: the thread ends when it has written the rest.
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            left = IllegalStateError("the producer was closed before the record was written")
            for pending in self._accumulator.abandon():
                pending.fail(left, pending.records)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return the counts of sent records, and the counters of the open logs."""
        of_producer = {
            "record-send-total": self._sender.sent_records,
            "record-error-total": self._sender.failed_records,
            "byte-total": self._sender.sent_bytes,
        }
        return {"producer-metrics": of_producer, "logs": self._sender.logs()}

    def init_transactions(self) -> None:
        """Start the transactional id: fence its earlier users, and abort the transaction that they left open.

        Raises
        ------
        IllegalStateError
            The producer has no ``transactional_id``, is closed, or has already been started.
        LockedError
            Another process writes to the log directory, or a broker runs on it.
        """
        self._transactional().start()

    def begin_transaction(self) -> None:
        """Begin a transaction; records sent from now on belong to it.

        Raises
        ------
        IllegalStateError
            A transaction has begun, `init_transactions` was not called, or see there.
        ProducerFencedError
            Somebody has started the transactional id since.
        """
        self._transactional().begin()

    def commit_transaction(self) -> None:
        """Write all sent records, and make them visible to readers of committed records at once.

        Raises
        ------
        IllegalStateError
            No transaction has begun; or a record of it was not written, and it can only be aborted.
        ProducerFencedError
            Another producer has started the transactional id since, which aborted the transaction.
        SeglogError
            See `TransactionalWriter.commit`.
        """
        self._transactional().commit(self.flush)

    def abort_transaction(self) -> None:
        """End the transaction so that readers of committed records see none of it; for errors see `commit_transaction`.

        The futures of records not yet written fail with `IllegalStateError`.
        """
        self._transactional().abort(self.flush)

    def send_offsets_to_transaction(self, offsets: Mapping[tuple[str, int], Any], group_metadata: Any) -> None:
        """Commit offsets of a consumer group with the transaction: together with its records, or not at all.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata or int
            The offsets, in the form of `Consumer.commit`.
        group_metadata : str or an object with ``group_id``
            The result of `Consumer.group_metadata`, or the id of a group that commits in this log directory.

        Raises
        ------
        IllegalStateError
            No transaction has begun; or a record of it was not written, and it can only be aborted.
        ProducerFencedError
            Somebody has started the transactional id since.
        InvalidOptionError, UnknownTopicOrPartitionError
            See `TransactionalWriter.send_offsets`.
        """
        self._transactional().send_offsets(offsets, group_metadata)

    def _transactional(self) -> ProducerTransactions:
        if self._refusal is not None:
            raise self._refusal
        if self._transactions is None:
            raise IllegalStateError("the producer has no transactions: give it a transactional_id")
        return self._transactions

    def _transactions_over(self, logs: SharedLogs, config: LogConfig) -> ProducerTransactions | None:
        settings, directories = self._settings, self._manager.directories
        if settings.transactional_id is None:
            return None
        if len(directories) > 1:
            raise KafkaConfigurationError(
                f"transactional_id is given, and a transaction is one of a single log directory: {self!r}"
            )
        return ProducerTransactions(
            directories[0],
            settings.transactional_id,
            config,
            logs,
            timeout_ms=settings.transaction_timeout_ms,
            lock_timeout_seconds=settings.max_block_ms / 1000,
        )

    def _chosen(self, route: Route, key: bytes | None) -> int:
        """Choose a partition with a partitioner that is a function of the key and the partitions."""
        choose = self._choose
        chosen = choose(key, route.numbers, route.numbers) if choose is not None else None
        if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen not in route.folders:
            _refuse_partition(route, chosen)
        return chosen

    def _leave_child(self) -> None:
        self._refusal = IllegalStateError(_IN_CHILD)
        self._end.detach()


def _leave_producers_in_child() -> None:
    _running.clear()
    for producer in list(_producers):
        producer._leave_child()


in_forked_child(_leave_producers_in_child)


@atexit.register
def _end_all() -> None:
    """At the end of the program, write the records of producers that were not closed."""
    running = list(_running.items())
    for _, sender in running:
        sender.end(IllegalStateError(_CLOSED))
    for thread, _ in running:
        thread.join()


def _refuse_partition(route: Route, partition: Any) -> NoReturn:
    raise UnknownTopicOrPartitionError(
        f"no partition {partition!r} of {route.topic}, which has 0 to {len(route.folders) - 1}"
    )
