"""Lists objects as the files and folders that their keys spell.

A folder is the beginning of a key up to a slash. It is there if an object is in it, and has no time and no identity of
its own: its stamp is made of the names, sizes and ETags in it. Where a key is also the beginning of others, the folder
counts; so the empty objects that some tools make for folders are no files.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sparklog.errors import StorageError
from sparklog.storage.base import Entry, Stamp


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


def add_to(folders: dict[str, dict[str, Entry]], top: str, folder: str, entry: Entry) -> None:
    """Add a file to its folder, and that to the folder above, up to the top."""
    known = folders.setdefault(folder, {}).get(entry.name)
    if known is not None and known.is_file:
        raise StorageError(
            f"cannot list {top}: the store lists {folder}/{entry.name} twice, and so perhaps without end"
        )
    if known is None:
        folders[folder][entry.name] = entry
    while len(folder) > len(top):
        above, _, name = folder.rpartition("/")
        known = folders.setdefault(above, {}).get(name)
        if known is not None and known.is_folder:
            return
        folders[above][name] = Entry(name, True, False, 0)
        folder = above


def file_entry(url: str, size_bytes: int, modified_ns: int, tag: str) -> Entry:
    """Return the entry of a file of this URL and version."""
    stamp = Stamp((_number(url), _number(tag or str(modified_ns))), modified_ns, size_bytes, tag)
    return Entry(name_of(url), False, True, size_bytes, stamp=stamp)


def listing_of(path: str, entries: Iterable[Entry]) -> Listing:
    """Return the listing of a folder with these names; without any, it is not there."""
    found = tuple(sorted(entries, key=lambda each: each.name))
    modified_ns = max((each.stamp.modified_ns for each in found if each.stamp is not None), default=0)
    digest = _number("\0".join(f"{each.name}\0{each.is_folder}\0{each.stamp}" for each in found))
    return Listing(found, Stamp((_number(path), digest), modified_ns, 0))


def name_of(key: str) -> str:
    """Return the last name of a key or URL."""
    return key.rpartition("/")[2]


def _number(text: str) -> int:
    # 63 bits: manifests of backups keep them as numbers of files.
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()) >> 1
