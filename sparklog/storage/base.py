"""The contracts of every storage, and the small values that they exchange.

A storage knows files and folders, and nothing of Kafka. `sparklog.storage.registry` finds the storage of a path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a storage beyond reading. `sparklog.storage.capabilities` refuses to write if one is missing.

    Attributes
    ----------
    can_lock : bool
        A file can be locked against other processes, as a broker locks its log directories.
    can_rename : bool
        A file can be renamed in one step, replacing a file of the new name.
    can_overwrite : bool
        Bytes in the middle of a file can be changed, and a file can be cut.
    can_append : bool
        Bytes can be added to the end of an existing file.
    is_remote : bool
        Each answer takes tens of milliseconds, so that callers ask for many things at once.
    """

    can_lock: bool = False
    can_rename: bool = False
    can_overwrite: bool = False
    can_append: bool = False
    is_remote: bool = False


class Entry(NamedTuple):
    """One name in a folder. A link is described by its target.

    Attributes
    ----------
    is_folder, is_file : bool
        Both are False for a pipe, a device, a socket, and a link that leads nowhere or in a circle.
    size_bytes : int
        0 unless it is a file.
    special : str
        The kind of anything else, such as "a FIFO"; empty for a file or a folder.
    is_link : bool
        Whether the name is a link to the described file or folder.
    stamp : Stamp or None
        The stamp of a file, if the listing has it.
    """

    name: str
    is_folder: bool
    is_file: bool
    size_bytes: int
    special: str = ""
    is_link: bool = False
    stamp: Stamp | None = None


class Name(NamedTuple):
    """One name in a folder, and whether it is a folder or a link to one."""

    name: str
    is_folder: bool


class Stamp(NamedTuple):
    """Shows, without opening it, whether a file or folder is still the same one, and unchanged.

    Attributes
    ----------
    identity : tuple of int
        See `Storage.identity`.
    modified_ns : int
        Time of the last change, by the storage's own clock, ns since the epoch. Two changes may have the same time.
    size_bytes : int
        The size of a file.
    tag : str
        The version of an object that its store names (ETag); empty for a file on a disk.
    """

    identity: tuple[int, int]
    modified_ns: int
    size_bytes: int
    tag: str = ""


class ReadableFile(Protocol):
    """An open file, read by position."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int:
        """Return the size now; a file may grow, or be cut, while it is open."""

    def modified_ns(self) -> int:
        """Return the time of the last write, by the storage's own clock, ns since the epoch."""

    def read(self, position: int, length_bytes: int) -> memoryview:
        """Return the bytes from ``position`` on; fewer than ``length_bytes`` only at the end of the file."""

    def read_into(self, position: int, room: memoryview) -> int:
        """Fill ``room`` with the bytes from ``position`` on and return how many; fewer only at the end of the file."""

    def data_position(self, position: int) -> int | None:
        """Return the position of the next stored bytes, at or after ``position``; None if only zeros or nothing follow.

        Skipped bytes are certain to be zero; stored bytes may be zero as well.
        """

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class Storage(Protocol):
    """Files and folders, read only. A storage is pickled with every place in it, and so has to be small."""

    @property
    def scheme(self) -> str:
        """The scheme of its URLs, without the colon, such as "file"."""

    @property
    def capabilities(self) -> Capabilities: ...

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        """List a folder, sorted by name; with ``wanted``, only the names for which it is true."""

    def names(self, path: str) -> list[Name]:
        """List the names in a folder, sorted, and whether each is a folder.

        `entries` lists these names as well, but also asks for the size of each file, which costs a system call for
        each. If a folder has thousands of names and only their kinds matter, this takes a fraction of that time.
        """

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder at ``path``; False if there is nothing."""

    def open(self, path: str) -> ReadableFile:
        """Open a file; raise `PathNotFoundError` if there is none."""

    def read_small(self, path: str) -> bytes | None:
        """Return the contents of a small file; None if there is none."""

    def absolute(self, path: str) -> str:
        """Return the path from the root on, without dots; links in it stay if possible."""

    def real(self, path: str) -> str:
        """Return the path without links and dots, even if nothing is there."""

    def is_link(self, path: str) -> bool:
        """Return whether the last name of a path is a link."""

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return numbers that no other file or folder has, however the path is spelled; None if nothing is there."""

    def stamp(self, path: str) -> Stamp | None:
        """Return the stamp of a file or folder, to compare with later; None if nothing is there."""

    def foresee(self, path: str, names: Sequence[str]) -> None:
        """Take note that the folders of these names, in the folder at ``path``, are about to be listed.

        A remote storage lists all of them in one pass, which lasts for the present look; see `sparklog.storage.looks`.
        """

    def pinned(self, folders: Collection[str]) -> Self:
        """Return this storage as it is now, for reads of the files in some folders by a task elsewhere.

        A remote storage then knows the files in these folders, and opens only the listed version of each.
        """

    def beneath(self, path: str) -> Self:
        """Return this storage for work in one folder, where others may have made names, in files or on the disk.

        All that it opens, makes, renames, removes, locks or syncs must be beneath the folder, by names without links,
        or be the folder itself; the path of the folder may have links. Listing folders is not restricted.

        Raises
        ------
        ForeignNameError
            Raised by the returned storage if a path leads out of the folder or comes to a link, or if
            something else has the name of a file or a folder.
        """


