"""Presents an archive of a log directory as a read-only storage, whose folder has the path of the archive.

A tar, and stored members of a zip, are read by position, from any storage. A compressed archive is decompressed once
for each process. Folders around the log directory, as ``tar czf backup.tgz var/lib/kafka`` leaves them, are left out of
the paths.
"""

from __future__ import annotations

import hashlib
import re
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

from sparklog.errors import PathNotFoundError, StorageError
from sparklog.storage.base import Capabilities, Entry, Name, ReadableFile, Stamp, Storage
from sparklog.storage.packed.members import Member, members_of_tar, members_of_zip
from sparklog.storage.packed.part import PartOfFile
from sparklog.storage.packed.spill import Spill, SpilledFile, gunzipped, unzipped, unzstandarded
from sparklog.storage.process import ProcessState

_ARCHIVE: Final = re.compile(r"(?P<path>.*?\.(?P<kind>tar|tar\.gz|tgz|tar\.zst|tzst|zip))(?=/|$)", re.IGNORECASE)
_PARTITION: Final = re.compile(r".+-[0-9]{1,10}")
_DEPTH_MAX: Final = 16
_KEPT_MAX: Final = 16

_kept: dict[tuple[Storage, str, Stamp], _Archive] = {}
_process: Final = ProcessState(threading.RLock, _kept)


def packed_at(storage: Storage, path: str) -> PackedStorage | None:
    """Return the archive that a path leads to or into; None if no part of it is the file of an archive."""
    for found in _ARCHIVE.finditer(path):
        archive = path[: found.end()]
        with suppress(StorageError):
            stamp = storage.stamp(archive)
            if stamp is not None and not storage.is_folder(archive):
                return PackedStorage(storage, archive)
    return None


@dataclass(frozen=True)
class PackedStorage:
    """An archive as a storage, with all that lies beside it; see the module.

    Its pickle has the outer storage and the path of the archive.

    Attributes
    ----------
    outer : Storage
        The storage that the archive is in.
    path : str
        The path of the archive, which is that of its log directory, too.
    """

    outer: Storage
    path: str

    @property
    def scheme(self) -> str:
        return self.outer.scheme

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(is_remote=self.outer.capabilities.is_remote)

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        relative = self._relative(path)
        if relative is None:
            return self.outer.entries(path, wanted)
        archive = self._archive()
        found = archive.folders.get(relative)
        if found is None:
            if relative in archive.members:
                raise StorageError(f"not a folder: {path}")
            raise PathNotFoundError(f"no such file or folder: {path}")
        return [self._entry(archive, relative, each) for each in found if wanted is None or wanted(each.name)]

    def _entry(self, archive: _Archive, relative: str, each: Name) -> Entry:
        if each.is_folder:
            return Entry(each.name, True, False, 0)
        stamp = archive.stamp(f"{relative}/{each.name}".strip("/"))
        return Entry(each.name, False, True, stamp.size_bytes, stamp=stamp)

    def names(self, path: str) -> list[Name]:
        relative = self._relative(path)
        found = None if relative is None else self._archive().folders.get(relative)
        if found is None:
            # Beside the archive, or the error for a file.
            return self.outer.names(path) if relative is None else [Name(*each[:2]) for each in self.entries(path)]
        return list(found)

    def is_folder(self, path: str) -> bool:
        relative = self._relative(path)
        return self.outer.is_folder(path) if relative is None else relative in self._archive().folders

    def open(self, path: str) -> ReadableFile:
        """Open a member; the first member of a zip that is compressed is decompressed here."""
        relative = self._relative(path)
        if relative is None:
            return self.outer.open(path)
        archive = self._archive()
        if relative not in archive.members:
            what = "not a regular file" if relative in archive.folders else "no such file or folder"
            raise PathNotFoundError(f"{what}: {path}")
        return archive.open(path, relative)

    def read_small(self, path: str) -> bytes | None:
        try:
            with self.open(path) as file:
                return bytes(file.read(0, file.size_bytes()))
        except PathNotFoundError:
            return None

    def absolute(self, path: str) -> str:
        return self.outer.absolute(path)

    def real(self, path: str) -> str:
        return path

    def is_link(self, path: str) -> bool:  # noqa: ARG002 - an archive with links is refused
        return False

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self.stamp(path)
        return None if found is None else found.identity

    def stamp(self, path: str) -> Stamp | None:
        relative = self._relative(path)
        if relative is None:
            return self.outer.stamp(path)
        archive = self._archive()
        return archive.stamp(relative) if relative in archive.members or relative in archive.folders else None

    def foresee(self, path: str, names: Sequence[str]) -> None:
        """Do nothing: the list of members has all names."""

    def pinned(self, folders: Collection[str]) -> Self:  # noqa: ARG002 - the stamp of the archive is compared
        return self

    def beneath(self, path: str) -> Self:  # noqa: ARG002 - no member leads out of the archive
        return self

    def _relative(self, path: str) -> str | None:
        path = path.rstrip("/")
        if path != self.path and not path.startswith(f"{self.path}/"):
            return None
        return path[len(self.path) :].strip("/")

    def _archive(self) -> _Archive:
        stamp = self.outer.stamp(self.path)
        if stamp is None:
            raise PathNotFoundError(f"no such file or folder: {self.path}")
        with _process.lock:
            found = _kept.pop((self.outer, self.path, stamp), None) or _Archive(self.outer.open(self.path), stamp)
            _kept[self.outer, self.path, stamp] = found
            while len(_kept) > _KEPT_MAX:
                # Files that are open in it go on reading: they keep what they need.
                _kept.pop(next(iter(_kept)))
            return found


