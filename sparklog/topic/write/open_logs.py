"""Shares the logs that this process has open for appends: each is open once, however many writers share it.

A process may open a folder only once, and its threads may share a `LogWriter`. A writer has a `SharedLogs`, or for
one log directory an `OpenLogs`; each opens a log at its first append, or shares the log that another writer has open.
The last writer that releases a log closes it.

The commit of a transaction needs its logs closed, and closes them for all writers; the next append opens a log again.
If a log could not be closed or synced, every other writer that shares it gets that error too, at its next call of
`SharedLogs.flush` or `SharedLogs.closed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, Final, Self
from weakref import WeakSet

from sparklog.errors import SeglogError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.record.encode.intake import Records
from sparklog.storage.process import ProcessState
from sparklog.topic.write.configs import folder_config
from sparklog.write.locking import hold, is_waited_for
from sparklog.write.metrics import LogMetrics
from sparklog.write.partition import LogWriter

_BUSY_SECONDS: Final = 1.0
"""How long to wait for another thread's append to a log before the log can be closed."""


class _Shared:
    """A log and the writers that share it; a thread holds ``lock`` to append to it, open it or close it."""

    def __init__(self, folder: PartitionFolder) -> None:
        self.folder, self.lock = folder, threading.RLock()
        self.log: LogWriter | None = None
        self.writers: WeakSet[SharedLogs] = WeakSet()

    def close(self, by: SharedLogs) -> None:
        """Close the log, if it is open; the caller holds the lock."""
        log, self.log = self.log, None
        if log is not None:
            with self.telling_others(by):
                log.close()

    @contextmanager
    def telling_others(self, by: SharedLogs) -> Iterator[None]:
        """Record an error for the log's other writers too: after it, their records may not be on the disk."""
        try:
            yield
        except SeglogError as error:
            with _ours.lock:
                others = [each for each in self.writers if each is not by]
            for each in others:
                each.failures.setdefault(self.folder, error)
            raise


_shared: dict[PartitionFolder, _Shared] = {}
_ours = ProcessState(threading.Lock, _shared)


