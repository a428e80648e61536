"""The logs that the producers of this process have open: each once, however many producers write to it.

A `PartitionLog` may be shared by threads and not by processes, and a process may open a folder once. Producers borrow
logs here and give them back; who gives a log back last closes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sparklog.errors import SeglogError
from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.storage.process import in_forked_child
from sparklog.write.partition import PartitionLog


@dataclass
class _Shared:
    """A log, and how many have borrowed it; ``lock`` is held while it is opened or closed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    log: PartitionLog | None = None
    borrowers: int = 0


_shared: dict[str, _Shared] = {}
_changed = threading.Lock()


def _begin_in_child() -> None:
    """Forget in a forked child what its parent has open; the lock may have been held by another thread."""
    global _changed
    _changed = threading.Lock()
    _shared.clear()


in_forked_child(_begin_in_child)


def borrow(
    folder: PartitionFolder, config: LogConfig, lock_timeout_seconds: float
) -> tuple[PartitionLog, Callable[[], None]]:
    """Open a log, or share one that another producer of this process has open, with the properties that it has then.

    Returns
    -------
    (PartitionLog, callable)
        The callable gives it back; errors as of `PartitionLog.close`, where nobody else has it.

    Raises
    ------
    SeglogError
        As of `PartitionLog.open`.
    """
    with _changed:
        shared = _shared.setdefault(folder.location, _Shared())
        shared.borrowers += 1
    try:
        with shared.lock:
            if shared.log is None:
                shared.log = PartitionLog.open(
                    folder.location, config, lock_timeout_seconds=lock_timeout_seconds, storage=folder.storage
                )
            return shared.log, lambda: _give_back(folder.location, shared)
    except BaseException:
        with suppress(SeglogError):
            _give_back(folder.location, shared)
        raise


def _give_back(location: str, shared: _Shared) -> None:
    with shared.lock:
        with _changed:
            shared.borrowers -= 1
            if shared.borrowers:
                return
        # Whoever borrows it from here on waits for the lock of the entry, which therefore stays while it is closed.
        log, shared.log = shared.log, None
        try:
            if log is not None:
                log.close()
        finally:
            with _changed:
                if not shared.borrowers:
                    _shared.pop(location, None)
