"""A storage in memory that stops at its n-th change, is full, or loses what was not synced, where it is told to.

A file is what its name leads to; its bytes are on the disk once it is synced, and its name once its folder is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Self

from sparklog.errors import ForeignNameError, LockedError, PathNotFoundError, StorageError
from sparklog.storage.base import Capabilities, Entry, Name, Stamp

# No disk has such a number: what is known of a folder of one storage is not taken for that of another.
_devices = count(-1, -1)


class Stopped(BaseException):
    """The process is dead."""


@dataclass(eq=False)
class _File:
    number: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    modified: int = 0


@dataclass(eq=False)
class _Folder:
    number: int
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)


class MemoryFile:
    """An open file, to be read and to be written."""

    def __init__(self, storage: MemoryStorage, path: str, file: _File) -> None:
        self.path, self._storage, self._file, self._end = path, storage, file, len(file.data)

    def size_bytes(self) -> int:
        return len(self._file.data)

    def modified_ns(self) -> int:
        return self._file.modified

    def read(self, position: int, length_bytes: int) -> memoryview:
        return memoryview(bytes(self._file.data[position : position + length_bytes]))

    def read_into(self, position: int, room: memoryview) -> int:
        data = self.read(position, len(room))
        room[: len(data)] = data
        return len(data)

    def data_position(self, position: int) -> int | None:
        return position if position < len(self._file.data) else None

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class MemoryWritableFile(MemoryFile):
    """An open file that grows at its end; what is made longer beforehand is no part of it yet."""

    def size_bytes(self) -> int:
        return self._end

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._storage.change("append", self.path, needs_room=True)
        self._file.data[self._end : self._end + len(data)] = data
        self._file.modified += 1
        self._end += len(data)

    def append_from(self, path: str, position: int, length_bytes: int) -> None:
        with self._storage.open(path) as source:
            data = source.read(position, length_bytes)
        if len(data) < length_bytes:
            raise StorageError(f"{path} ends {length_bytes - len(data)} bytes early: it was cut since it was written")
        self.append(data)

    def write_at(self, position: int, data: bytes) -> None:
        self._storage.change("write_at", self.path)
        self._file.data[position : position + len(data)] = data
        self._file.modified += 1

    def truncate(self, size_bytes: int) -> None:
        self._storage.change("truncate", self.path)
        self._file.data[:] = self._file.data[:size_bytes].ljust(size_bytes, b"\0")
        self._file.modified += 1
        self._end = size_bytes

    def preallocate(self, size_bytes: int) -> None:
        self._storage.change("preallocate", self.path, needs_room=True)
        self._file.data[:] = self._file.data.ljust(size_bytes, b"\0")

    def begin_sync(self, position: int) -> None:
        pass

    def sync(self) -> None:
        self._storage.change("sync", self.path)
        self._file.synced = bytes(self._file.data)


class _Held:
    def __init__(self, holders: dict[int, list[_Held]], number: int, spelling: str, is_shared: bool) -> None:
        self.spelling, self.is_shared, self._holders, self._number = spelling, is_shared, holders, number
        holders.setdefault(number, []).append(self)

    def close(self) -> None:
        held = self._holders.get(self._number, [])
        if self in held:
            held.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class MemoryStorage:
    """Files and folders in memory.

    Attributes
    ----------
    changes : list of str
        What was done, in order.
    stop_at, full_at : int or None
        The number of the change at which the process dies, and from which on there is no room.
    """

    scheme = "memory"
    capabilities = Capabilities(can_lock=True, can_rename=True, can_overwrite=True, can_append=True)

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.stop_at: int | None = None
        self.full_at: int | None = None
        self._device = next(_devices)
        self._numbers = count(1)
        self._root = _Folder(0)
        self._locks: dict[int, list[_Held]] = {}
        self._claims: dict[int, list[_Held]] = {}

    def change(self, what: str, path: str, *, needs_room: bool = False) -> None:
        """Count a change; raise where it is the one at which to fail."""
        if self.stop_at is not None and len(self.changes) >= self.stop_at:
            raise Stopped
        self.changes.append(f"{what} {path}")
        if self.full_at is not None and len(self.changes) >= self.full_at and needs_room:
            raise StorageError(f"cannot write {path}: the disk is full; make room")

    def lose_unsynced(self) -> None:
        """Make everything what is there when the power is back."""
        self.stop_at = self.full_at = None
        self._locks.clear()
        self._claims.clear()
        folders = [self._root]
        for folder in folders:
            folder.names = dict(folder.synced)
            for found in folder.names.values():
                if isinstance(found, _Folder):
                    folders.append(found)
                else:
                    found.data = bytearray(found.synced)

    def _find(self, path: str) -> _File | _Folder | None:
        found: _File | _Folder | None = self._root
        for name in self.absolute(path).strip("/").split("/"):
            if name:
                found = found.names.get(name) if isinstance(found, _Folder) else None
        return found

    def _folder(self, path: str) -> _Folder:
        found = self._find(path)
        if found is None:
            raise PathNotFoundError(f"no such file or folder: {path}")
        if isinstance(found, _File):
            raise StorageError(f"not a folder: {path}")
        return found

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        names = self._folder(path).names.items()
        return sorted(
            Entry(name, True, False, 0) if isinstance(found, _Folder) else Entry(name, False, True, len(found.data))
            for name, found in names
            if wanted is None or wanted(name)
        )

    def names(self, path: str) -> list[Name]:
        return [Name(entry.name, entry.is_folder) for entry in self.entries(path)]

    def is_folder(self, path: str) -> bool:
        return isinstance(self._find(path), _Folder)

    def open(self, path: str) -> MemoryFile:
        found = self._find(path)
        if not isinstance(found, _File):
            raise PathNotFoundError(
                f"no such file or folder: {path}" if found is None else f"not a regular file: {path}"
            )
        return MemoryFile(self, path, found)

    def read_small(self, path: str) -> bytes | None:
        found = self._find(path)
        return bytes(found.data) if isinstance(found, _File) else None

    def absolute(self, path: str) -> str:
        return posixpath.normpath(f"/{path.lstrip('/')}")

    def real(self, path: str) -> str:
        return self.absolute(path)

    def foresee(self, path: str, names: Sequence[str]) -> None:
        """Do nothing: a folder is listed as fast later."""

    def pinned(self, folders: Collection[str]) -> Self:  # noqa: ARG002
        return self

    def beneath(self, path: str) -> Self:  # noqa: ARG002
        return self

    def is_link(self, path: str) -> bool:  # noqa: ARG002
        return False

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self._find(path)
        return None if found is None else (self._device, found.number)

    def stamp(self, path: str) -> Stamp | None:
        found = self._find(path)
        if found is None:
            return None
        if isinstance(found, _Folder):
            # Whatever it holds: a folder that was changed has another one.
            return Stamp((self._device, found.number), hash(frozenset(found.names)), 0)
        return Stamp((self._device, found.number), found.modified, len(found.data))

    def open_for_append(self, path: str) -> MemoryWritableFile:
        found = self._find(path)
        if isinstance(found, _Folder):
            raise StorageError(f"cannot write {path}: it is a folder")
        if found is None:
            folder, name = self._parent(path)
            self.change("make", path, needs_room=True)
            found = folder.names[name] = _File(next(self._numbers))
        return MemoryWritableFile(self, path, found)

    def create(self, path: str, like: str = "") -> MemoryWritableFile:  # noqa: ARG002
        if isinstance(self._find(path), _Folder):
            raise ForeignNameError(f"{path} is a folder, not a regular file")
        folder, name = self._parent(path)
        self.change("make", path, needs_room=True)
        found = folder.names[name] = _File(next(self._numbers))
        return MemoryWritableFile(self, path, found)

    def keeps_owner(self, path: str) -> bool:  # noqa: ARG002
        return True

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = self.absolute(path).rpartition("/")
        return self._folder(parent), name

    def rename(self, path: str, new_path: str) -> None:
        folder, name = self._parent(path)
        new_folder, new_name = self._parent(new_path)
        if name not in folder.names:
            raise PathNotFoundError(f"no such file or folder: {path}")
        self.change("rename", path)
        new_folder.names[new_name] = folder.names.pop(name)

    def remove(self, path: str) -> None:
        if isinstance(self._find(path), _File):
            self.change("remove", path)
            folder, name = self._parent(path)
            del folder.names[name]

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        found = self._find(path)
        if not isinstance(found, _File):
            raise PathNotFoundError(f"no such file or folder: {path}")
        self.change("set_modified", path)
        found.modified = modified_ns

    def make_folder(self, path: str) -> None:
        parts = self.absolute(path).strip("/").split("/")
        folder = self._root
        for name in parts if parts != [""] else []:
            found = folder.names.get(name)
            if isinstance(found, _File):
                raise StorageError(f"cannot write {path}: {name} is a file")
            if found is None:
                self.change("make_folder", path, needs_room=True)
                found = folder.names[name] = _Folder(next(self._numbers))
            folder = found

    def remove_folder(self, path: str) -> None:
        found = self._find(path)
        if isinstance(found, _Folder) and not found.names:
            self.change("remove_folder", path)
            folder, name = self._parent(path)
            del folder.names[name]

    def sync_folder(self, path: str) -> None:
        folder = self._folder(path)
        self.change("sync_folder", path)
        folder.synced = dict(folder.names)

    def sync_files(self, paths: Collection[str]) -> None:
        for path in paths:
            found = self._find(path)
            if not isinstance(found, _File):
                raise PathNotFoundError(f"no such file or folder: {path}")
            MemoryWritableFile(self, path, found).sync()

    def sync_folders(self, paths: Collection[str]) -> None:
        for path in paths:
            self.sync_folder(path)

    def lock(
        self,
        path: str,
        timeout_seconds: float,  # noqa: ARG002
        *,
        is_shared: bool = False,
        queue: str | None = None,  # noqa: ARG002
    ) -> _Held:
        self.open_for_append(path).close()
        number = self._number(path)
        if any(not (is_shared and held.is_shared) for held in self._locks.get(number, [])):
            raise LockedError(f"{path} is locked by another writer of this process")
        return _Held(self._locks, number, path, is_shared)

    def claim(self, path: str, spelling: str) -> _Held:
        if self.claimed_as(path) is not None:
            raise LockedError(f"{spelling} is open in this process already")
        return _Held(self._claims, self._number(path), spelling, is_shared=False)

    def claimed_as(self, path: str) -> str | None:
        found = self._find(path)
        held = [] if found is None else self._claims.get(found.number, [])
        return held[0].spelling if held else None

    def _number(self, path: str) -> int:
        found = self._find(path)
        if found is None:
            raise PathNotFoundError(f"no such file or folder: {path}")
        return found.number


@contextmanager
def stopped_at(storage: MemoryStorage, number: int) -> Iterator[None]:
    """Let the process die at one of the changes that follow; nothing where there are not as many."""
    storage.stop_at = len(storage.changes) + number - 1
    try:
        yield
    except Stopped:
        pass
    finally:
        storage.stop_at = None
