"""Writing files so that what was synced survives: append, truncate, rename, remove, sync, lock.

Every change goes through one of these calls, so that a test can stop a writer at each of them. None of them syncs by
itself but those that say so.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Protocol, Self

from sparklog.errors import LockedError, SeglogError, StorageError
from sparklog.storage.local import explained

_POLL_SECONDS = 0.05


class WritableFile(Protocol):
    """An open file that grows at its end."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int: ...

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write at the end; all of it, or an error."""

    def write_at(self, position: int, data: bytes) -> None:
        """Overwrite bytes that are there."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or grow it by zeros."""

    def sync(self) -> None:
        """Return when what was written is on the disk."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class WritableStorage(Protocol):
    """Files and folders that may be changed."""

    def open_for_append(self, path: str) -> WritableFile:
        """Open a file to write at its end, making it where it is not there."""

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in one step, in the place of what has that name."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing where it is not there."""

    def make_folder(self, path: str) -> None:
        """Make one folder; nothing where it is there."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder are on the disk."""

    def lock(self, path: str, timeout_seconds: float) -> WritableFile:
        """Take the lock that a file stands for, as Kafka does; closing the file lets go of it."""


class LocalWritableFile:
    """An open file of this machine; see `WritableFile`."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._end = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise written(error, path) from error

    @property
    def descriptor(self) -> int:
        return self._descriptor

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
            raise written(error, self.path) from error

    def write_at(self, position: int, data: bytes) -> None:
        try:
            while data:
                count = os.pwrite(self._descriptor, data, position)
                position, data = position + count, data[count:]
        except OSError as error:
            raise written(error, self.path) from error

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
            self._end = size_bytes
        except OSError as error:
            raise written(error, self.path) from error

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise written(error, self.path) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class LocalWritableStorage:
    """The file systems of this machine; see `WritableStorage`."""

    def open_for_append(self, path: str) -> WritableFile:
        return LocalWritableFile(path)

    def rename(self, path: str, new_path: str) -> None:
        try:
            Path(path).replace(new_path)
        except OSError as error:
            raise written(error, path) from error

    def remove(self, path: str) -> None:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise written(error, path) from error

    def make_folder(self, path: str) -> None:
        try:
            Path(path).mkdir(exist_ok=True)
        except OSError as error:
            raise written(error, path) from error

    def sync_folder(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise written(error, path) from error

    def lock(self, path: str, timeout_seconds: float) -> WritableFile:
        file = LocalWritableFile(path)
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                if time.monotonic() >= deadline:
                    file.close()
                    raise LockedError(
                        f"{path} is locked by another process: a broker that runs on this directory, which must be "
                        f"stopped first, or another writer, for which {timeout_seconds:g} s were not enough"
                    ) from error
                time.sleep(_POLL_SECONDS)
            else:
                return file


def write_atomically(storage: WritableStorage, path: str, data: bytes) -> None:
    """Put a small file in place so that it is either the old one or the new one, and synced."""
    beside = f"{path}.tmp"
    with storage.open_for_append(beside) as file:
        file.truncate(0)
        file.append(data)
        file.sync()
    storage.rename(beside, path)
    storage.sync_folder(path.rpartition("/")[0])


def written(error: OSError, path: str) -> SeglogError:
    """Say what went wrong with a write, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full" if error.errno == errno.ENOSPC else "the quota is used up"
        return StorageError(f"cannot write {path}: {what}. Nothing of this write is visible; make room and repeat it")
    if error.errno == errno.EROFS:
        return StorageError(f"cannot write {path}: its file system is read-only")
    if isinstance(error, PermissionError):
        return StorageError(f"no permission to write {path}: run as the owner of Kafka's files")
    return explained(error, path)
