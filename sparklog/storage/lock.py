"""Locks files of this machine as Kafka does, and folders among the writers of one process."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from sparklog.errors import LockedError
from sparklog.storage.base import HeldLock
from sparklog.storage.beneath import look, open_folder, open_or_make_file
from sparklog.storage.local import to_write_error
from sparklog.storage.process import ProcessState

_POLL_SECONDS: Final = 0.05
# struct flock of a 64-bit Linux: kind, whence, start, length, process.
_FLOCK: Final = struct.Struct("hhqqi4x")

Identity = tuple[int, int]
"""Device and inode, which no other file or folder has, however the path is spelled."""


@dataclass(eq=False)
class _Holding:
    """A lock of this process, held together by all who share it.

    If the kernel has only POSIX locks, a process loses its lock when it closes any descriptor of the
    file. So none is opened while the lock is held, and if one was opened after all (the path became another name
    of the file meanwhile), it is closed together with the others.
    """

    identity: Identity
    descriptors: list[int]
    is_shared: bool
    holders: int = 1

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


_holdings: dict[Identity, _Holding] = {}
_claims: dict[Identity | str, _Claim] = {}
# A forked child holds none of its parent's locks. Closing the child's descriptors takes nothing from the parent.
_ours = ProcessState(threading.Condition, _holdings, _claims, give_up=lambda inherited: inherited.close())


def lock_file(root: str, path: str, timeout_seconds: float, *, is_shared: bool, queue: str | None) -> HeldLock:
    """Lock a file beneath a root; see `sparklog.storage.base.WritableStorage.lock`."""
    with ExitStack() as waiting:
        return _ProcessLock.taken(root, path, time.monotonic() + timeout_seconds, is_shared, queue, waiting)


def claim_folder(root: str, path: str, spelling: str) -> HeldLock:
    """Claim a folder for one writer of this process; see `sparklog.storage.base.WritableStorage.claim`."""
    return _Claim.made(root, path, spelling)


def claimed_spelling(path: str, identity: Identity | None) -> str | None:
    """Return how the writer that claimed a folder spells its path; None if nobody claimed it."""
    with _ours.lock:
        return _claimed_as(path, identity)


class _ProcessLock:
    """One holder's part in a lock of this process."""

    def __init__(self, holding: _Holding) -> None:
        self._holding: _Holding | None = holding

    @classmethod
    def taken(
        cls, root: str, path: str, deadline: float, is_shared: bool, queue: str | None, waiting: ExitStack
    ) -> Self:
        """Take a lock; ``waiting`` gets the lock of the queue that was held meanwhile."""
        with _ours.lock:
            # Until somebody has waited there is no queue, and the first try needs none.
            is_next = queue is None or not Path(queue).exists()
            while True:
                holding = _held_here(root, path)
                if holding is not None and is_shared and holding.is_shared:
                    holding.holders += 1
                    return cls(holding)
                if (
                    queue is not None
                    and not is_next
                    and (place := cls._tried(root, queue, is_shared=False)) is not None
                ):
                    waiting.enter_context(place)
                    is_next, queue = True, None
                if holding is None and is_next and (taken := cls._tried(root, path, is_shared=is_shared)) is not None:
                    return taken
                is_next = queue is None
                if time.monotonic() >= deadline:
                    raise LockedError(
                        f"{path} is locked by another writer of this process"
                        if holding is not None
                        else f"{path} is locked by another process: a broker that runs on this directory, which must "
                        f"be stopped first, or another writer, which did not finish in time"
                    )
                _ours.lock.wait(_POLL_SECONDS)

    @classmethod
    def _tried(cls, root: str, path: str, *, is_shared: bool) -> Self | None:
        """Take a lock that nobody holds, this process included; return None if somebody does."""
        if _held_here(root, path) is not None or (holding := _locked(root, path, is_shared)) is None:
            return None
        _holdings[holding.identity] = holding
        return cls(holding)

    def close(self) -> None:
        with _ours.lock:
            holding, self._holding = self._holding, None
            if holding is None or _holdings.get(holding.identity) is not holding:
                # Already closed, or the lock of this process's parent.
                return
            holding.holders -= 1
            if not holding.holders:
                # Forgotten first: a child forked in between must not close descriptors that others have opened since.
                del _holdings[holding.identity]
                holding.close()
                _ours.lock.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _held_here(root: str, path: str) -> _Holding | None:
    """Return the lock of this process on a file, under any name."""
    try:
        found = look(root, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise to_write_error(error, path) from error
    return _holdings.get((found.st_dev, found.st_ino))


def _locked(root: str, path: str, is_shared: bool) -> _Holding | None:
    """Open a file and lock it against other processes; return None if one of them holds it."""
    try:
        descriptor = open_or_make_file(root, path)
        found = os.fstat(descriptor)
    except OSError as error:
        raise to_write_error(error, path) from error
    holding = _Holding((found.st_dev, found.st_ino), [descriptor], is_shared)
    here = _holdings.get(holding.identity)
    if here is not None:
        here.descriptors.append(descriptor)
        return None
    try:
        _lock(descriptor)
    except OSError as error:
        holding.close()
        if isinstance(error, BlockingIOError | PermissionError):
            return None
        raise to_write_error(error, path) from error
    return holding


def _lock(descriptor: int) -> None:
    """Lock a file as Kafka does, or raise at once. On Linux, only closing this descriptor releases the lock.

    Such locks and POSIX's exclude each other. Code that copies a log directory within our process opens and closes
    its lock files, too, and would silently release POSIX's. A forked child has the descriptor as well, and closes
    it at once.
    """
    if sys.platform == "linux" and sys.maxsize > 1 << 32:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            # Not on every file system.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
        else:
            return
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(eq=False)
class _Claim:
    """A folder claimed by one writer of this process.

    No descriptor is kept, so that the inode of a folder that was removed meanwhile may become that of another folder.
    Linux prevents this while the writer has files of the folder open; otherwise the other folder is refused until the
    writer has closed, because it might also be the claimed folder under a new name.
    """

    path: str
    spelling: str
    identity: Identity

    @classmethod
    def made(cls, root: str, path: str, spelling: str) -> Self:
        try:
            descriptor = open_folder(root, path)
        except OSError as error:
            raise to_write_error(error, path) from error
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        claim = cls(path, spelling, (found.st_dev, found.st_ino))
        with _ours.lock:
            other = _claimed_as(path, claim.identity)
            if other is None:
                _claims[path] = _claims[claim.identity] = claim
                return claim
        told = spelling if other == spelling else f"{spelling} is the folder {other}, which"
        raise LockedError(f"{told} is open in this process already")

    def close(self) -> None:
        with _ours.lock:
            for key in (self.path, self.identity):
                if _claims.get(key) is self:
                    del _claims[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _claimed_as(path: str, identity: Identity | None) -> str | None:
    """Return how the claimant of a folder, or of an earlier folder at its path, spells it; None if there is none."""
    found = _claims.get(path) or (None if identity is None else _claims.get(identity))
    return None if found is None else found.spelling
