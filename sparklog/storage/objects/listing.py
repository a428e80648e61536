"""Lists objects as the files and folders that their keys spell.

A folder is the beginning of a key up to a slash. It is there if an object is in it, and has no time and no identity of
its own: its stamp is made of the names, sizes and ETags in it. Where a key is also the beginning of others, the folder
counts; so the empty objects that some tools make for folders are no files.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from sparklog.errors import StorageError
from sparklog.storage.base import Entry, Stamp
from sparklog.storage.objects.wire import library

_PAGE_KEYS: Final = 1000
"""How many keys a store lists in one answer."""


class Listing(NamedTuple):
    """The names in a folder, sorted, and the stamp of the folder."""

    entries: tuple[Entry, ...]
    stamp: Stamp

    def find(self, name: str) -> Entry | None:
        row = bisect_left(self.entries, name, key=lambda each: each.name)
        found = self.entries[row] if row < len(self.entries) else None
        return found if found is not None and found.name == name else None

    def files(self) -> Listing:
        """Return the listing without the folders, with the same stamp."""
        return Listing(tuple(each for each in self.entries if each.is_file), self.stamp)


Tree = Mapping[str, Listing]
"""Listings by the path of the folder."""


def key_of(root: str, path: str) -> str:
    """Return the key of a path."""
    return path[len(root) :].strip("/")


def list_folder(store: Any, root: str, path: str) -> Listing:
    """List one folder; it is not there if the listing is empty."""
    found = library().list_with_delimiter(store, key_of(root, path) or None)
    entries = {_name(each): Entry(_name(each), True, False, 0) for each in found["common_prefixes"]}
    for meta in found["objects"]:
        entries.setdefault(_name(meta["path"]), _entry(root, meta))
    return _listing(path, entries.values())


def list_tree(store: Any, root: str, path: str, pages_max: int) -> Tree | None:
    """List a folder and all folders below it; None if that takes too many answers."""
    prefix, keys = key_of(root, path), 0
    folders: dict[str, dict[str, Entry]] = {path: {}}
    for page in library().list(store, prefix=prefix or None, chunk_size=_PAGE_KEYS):
        for meta in page:
            _add(folders, root, path, meta)
        keys += len(page)
        if keys > pages_max * _PAGE_KEYS:
            return None
    return {folder: _listing(folder, entries.values()) for folder, entries in folders.items()}


def find_object(store: Any, root: str, path: str) -> Entry:
    """Return the entry of one object; raise the library's error if there is none."""
    return _entry(root, library().head(store, key_of(root, path)))


def _add(folders: dict[str, dict[str, Entry]], root: str, top: str, meta: Any) -> None:
    """Add an object to its folder, and that to the folder above, up to the top."""
    entry, folder = _entry(root, meta), f"{root}/{meta['path']}".rpartition("/")[0]
    known = folders.setdefault(folder, {}).get(entry.name)
    if known is not None and known.is_file:
        raise StorageError(f"cannot list {top}: the store lists {meta['path']!r} twice, and so perhaps without end")
    if known is None:
        folders[folder][entry.name] = entry
    while len(folder) > len(top):
        above, _, name = folder.rpartition("/")
        known = folders.setdefault(above, {}).get(name)
        if known is not None and known.is_folder:
            return
        folders[above][name] = Entry(name, True, False, 0)
        folder = above


def _entry(root: str, meta: Any) -> Entry:
    url, tag = f"{root}/{meta['path']}", meta["e_tag"] or ""
    # Azure lists them without the quotes that a request wants.
    tag = f'"{tag}"' if tag and not tag.endswith('"') and root.startswith(("az:", "abfss:")) else tag
    modified_ns = int(meta["last_modified"].timestamp() * 1_000_000_000)
    stamp = Stamp((_number(url), _number(tag or str(modified_ns))), modified_ns, meta["size"], tag)
    return Entry(_name(meta["path"]), False, True, meta["size"], stamp=stamp)


def _listing(path: str, entries: Iterable[Entry]) -> Listing:
    found = tuple(sorted(entries, key=lambda each: each.name))
    modified_ns = max((each.stamp.modified_ns for each in found if each.stamp is not None), default=0)
    digest = _number("\0".join(f"{each.name}\0{each.is_folder}\0{each.stamp}" for each in found))
    return Listing(found, Stamp((_number(path), digest), modified_ns, 0))


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _number(text: str) -> int:
    # 63 bits: manifests of backups keep them as numbers of files.
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()) >> 1
