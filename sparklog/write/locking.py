"""Decides which process and which thread may change the logs of a directory.

Kafka's own lock, ``.lock``, keeps a broker out while we write, and us out while a broker runs: it makes no sense to
wait for a broker. Before that, our writers wait for each other by a lock that no broker knows, ``seglog.lock``. They
take turns by the lock of ``seglog.queue``, which also tells a writer with much to do that it is
another's turn.

POSIX gives these locks to a process, and takes them away when it closes any descriptor of the file. Except on
Linux, nothing but the storage's ``lock`` may open these files in a process that writes. A forked process has none of
its parent's locks.

Within a process, a partition's folder has one writer at a time, and is known by its device and inode, however its path
is spelled. A folder that is a link is not written to: the directories of the link and of the folder
have locks of their own, and a broker or a writer would hold only one of them. Folders that one file system shows in
two places (a bind mount) cannot be recognised between processes: write to one of the places only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.errors import BrokerRunningError, InvalidOptionError, LockedError
from sparklog.log import files
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.process import ProcessState

_log = logging.getLogger("sparklog")
_warned: set[str] = set()
_BROKER_TIMEOUT_SECONDS: Final = 0.5

# How many folders of a log directory are open in this process, by the directory's identity. To open a folder
# or change the marker of its directory, hold the lock.
_open_in: dict[tuple[int, int], int] = {}
_ours = ProcessState(threading.RLock, _open_in)


@contextmanager
def hold(directory: LogDirectory, timeout_seconds: float, *, is_shared: bool = False) -> Iterator[None]:
    """Keep brokers and other writers out of a log directory.

    Parameters
    ----------
    timeout_seconds : float
        How long to wait for other sparklog writers.
    is_shared : bool
        Share the lock with others of this process that ask for the same.

    Raises
    ------
    BrokerRunningError
        A broker runs on the directory.
    LockedError
        Other writers held it for longer than that.
    """
    refuse_running_broker(directory)
    try:
        ours = directory.writable.lock(
            directory.file(files.WRITERS_LOCK),
            timeout_seconds,
            is_shared=is_shared,
            queue=directory.file(files.WRITERS_QUEUE),
        )
    except LockedError as error:
        raise LockedError(
            f"another writer holds {directory.path}, and did not finish in {timeout_seconds:g} s. Nothing was written; "
            f"repeat it, or wait longer for the lock"
        ) from error
    with ours, _brokers(directory, is_shared):
        _warn_of_owner(directory)
        yield


def is_waited_for(directory: LogDirectory) -> bool:
    """Return whether another writer waits for a log directory that this process holds, and is next in line."""
    if not _has(directory, files.WRITERS_QUEUE):
        return False
    try:
        directory.writable.lock(directory.file(files.WRITERS_QUEUE), timeout_seconds=0.0).close()
    except LockedError:
        return True
    return False


def _warn_of_owner(directory: LogDirectory) -> None:
    """Warn once about a directory whose owner will not own the files made in it."""
    if directory.path not in _warned and not directory.writable.keeps_owner(directory.path):
        _warned.add(directory.path)
        _log.warning(
            "%s belongs to another user, who may be unable to open new files there, as a broker must for its new "
            "active segments: run as that user or as root, or give that user the files",
            directory.path,
        )


def refuse_running_broker(directory: LogDirectory) -> None:
    """Raise `BrokerRunningError` if a broker runs on a log directory, without leaving a trace in it.

    If another sparklog writer holds it, no broker runs.
    """
    if not _has(directory, files.LOCK):
        return
    if not _has(directory, files.WRITERS_LOCK):
        with _brokers(directory, is_shared=True):
            pass
    else:
        try:
            ours = directory.writable.lock(directory.file(files.WRITERS_LOCK), timeout_seconds=0.0, is_shared=True)
        except LockedError:
            return
        with ours, _brokers(directory, is_shared=True):
            pass


@contextmanager
def _brokers(directory: LogDirectory, is_shared: bool) -> Iterator[None]:
    try:
        held = directory.writable.lock(directory.file(files.LOCK), _BROKER_TIMEOUT_SECONDS, is_shared=is_shared)
    except LockedError as error:
        raise BrokerRunningError(
            f"a broker runs on {directory.path}: it holds {files.LOCK}. Nothing was written; stop it first"
        ) from error
    with held:
        yield


def refuse_link(folder: PartitionFolder) -> None:
    """Raise `InvalidOptionError` if the folder of a partition is a link to one."""
    storage, path = folder.storage, folder.location
    if storage.is_link(path):
        raise InvalidOptionError(
            f"{path} is a link to {storage.real(path)}: write to that folder, since only the lock of its own directory "
            f"keeps brokers and other writers out"
        )


def refuse_claimed(folder: PartitionFolder) -> None:
    """Raise if a folder to write to is a link, or is open in a `PartitionLog` of this process."""
    refuse_link(folder)
    refuse_open(folder, folder.location)


def refuse_open(folder: PartitionFolder, spelling: str) -> None:
    """Raise `LockedError` if a `PartitionLog` of this process has a folder open, and name its spelling of the path."""
    other = folder.writable.claimed_as(folder.location)
    if other is not None:
        same = "" if other == spelling else f" is the folder {other}, which"
        raise LockedError(f"{spelling}{same} is open in this process already")


@contextmanager
def opening() -> Iterator[None]:
    """Allow one thread at a time to open a folder, since opening changes files of the log directory."""
    with _ours.lock:
        yield


def claim(folder: PartitionFolder, spelling: str) -> Callable[[], None]:
    """Keep other writers of this process out of an existing folder, and hide the marker of a clean shutdown.

    Parameters
    ----------
    folder : PartitionFolder
        The folder, with a path without links.
    spelling : str
        The path as the caller spells it, for errors.

    Returns
    -------
    callable
        Releases the folder.

    Raises
    ------
    LockedError
        It is open in this process, under any name.
    """
    storage = folder.writable
    with _ours.lock:
        claimed, identity = storage.claim(folder.location, spelling), storage.identity(folder.directory.path)
        if identity is not None:
            _open_in[identity] = _open_in.get(identity, 0) + 1

    def release() -> None:
        with _ours.lock:
            claimed.close()
            if identity in _open_in:
                _open_in[identity] -= 1
                if not _open_in[identity]:
                    del _open_in[identity]

    return release


def _is_last_in(directory: LogDirectory) -> bool:
    """Return whether at most one folder of a log directory is open in this process."""
    identity = directory.storage.identity(directory.path)
    return identity is None or _open_in.get(identity, 0) <= 1


def _has(directory: LogDirectory, name: str) -> bool:
    return directory.storage.identity(directory.file(name)) is not None


def hide_marker(directory: LogDirectory) -> None:
    """Hide the marker of a broker's clean shutdown, so that the logs do not count as clean if this process dies."""
    with _ours.lock:
        if _has(directory, files.CLEAN_SHUTDOWN):
            directory.writable.rename(directory.file(files.CLEAN_SHUTDOWN), directory.file(files.MARKER_OF_WRITER))
        elif _is_last_in(directory):
            # Left by a writer that died.
            forget_marker(directory)


def show_marker(directory: LogDirectory) -> None:
    """Put the marker back, unless other writers still work."""
    with _ours.lock:
        if _has(directory, files.MARKER_OF_WRITER) and _is_last_in(directory):
            directory.writable.rename(directory.file(files.MARKER_OF_WRITER), directory.file(files.CLEAN_SHUTDOWN))
            directory.writable.sync_folder(directory.path)


def forget_marker(directory: LogDirectory) -> None:
    """Remove the hidden marker, since some logs are no longer clean."""
    directory.writable.remove(directory.file(files.MARKER_OF_WRITER))