class WritableFile(Protocol):
    """An open file that grows at its end."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int: ...

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write at the end; all of it, or an error."""

    def append_from(self, path: str, position: int, length_bytes: int) -> None:
        """Append a part of another file; raise `StorageError` if that file is shorter."""

    def write_at(self, position: int, data: bytes) -> None:
        """Overwrite existing bytes."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or grow it by zeros."""

    def preallocate(self, size_bytes: int) -> None:
        """Grow a smaller file to that size by zeros; its end for `append` stays where it is."""

    def begin_sync(self, position: int) -> None:
        """Start writing the bytes from a position on to the disk, if possible, without waiting."""

    def sync(self) -> None:
        """Wait until all written bytes are on the disk."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class HeldLock(Protocol):
    """A lock, held until it is closed."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class WritableStorage(Storage, Protocol):
    """Files and folders that can be read and changed."""

    def open_for_append(self, path: str) -> WritableFile:
        """Open a file to write at its end; make it if it does not exist."""

    def create(self, path: str, like: str = "") -> WritableFile:
        """Make a new file to write at its end, replacing any file of that name.

        Beneath a folder (see `Storage.beneath`), it gets the owner and the mode of the file ``like`` if that
        exists and they can be given; otherwise, like all that is made in another user's folder, it is that user's.
        """

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file in one step, replacing any file of the new name."""

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        """Set the modification time of a file, ns since the epoch."""

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents, unless they exist."""

    def keeps_owner(self, path: str) -> bool:
        """Return whether new files in a folder can be given to the folder's owner."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder, if it exists and is empty."""

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are on the disk."""

    def sync_files(self, paths: Collection[str]) -> None:
        """Wait until all bytes of these files are on the disk. Files are synced in any order, several at once."""

    def sync_folders(self, paths: Collection[str]) -> None:
        """Wait until the names in these folders are on the disk. Folders are synced in any order, several at once."""

    def lock(self, path: str, timeout_seconds: float, *, is_shared: bool = False, queue: str | None = None) -> HeldLock:
        """Lock a file, as Kafka does; closing the lock releases it.

        Other processes are always kept out, including forks of this one. In this process, callers that
        pass ``is_shared`` hold it together, however they spell the path.

        With a ``queue``, the path of another file, the next in line holds the lock of that file while it waits. So a
        holder can tell that somebody waits, and does not get the lock again before them. The file is made when
        somebody first waits.
        """

    def claim(self, path: str, spelling: str) -> HeldLock:
        """Keep others of this process from claiming the same folder, until it is closed.

        Parameters
        ----------
        path : str
            The folder, which is there.
        spelling : str
            The path as the caller spells it, for errors.

        Raises
        ------
        LockedError
            It is already claimed, under any spelling.
        """

    def claimed_as(self, path: str) -> str | None:
        """Return how its claimant in this process spells a folder; None if nobody has claimed it."""
