"""Writing files so that what was synced survives: append, truncate, rename, remove, sync, lock.

Every change goes through one of these calls, so that a test can stop a writer at each of them. None of them syncs by
itself but those that say so.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from sparklog.errors import LockedError, SeglogError, StorageError
from sparklog.storage.base import Storage
from sparklog.storage.local import LocalStorage, to_storage_error

_POLL_SECONDS: Final = 0.05
_COPY_BYTES_MAX: Final = 1 << 26
_SYNCS_AT_ONCE: Final = 16
# struct flock of a 64-bit Linux: kind, whence, start, length, process.
_FLOCK: Final = struct.Struct("hhqqi4x")


class WritableFile(Protocol):
    """An open file that grows at its end."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int: ...

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write at the end; all of it, or an error."""

    def append_from(self, path: str, position: int, length_bytes: int) -> None:
        """Write a part of another file at the end; `StorageError` where that file is shorter."""

    def write_at(self, position: int, data: bytes) -> None:
        """Overwrite bytes that are there."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or grow it by zeros."""

    def preallocate(self, size_bytes: int) -> None:
        """Give the file that size, by zeros, if it is smaller; its end, for `append`, stays where it is."""

    def begin_sync(self, position: int) -> None:
        """Have what was written from a position on go to the disk, without waiting for it, where that can be."""

    def sync(self) -> None:
        """Return when what was written is on the disk."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class HeldLock(Protocol):
    """A lock that is held until it is closed."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class WritableStorage(Storage, Protocol):
    """Files and folders that may be read and changed."""

    def open_for_append(self, path: str) -> WritableFile:
        """Open a file to write at its end, making it where it is not there."""

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in one step, in the place of what has that name."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing where it is not there."""

    def make_folder(self, path: str) -> None:
        """Make a folder, and those that it is in; nothing where it is there."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder; nothing where it is not there, or not empty."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder are on the disk."""

    def sync_files(self, paths: Collection[str]) -> None:
        """Return when what was written to these files is on the disk: in any order, and as many at once as is fast."""

    def lock(self, path: str, timeout_seconds: float, *, is_shared: bool = False) -> HeldLock:
        """Take the lock that a file stands for, as Kafka does; closing it lets go of it.

        Other processes are always kept out, those that were forked from this one included. In this process, those who
        ask with ``is_shared`` hold it together, however they spell the path.
        """

    def claim(self, path: str, spelling: str) -> HeldLock:
        """Keep others of this process from claiming the same folder, until it is closed.

        Parameters
        ----------
        path : str
            The folder, which is there.
        spelling : str
            What the caller calls it, for errors.

        Raises
        ------
        LockedError
            It is claimed already, under whatever spelling.
        """

    def claimed_as(self, path: str) -> str | None:
        """Return what the one of this process calls a folder who has claimed it; None where nobody has."""


