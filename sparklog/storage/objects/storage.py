"""The storage of an object store: listings, and files that are read by ranges.

It answers in this order: from the listings that it is pinned to, which travel with it to a task; from what it has
listed in the present look; and otherwise by a request. A file is opened as the version that was listed, so that an
object that is replaced meanwhile is an error and never half of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self, TypeVar

from sparklog.errors import PathNotFoundError, StorageError
from sparklog.storage.base import Capabilities, Entry, Name, ReadableFile, Stamp
from sparklog.storage.looks import seen
from sparklog.storage.objects.backend import Backend
from sparklog.storage.objects.failures import answered
from sparklog.storage.objects.file import ObjectFile
from sparklog.storage.objects.listing import Listing, Tree
from sparklog.storage.objects.stores import Options, store_of
from sparklog.storage.objects.wire import answer

_R = TypeVar("_R")

_PAGES_MORE: Final = 4
"""A tree is listed in one pass if that takes at most this number of answers more than it has wanted folders."""


@dataclass(frozen=True)
class ObjectStorage:
    """A bucket, read only; see `sparklog.storage.base.Storage`.

    Threads may share it. Its pickle has names, options and listings, and no connection.

    Attributes
    ----------
    root : str
        The URL of the bucket, such as ``s3://bucket``; every path begins with it.
    options : tuple of (str, str)
        Names and values for the store, sorted.
    pins : mapping of str to Listing
        The listings of the folders that it is pinned to, by path.
    """

    root: str
    options: Options = field(default=(), repr=False)
    pins: Mapping[str, Listing] = field(default_factory=dict, compare=False, repr=False)

    capabilities: ClassVar[Capabilities] = Capabilities(is_remote=True)

    @property
    def scheme(self) -> str:
        return self.root.partition(":")[0]

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        found = self._folder(path).entries
        if not found and path.rstrip("/") != self.root:
            if self._file(path) is not None:
                raise StorageError(f"not a folder: {path}")
            raise PathNotFoundError(f"no such file or folder: {path}")
        return [each for each in found if wanted is None or wanted(each.name)]

    def names(self, path: str) -> list[Name]:
        return [Name(each.name, each.is_folder) for each in self.entries(path)]

    def is_folder(self, path: str) -> bool:
        parent = self._known(path.rpartition("/")[0])
        entry = None if parent is None else parent.find(path.rpartition("/")[2])
        return (entry is not None and entry.is_folder) or bool(self._folder(path).entries)

    def open(self, path: str) -> ReadableFile:
        stamp = self._file(path)
        if stamp is None:
            parent, _, name = path.rpartition("/")
            known = self._known(parent)
            there = None if known is None else known.find(name)
            is_folder = bool(self._folder(path).entries) if known is None else there is not None
            what = "not a regular file" if is_folder else "no such file or folder"
            raise PathNotFoundError(f"{what}: {path}")
        return ObjectFile(path, self._store().reader(path, stamp), stamp)

    def read_small(self, path: str) -> bytes | None:
        try:
            with self.open(path) as file:
                return bytes(file.read(0, file.size_bytes()))
        except PathNotFoundError:
            return None

    def absolute(self, path: str) -> str:
        names: list[str] = []
        for name in path[len(self.root) :].split("/"):
            if name == "..":
                names = names[:-1]
            elif name not in ("", "."):
                names.append(name)
        return "/".join((self.root, *names))

    def real(self, path: str) -> str:
        return self.absolute(path)

    def is_link(self, path: str) -> bool:  # noqa: ARG002 - a store has none
        return False

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self.stamp(path)
        return None if found is None else found.identity

    def stamp(self, path: str) -> Stamp | None:
        path = self.absolute(path)
        known = self._known(path)
        if known is not None and known.entries:
            return known.stamp
        file, above = self._file(path), self._known(path.rpartition("/")[0])
        entry = None if above is None else above.find(path.rpartition("/")[2])
        if file is not None or (above is not None and entry is None):
            return file
        found = self._folder(path)
        return found.stamp if found.entries or path == self.root else None

    def foresee(self, path: str, names: Sequence[str]) -> None:
        looked = seen()
        if looked is None or len(names) < 2 or path in self.pins or (self, path, "tree") in looked:
            return
        looked[self, path, "tree"] = True
        tree = self._asked(lambda store: store.list_tree(path, len(names) + _PAGES_MORE), path)
        for folder, listing in (tree or {}).items():
            looked[self, folder] = listing

    def pinned(self, folders: Collection[str]) -> Self:
        if folders and all(each in self.pins for each in folders):
            return self
        pins: Tree = {each: self._folder(each) for each in folders}
        # The files of a log directory are wanted in a task, and not all the other logs in it.
        inner = max(folders, key=len, default="")
        return replace(self, pins={at: pin if at == inner else self._files_of(at, pin) for at, pin in pins.items()})

    def _files_of(self, path: str, listing: Listing) -> Listing:
        """Return a listing without its folders, made once for a look: a directory may have thousands of logs."""
        looked = seen()
        found = None if looked is None else looked.get((self, path, "files"))
        if found is None:
            found = listing.files()
            if looked is not None:
                looked[self, path, "files"] = found
        return found

    def beneath(self, path: str) -> Self:  # noqa: ARG002 - no key leads elsewhere
        return self

    def _folder(self, path: str) -> Listing:
        """Return the listing of a folder; empty if there is none."""
        known = self._known(path)
        if known is None:
            known = self._asked(lambda store: store.list_folder(path), path)
            looked = seen()
            if looked is not None:
                looked[self, path] = known
        return known

    def _file(self, path: str) -> Stamp | None:
        """Return the stamp of a file; None if there is none. In a look, its folder is listed once for all files."""
        parent, _, name = path.rpartition("/")
        known = self._known(parent)
        if known is None and seen() is not None and len(parent) >= len(self.root):
            known = self._folder(parent)
        if known is not None:
            entry = known.find(name)
            return None if entry is None else entry.stamp
        try:
            return self._asked(lambda store: store.find(path), path, "read").stamp
        except PathNotFoundError:
            return None

    def _known(self, path: str) -> Listing | None:
        found = self.pins.get(path)
        if found is None and not self.pins:
            return (seen() or {}).get((self, path))
        return found

    def _asked(self, ask: Callable[[Backend], _R], path: str, what: str = "list") -> _R:
        store = self._store()
        return answered(lambda: answer(lambda: ask(store)), path, what)

    def _store(self) -> Backend:
        return store_of(self.root, self.options)
