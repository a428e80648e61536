"""Where bytes are: what every kind of storage offers, and which one a path asks for.

Storage knows files and folders and nothing of Kafka. A path without a scheme, or with ``file:``, is of this machine.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self
from urllib.parse import unquote, urlsplit

from sparklog.errors import InvalidOptionError
from sparklog.storage.local import Entry, LocalFile, LocalStorage


class ReadableFile(Protocol):
    """An open file, read by place."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int:
        """Return the size now; a file may grow, or be cut, while it is open."""

    def read(self, position: int, length_bytes: int) -> memoryview:
        """Return the bytes from ``position`` on; fewer than asked for only where the file ends."""

    def read_into(self, position: int, room: memoryview) -> int:
        """Read into memory that is there, from ``position`` on: how many bytes; fewer only where the file ends."""

    def data_position(self, position: int) -> int | None:
        """Return where stored bytes next begin, at or after ``position``; None where only zeros or nothing follow.

        What is stepped over is certain to be zero; what is not may be zero all the same.
        """

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class Storage(Protocol):
    """Files and folders, read only."""

    def entries(self, path: str) -> list[Entry]:
        """List a folder, sorted by name."""

    def is_folder(self, path: str) -> bool:
        """Tell whether there is a folder at ``path``; False also where there is nothing."""

    def open(self, path: str) -> ReadableFile:
        """Open a file; `PathNotFoundError` where there is none."""

    def read_small(self, path: str) -> bytes | None:
        """Return a whole small file; None where there is none."""

    def absolute(self, path: str) -> str:
        """Return the path in the one form that this storage names it by."""


class Located(NamedTuple):
    """A path and the storage that it is in."""

    storage: Storage
    path: str


def locate(path: str) -> Located:
    """Return the storage for a path or URL, and the path as that storage names it.

    Raises
    ------
    InvalidOptionError
        The scheme is one that no storage here is for.
    """
    scheme = urlsplit(path).scheme if "://" in path or path.startswith("file:") else ""
    if scheme not in ("", "file"):
        raise InvalidOptionError(f"no storage for '{scheme}:' paths: {path!r}; what is read here is file: or no scheme")
    plain = unquote(urlsplit(path).path) if scheme else path
    storage: Storage = LocalStorage()
    return Located(storage, storage.absolute(plain))


__all__ = ["Entry", "LocalFile", "Located", "ReadableFile", "Storage", "locate"]