class LocalWritableFile:
    """An open file of this machine; see `WritableFile`."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._end = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise to_write_error(error, path) from error

    def size_bytes(self) -> int:
        return self._end

    def append(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        try:
            while len(rest):
                count = os.pwrite(self._descriptor, rest, self._end)
                self._end += count
                rest = rest[count:]
        except OSError as error:
            raise to_write_error(error, self.path) from error

    def append_from(self, path: str, position: int, length_bytes: int) -> None:
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise to_storage_error(error, path) from error
        try:
            while length_bytes:
                count = _copied(source, position, self._descriptor, self._end, min(length_bytes, _COPY_BYTES_MAX))
                if not count:
                    raise StorageError(f"{path} ends {length_bytes} bytes early: it was cut since it was written")
                self._end, position, length_bytes = self._end + count, position + count, length_bytes - count
        except OSError as error:
            raise to_write_error(error, self.path) from error
        finally:
            os.close(source)

    def write_at(self, position: int, data: bytes) -> None:
        try:
            while data:
                count = os.pwrite(self._descriptor, data, position)
                position, data = position + count, data[count:]
        except OSError as error:
            raise to_write_error(error, self.path) from error

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
            self._end = size_bytes
        except OSError as error:
            raise to_write_error(error, self.path) from error

    def preallocate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, max(size_bytes, self._end))
        except OSError as error:
            raise to_write_error(error, self.path) from error

    def begin_sync(self, position: int) -> None:
        # Linux begins to write what it is told that nobody needs, and keeps it in memory until it has.
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, position, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise to_write_error(error, self.path) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class LocalWritableStorage(LocalStorage):
    """The file systems of this machine; see `WritableStorage`."""

    def open_for_append(self, path: str) -> WritableFile:
        return LocalWritableFile(path)

    def rename(self, path: str, new_path: str) -> None:
        try:
            Path(path).replace(new_path)
        except OSError as error:
            raise to_write_error(error, path) from error

    def remove(self, path: str) -> None:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise to_write_error(error, path) from error

    def make_folder(self, path: str) -> None:
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise to_write_error(error, path) from error

    def remove_folder(self, path: str) -> None:
        try:
            Path(path).rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise to_write_error(error, path) from error

    def sync_folder(self, path: str) -> None:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def sync_files(self, paths: Collection[str]) -> None:
        # Each waits for the disk, and a file system makes one wait of many that come together.
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
            for _ in pool.map(_sync, paths):
                pass

    def lock(self, path: str, timeout_seconds: float, *, is_shared: bool = False) -> HeldLock:
        return _ProcessLock.taken(path, time.monotonic() + timeout_seconds, is_shared)

    def claim(self, path: str, spelling: str) -> HeldLock:
        return _Claim.made(path, spelling)

    def claimed_as(self, path: str) -> str | None:
        found = self.identity(path)
        with _changed:
            return _claimed_as(path, found)


def _sync(path: str, flags: int = os.O_RDWR) -> None:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise to_write_error(error, path) from error


Identity = tuple[int, int]
"""Device and inode: what tells a file or folder from every other, however its path is spelled."""


@dataclass(eq=False)
class _Holding:
    """A lock of this process, which those who share it hold together.

    Where the kernel has no other than POSIX's, it takes a lock from the process when any descriptor of the file is
    closed. So none is opened while the lock is held, and where one was all the same (the path came to be another name
    of the file meanwhile), it is closed with the others.
    """

    identity: Identity
    descriptors: list[int]
    is_shared: bool
    holders: int = 1

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


_holdings: dict[Identity, _Holding] = {}
_claims: dict[Identity, _Claim] = {}
_changed = threading.Condition()


def _begin_in_child() -> None:
    """Give up what a forked child has of its parent's locks, which are not the child's.

    That the child closes its descriptors takes nothing from the parent. The condition may have been another thread's.
    """
    global _changed
    _changed = threading.Condition()
    inherited: list[_Holding | _Claim] = [*_holdings.values(), *_claims.values()]
    _holdings.clear()
    _claims.clear()
    for each in inherited:
        each.close()


def in_forked_child(action: Callable[[], None]) -> None:
    """Have something done at the beginning of every process that is forked from this one."""
    os.register_at_fork(after_in_child=action)


def process_id() -> int:
    return os.getpid()


in_forked_child(_begin_in_child)


class _ProcessLock:
    """One holder's part in a lock of this process."""

    def __init__(self, holding: _Holding) -> None:
        self._holding: _Holding | None = holding

    @classmethod
    def taken(cls, path: str, deadline: float, is_shared: bool) -> Self:
        with _changed:
            while True:
                holding = _held_here(path)
                if holding is None and (holding := _locked(path, is_shared)) is not None:
                    _holdings[holding.identity] = holding
                    return cls(holding)
                if holding is not None and is_shared and holding.is_shared:
                    holding.holders += 1
                    return cls(holding)
                if time.monotonic() >= deadline:
                    raise LockedError(
                        f"{path} is locked by another writer of this process"
                        if holding is not None
                        else f"{path} is locked by another process: a broker that runs on this directory, which must "
                        f"be stopped first, or another writer, which did not finish in time"
                    )
                _changed.wait(_POLL_SECONDS)

    def close(self) -> None:
        with _changed:
            holding, self._holding = self._holding, None
            if holding is None or _holdings.get(holding.identity) is not holding:
                # Closed before, or the lock of the process that this one was forked from.
                return
            holding.holders -= 1
            if not holding.holders:
                # Forgotten first: whoever is forked in between must not close what others have opened since.
                del _holdings[holding.identity]
                holding.close()
                _changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _held_here(path: str) -> _Holding | None:
    """Return the lock of this process on a file, whatever it was called when it was taken."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise to_write_error(error, path) from error
    return _holdings.get((found.st_dev, found.st_ino))


def _locked(path: str, is_shared: bool) -> _Holding | None:
    """Open a file and lock it against other processes; None where one of them has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
    """Lock a file as Kafka does, or raise at once; on Linux by a lock that only its own descriptor can lose.

    Such a lock and POSIX's keep each other out. Whoever copies a log directory within our process opens and closes
    its locks, too, and would take POSIX's from us without a word. A forked child has the descriptor as well, and closes
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


class _Claim:
    """A folder that is one's own among those of this process; an open descriptor keeps its inode from being reused."""

    def __init__(self, path: str, spelling: str, identity: Identity, descriptor: int) -> None:
        self.path, self.spelling, self.identity = path, spelling, identity
        self._descriptor = descriptor

    @classmethod
    def made(cls, path: str, spelling: str) -> Self:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise to_write_error(error, path) from error
        found = os.fstat(descriptor)
        claim = cls(path, spelling, (found.st_dev, found.st_ino), descriptor)
        with _changed:
            other = _claimed_as(path, claim.identity)
            if other is None:
                _claims[claim.identity] = claim
                return claim
        claim.close()
        told = spelling if other == spelling else f"{spelling} is the folder {other}, which"
        raise LockedError(f"{told} is open in this process already")

    def close(self) -> None:
        with _changed:
            if _claims.get(self.identity) is self:
                del _claims[self.identity]
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _claimed_as(path: str, identity: Identity | None) -> str | None:
    """Return what a folder is called by who has claimed it, or what was at its path before; None where nobody has."""
    return next((each.spelling for each in _claims.values() if each.identity == identity or each.path == path), None)