class SharedLogs:
    """The open logs of a writer, shared with the other writers of the process.

    Threads may append at the same time; while one releases logs, no other may use the same `SharedLogs`.

    Parameters
    ----------
    config_of : callable
        Returns the configuration to open a log with, or raises to forbid that; called while no other process can make,
        move or delete the log.
    lock_timeout_seconds : float
        How long to wait for other writers of a log directory.
    clock : callable
        Returns wall-clock time, ms since the epoch.

    Attributes
    ----------
    failures : dict of PartitionFolder to SeglogError
        Errors of logs that another writer failed to close or sync.
    """

    def __init__(
        self,
        config_of: Callable[[PartitionFolder], LogConfig],
        *,
        lock_timeout_seconds: float = 60.0,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._config_of, self._lock_timeout_seconds, self._clock = config_of, lock_timeout_seconds, clock
        self._held: dict[PartitionFolder, _Shared] = {}
        self.failures: dict[PartitionFolder, SeglogError] = {}

    def append(self, folder: PartitionFolder, table: Records, **options: Any) -> tuple[int, int]:
        """Append records to a log; see `LogWriter.append`, and for further errors `LogWriter.open`."""
        shared = self._share(folder)
        with shared.lock:
            if shared.log is None:
                folder.writable.make_folder(folder.directory.path)
                with hold(folder.directory, self._lock_timeout_seconds, is_shared=True):
                    shared.log = LogWriter.open(
                        folder.location,
                        self._config_of(folder),
                        storage=folder.storage,
                        lock_timeout_seconds=self._lock_timeout_seconds,
                        clock=self._clock,
                    )
            return shared.log.append(table, **options)

    def flush(self, folder: PartitionFolder) -> None:
        """Wait until this writer's records of a log are on the disk; for errors see `LogWriter.flush`."""
        shared = self._share(folder)
        with shared.lock:
            self._raise_failure(folder)
            if shared.log is not None:
                with shared.telling_others(self):
                    shared.log.flush()

    @contextmanager
    def closed(self, folders: Collection[PartitionFolder]) -> Iterator[None]:
        """Close some logs, and keep this process from opening them while the block runs."""
        shared = [self._share(folder) for folder in sorted(folders, key=lambda each: each.location)]
        with ExitStack() as held:
            for each in shared:
                held.enter_context(each.lock)
            with ExitStack() as closing:
                for each in shared:
                    closing.callback(each.close, self)
            for each in shared:
                self._raise_failure(each.folder)
            yield

    def discard(self, folder: PartitionFolder) -> None:
        """Close a log after an error, so that the next append opens it again."""
        shared = self._share(folder)
        with shared.lock, suppress(SeglogError):
            shared.close(self)
        self._release(shared)

    def close(self) -> None:
        """Release all logs, even if closing one of them raises; an append opens its log again."""
        with ExitStack() as closing:
            for each in list(self._held.values()):
                closing.callback(self._release, each)

    def give_way(self) -> None:
        """Close all logs of this process, of all writers, in directories for which other processes wait.

        The next append waits for its turn.
        """
        awaited = {each for each in {folder.directory for folder in list(self._held)} if is_waited_for(each)}
        with _ours.lock:
            there = [each for each in _shared.values() if each.folder.directory in awaited and each.log is not None]
        with ExitStack() as held, ExitStack() as closing:
            # All at once: a log that is opened meanwhile would keep the directory locked. A log that a thread waits to
            # open is closed already.
            for each in sorted(there, key=lambda each: each.folder.location):
                if each.lock.acquire(timeout=_BUSY_SECONDS):
                    held.callback(each.lock.release)
                    closing.callback(each.close, self)

    def forget(self) -> None:
        """Drop the logs in a process that was forked from the one that opened them."""
        for shared in self._held.values():
            if shared.log is not None:
                shared.log.close()
        self._held = {}

    def metrics(self) -> dict[str, LogMetrics]:
        """Return the metrics of the open logs by folder name."""
        logs = {folder.name: shared.log for folder, shared in list(self._held.items())}
        return {name: log.metrics() for name, log in logs.items() if log is not None}

    def _share(self, folder: PartitionFolder) -> _Shared:
        found = self._held.get(folder)
        if found is None:
            with _ours.lock:
                found = self._held[folder] = _shared.setdefault(folder, _Shared(folder))
                found.writers.add(self)
        return found

    def _release(self, shared: _Shared) -> None:
        with shared.lock:
            with _ours.lock:
                self._held.pop(shared.folder, None)
                self.failures.pop(shared.folder, None)
                shared.writers.discard(self)
                if shared.writers:
                    return
            # A writer that shares the log from here on waits for its lock, so the log stays known while it is closed.
            try:
                shared.close(self)
            finally:
                with _ours.lock:
                    if not shared.writers:
                        _shared.pop(shared.folder, None)

    def _raise_failure(self, folder: PartitionFolder) -> None:
        error = self.failures.pop(folder, None)
        if error is not None:
            raise error


class OpenLogs:
    """Open logs of one directory, each with the properties of its topic; used with ``with``.

    Parameters
    ----------
    directory : LogDirectory
        The directory, whose path has no links.
    config : LogConfig
        The caller's properties for all topics; they override the stored properties of each.
    lock_timeout_seconds, clock
        See `SharedLogs`.
    """

    def __init__(
        self,
        directory: LogDirectory,
        config: LogConfig,
        *,
        lock_timeout_seconds: float = 60.0,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._directory, self._config = directory, config
        self._logs = SharedLogs(self._topic_config, lock_timeout_seconds=lock_timeout_seconds, clock=clock)

    def _topic_config(self, folder: PartitionFolder) -> LogConfig:
        return folder_config(folder, self._config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def append(self, topic: str, partition: int, table: Records, **producer: Any) -> tuple[int, int]:
        """Append records to a log; for arguments, result and errors see `LogWriter.append`."""
        return self._logs.append(PartitionFolder(self._directory, topic, partition), table, **producer)

    def closed(self, folders: Collection[str]) -> AbstractContextManager[None]:
        """Close some logs, by folder name, and keep this process from opening them while the block runs."""
        return self._logs.closed([self._directory.folder(name) for name in folders])

    def close(self) -> None:
        """Release all logs; an append opens its log again."""
        self._logs.close()
