"""Where logs are: a log directory, and the folder of one partition's log in it.

These two values bring their storage along, are made by whoever reads the text of a path, and are carried by all that
works on logs: plans, tasks, recovery and commits. They pickle small. Paths of files are made here, from the names that
`sparklog.log.files` makes; nothing else below `topic` cuts a path apart or puts one together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from sparklog.log.files import TopicPartition, offset_file_name, parse_partition_folder
from sparklog.storage.base import Storage, WritableStorage
from sparklog.storage.capabilities import to_writable


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker, or what is to be one.

    Attributes
    ----------
    path : str
        As the storage names it, absolute.
    """

    storage: Storage
    path: str

    @property
    def writable(self) -> WritableStorage:
        """The storage, to be changed beneath the directory; `InvalidOptionError` where that cannot be."""
        return to_writable(self.storage, self.path).beneath(self.path)

    @property
    def location(self) -> str:
        """The path of the directory: the same of either kind of place."""
        return self.path

    def file(self, name: str) -> str:
        """Return the path of a file; ``name`` is relative to the directory."""
        return join_path(self.path, name)

    def folder(self, name: str) -> PartitionFolder:
        """Return the folder of a log by its name, which may be one that no partition has."""
        found = parse_partition_folder(name)
        return PartitionFolder(self, name, None) if found is None else PartitionFolder(self, *found)


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """The folder of one partition's log.

    Attributes
    ----------
    topic : str
        The topic; of a folder whose name is not ``<topic>-<partition>``, as that of a copy, its name.
    partition : int or None
        None of a folder with another name.
    name : str
        The folder's name.
    location : str
        The path of the folder itself.
    """

    directory: LogDirectory
    topic: str
    partition: int | None
    # Made once, since a commit makes dozens of paths in each of thousands of folders.
    name: str = field(init=False, repr=False, compare=False)
    location: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "location", join_path(self.directory.path, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionFolder, (self.directory, self.topic, self.partition)

    @classmethod
    def at(cls, storage: Storage, path: str) -> Self:
        """Return the folder at an absolute path."""
        parent, name = split_path(path)
        found = LogDirectory(storage, parent).folder(name)
        return cls(found.directory, found.topic, found.partition)

    @property
    def storage(self) -> Storage:
        return self.directory.storage

    @property
    def writable(self) -> WritableStorage:
        """The storage, to be changed; `InvalidOptionError` where that cannot be."""
        return self.directory.writable

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition that the folder is named for; None where it is named otherwise."""
        return None if self.partition is None else TopicPartition(self.topic, self.partition)

    def file(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return f"{self.location}/{name}"

    def path(self, offset: int, suffix: str) -> str:
        """Return the path of a segment's file, or of a snapshot."""
        return self.file(offset_file_name(offset, suffix))

    def relative(self, name: str) -> str:
        """Return the path of a file in the folder, relative to the log directory."""
        return relative_path(self.name, name)


def relative_path(folder: str, name: str) -> str:
    """Return the path of a file in a folder by both names, relative to the log directory."""
    return f"{folder}/{name}"


def path_of(*parts: str) -> str:
    """Return the relative path that some names make, empty ones left out."""
    return "/".join(part for part in parts if part)


def folder_of(relative: str) -> str:
    """Return the name of the folder in a path that is relative to the log directory; empty of the directory's own."""
    return relative.rpartition("/")[0]


def folders_of(relative: str) -> list[str]:
    """Return the names of the folders in a relative path, from the outermost on."""
    return relative.split("/")[:-1]


def split_path(path: str) -> tuple[str, str]:
    """Cut a path into that of the folder which it is in, and its last name; the name of the root is empty."""
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent or "/", name


def join_path(folder: str, name: str) -> str:
    """Return the path of a file in the folder at a path."""
    return f"/{name}" if folder == "/" else f"{folder}/{name}"


def is_within(path: str, folder: str) -> bool:
    """Tell whether a path is that of a folder, or of something in it; both are absolute and have no links."""
    return path == folder or path.startswith(join_path(folder, ""))