def _copied(source: int, position: int, target: int, target_position: int, length_bytes: int) -> int:
    """Copy bytes from file to file, in the kernel where it can; how many."""
    try:
        return os.copy_file_range(source, target, length_bytes, position, target_position)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    return os.pwrite(target, os.pread(source, min(length_bytes, 1 << 20), position), target_position)


def write_atomically(storage: WritableStorage, path: str, data: bytes) -> None:
    """Put a small file in place so that it is either the old one or the new one, and synced."""
    beside = f"{path}.tmp"
    with storage.open_for_append(beside) as file:
        file.truncate(0)
        file.append(data)
        file.sync()
    storage.rename(beside, path)
    storage.sync_folder(path.rpartition("/")[0])


def to_write_error(error: OSError, path: str) -> SeglogError:
    """Say what went wrong with a write, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full" if error.errno == errno.ENOSPC else "the quota is used up"
        return StorageError(f"cannot write {path}: {what}; make room")
    if error.errno == errno.EFBIG:
        return StorageError(f"cannot write {path}: it would be larger than a file may be for this user (ulimit -f)")
    if error.errno == errno.EROFS:
        return StorageError(f"cannot write {path}: its file system is read-only")
    if isinstance(error, PermissionError):
        return StorageError(f"no permission to write {path}: run as the owner of Kafka's files")
    return to_storage_error(error, path)
