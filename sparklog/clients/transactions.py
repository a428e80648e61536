"""The transactions of a producer: checks calls against its state, and shares one writer between its threads.

Records of a transaction pass through the producer's buffer, like all others. A commit first writes the rest of the
buffer; an abort fails it. Once a record has failed, the transaction can only be aborted.

Source: apache/kafka, KafkaProducer.java, TransactionManager.java.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from sparklog.errors import IllegalStateError, InvalidProducerEpochError, ProducerFencedError, SeglogError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.record.encode.intake import Records
from sparklog.topic.transactions.writer import TransactionalWriter
from sparklog.topic.write.open_logs import SharedLogs

_log = logging.getLogger("sparklog")


class _Logs:
    """The open logs of a producer in the form that a `TransactionalWriter` needs, with the producer's settings."""

    def __init__(self, directory: LogDirectory, logs: SharedLogs) -> None:
        self._directory, self._logs = directory, logs
        self.config, self.now_ms = LogConfig(), wall_clock_ms()

    def append(self, topic: str, partition: int, table: Records, **producer: Any) -> tuple[int, int]:
        folder = PartitionFolder(self._directory, topic, partition)
        return self._logs.append(folder, table, config=self.config, now_ms=self.now_ms, **producer)

    def closed(self, folders: Collection[str]) -> AbstractContextManager[None]:
        return self._logs.closed([self._directory.folder(name) for name in folders])


class ProducerTransactions:
    """The transactions of one producer.

    Parameters
    ----------
    directory : LogDirectory
    transactional_id : str
    config : LogConfig
        The producer's settings for all topics.
    logs : SharedLogs
        The producer's logs.
    timeout_ms : int
        Kafka's ``transaction.timeout.ms``.
    lock_timeout_seconds : float
        How long to wait for other writers of the log directory.

    Attributes
    ----------
    lock : threading.RLock
        Held by the producer's thread while it appends, and by a caller that ends the transaction.
    """

    def __init__(
        self,
        directory: LogDirectory,
        transactional_id: str,
        config: LogConfig,
        logs: SharedLogs,
        *,
        timeout_ms: int,
        lock_timeout_seconds: float,
    ) -> None:
        self._directory, self._transactional_id, self._config = directory, transactional_id, config
        self._logs, self._timeout_ms = _Logs(directory, logs), timeout_ms
        self._lock_timeout_seconds = lock_timeout_seconds
        self.lock = threading.RLock()
        self._writer: TransactionalWriter | None = None
        self._takes_records = self._is_ending = self._is_aborting = False
        self._error: Exception | None = None
        self._fence: ProducerFencedError | None = None

    @property
    def in_transaction(self) -> bool:
        return self._writer is not None and self._writer.in_transaction

    def start(self) -> None:
        """Start the transactional id; for errors see `TransactionalWriter.open`."""
        with self.lock:
            if self._writer is not None:
                raise IllegalStateError(f"init_transactions of {self._transactional_id!r} was called before")
            self._writer = TransactionalWriter.open(
                self._directory.location,
                self._transactional_id,
                self._config,
                timeout_ms=self._timeout_ms,
                logs=self._logs,
                lock_timeout_seconds=self._lock_timeout_seconds,
                storage=self._directory.storage,
            )

    def begin(self) -> None:
        """Begin a transaction."""
        with self.lock:
            writer = self._started()
            if writer.in_transaction:
                raise IllegalStateError(f"a transaction of {self._transactional_id!r} has begun already")
            writer.begin()
            self._error, self._takes_records = None, True

    def refuse_record(self) -> None:
        """Raise if a record cannot be sent now."""
        if not self._takes_records:
            self._refuse()

    def append(self, folder: PartitionFolder, rows: Records, config: LogConfig, now_ms: int) -> tuple[int, int]:
        """Append records to a log in the transaction. The caller, the producer's thread, holds the lock."""
        writer = self._started()
        if self._is_aborting:
            raise IllegalStateError("the transaction was aborted before the record was written")
        if self._error is not None or not writer.in_transaction:
            self._refuse()
        self._logs.config, self._logs.now_ms = config, now_ms
        with self._naming_fences():
            return writer.append(folder.topic, folder.partition or 0, rows)

    def send_offsets(self, offsets: Mapping[tuple[str, int], Any], group: Any) -> None:
        """Commit offsets of a group with the transaction; see `TransactionalWriter.send_offsets`."""
        with self.lock:
            self.refuse_record()
            with self._naming_fences():
                self._started().send_offsets(offsets, group)

    def failed(self, error: Exception) -> None:
        """Allow only an abort from now on, since a record was not written."""
        with self.lock:
            if self.in_transaction and self._error is None:
                self._error, self._takes_records = error, False

    def commit(self, flush: Callable[[], None]) -> None:
        """Write all sent records, and commit them.

        Parameters
        ----------
        flush : callable
            Returns when all sent records are written or have failed.
        """
        with self._ending() as writer:
            self._refuse_failed()
            flush()
            with self.lock, self._naming_fences():
                self._refuse_failed()
                writer.commit()

    def abort(self, flush: Callable[[], None]) -> None:
        """Fail all unwritten records, and abort the transaction; for arguments see `commit`."""
        with self._ending() as writer:
            self._is_aborting = True
            flush()
            with self.lock, self._naming_fences():
                writer.abort()
                self._error = None

    def close(self) -> None:
        """Abort the open transaction, if there is one."""
        with self.lock:
            self._takes_records = False
            if self._writer is not None:
                try:
                    self._writer.close()
                except SeglogError as error:
                    _log.warning("the transaction of %r is left open: %s", self._transactional_id, error)

    def give_up(self) -> None:
        """Fail all unwritten records, since the producer is being closed within a transaction."""
        self._takes_records, self._is_aborting = False, True

    @contextmanager
    def _ending(self) -> Iterator[TransactionalWriter]:
        with self.lock:
            writer = self._started()
            if self._is_ending or not writer.in_transaction:
                self._refuse()
            self._is_ending, self._takes_records = True, False
        try:
            yield writer
        finally:
            with self.lock:
                self._is_ending = self._is_aborting = False
                self._takes_records = writer.in_transaction and self._error is None and self._fence is None

    @contextmanager
    def _naming_fences(self) -> Iterator[None]:
        """Raise a fenced producer's error under its name in Kafka, and remember that it is fenced."""
        try:
            yield
        except InvalidProducerEpochError as error:
            self._fence, self._takes_records = ProducerFencedError(error.message), False
            raise self._fence from error

    def _started(self) -> TransactionalWriter:
        if self._fence is not None:
            raise self._fence
        if self._writer is None:
            raise IllegalStateError(f"call init_transactions of {self._transactional_id!r} first")
        return self._writer

    def _refuse_failed(self) -> None:
        if self._fence is not None or self._error is not None:
            self._refuse()

    def _refuse(self) -> NoReturn:
        """Raise the error of a call that does not fit the state."""
        self._started()
        if self._error is not None:
            raise IllegalStateError(
                f"the transaction of {self._transactional_id!r} can only be aborted, since a record of it was not "
                f"written: {self._error}"
            ) from self._error
        if self._is_ending:
            raise IllegalStateError(f"the transaction of {self._transactional_id!r} is being ended")
        raise IllegalStateError(f"no transaction of {self._transactional_id!r} has begun")