class _Archive:
    """An open archive: its members, its folders, and the bytes that were decompressed."""

    def __init__(self, file: ReadableFile, stamp: Stamp) -> None:
        self._stamp, self._file, self._spill = stamp, file, None if _is_plain(file.path) else Spill(file.path)
        self._unzipped: dict[str, tuple[int, int]] = {}
        # Parts that are still read keep the archive.
        weakref.finalize(self, file.close)
        if self._spill is not None and not _is_zip(file.path):
            unpack = unzstandarded if file.path.lower().endswith("zst") else gunzipped
            start, end = self._spill.add(unpack(file))
            self._file = SpilledFile(file.path, self._spill, start, end, stamp.modified_ns)
        members = members_of_zip(self._file) if _is_zip(file.path) else members_of_tar(self._file)
        prefix = _leading(members)
        self.members: dict[str, Member] = {name[len(prefix) :]: each for name, each in members.items()}

    @cached_property
    def folders(self) -> dict[str, list[Name]]:
        """The names in each folder, sorted; the log directory's own path is empty."""
        found: dict[str, dict[str, Name]] = {"": {}}
        for name in self.members:
            folder, _, last = name.rpartition("/")
            found.setdefault(folder, {})[last] = Name(last, False)
            while folder:
                above, _, last = folder.rpartition("/")
                found.setdefault(above, {})[last] = Name(last, True)
                folder = above
        return {folder: sorted(names.values()) for folder, names in found.items()}

    def stamp(self, relative: str) -> Stamp:
        digest = hashlib.blake2b(f"{self._stamp}\0{relative}".encode("utf-8", "surrogateescape"), digest_size=16)
        member, number = self.members.get(relative), digest.digest()
        # 63 bits: manifests of backups keep them as numbers of files.
        identity = (int.from_bytes(number[:8]) >> 1, int.from_bytes(number[8:]) >> 1)
        return Stamp(identity, self._stamp.modified_ns, 0 if member is None else member.size_bytes)

    def open(self, path: str, relative: str) -> ReadableFile:
        member = self.members[relative]
        if member.packed is None:
            return PartOfFile(path, self, self._file, member.start, member.size_bytes, self._stamp.modified_ns)
        with _process.lock:
            self._spill = self._spill or Spill(self._file.path)
            if relative not in self._unzipped:
                self._unzipped[relative] = self._spill.add(unzipped(self._file, member))
            start, end = self._unzipped[relative]
            return SpilledFile(path, self._spill, start, end, self._stamp.modified_ns)


def _is_zip(path: str) -> bool:
    return path.lower().endswith(".zip")


def _is_plain(path: str) -> bool:
    return path.lower().endswith((".tar", ".zip"))


def _leading(members: dict[str, Any]) -> str:
    """Return the path of the folders around the log directory or the partition's folder."""
    prefix = ""
    for _ in range(_DEPTH_MAX):
        firsts = {name[len(prefix) :].partition("/")[0] for name in members}
        (only,) = firsts if len(firsts) == 1 else ("",)
        if not only or _PARTITION.fullmatch(only) or f"{prefix}{only}" in members:
            break
        prefix += f"{only}/"
    return prefix
