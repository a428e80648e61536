"""The requests of a store, by the library for it: `obstore` for object stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from sparklog.errors import StorageError
from sparklog.storage.base import Entry, Stamp
from sparklog.storage.objects.listing import Listing, Tree, add_to, file_entry, key_of, listing_of, name_of
from sparklog.storage.objects.wire import library

PAGE_KEYS: Final = 1000
"""How many keys a store lists in one answer."""


class Backend(Protocol):
    """Sends requests, each in the thread that calls it; errors are the library's."""

    def list_folder(self, path: str) -> Listing:
        """List one folder; it is not there if the listing is empty."""

    def list_tree(self, path: str, pages_max: int) -> Tree | None:
        """List a folder and all folders below it; None if that takes too many answers."""

    def find(self, path: str) -> Entry:
        """Return the entry of one file; raise `FileNotFoundError` if there is none."""

    def reader(self, path: str, stamp: Stamp) -> Callable[[int, int], memoryview]:
        """Return what reads the bytes of one version of a file, from a start to an end position."""


class ObjectBackend:
    """The requests of an object store.

    Parameters
    ----------
    store : object
        A store of `obstore`.
    """

    def __init__(self, root: str, store: Any) -> None:
        self.root, self.store = root, store

    def list_folder(self, path: str) -> Listing:
        found = library().list_with_delimiter(self.store, key_of(self.root, path) or None)
        entries = {name_of(each): Entry(name_of(each), True, False, 0) for each in found["common_prefixes"]}
        for meta in found["objects"]:
            entries.setdefault(name_of(meta["path"]), self._entry(meta))
        return listing_of(path, entries.values())

    def list_tree(self, path: str, pages_max: int) -> Tree | None:
        prefix, keys = key_of(self.root, path), 0
        folders: dict[str, dict[str, Entry]] = {path: {}}
        for page in library().list(self.store, prefix=prefix or None, chunk_size=PAGE_KEYS):
            for meta in page:
                add_to(folders, path, f"{self.root}/{meta['path']}".rpartition("/")[0], self._entry(meta))
            keys += len(page)
            if keys > pages_max * PAGE_KEYS:
                return None
        return {folder: listing_of(folder, entries.values()) for folder, entries in folders.items()}

    def find(self, path: str) -> Entry:
        return self._entry(library().head(self.store, key_of(self.root, path)))

    def _entry(self, meta: Any) -> Entry:
        tag = meta["e_tag"] or ""
        # Azure lists them without the quotes that a request wants.
        tag = f'"{tag}"' if tag and not tag.endswith('"') and self.root.startswith(("az:", "abfss:")) else tag
        modified_ns = int(meta["last_modified"].timestamp() * 1_000_000_000)
        return file_entry(f"{self.root}/{meta['path']}", meta["size"], modified_ns, tag)

    def reader(self, path: str, stamp: Stamp) -> Callable[[int, int], memoryview]:
        key = key_of(self.root, path)

        def read(start: int, end: int) -> memoryview:
            options: dict[str, Any] = {"range": (start, end)}
            if stamp.tag:
                options["if_match"] = stamp.tag
            found = library().get(self.store, key, options=options)
            data = memoryview(found.bytes())
            if len(data) != end - start or tuple(found.range) != (start, end):
                raise short_answer(path, start, end, len(data))
            return data

        return read


def short_answer(path: str, start: int, end: int, count: int) -> StorageError:
    """Return the error for an answer with fewer bytes than the listed file has."""
    return StorageError(
        f"cannot read {path}: {count} bytes came of the {end - start} at position {start}; it may have been replaced "
        f"by a shorter file. Read again"
    )
