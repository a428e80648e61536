"""Keeps open logs within the number of files that a process may have open (``ulimit -n``).

An open log has three files: the log and two indexes of its active segment. A process may have thousands of logs open,
and logs take five eighths of its files at most. When a log opens its files, the logs that were used least recently
let go of theirs, many at a time, since a disk serves waiting syncs together. A log that has let go is still open: its
state stays in memory, its directory stays locked, and its next append opens the files again.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, Protocol

from sparklog.storage.process import ProcessState, files_max

_FILES_OF_LOG: Final = 3
_LOGS_MIN: Final = 4
_SYNCS_AT_ONCE: Final = 16


class KeepsFilesOpen(Protocol):
    """An open log."""

    def let_go(self) -> None:
        """Sync the files and close them, unless a thread uses the log; then call `closed`."""

    def close_in_child(self) -> None:
        """Close the files in a forked process, which has the descriptors of its parent."""


# The least recently used log is first.
_used: dict[KeepsFilesOpen, KeepsFilesOpen] = {}
_ours = ProcessState(threading.RLock, _used, give_up=lambda log: log.close_in_child())


def used(log: KeepsFilesOpen) -> None:
    """Note that a log with open files is being used."""
    with _ours.lock:
        _used.pop(log, None)
        _used[log] = log


def closed(log: KeepsFilesOpen) -> None:
    """Note that a log has closed its files."""
    with _ours.lock:
        _used.pop(log, None)


def make_room() -> None:
    """Have other logs let go of their files, if one more log with open files would be too many."""
    logs_max = max(_LOGS_MIN, files_max() * 5 // 8 // _FILES_OF_LOG)
    with _ours.lock:
        if len(_used) < logs_max:
            return
        oldest = list(islice(_used, len(_used) - logs_max + 1 + logs_max // 4))
    try:
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
            for _ in pool.map(lambda log: log.let_go(), oldest):
                pass
    except RuntimeError:
        # No thread can be started, as at the end of the program.
        for log in oldest:
            log.let_go()
