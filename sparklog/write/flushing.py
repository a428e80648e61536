"""Syncs a log when ``flush.ms`` has passed, even without a further append."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from sparklog.errors import SeglogError, StorageError

_FLUSH_MS_MAX: Final = int(threading.TIMEOUT_MAX * 1000)


class FlushTimer:
    """Syncs a log in a thread of its own when ``flush.ms`` has passed since the last sync.

    The first append after a sync starts the thread, and there is none where ``flush.ms`` is off. The caller holds the
    lock of the log when it calls a method.

    Parameters
    ----------
    folder : str
        The folder of the log, for errors.
    flush_ms : int
        How long after a sync the next one is due, ms.
    lock : context manager
        The lock of the log.
    sync : callable
        Syncs the log, and calls `reset`.
    """

    def __init__(self, folder: str, flush_ms: int, lock: AbstractContextManager[Any], sync: Callable[[], None]) -> None:
        self._folder, self._flush_ms, self._lock, self._sync = folder, flush_ms, lock, sync
        self._timer: threading.Timer | None = None
        self._error: Exception | None = None
        self.reset()

    def reset(self) -> None:
        """Note that every append is on the disk."""
        self._synced_seconds, self._is_waiting = time.monotonic(), False

    def begin(self) -> None:
        """Note that an append is not on the disk yet."""
        self._is_waiting = True
        if self._timer is None and self._flush_ms <= _FLUSH_MS_MAX:
            self._start()

    def stop(self) -> None:
        """Stop the timer; nothing is synced by it afterwards."""
        self._is_waiting = False
        if self._timer is not None:
            self._timer.cancel()

    def fail(self, error: Exception) -> None:
        """Note that a sync failed while nobody used the log: the next user of the log gets the error."""
        self._error, self._is_waiting = error, False

    def raise_error(self) -> None:
        """Raise a `StorageError` if a sync has failed while nobody used the log, once for each."""
        error, self._error = self._error, None
        if error is not None:
            raise StorageError(
                f"records appended to {self._folder} could not be synced while nobody used it, and are lost "
                f"if the machine stops now: {error}"
            ) from error

    def _start(self) -> None:
        timer = threading.Timer(self._seconds_left(), self._run)
        timer.name, timer.daemon = f"flush {self._folder}", True
        try:
            timer.start()
        except RuntimeError:
            # No thread can be started: sync too early rather than too late.
            self._sync()
        else:
            self._timer = timer

    def _seconds_left(self) -> float:
        return max(0.0, self._synced_seconds + self._flush_ms / 1000 - time.monotonic())

    def _run(self) -> None:
        with self._lock:
            self._timer = None
            if not self._is_waiting:
                return
            try:
                if self._seconds_left():
                    self._start()
                else:
                    self._sync()
            except (SeglogError, OSError) as error:
                self.fail(error)
