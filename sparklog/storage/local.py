"""Reads files of this machine, by POSIX calls.

Files are read with ``pread`` and not mapped: the pages of a map die under the reader when a broker cuts the file (a
follower truncates its log, an index is trimmed when its segment rolls), and that ends the process with SIGBUS. A read
past the end is merely short. The copy into our own buffer costs about a fifth of what checking a CRC-32C does.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Self

from sparklog.errors import DiskError, ForeignNameError, PathNotFoundError, SeglogError, StorageError
from sparklog.storage.base import Capabilities, Entry, Name, Stamp
from sparklog.storage.beneath import kind_of, open_file
from sparklog.storage.process import files_max

_READ_BYTES_MAX: Final = 1 << 30
_OF_DISK: Final = (errno.EIO, errno.ENODATA, errno.EILSEQ, errno.EREMOTEIO, errno.EBADMSG, errno.EUCLEAN)
"""Errors of a disk, or of a file system whose checksum does not match, which concern some bytes only."""


class OpenDescriptor:
    """A descriptor of this process. Closing it again does nothing."""

    _descriptor: int

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class LocalFile(OpenDescriptor):
    """An open file; see `sparklog.storage.base.ReadableFile`."""

    def __init__(self, path: str, root: str = "") -> None:
        self.path = path
        try:
            self._descriptor = open_file(root, path, os.O_RDONLY)
        except ForeignNameError as error:
            if root:
                raise
            raise PathNotFoundError(f"not a regular file: {path}") from error
        except OSError as error:
            # Links in a circle lead to no file.
            if error.errno == errno.ELOOP:
                raise PathNotFoundError(f"{to_storage_error(error, path).message}: not a regular file") from error
            raise to_storage_error(error, path) from error

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def modified_ns(self) -> int:
        return os.fstat(self._descriptor).st_mtime_ns

    def read(self, position: int, length_bytes: int) -> memoryview:
        try:
            data = os.pread(self._descriptor, min(length_bytes, _READ_BYTES_MAX), position)
            if len(data) == length_bytes:
                return memoryview(data)
            pieces = [data]
            read_bytes = len(data)
            while data and read_bytes < length_bytes:
                data = os.pread(
                    self._descriptor, min(length_bytes - read_bytes, _READ_BYTES_MAX), position + read_bytes
                )
                pieces.append(data)
                read_bytes += len(data)
        except OSError as error:
            raise to_storage_error(error, self.path) from error
        return memoryview(b"".join(pieces))

    def read_into(self, position: int, room: memoryview) -> int:
        read_bytes = 0
        try:
            while read_bytes < len(room):
                count = os.preadv(self._descriptor, [room[read_bytes:]], position + read_bytes)
                if not count:
                    break
                read_bytes += count
        except OSError as error:
            raise to_storage_error(error, self.path) from error
        return read_bytes

    def data_position(self, position: int) -> int | None:
        if position >= self.size_bytes():
            return None
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return position


@dataclass(frozen=True)
class LocalStorage:
    """The file systems of this machine, read only; see `sparklog.storage.base.Storage`.

    Attributes
    ----------
    root : str
        The folder that all paths must be beneath, without links; empty if paths are the user's.
    """

    root: str = ""

    scheme: ClassVar[str] = "file"
    capabilities: ClassVar[Capabilities] = Capabilities()

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        try:
            with os.scandir(path) as found:
                items = found if wanted is None else [item for item in found if wanted(item.name)]
                return sorted(entry for item in items if (entry := _entry(item)) is not None)
        except OSError as error:
            raise to_storage_error(error, path) from error

    def names(self, path: str) -> list[Name]:
        try:
            with os.scandir(path) as found:
                return sorted(Name(item.name, _is_folder(item)) for item in found)
        except OSError as error:
            raise to_storage_error(error, path) from error

    def is_folder(self, path: str) -> bool:
        try:
            return Path(path).is_dir()
        except OSError as error:
            raise to_storage_error(error, path) from error

    def foresee(self, path: str, names: Sequence[str]) -> None:
        """Do nothing: a folder is listed as fast later."""

    def pinned(self, folders: Collection[str]) -> Self:  # noqa: ARG002 - as above
        return self

    def beneath(self, path: str) -> Self:
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__, root=path)
        return found

    def open(self, path: str) -> LocalFile:
        return LocalFile(path, self.root)

    def read_small(self, path: str) -> bytes | None:
        try:
            with self.open(path) as file:
                return bytes(file.read(0, file.size_bytes()))
        except PathNotFoundError:
            return None

    def absolute(self, path: str) -> str:
        try:
            absolute = Path(path).absolute()
        except OSError as error:
            raise to_storage_error(error, path) from error
        # The meaning of ".." is not in the path: it may follow a link.
        plain = os.path.realpath(absolute) if ".." in absolute.parts else str(absolute)
        return f"/{plain.lstrip('/')}"

    def real(self, path: str) -> str:
        return f"/{os.path.realpath(path).lstrip('/')}"

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)  # noqa: PTH114 - a commit asks it of thousands of folders, as below

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self.stamp(path)
        return None if found is None else found.identity

    def stamp(self, path: str) -> Stamp | None:
        try:
            found = os.stat(path)  # noqa: PTH116 - a stream asks it of thousands of files, and a Path doubles its time
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise to_storage_error(error, path) from error
        return _stamp(found)


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp((found.st_dev, found.st_ino), found.st_mtime_ns, found.st_size)


def _is_folder(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_dir()
    except OSError:
        # A link to itself is no folder.
        return False


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """Describe a name; None if it vanished after the folder was listed."""
    try:
        found = item.stat()
    except FileNotFoundError:
        is_link = item.is_symlink()
        return Entry(item.name, False, False, 0, "a symbolic link that leads nowhere") if is_link else None
    except OSError as error:
        # One link that cannot be followed must not make a whole folder unreadable.
        where = "in a circle" if error.errno == errno.ELOOP else "where nothing can be read"
        return Entry(item.name, False, False, 0, f"a symbolic link that leads {where}")
    if stat.S_ISREG(found.st_mode):
        return Entry(item.name, False, True, found.st_size, "", item.is_symlink(), _stamp(found))
    if stat.S_ISDIR(found.st_mode):
        return Entry(item.name, True, False, 0, is_link=item.is_symlink())
    return Entry(item.name, False, False, 0, kind_of(found.st_mode))


def to_storage_error(error: OSError, path: str) -> SeglogError:
    """Translate an error of the operating system into one of sparklog's."""
    if isinstance(error, FileNotFoundError):
        return PathNotFoundError(f"no such file or folder: {path}")
    if isinstance(error, PermissionError):
        return StorageError(f"no permission to read {path}: run as the owner of Kafka's files, or copy them")
    if isinstance(error, NotADirectoryError):
        return StorageError(f"not a folder: {path}")
    if error.errno == errno.ELOOP:
        return StorageError(f"cannot read {path}: its links lead round in a circle; remove the link")
    if error.errno == errno.EMFILE:
        return StorageError(
            f"cannot open {path}: this process may have {files_max()} files open, and has as many. Raise that limit "
            f"(ulimit -n), or keep fewer files open"
        )
    if error.errno == errno.ENFILE:
        return StorageError(
            f"cannot open {path}: this machine has as many files open as it may. Raise its limit (fs.file-max), or end "
            f"programs that have many files open"
        )
    kind = DiskError if error.errno in _OF_DISK else StorageError
    return kind(f"cannot read {path}: {error.strerror}")


def to_write_error(error: OSError, path: str) -> SeglogError:
    """Translate the error of a failed write, and say what to do."""
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
