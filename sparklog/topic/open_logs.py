"""The logs of a directory that a process has open to append to, each opened when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.record.intake import Records
from sparklog.write.clock import wall_clock_ms
from sparklog.write.partition import PartitionLog


class OpenLogs:
    """Open logs of one directory, for several writers of a process; used with ``with``.

    Threads may share it: they append one after the other.

    Parameters
    ----------
    directory : LogDirectory
        Its path is without links.
    config : LogConfig
        The properties of the topics.
    lock_timeout_seconds : float
        How long to wait for other writers of the log directory.
    clock : callable
        Returns wall-clock time, ms since the epoch.
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
        self._lock_timeout_seconds, self._clock = lock_timeout_seconds, clock
        self._logs: dict[str, PartitionLog] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def append(self, topic: str, partition: int, table: Records, **producer: Any) -> tuple[int, int]:
        """Append records to a log; arguments, result and errors as of `PartitionLog.append`."""
        folder = PartitionFolder(self._directory, topic, partition)
        with self._lock:
            log = self._logs.get(folder.name)
            if log is None:
                log = self._logs[folder.name] = self._opened(folder)
            return log.append(table, **producer)

    def _opened(self, folder: PartitionFolder) -> PartitionLog:
        return PartitionLog.open(
            folder.location,
            self._config,
            storage=self._directory.storage,
            lock_timeout_seconds=self._lock_timeout_seconds,
            clock=self._clock,
        )

    @contextmanager
    def closed(self, folders: Collection[str]) -> Iterator[None]:
        """Close some logs, by the names of their folders, and let nobody open one while the block runs."""
        with self._lock:
            self._close(folders)
            yield

    def close(self) -> None:
        """Close all logs; an append opens what it needs again."""
        with self._lock:
            self._close(list(self._logs))

    def _close(self, folders: Collection[str]) -> None:
        """Close all that are named, also where closing one of them raises."""
        with ExitStack() as closing:
            for name in folders:
                log = self._logs.pop(name, None)
                if log is not None:
                    closing.callback(log.close)
