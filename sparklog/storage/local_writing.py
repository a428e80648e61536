"""Changes files of this machine so that synced bytes survive a crash.

Every change goes through one of these calls, so that a test can stop a writer at each. Only the calls that say so sync.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import ClassVar, Final

from sparklog.errors import StorageError
from sparklog.storage import beneath
from sparklog.storage.base import Capabilities, HeldLock, WritableFile
from sparklog.storage.local import LocalStorage, OpenDescriptor, to_storage_error, to_write_error
from sparklog.storage.lock import claim_folder, claimed_spelling, lock_file
from sparklog.storage.mounts import refuse_unfit
from sparklog.storage.process import files_max

_COPY_BYTES_MAX: Final = 1 << 26
_SYNCS_AT_ONCE: Final = 16
_OPEN_AT_ONCE_MAX: Final = 256
_OPEN_SHARE: Final = 8
"""The share of the files that a process may have open, as a divisor."""


class LocalWritableFile(OpenDescriptor):
    """An open file of this machine; see `WritableFile`."""

    def __init__(self, path: str, root: str = "", *, is_new: bool = False, like: str = "") -> None:
        self.path, self._root = path, root
        try:
            self._descriptor = beneath.make_file(root, path, like) if is_new else beneath.open_or_make_file(root, path)
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
            source = beneath.open_file(self._root, path, os.O_RDONLY)
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
        # Told that nobody needs these pages, Linux begins to write them, and keeps them in memory until it has.
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, position, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise to_write_error(error, self.path) from error


class LocalWritableStorage(LocalStorage):
    """The file systems of this machine; see `sparklog.storage.base.WritableStorage`."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        can_lock=True, can_rename=True, can_overwrite=True, can_append=True
    )

    def open_for_append(self, path: str) -> WritableFile:
        return LocalWritableFile(path, self.root)

    def create(self, path: str, like: str = "") -> WritableFile:
        return LocalWritableFile(path, self.root, is_new=True, like=like)

    def rename(self, path: str, new_path: str) -> None:
        try:
            beneath.rename(self.root, path, new_path)
        except OSError as error:
            raise to_write_error(error, path) from error

    def remove(self, path: str) -> None:
        try:
            beneath.remove(self.root, path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise to_write_error(error, path) from error

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        try:
            with beneath.within(self.root, path) as (name, folder):
                os.utime(name, ns=(modified_ns, modified_ns), dir_fd=folder, follow_symlinks=not self.root)
        except OSError as error:
            raise to_write_error(error, path) from error

    def make_folder(self, path: str) -> None:
        try:
            beneath.make_folders(self.root, path)
        except OSError as error:
            raise to_write_error(error, path) from error

    def keeps_owner(self, path: str) -> bool:
        try:
            return os.geteuid() in (0, beneath.look("", path).st_uid)
        except OSError as error:
            raise to_storage_error(error, path) from error

    def remove_folder(self, path: str) -> None:
        try:
            with beneath.within(self.root, path) as (name, folder):
                os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise to_write_error(error, path) from error

    def sync_folder(self, path: str) -> None:
        _sync(path, lambda path: beneath.open_folder(self.root, path))

    def sync_files(self, paths: Collection[str]) -> None:
        _sync_all(paths, lambda path: beneath.open_file(self.root, path, os.O_RDWR))

    def sync_folders(self, paths: Collection[str]) -> None:
        _sync_all(paths, lambda path: beneath.open_folder(self.root, path))

    def lock(self, path: str, timeout_seconds: float, *, is_shared: bool = False, queue: str | None = None) -> HeldLock:
        # Every writer locks its directory before it changes anything there.
        refuse_unfit(path.rpartition("/")[0] or "/")
        return lock_file(self.root, path, timeout_seconds, is_shared=is_shared, queue=queue)

    def claim(self, path: str, spelling: str) -> HeldLock:
        return claim_folder(self.root, path, spelling)

    def claimed_as(self, path: str) -> str | None:
        return claimed_spelling(path, self.identity(path))


def _sync_all(paths: Collection[str], opened: Callable[[str], int]) -> None:
    """Sync files or folders in parallel: the disk serves waiting syncs together."""
    if len(paths) < 2:
        for path in paths:
            _sync(path, opened)
        return
    waiting, at_once = list(paths), max(1, min(_OPEN_AT_ONCE_MAX, files_max() // _OPEN_SHARE))
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
        for first in range(0, len(waiting), at_once):
            with ExitStack() as held:
                # They are opened here: threads that open them wait for each other's turn in the interpreter.
                files = [(path, _held(path, opened, held)) for path in waiting[first : first + at_once]]
                list(pool.map(_sync_open, (files[row::_SYNCS_AT_ONCE] for row in range(_SYNCS_AT_ONCE))))


def _held(path: str, opened: Callable[[str], int], held: ExitStack) -> int:
    """Open a file or folder, and leave it to others to close it."""
    try:
        descriptor = opened(path)
    except OSError as error:
        raise to_write_error(error, path) from error
    held.callback(os.close, descriptor)
    return descriptor


def _sync_open(files: Collection[tuple[str, int]]) -> None:
    for path, descriptor in files:
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise to_write_error(error, path) from error


def _sync(path: str, opened: Callable[[str], int]) -> None:
    with ExitStack() as held:
        _sync_open([(path, _held(path, opened, held))])


def _copied(source: int, position: int, target: int, target_position: int, length_bytes: int) -> int:
    """Copy bytes from file to file, in the kernel if possible; return how many."""
    try:
        return os.copy_file_range(source, target, length_bytes, position, target_position)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    return os.pwrite(target, os.pread(source, min(length_bytes, 1 << 20), position), target_position)
