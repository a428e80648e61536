"""The logs that this process has open to append to: each once, however many writers share it.

A process may open a folder once, and its threads may share a `PartitionLog`. A writer has a `SharedLogs`, or for one
log directory an `OpenLogs`; each opens a log when it first appends to it, or shares the one that another writer has
open. Whoever lets go of a log last closes it.

The commit of a transaction needs its logs closed, and closes them for all writers; the next append opens a log again.
Where a log could not be closed or synced, every other writer that shares it gets that error too, when it next asks
whether its records are on the disk.
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
from sparklog.topic.write.configs import stored_configs, topic_config
from sparklog.write.locking import hold, is_waited_for
from sparklog.write.metrics import LogMetrics
from sparklog.write.partition import PartitionLog

_BUSY_SECONDS: Final = 1.0
"""How long a log is waited for that another thread appends to, so that it can be closed for others."""


class _Shared:
    """A log and the writers that share it; ``lock`` is held by whoever appends to it, opens or closes it."""

    def __init__(self, folder: PartitionFolder) -> None:
        self.folder, self.lock = folder, threading.RLock()
        self.log: PartitionLog | None = None
        self.writers: WeakSet[SharedLogs] = WeakSet()

    def close(self, by: SharedLogs) -> None:
        """Close the log, if it is open; the caller holds the lock."""
        log, self.log = self.log, None
        if log is not None:
            with self.telling_others(by):
                log.close()

    @contextmanager
    def telling_others(self, by: SharedLogs) -> Iterator[None]:
        """Have the others that share the log know of an error after which it is not known what is on the disk."""
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
    """Logs that a writer has open, and shares with the other writers of the process.

    Threads may append at the same time; while one lets go of logs, no other may use the same `SharedLogs`.

    Parameters
    ----------
    config_of : callable
        Returns the properties that a log is opened with, or raises where it is not to be; asked while no other process
        can make, move or delete it.
    lock_timeout_seconds : float
        How long to wait for other writers of a log directory.
    clock : callable
        Returns wall-clock time, ms since the epoch.

    Attributes
    ----------
    failures : dict of PartitionFolder to SeglogError
        Errors of logs that another writer could not close or sync.
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
        """Append records to a log; arguments, result and errors as of `PartitionLog.append` and `PartitionLog.open`."""
        shared = self._share(folder)
        with shared.lock:
            if shared.log is None:
                folder.writable.make_folder(folder.directory.path)
                with hold(folder.directory, self._lock_timeout_seconds, is_shared=True):
                    shared.log = PartitionLog.open(
                        folder.location,
                        self._config_of(folder),
                        storage=folder.storage,
                        lock_timeout_seconds=self._lock_timeout_seconds,
                        clock=self._clock,
                    )
            return shared.log.append(table, **options)

    def flush(self, folder: PartitionFolder) -> None:
        """Return when what this writer has appended to a log is on the disk; errors as of `PartitionLog.flush`."""
        shared = self._share(folder)
        with shared.lock:
            self._raise_failure(folder)
            if shared.log is not None:
                with shared.telling_others(self):
                    shared.log.flush()

    @contextmanager
    def closed(self, folders: Collection[PartitionFolder]) -> Iterator[None]:
        """Close some logs, and let nobody of this process open one while the block runs."""
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
        """Close a log after an error of it, so that the next append opens it again."""
        shared = self._share(folder)
        with shared.lock, suppress(SeglogError):
            shared.close(self)
        self._release(shared)

    def close(self) -> None:
        """Let go of all logs, also where closing one of them raises; an append opens what it needs again."""
        with ExitStack() as closing:
            for each in list(self._held.values()):
                closing.callback(self._release, each)

    def give_way(self) -> None:
        """Close all logs of this process, whoever shares them, in directories that others wait for.

        The next append waits for its turn.
        """
        awaited = {each for each in {folder.directory for folder in list(self._held)} if is_waited_for(each)}
        with _ours.lock:
            there = [each for each in _shared.values() if each.folder.directory in awaited and each.log is not None]
        with ExitStack() as held, ExitStack() as closing:
            # All at once: one that is opened meanwhile would keep the directory. Who waits to open one has it closed.
            for each in sorted(there, key=lambda each: each.folder.location):
                if each.lock.acquire(timeout=_BUSY_SECONDS):
                    held.callback(each.lock.release)
                    closing.callback(each.close, self)

    def forget(self) -> None:
        """Let go of the logs in a process that was forked from the one that opened them."""
        for shared in self._held.values():
            if shared.log is not None:
                shared.log.close()
        self._held = {}

    def metrics(self) -> dict[str, LogMetrics]:
        """Return what the open logs have counted, by the names of their folders."""
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
            # Whoever shares it from here on waits for its lock, and so it stays while it is closed.
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
        Its path is without links.
    config : LogConfig
        What the caller says of all topics; it is over what is stored for each.
    lock_timeout_seconds, clock
        As of `SharedLogs`.
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
        return topic_config(folder.topic, self._config, stored_configs(self._directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def append(self, topic: str, partition: int, table: Records, **producer: Any) -> tuple[int, int]:
        """Append records to a log; arguments, result and errors as of `PartitionLog.append`."""
        return self._logs.append(PartitionFolder(self._directory, topic, partition), table, **producer)

    def closed(self, folders: Collection[str]) -> AbstractContextManager[None]:
        """Close some logs, by the names of their folders, and let nobody open one while the block runs."""
        return self._logs.closed([self._directory.folder(name) for name in folders])

    def close(self) -> None:
        """Let go of all logs; an append opens what it needs again."""
        self._logs.close()
