"""Sends records to the topics of a log directory: Kafka's producer, with the interface of kafka-python, and no broker.

    with sparklog.Producer("/logs", value_serializer=str.encode) as producer:
        future = producer.send("events", "hello", key=b"user-1")
        print(future.get(timeout=10).offset)

`Producer.send` puts a record into a buffer and returns; one thread of the producer's own writes what is there, many
records at a time. What a future says depends on ``acks``: 0, nothing is known of the record; 1, it is in the log and
readers see it, and it survives the end of the process; ``all``, the default, it is on the disk and survives a power
cut.

**Who may write.** A log directory is written to by one process at a time. All producers of a process share its open
logs, and its threads may share a producer. Other processes wait for as long as ``max_block_ms``: a producer lets go of
the directory when it has had nothing to write for ``idle_release_ms``, when it has written for as long and others wait,
and when it is closed. The future of a record that had to wait longer fails with `LockedError`, which names the
directory; beside a running broker with `BrokerRunningError` at once.

**Forks.** A forked process cannot use its parent's producer: `Producer.send` raises `IllegalStateError` there, and what
waits in the buffer is written by the parent, once. Make a producer after the fork.
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
"""The threads of producers, those included that nobody has a reference to any more."""


class Producer:
    """Sends records to topics. Threads may share it; a process that is forked may not.

    Parameters
    ----------
    log_directory : str, os.PathLike or a sequence of them
        A log directory, or all over which the partitions of its topics are spread.
    **config
        Names and defaults are those of kafka-python's KafkaProducer, but for ``linger_ms``, which is 5 as in Kafka 4:
        ``key_serializer``, ``value_serializer``, ``partitioner``, ``acks``, ``enable_idempotence``,
        ``compression_type`` (where it is not given, as stored for the topic, else lz4), ``batch_size``, ``linger_ms``,
        ``buffer_memory``, ``max_block_ms``, ``max_request_size``, ``allow_auto_create_topics``, ``transactional_id``,
        ``transaction_timeout_ms``, ``metadata_max_age_ms`` (after which it looks at a topic's partitions and properties
        again). Beside them ``num_partitions``, of topics that are made because something is sent to them;
        ``topic_config``, properties over those that are stored for topics; and ``idle_release_ms``. What only a
        broker has a use for is passed over.

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
        # What the thread works with has no reference to the producer, which ends it when nobody has one.
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
            It is made where it is not there, unless ``allow_auto_create_topics`` is False.
        value, key : bytes, or what the serializer makes bytes of
            One of them at least; a record without a value is a tombstone.
        headers : sequence of (str, bytes), optional
        partition : int, optional
            By default the partitioner chooses: by the hash of the key, as Kafka's, and for records without a key the
            same for a while, then another.
        timestamp_ms : int, optional
            ms since the epoch; by default now.

        Returns
        -------
        FutureRecordMetadata
            `RecordMetadata` when it is written, else why it was not.

        Raises
        ------
        KafkaTimeoutError
            The buffer was full for ``max_block_ms``.
        MessageSizeTooLargeError
            The record is larger than ``max_request_size``.
        SerializationError
            Key, value or a header are not bytes; it is a TypeError. What a serializer raises comes as it is.
        UnknownTopicOrPartitionError
            The topic has no such partition, or is not there.
        InvalidOptionError
            There is neither a key nor a value, or the time is before 1970; it is a ValueError.
        IllegalStateError
            The producer is closed, or is another process's; or it has a transactional id, and no transaction has begun
            or a record of the transaction has failed.
        ProducerFencedError
            Somebody has started the transactional id since.
        LockedError
            The topic is to be made, and another process writes to the directory, or a broker runs on it.
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
                # The topic may have got more of them.
                route = self._routes.find(topic, route)
            if partition not in route.folders:
                _refuse_partition(route, partition)
        elif self._choose is not None:
            partition = self._chosen(route, key)
        return self._accumulator.append(
            topic, value, key, headers, partition, timestamp_ms, size_bytes, route.full_bytes
        )

    def send_table(self, topic: str, table: Records) -> FutureTableMetadata:
        """Send the rows of a table, behind what was sent before, and return before they are written.

        No serializer is used, and no ``max_request_size`` holds. The rows of each partition are appended at once: where
        one of them is refused, none of that partition is written.

        Parameters
        ----------
        table : Records
            Columns as of `PartitionLog.append`: ``value``, and where wanted ``key``, ``headers`` and ``timestamp``;
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
            As of `send`.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._transactions is not None:
            self._transactions.refuse_record()
        route, now_ms = self._routes.known.get(topic) or self._routes.find(topic, None), wall_clock_ms()
        rows = check_records(table, route.config, now_ms, now_ms)
        if not route.has_times:
            # They are all of now: others were refused.
            rows = rows.drop_columns(["timestamp"])
        partitions = partition_column(table)
        if partitions is not None:
            rows = rows.append_column("partition", partitions)
        return self._accumulator.append_table(topic, rows, rows.nbytes)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic; errors as of `send`."""
        return set(self._routes.current(topic).folders)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was sent is written, or has failed, and callbacks were called; not for ``linger_ms``.

        Parameters
        ----------
        timeout : float, optional
            In seconds.

        Raises
        ------
        KafkaTimeoutError
            It took longer.
        IllegalStateError
            The producer is another process's.
        """
        if self._refusal is not None and self._refusal.message == _IN_CHILD:
            raise self._refusal
        deadline = None if timeout is None else time.monotonic() + timeout
        for pending in self._accumulator.unwritten():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not pending.wait(left):
                raise KafkaTimeoutError(f"not all that was sent is written after {timeout} s; it may be yet")

    def close(self, timeout: float | None = None) -> None:
        """Write what was sent, close the logs and end the thread. A second call does nothing.

        A transaction that is open is aborted.

        Parameters
        ----------
        timeout : float, optional
            In seconds. What is not written by then fails with `IllegalStateError`; what is being written is written.
        """
        if self._refusal is not None:
            if self._refusal.message == _IN_CHILD:
                self._sender.forget()
            return
        self._refusal = IllegalStateError(_CLOSED)
        self._end.detach()
        self._sender.end(self._refusal)
        if threading.current_thread() is self._thread:
            # In a callback: the thread ends when it has written what is left.
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            left = IllegalStateError("the producer was closed before the record was written")
            for pending in self._accumulator.abandon():
                pending.fail(left, pending.records)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return what was sent, and what the logs that are open have counted."""
        of_producer = {
            "record-send-total": self._sender.sent_records,
            "record-error-total": self._sender.failed_records,
            "byte-total": self._sender.sent_bytes,
        }
        return {"producer-metrics": of_producer, "logs": self._sender.logs()}

    def init_transactions(self) -> None:
        """Start the transactional id: fence whoever started it before, and abort the transaction that was left open.

        Raises
        ------
        IllegalStateError
            The producer has no ``transactional_id``, is closed, or was started before.
        LockedError
            Another process writes to the log directory, or a broker runs on it.
        """
        self._transactional().start()

    def begin_transaction(self) -> None:
        """Begin a transaction, to which the records belong that are sent from now on.

        Raises
        ------
        IllegalStateError
            One has begun, `init_transactions` was not called, or as there.
        ProducerFencedError
            Somebody has started the transactional id since.
        """
        self._transactional().begin()

    def commit_transaction(self) -> None:
        """Write what was sent, and have readers of committed records see all of it at once.

        Raises
        ------
        IllegalStateError
            No transaction has begun; or a record of it was not written, and it can only be aborted.
        ProducerFencedError
            Somebody has started the transactional id since, and the transaction was aborted by that.
        SeglogError
            As of `TransactionalWriter.commit`.
        """
        self._transactional().commit(self.flush)

    def abort_transaction(self) -> None:
        """End the transaction so that readers of committed records see none of it; errors as of `commit_transaction`.

        The futures of records that are not written yet fail with `IllegalStateError`.
        """
        self._transactional().abort(self.flush)

    def send_offsets_to_transaction(self, offsets: Mapping[tuple[str, int], Any], group_metadata: Any) -> None:
        """Have offsets of a consumer group committed with the transaction: with all of its records, or not at all.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata or int
            As `Consumer.commit` takes them.
        group_metadata : str or an object with ``group_id``
            Such as `Consumer.group_metadata` returns; a text is the id of a group that commits in this log directory.

        Raises
        ------
        IllegalStateError
            No transaction has begun; or a record of it was not written, and it can only be aborted.
        ProducerFencedError
            Somebody has started the transactional id since.
        InvalidOptionError, UnknownTopicOrPartitionError
            As of `TransactionalWriter.send_offsets`.
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
        """Ask a partitioner that is a function of the key and the partitions."""
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
    """Write what producers hold that were not closed, at the end of the program."""
    running = list(_running.items())
    for _, sender in running:
        sender.end(IllegalStateError(_CLOSED))
    for thread, _ in running:
        thread.join()


def _refuse_partition(route: Route, partition: Any) -> NoReturn:
    raise UnknownTopicOrPartitionError(
        f"no partition {partition!r} of {route.topic}, which has 0 to {len(route.folders) - 1}"
    )
