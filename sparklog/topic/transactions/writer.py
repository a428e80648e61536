"""Writes transactions without Spark: records are appended at once, and a commit adds the markers to all partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, Protocol, Self

from sparklog.errors import (
    NOTHING_VISIBLE,
    InvalidOptionError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    SeglogError,
    outcome,
)
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition, checked_partition
from sparklog.log.group_offsets import GroupOffsets, OffsetCommit
from sparklog.log.places import LogDirectory
from sparklog.log.producer_state import plus
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.record.encode.intake import Records
from sparklog.storage.base import Storage
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import PathText
from sparklog.topic.internal.given_offsets import OffsetAndMetadata, offsets_of_group
from sparklog.topic.places.discovery import place_at
from sparklog.topic.transactions.commit import add_to_transaction, begin_transactional_id, end_transaction, known_ids
from sparklog.topic.transactions.coordinator_log import coordinator_log
from sparklog.topic.transactions.ids import TIMEOUT_MS, check_transactional_id, read_transactional_ids
from sparklog.topic.write.open_logs import OpenLogs
from sparklog.write.journal import only_writer

_log = logging.getLogger("sparklog")


class AppendableLogs(Protocol):
    """The logs that a `TransactionalWriter` appends to; `sparklog.topic.write.open_logs.OpenLogs` is one."""

    def append(
        self,
        topic: str,
        partition: int,
        table: Records,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        is_transactional: bool,
    ) -> tuple[int, int]:
        """Append records; see `PartitionLog.append`."""

    def closed(self, folders: Collection[str]) -> AbstractContextManager[None]:
        """Close some logs, by folder name, and let no one open them while the block runs."""


class TransactionalWriter:
    """Writes transactions under one transactional id. Made by `open`, and used with ``with``.

    Records are appended at once, and get their offsets; readers of committed records see them when the transaction is
    committed, in all partitions at once, or never if it is aborted. If the process dies before that, the transaction
    stays open until the id is started again, or as `sparklog.topic.transactions` says.
    ``sparklog transactions --hanging`` shows it, and can abort it.

    While a transaction is open, the log directory is locked to other processes. One thread may use a writer at a time.

    Attributes
    ----------
    transactional_id : str
    directory : LogDirectory
    """

    def __init__(
        self,
        directory: LogDirectory,
        transactional_id: str,
        config: LogConfig,
        logs: AppendableLogs,
        lock_timeout_seconds: float,
        clock: Callable[[], int],
    ) -> None:
        self.directory, self.transactional_id = directory, transactional_id
        self._config, self._logs, self._clock = config, logs, clock
        self._lock_timeout_seconds = lock_timeout_seconds
        self._resources = ExitStack()
        self._producer = TransactionProducer(-1, -1)
        self._next_sequences: dict[str, int] | None = None
        self._group_offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._commits_from_ms = 0
        self._is_open = self._must_abort = self._is_recorded = False

    @classmethod
    def open(
        cls,
        log_directory: PathText,
        transactional_id: str,
        config: LogConfig | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        logs: AppendableLogs | None = None,
        lock_timeout_seconds: float = 60.0,
        storage: Storage | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> Self:
        """Start a transactional id: fence its previous writer, and abort the transaction that was left open.

        Parameters
        ----------
        log_directory : str or os.PathLike
            The log directory, which is made if it does not exist.
        config : LogConfig, optional
            Kafka's topic properties; by default Kafka's defaults.
        timeout_ms : int
            A transaction that is open for longer counts as hanging; Kafka's ``transaction.timeout.ms``. The next start
            of any transactional id, or a broker that adopts the directory, then aborts it.
        logs : AppendableLogs, optional
            Open logs to which other writers of this process append as well. By default the writer opens its own, and
            no other may have them open.
        lock_timeout_seconds : float
            How long to wait for other writers of the log directory; a running broker is not waited for.
        storage, clock
            The storage of the directory, if not the one of the path; and a function that returns the time in ms.

        Raises
        ------
        InvalidOptionError
            The transactional id is empty, or the storage cannot be written to.
        LockedError
            A broker runs on the directory, other writers took too long, or a log of the transaction to abort is open in
            this process.
        """
        check_transactional_id(transactional_id)
        if timeout_ms < 1:
            raise InvalidOptionError(f"timeout_ms is at least 1, got {timeout_ms}")
        located = place_at(log_directory)
        storage = to_writable(storage or located.storage, located.path)
        directory = LogDirectory(storage, storage.real(located.path))
        config = config or LogConfig()
        own = OpenLogs(directory, config, lock_timeout_seconds=lock_timeout_seconds, clock=clock)
        made = cls(directory, transactional_id, config, logs or own, lock_timeout_seconds, clock)
        made._resources.enter_context(own)
        made._start(timeout_ms)
        return made

    def _start(self, timeout_ms: int) -> None:
        found = read_transactional_ids(self.directory)
        left = None if found is None else found.ids.get(self.transactional_id)
        with self._logs.closed(left.partitions if left is not None else ()):
            self._producer = begin_transactional_id(
                self.directory,
                self.transactional_id,
                self._clock(),
                timeout_ms=timeout_ms,
                lock_timeout_seconds=self._lock_timeout_seconds,
            )
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            self.close()
        except SeglogError as error:
            if kind is None:
                raise
            # The error that is being raised says more.
            _log.warning("%s is left open: %s", self, error)

    def __repr__(self) -> str:
        return f"TransactionalWriter({self.transactional_id!r}, {self.directory.path!r})"

    @property
    def producer_id(self) -> int:
        return self._producer.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch of the open transaction, or of the next one."""
        return self._producer.producer_epoch

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._next_sequences is not None

    def begin(self) -> None:
        """Begin a transaction.

        Raises
        ------
        InvalidTransactionStateError
            A transaction has begun and not ended, or the writer is closed.
        """
        self._refuse_closed()
        if self._next_sequences is not None:
            raise InvalidTransactionStateError(f"a transaction of {self.transactional_id!r} has begun already")
        self._next_sequences, self._group_offsets = {}, {}

    def append(self, topic: str, partition: int, table: Records) -> tuple[int, int]:
        """Append records to a partition as part of the transaction.

        Parameters
        ----------
        table : Records
            See `sparklog.PartitionLog.append`.

        Returns
        -------
        (int, int)
            The offsets of the first and the last record; without records, the log end offset and the one before it.

        Raises
        ------
        InvalidTransactionStateError
            No transaction has begun.
        InvalidProducerEpochError
            Another writer has started the transactional id since; this writer is fenced.
        SeglogError
            See `sparklog.PartitionLog.append`. None of these records is in the log, and the transaction is as before.
        """
        sequences = self._begun_sequences()
        topic, partition = at = checked_partition(topic, partition)
        folder = str(at)
        if folder not in sequences:
            self._add_to_transaction(folder)
            sequences[folder] = 0
        try:
            first_offset, last_offset = self._append(topic, partition, table, sequences[folder])
        except SeglogError as error:
            if error.outcome == NOTHING_VISIBLE and not sequences[folder]:
                # The log may be another writer's, and gets no marker.
                del sequences[folder]
            raise
        sequences[folder] = plus(sequences[folder], last_offset - first_offset + 1)
        return first_offset, last_offset

    def send_offsets(self, offsets: Mapping[tuple[str, int], Any], group: Any) -> None:
        """Add offsets of a consumer group to the transaction, to be committed with its records or not at all.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata or int
            The offsets of the next records to read. They override offsets that were sent before.
        group : str or an object with ``group_id``
            The group, as `Consumer.group_metadata` returns it. A group given as a text must commit in this log
            directory, and so its partitions are here.

        Raises
        ------
        InvalidTransactionStateError
            No transaction has begun.
        InvalidProducerEpochError
            Another writer has started the transactional id since; this writer is fenced.
        InvalidOptionError
            The group commits in another log directory, or an offset or the group is not valid.
        UnknownTopicOrPartitionError
            A partition is not in this log directory.
        """
        self._begun_sequences()
        with outcome(NOTHING_VISIBLE):
            name, chosen = offsets_of_group(self.directory, offsets, group)
        if chosen:
            self._add_to_transaction()
            self._group_offsets.setdefault(name, {}).update(chosen)
            # Like a consumer's commit: later than the group's last known commit at a broker.
            self._commits_from_ms = max(self._commits_from_ms, getattr(group, "broker_commit_ms", 0) + 1)

    def _append(self, topic: str, partition: int, table: Records, base_sequence: int) -> tuple[int, int]:
        with outcome(NOTHING_VISIBLE):
            return self._logs.append(
                topic,
                partition,
                table,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                base_sequence=base_sequence,
                is_transactional=True,
            )

    def _add_to_transaction(self, *folders: str) -> None:
        """Record that the transaction has offsets, or a partition before anything is appended to it."""
        with outcome(NOTHING_VISIBLE), only_writer(self.directory, self._lock_timeout_seconds):
            add_to_transaction(self.directory, self.transactional_id, self._producer, folders, self._clock())
        self._is_recorded = True

    def commit(self) -> None:
        """Make the records of the transaction visible to readers of committed records, in all partitions at once.

        The sent offsets are committed with them.

        Raises
        ------
        InvalidTransactionStateError
            No transaction has begun, or it can only be aborted: its logs could not be synced.
        InvalidProducerEpochError
            Another writer has started the transactional id since; the transaction was aborted.
        SeglogError
            Its ``outcome`` says whether the transaction is still open, or will be committed.
        """
        if self._must_abort:
            raise InvalidTransactionStateError(
                f"the transaction of {self.transactional_id!r} can only be aborted: not all of it is surely on the disk"
            )
        self._end(is_abort=False)

    def abort(self) -> None:
        """End the transaction so that no reader of committed records ever sees its records; for errors see `commit`."""
        self._end(is_abort=True)

    def _end(self, *, is_abort: bool) -> None:
        folders = self._begun_sequences()
        if self._is_recorded:
            try:
                self._write_ends(folders, is_abort=is_abort)
            except SeglogError as error:
                if error.outcome != NOTHING_VISIBLE:
                    # The end is decided, and the next writer carries it out: this writer's state is out of date.
                    self._is_open, self._next_sequences = False, None
                raise
        self._next_sequences, self._must_abort, self._is_recorded = None, False, False

    def _write_ends(self, folders: Collection[str], *, is_abort: bool) -> None:
        with ExitStack() as held:
            self._close_logs(held, folders)
            with outcome(NOTHING_VISIBLE):
                held.enter_context(only_writer(self.directory, self._lock_timeout_seconds))
                states = known_ids(self.directory)
                found = states.checked(self.transactional_id, self._producer)
                log = coordinator_log(self.directory, self.transactional_id, found)
            now_ms = self._clock()
            after = end_transaction(
                self.directory,
                self._config,
                states,
                log,
                self.transactional_id,
                folders,
                now_ms,
                is_abort=is_abort,
                group_offsets={} if is_abort else self._commits_at(max(now_ms, self._commits_from_ms)),
            )
            self._producer = after.ids[self.transactional_id].producer

    def _commits_at(self, now_ms: int) -> GroupOffsets:
        return {
            group: {at: OffsetCommit(each.offset, each.metadata, now_ms) for at, each in offsets.items()}
            for group, offsets in self._group_offsets.items()
        }

    def _close_logs(self, held: ExitStack, folders: Collection[str]) -> None:
        """Sync the logs of the transaction, and keep them closed as long as ``held`` is open."""
        try:
            held.enter_context(self._logs.closed(folders))
        except SeglogError as error:
            # A second sync would prove nothing: a disk that failed once may have dropped what it could not write.
            self._must_abort, error.outcome = True, NOTHING_VISIBLE
            raise

    def _begun_sequences(self) -> dict[str, int]:
        self._refuse_closed()
        if self._next_sequences is None:
            raise InvalidTransactionStateError(f"no transaction of {self.transactional_id!r} has begun")
        return self._next_sequences

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise InvalidTransactionStateError(f"the writer of {self.transactional_id!r} is closed")

    def close(self) -> None:
        """Abort the open transaction, if there is one, and close the logs that the writer has opened."""
        with self._resources:
            try:
                if self._is_open and self.in_transaction:
                    # If the writer is fenced, the newer one has aborted the transaction.
                    with suppress(InvalidProducerEpochError):
                        self.abort()
            finally:
                self._is_open, self._next_sequences = False, None


@contextmanager
def transaction(
    log_directory: PathText,
    transactional_id: str,
    config: LogConfig | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
    logs: AppendableLogs | None = None,
    lock_timeout_seconds: float = 60.0,
) -> Iterator[TransactionalWriter]:
    """Write one transaction over partitions of a log directory.

    It is committed when the ``with`` block ends, and aborted if an error leaves the block.

    Parameters
    ----------
    log_directory, transactional_id, config, timeout_ms, logs, lock_timeout_seconds
        See `TransactionalWriter.open`.

    Yields
    ------
    TransactionalWriter
        The writer, whose transaction has begun.
    """
    with TransactionalWriter.open(
        log_directory,
        transactional_id,
        config,
        timeout_ms=timeout_ms,
        logs=logs,
        lock_timeout_seconds=lock_timeout_seconds,
    ) as writer:
        writer.begin()
        yield writer
        if writer.in_transaction:
            writer.commit()
