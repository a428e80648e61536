"""The requests of HDFS, by `hdfs-native`, which needs no JVM.

The name nodes of a name service come from the Hadoop configuration in ``HADOOP_CONF_DIR``, and the user from
``HADOOP_USER_NAME`` or Kerberos, as the library says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparklog.errors import InvalidOptionError
from sparklog.storage.base import Entry, Stamp
from sparklog.storage.objects.backend import PAGE_KEYS, short_answer
from sparklog.storage.objects.failures import ObjectReplacedError
from sparklog.storage.objects.listing import Listing, Tree, add_to, file_entry, listing_of, name_of


class HdfsBackend:
    """The requests of one HDFS."""

    def __init__(self, root: str) -> None:
        try:
            # Optional, and not needed for other paths.
            from hdfs_native import Client
        except ModuleNotFoundError as error:
            raise InvalidOptionError(
                "a path in HDFS needs the library hdfs-native: pip install 'sparklog[hdfs]'"
            ) from error
        self.root = root
        self._client = Client(root)

    def list_folder(self, path: str) -> Listing:
        try:
            found = [each for each in self._client.list_status(self._key(path)) if each.path != self._key(path)]
        except FileNotFoundError:
            found = []
        return listing_of(path, (self._entry(each) for each in found))

    def list_tree(self, path: str, pages_max: int) -> Tree | None:
        folders: dict[str, dict[str, Entry]] = {path: {}}
        try:
            for count, each in enumerate(self._client.list_status(self._key(path), recursive=True)):
                if count > pages_max * PAGE_KEYS:
                    return None
                if not each.isdir:
                    add_to(folders, path, f"{self.root}{each.path}".rpartition("/")[0], self._entry(each))
        except FileNotFoundError:
            return {}
        return {folder: listing_of(folder, entries.values()) for folder, entries in folders.items()}

    def find(self, path: str) -> Entry:
        found = self._client.get_file_info(self._key(path))
        if found.isdir:
            raise FileNotFoundError(path)
        return self._entry(found)

    def reader(self, path: str, stamp: Stamp) -> Callable[[int, int], memoryview]:
        """Return what reads a file; it is looked up at the first read, and its version compared with the listed one."""
        opened: list[Any] = []

        def read(start: int, end: int) -> memoryview:
            if not opened:
                if self.find(path).stamp != stamp:
                    raise ObjectReplacedError(
                        f"{path} was replaced, or written to, since it was listed: read again for its new version"
                    )
                opened.append(self._client.read(self._key(path)))
            data = memoryview(opened[0].read_range(start, end - start))
            if len(data) != end - start:
                raise short_answer(path, start, end, len(data))
            return data

        return read

    def _key(self, path: str) -> str:
        return path[len(self.root) :].rstrip("/") or "/"

    def _entry(self, found: Any) -> Entry:
        if found.isdir:
            return Entry(name_of(found.path), True, False, 0)
        modified_ns = found.modification_time * 1_000_000
        tag = f"{found.modification_time}-{found.length}"
        return file_entry(f"{self.root}{found.path}", found.length, modified_ns, tag)
