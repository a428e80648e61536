"""Where bytes are: what every kind of storage offers, and which one a path asks for.

Storage knows files and folders and nothing of Kafka. A path without a scheme, or with ``file:``, is of this machine.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple, Protocol, Self
from urllib.parse import unquote

from sparklog.errors import InvalidOptionError
from sparklog.storage.local import Entry, LocalFile, LocalStorage, Name

_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/]*)|(?P<file>file):", re.IGNORECASE)
_NOT_UNICODE: Final = re.compile(r"[\x00\ud800-\udfff]")


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

    def names(self, path: str) -> list[Name]:
        """List the names in a folder, sorted, and no more than that: cheaper than `entries`."""

    def is_folder(self, path: str) -> bool:
        """Tell whether there is a folder at ``path``; False also where there is nothing."""

    def open(self, path: str) -> ReadableFile:
        """Open a file; `PathNotFoundError` where there is none."""

    def read_small(self, path: str) -> bytes | None:
        """Return a whole small file; None where there is none."""

    def absolute(self, path: str) -> str:
        """Return the path from the root on, without dots; links in it stay where that can be."""

    def real(self, path: str) -> str:
        """Return the path without links and dots, also of what is not there."""

    def is_link(self, path: str) -> bool:
        """Tell whether the last name of a path is that of a link."""

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return what tells a file or folder from every other, however its path is spelled; None where it is not."""


class Located(NamedTuple):
    """A path and the storage that it is in."""

    storage: Storage
    path: str


def locate(path: str | os.PathLike[str], argument: str = "path") -> Located:
    """Return the storage for a path or URL, and the path as that storage names it.

    Parameters
    ----------
    path : str or PathLike
        A relative one is taken from where we run.
    argument : str
        What gave it, for errors: the name of an option or of an argument.

    Raises
    ------
    InvalidOptionError
        The path is empty or no file can have it, or its scheme or host is one that no storage here is for.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidOptionError(f"{argument} must be text or a Path, got {path!r}")
    url = _URL.match(text)
    plain = text if url is None else _of_url(text, url, argument)
    if not plain.strip():
        raise InvalidOptionError(f"{argument} is empty: {text!r}; to say the folder that this runs in, write '.'")
    if _NOT_UNICODE.search(plain):
        raise InvalidOptionError(f"{argument} has what no path may have here, NUL or what is not Unicode: {text!r}")
    storage: Storage = LocalStorage()
    return Located(storage, storage.absolute(plain))


def _of_url(text: str, url: re.Match[str], argument: str) -> str:
    """Return the path of a URL of this machine."""
    scheme = (url["scheme"] or url["file"]).lower()
    if scheme != "file":
        raise InvalidOptionError(
            f"no storage for '{scheme}:' paths: {argument} is {text!r}; what is read here is file: or no scheme"
        )
    if (url["host"] or "").lower() not in ("", "localhost"):
        raise InvalidOptionError(
            f"{argument} is a URL of the host {url['host']!r}: {text!r}; a file of this machine is file:///path"
        )
    return unquote(text[url.end() :], errors="surrogateescape")


__all__ = ["Entry", "LocalFile", "Located", "Name", "ReadableFile", "Storage", "locate"]
