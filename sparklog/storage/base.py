"""What every kind of storage offers: contracts, and the small values that go over them.

A storage knows files and folders and nothing of Kafka. `sparklog.storage.registry` says which storage a path is in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a storage can do beyond reading; `sparklog.storage.capabilities` refuses to write where one is missing.

    Attributes
    ----------
    can_lock : bool
        A file can be locked against other processes, as a broker locks its log directories.
    can_rename : bool
        A file can be given another name in one step, in the place of what has that name.
    can_overwrite : bool
        Bytes in the midst of a file can be changed, and a file can be cut.
    can_append : bool
        Bytes can be added to the end of a file that is there.
    """

    can_lock: bool = False
    can_rename: bool = False
    can_overwrite: bool = False
    can_append: bool = False


class Entry(NamedTuple):
    """One name in a folder; what it names is told as its links lead.

    Attributes
    ----------
    is_folder, is_file : bool
        Neither is true of a pipe, a device, a socket, or a link that leads nowhere or in a circle.
    size_bytes : int
        0 unless it is a file.
    special : str
        What it is where it is neither, such as "a FIFO"; else empty.
    is_link : bool
        Whether it is a link to what is told.
    """

    name: str
    is_folder: bool
    is_file: bool
    size_bytes: int
    special: str = ""
    is_link: bool = False


class Name(NamedTuple):
    """One name in a folder, and whether it is that of a folder, or of a link to one."""

    name: str
    is_folder: bool


class Stamp(NamedTuple):
    """What tells, without opening it, that a file or folder is the one it was, and was not changed since.

    Attributes
    ----------
    identity : tuple of int
        As of `Storage.identity`.
    modified_ns : int
        When it was last changed, by the storage's own clock, ns since the epoch. Two changes may have the same time.
    size_bytes : int
        Of a file.
    """

    identity: tuple[int, int]
    modified_ns: int
    size_bytes: int


class ReadableFile(Protocol):
    """An open file, read by place."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int:
        """Return the size now; a file may grow, or be cut, while it is open."""

    def modified_ns(self) -> int:
        """Return when the file was last written to, by the storage's own clock, ns since the epoch."""

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
    """Files and folders, read only. A storage is pickled with every place in it, and so has to be small."""

    @property
    def scheme(self) -> str:
        """What its URLs begin with, without the colon, such as "file"."""

    @property
    def capabilities(self) -> Capabilities: ...

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        """List a folder, sorted by name; with ``wanted``, only the names for which it is true."""

    def names(self, path: str) -> list[Name]:
        """List the names in a folder, sorted, and which of them are of folders.

        `entries` gives these names as well, and asks for the size of each file, which costs a call of the system for
        each: where a folder holds thousands of names, and only their kinds matter, this takes a fraction of its time.
        """

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

    def stamp(self, path: str) -> Stamp | None:
        """Return what tells whether a file or folder was changed; None where it is not."""

    def beneath(self, path: str) -> Self:
        """Return this storage for the work in one folder, whose names others may have made, in files or on the disk.

        What it opens, makes, renames, removes, locks or syncs has to be beneath the folder, by names without links, or
        be the folder itself; the path of the folder may have links. Folders are listed as ever.

        Raises
        ------
        ForeignNameError
            Raised by the storage that is returned, where a path leads out of the folder or comes to a link, or where
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
        """Write a part of another file at the end; `StorageError` where that file is shorter."""

    def write_at(self, position: int, data: bytes) -> None:
        """Overwrite bytes that are there."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or grow it by zeros."""

    def preallocate(self, size_bytes: int) -> None:
        """Give the file that size, by zeros, if it is smaller; its end, for `append`, stays where it is."""

    def begin_sync(self, position: int) -> None:
        """Have what was written from a position on go to the disk, without waiting for it, where that can be."""

    def sync(self) -> None:
        """Return when what was written is on the disk."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class HeldLock(Protocol):
    """A lock that is held until it is closed."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class WritableStorage(Storage, Protocol):
    """Files and folders that may be read and changed."""

    def open_for_append(self, path: str) -> WritableFile:
        """Open a file to write at its end, making it where it is not there."""

    def create(self, path: str, like: str = "") -> WritableFile:
        """Make a file that is new, in the place of a file that has the name, to write at its end.

        Beneath a folder (see `Storage.beneath`), it gets the owner and the mode of the file ``like``, where that is
        there and they can be given; as all that is made in another user's folder it is else that user's.
        """

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in one step, in the place of what has that name."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing where it is not there."""

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        """Set when a file counts as last written to, ns since the epoch."""

    def make_folder(self, path: str) -> None:
        """Make a folder, and those that it is in; nothing where it is there."""

    def keeps_owner(self, path: str) -> bool:
        """Tell whether what is made in a folder can be its owner's."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder; nothing where it is not there, or not empty."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder are on the disk."""

    def sync_files(self, paths: Collection[str]) -> None:
        """Return when what was written to these files is on the disk: in any order, and as many at once as is fast."""

    def sync_folders(self, paths: Collection[str]) -> None:
        """Return when the names in these folders are on the disk: in any order, and as many at once as is fast."""

    def lock(self, path: str, timeout_seconds: float, *, is_shared: bool = False, queue: str | None = None) -> HeldLock:
        """Take the lock that a file stands for, as Kafka does; closing it lets go of it.

        Other processes are always kept out, those that were forked from this one included. In this process, those who
        ask with ``is_shared`` hold it together, however they spell the path.

        With a ``queue``, the path of another file, whoever is next has the lock of that file while it waits. So a
        holder can tell that somebody waits, and does not get the lock again before that one. The file is made when
        somebody first waits.
        """

    def claim(self, path: str, spelling: str) -> HeldLock:
        """Keep others of this process from claiming the same folder, until it is closed.

        Parameters
        ----------
        path : str
            The folder, which is there.
        spelling : str
            What the caller calls it, for errors.

        Raises
        ------
        LockedError
            It is claimed already, under whatever spelling.
        """

    def claimed_as(self, path: str) -> str | None:
        """Return what the one of this process calls a folder who has claimed it; None where nobody has."""
