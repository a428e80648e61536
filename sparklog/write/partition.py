"""The single writer of one partition's folder.

It holds the lock of the log directory while it is open, recovers the log when it opens it, and leaves it as a broker
that was shut down does: indexes complete, producers written down, everything synced.

Threads may share it: their calls run one after the other. A forked process may not: POSIX
locks are not inherited, and two processes would give out the same offsets.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Self

import pyarrow as pa

from sparklog.errors import (
    ALL_VISIBLE,
    NOT_KNOWN,
    NOTHING_VISIBLE,
    InvalidOptionError,
    LockedError,
    SeglogError,
    StorageError,
    outcome,
)
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.folders import refuse_to_write
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import ProducerBatch, producer_batches
from sparklog.log.properties import AT_APPEND
from sparklog.record.encode.batches import EncodedBatches
from sparklog.record.encode.intake import Records
from sparklog.storage.base import Storage
from sparklog.storage.capabilities import to_writable
from sparklog.storage.process import process_id
from sparklog.storage.registry import PathText, expand_one, locate
from sparklog.write import locking, open_files
from sparklog.write.commit_plan import metadata_to_write
from sparklog.write.flushing import FlushTimer
from sparklog.write.journal import apply_journal
from sparklog.write.metrics import LogCounters, LogMetrics
from sparklog.write.pipeline import ProducerIdentity, check_records, encode_records
from sparklog.write.policy import should_flush
from sparklog.write.recovery import recover_log
from sparklog.write.rolling import OpenEnd
from sparklog.write.small_files import make_directory, write_atomically

_RANDOM_END: Final = 1 << 31
_BROKEN: Final = "{} could not be put right after an error: close it and open it again"


def _random_number() -> int:
    return random.randrange(_RANDOM_END)


class LogWriter:
    """A partition's log, open to be appended to. Made by `open`, and used with ``with``.

    Threads may share it. A forked process can only close its inherited descriptors, which changes nothing.
    """

    def __init__(
        self,
        folder: PartitionFolder,
        config: LogConfig,
        clock: Callable[[], int],
        rng: Callable[[], int],
    ) -> None:
        self._folder, self._config, self._storage = folder, config, folder.writable
        self._path = folder.location
        self._clock, self._rng = clock, rng
        self._resources = ExitStack()
        self._is_open = self._is_broken = self._is_busy = False
        self._lock, self._process = threading.RLock(), process_id()
        self._unflushed = 0
        self._timer = FlushTimer(self._path, config.flush_ms, self._lock, self._sync)
        self._counters = LogCounters()

    @classmethod
    def open(
        cls,
        path: PathText,
        config: LogConfig | None = None,
        *,
        topic_id: str | None = None,
        lock_timeout_seconds: float = 60.0,
        storage: Storage | None = None,
        clock: Callable[[], int] = wall_clock_ms,
        rng: Callable[[], int] = _random_number,
    ) -> Self:
        """Open a partition's folder to append to it; make it if it does not exist.

        Parameters
        ----------
        path : str or os.PathLike
            The folder, ``<topic>-<partition>``; not a link to it, but links on the way are followed. Also a pattern
            that it alone matches.
        config : LogConfig, optional
            Kafka's topic properties. Properties left out are those that `sparklog.PartitionLog` finds stored for the
            topic in the log directory, and otherwise Kafka's defaults.
        topic_id : str, optional
            For ``partition.metadata``, without which a broker sets the folder aside.
        lock_timeout_seconds : float
            How long to wait for other writers of the log directory; a running broker is not waited for.
        storage, clock, rng
            The storage of the folder, if it is not the path's; the time in ms; and random numbers for
            ``segment.jitter.ms``.

        Raises
        ------
        InvalidOptionError
            The folder's name is no partition's, or it holds something else, such as a log directory;
            or it has another topic id, or is in a storage that cannot be written to. Or a stored property is wrong.
        LockedError
            A broker runs on the log directory, or another writer has the folder, under any path.
        CorruptLogError
            The log is damaged, and to cut it there would lose whole batches.
        """
        located = expand_one(locate(path))
        storage = to_writable(storage or located.storage, located.path)
        folder = PartitionFolder.at(storage, storage.real(located.path))
        locking.refuse_open(folder, str(path))
        locking.refuse_link(PartitionFolder.at(storage, located.path))
        refuse_to_write(folder)
        config = cls._config_of(folder, config or LogConfig())
        config.warn_idle(AT_APPEND)
        made = cls(folder, config, clock, rng)
        try:
            with outcome(NOTHING_VISIBLE):
                made._open(str(path), topic_id, lock_timeout_seconds)
        except BaseException:
            made._resources.close()
            raise
        return made

    @classmethod
    def _config_of(cls, folder: PartitionFolder, given: LogConfig) -> LogConfig:
        """Return the given properties of a log; `topic.partition_log` adds the stored ones."""
        del folder
        return given

    def _open(self, spelling: str, topic_id: str | None, lock_timeout_seconds: float) -> None:
        storage, folder, directory = self._storage, self._folder, self._folder.directory
        make_directory(directory)
        open_files.make_room()
        self._resources.enter_context(locking.hold(directory, lock_timeout_seconds, is_shared=True))
        with locking.opening():
            locking.refuse_open(folder, spelling)
            apply_journal(directory)
            storage.make_folder(folder.location)
            self._resources.callback(locking.claim(folder, spelling))
            storage.sync_folder(directory.path)
            found = recover_log(folder, self._config, self._clock())
            locking.hide_marker(directory)
        metadata = metadata_to_write(folder, topic_id)
        if metadata is not None:
            write_atomically(folder, files.PARTITION_METADATA, metadata)
        self._start_offset, self._producers = found.start_offset, found.producers
        self._epochs = found.leader_epochs
        self._end = OpenEnd(folder, self._config, found, self._rng)
        self._flushed_ms = self._clock()
        self._timer.reset()
        self._is_open = True
        open_files.used(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._process != process_id():
            return f"PartitionLog({self._path!r}, opened by process {self._process})"
        return f"PartitionLog({self._path!r}, offsets [{self.start_offset}, {self.end_offset}))"

    @property
    def start_offset(self) -> int:
        """The log start offset: the first offset that may be read."""
        self._refuse_other_process()
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The log end offset, exclusive: the offset of the next record."""
        self._refuse_other_process()
        with self._lock:
            return self._end.tail.end_offset

    def metrics(self) -> LogMetrics:
        """Return the counts of appends and flushes since the log was opened."""
        self._refuse_other_process()
        with self._lock:
            return self._counters.metrics()

    def append(
        self,
        table: Records,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        config: LogConfig | None = None,
        now_ms: int | None = None,
    ) -> tuple[int, int]:
        """Append records.

        It promises the same as Kafka. When it has returned, the records are in the log in this order, at the
        returned offsets, and every reader sees them; they survive the end of the process, and once `flush` or `close`
        has returned, a power cut. When it has raised, none of them is in the log. If the process dies within it, the
        log holds whole batches from the first record on, perhaps none and perhaps all: records that fit one batch
        (``batch.size``) are there together or not at all.

        Parameters
        ----------
        table : Records
            A table, batch or reader of pyarrow, a frame of polars or pandas, anything else with ``__arrow_c_stream__``,
            or columns by name; all of it is held in memory. It has ``value``, and optionally ``key``, ``headers`` and
            ``timestamp``, of the types that `sparklog.record.encode.intake` takes; others are ignored. Records whose
            timestamp is null get the time of the append.
        producer_id, producer_epoch, base_sequence : int
            An idempotent producer, and the sequence number of the first record. A batch among the
            producer's last five is not appended again.
        is_transactional : bool
            Whether the records belong to the producer's transaction; `sparklog.TransactionalWriter` ends those.
        config : LogConfig, optional
            Overrides the log's own settings for making batches: several producers of one log may differ.
        now_ms : int, optional
            The time of the append, ms since the epoch, for records without a timestamp and for LogAppendTime.

        Returns
        -------
        (int, int)
            The offsets of the first and the last record; for no record, the log end offset and the one before it.

        Raises
        ------
        InvalidOptionError
            A column is missing or of a wrong type, or a broker would refuse a record.
        RecordTooLargeError, OffsetOutOfRangeError
            A record can never fit, or the log has no more offsets.
        OutOfOrderSequenceError, InvalidProducerEpochError
            As in Kafka's producer.
        StorageError
            The disk is full, or has failed; the log is as before, unless the error says that it could not be
            restored.
        LockedError
            This process was forked from the one that opened the log.
        """
        with outcome(NOTHING_VISIBLE), self._alone():
            self._refuse_closed()
            self._take_up()
            if (producer_id >= 0 or is_transactional) and min(producer_id, producer_epoch, base_sequence) < 0:
                raise InvalidOptionError("a producer with an id has an epoch and a base sequence of 0 or more")
            now_ms = self._clock() if now_ms is None else now_ms
            made_by = config or self._config
            records = check_records(table, made_by, now_ms, now_ms)
            producer = ProducerIdentity(producer_id, producer_epoch, base_sequence, is_transactional)
            return self._append_records(records, producer, made_by, now_ms)

    def _append_records(
        self, records: pa.RecordBatch, producer: ProducerIdentity, made_by: LogConfig, now_ms: int
    ) -> tuple[int, int]:
        """Append checked records that the producer has not appended before; return the first and last offset."""
        first_offset = self._end.tail.end_offset
        if not records.num_rows:
            return first_offset, first_offset - 1
        encoded = encode_records(
            records,
            made_by,
            first_offset,
            now_ms,
            name=self._folder.name,
            producer=producer,
            leader_epoch=self._epochs[-1][0] if self._epochs else 0,
        )
        if producer.producer_id >= 0:
            repeated = self._repeated(producer_batches(encoded.headers.table))
            if repeated:
                count = sum(batch.last_offset - batch.base_offset + 1 for batch in repeated)
                _, last_offset = self._append_records(records.slice(count), producer.after(count), made_by, now_ms)
                return repeated[0].base_offset, last_offset if count < records.num_rows else repeated[-1].last_offset
        self._append(encoded, producer.producer_id, now_ms)
        self._counters.count_append(records.num_rows, len(encoded.headers), len(encoded.data))
        return first_offset, self._end.tail.end_offset - 1

    def _repeated(self, batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
        """Return the batches that the producer has already appended; raise unless the next one may be appended."""
        repeated: list[ProducerBatch] = []
        for batch in batches:
            old = self._producers.duplicate_of(batch)
            if old is None:
                if not repeated:
                    self._producers.check(batch)
                break
            repeated.append(old)
        return repeated

    def _append(self, encoded: EncodedBatches, producer_id: int, now_ms: int) -> None:
        before, unflushed = self._end.tail, self._unflushed
        # Only this producer's entry changes; a log may have many thousands.
        entry = self._producers.entries.get(producer_id)
        try:
            # Messages of magic 0 and 1 have no leader epochs, and a broker of their time warns about a checkpoint with
            # some.
            if not self._epochs and encoded.headers.column("magic")[0] == 2:
                self._epochs = ((0, before.end_offset),)
                write_atomically(self._folder, files.LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(self._epochs))
            self._end.write(encoded, producer_id, now_ms)
            self._unflushed += self._end.tail.end_offset - before.end_offset
            if should_flush(self._unflushed, self._flushed_ms, self._config, now_ms):
                self._sync()
            else:
                self._timer.begin()
        except BaseException:
            self._is_broken = True
            with outcome(NOT_KNOWN):
                self._end.undo(before)
            self._producers.put_back(producer_id, entry)
            self._unflushed, self._is_broken = unflushed, False
            raise

    def flush(self) -> None:
        """Sync the files, and return when all appended records are on the disk."""
        with outcome(ALL_VISIBLE), self._alone():
            self._refuse_closed()
            self._sync()

    def _sync(self) -> None:
        with self._counters.flushing():
            # A log that let go of its files has synced them.
            if self._end.files.are_open:
                self._end.files.sync()
        self._unflushed, self._flushed_ms = 0, self._clock()
        self._timer.reset()

    def _take_up(self) -> None:
        """Open the files if the log has let go of them."""
        if not self._end.files.are_open:
            open_files.make_room()
            self._end.take_up()
        open_files.used(self)

    def let_go(self) -> None:
        """Sync the files and close them until the next append, unless a thread uses the log.

        Other logs need the room; see `sparklog.write.open_files`. Without the sync, an error of writing the bytes to
        the disk could be lost with the descriptor.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._is_busy or self._is_broken or not self._end.files.are_open:
                return
            if self._unflushed:
                self._sync()
            self._end.let_go()
            open_files.closed(self)
        except (SeglogError, OSError) as error:
            # The log that needs the room is another one.
            self._is_broken = True
            self._timer.fail(error)
        finally:
            self._lock.release()

    def close_in_child(self) -> None:
        """Close the inherited descriptors in a forked process: the files belong to the parent."""
        self._end.files.close()

    def close(self) -> None:
        """Sync, complete the indexes, write a snapshot of the producers, and release the folder.

        A second call does nothing.

        In a forked process it only closes the files.
        """
        if self._process != process_id():
            self._close_files_in_child()
            return
        with outcome(NOT_KNOWN if self._is_broken else ALL_VISIBLE), self._alone():
            if self._is_open:
                self._is_open = False
                self._close()

    def _close(self) -> None:
        self._timer.stop()
        with self._resources:
            try:
                self._refuse_broken()
                # Closed again at once, so that no other log has to let go.
                self._end.take_up()
                self._end.seal()
                self._storage.sync_folder(self._path)
                self._timer.raise_error()
            except BaseException:
                locking.forget_marker(self._folder.directory)
                raise
            finally:
                self._end.files.close()
                open_files.closed(self)
            locking.show_marker(self._folder.directory)

    def _close_files_in_child(self) -> None:
        """Close a forked process's inherited descriptors: the log, its locks and its files belong to the parent."""
        if self._is_open:
            self._is_open = False
            self.close_in_child()
            self._resources.pop_all()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads out, and this thread too if a signal's handler calls in the middle of another call."""
        self._refuse_other_process()
        with self._lock:
            if self._is_busy:
                raise StorageError(f"{self._path} is being written to by this thread: it was interrupted by a signal")
            try:
                self._is_busy = True
                yield
            finally:
                self._is_busy = False

    def _refuse_other_process(self) -> None:
        if self._process != process_id():
            raise LockedError(
                f"{self._path} was opened by process {self._process}, and this is process {process_id()}, forked "
                f"from it: two would give out the same offsets. Use it there, or close it there and open it here"
            )

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise StorageError(f"{self._path} is closed")
        self._refuse_broken()
        self._timer.raise_error()

    def _refuse_broken(self) -> None:
        if self._is_broken:
            self._timer.raise_error()
            raise StorageError(_BROKEN.format(self._path))
