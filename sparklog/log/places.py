"""The places of logs: a log directory, and the folder of one partition's log in it.

These two values include their storage. They are made where the text of a path is read, and passed to all code that
works on logs: plans, tasks, recovery and commits. Their pickles are small. Paths of files are made here, from the names
in `sparklog.log.files`; nothing else below `topic` splits or joins paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sparklog.log.files import TopicPartition, offset_file_name, parse_partition_folder
from sparklog.storage.base import Storage, WritableStorage
from sparklog.storage.capabilities import to_writable


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker, existing or planned.

    Attributes
    ----------
    path : str
        The absolute path, as the storage names it.
    """

    storage: Storage
    path: str

    @property
    def writable(self) -> WritableStorage:
        """The storage, for changes beneath the directory; raises `InvalidOptionError` if it is read only."""
        return to_writable(self.storage, self.path).beneath(self.path)

    @property
    def location(self) -> str:
        """The path of the directory, under the name that both kinds of places have."""
        return self.path

    def file(self, name: str) -> str:
        """Return the path of a file; ``name`` is relative to the directory."""
        return join_path(self.path, name)

    def folder(self, name: str) -> PartitionFolder:
        """Return the folder of a log by its name, which need not be a partition's."""
        found = parse_partition_folder(name)
        return PartitionFolder(self, name, None) if found is None else PartitionFolder(self, *found)


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """The folder of one partition's log.

    Attributes
    ----------
    topic : str
        The topic; the name of the folder, if that is not ``<topic>-<partition>``, as in a copy.
    partition : int or None
        The partition's number; None for a folder with another name.
    name : str
        The folder's name.
    location : str
        The path of the folder itself.
    """

    directory: LogDirectory
    topic: str
    partition: int | None
    # Joined once: a commit makes dozens of paths in each of thousands of folders.
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

    def pinned(self) -> Self:
        """Return the folder as it is now: a remote storage opens only the listed versions of its files."""
        if not self.storage.capabilities.is_remote:
            return self
        storage = self.storage.pinned((self.directory.path, self.location))
        return self if storage is self.storage else replace(self, directory=replace(self.directory, storage=storage))

    @property
    def copies(self) -> tuple[PartitionFolder, ...]:
        """The folders that hold the log: this one, or its replicas' folders."""
        return (self,)

    @property
    def writable(self) -> WritableStorage:
        """The storage, for changes; raises `InvalidOptionError` if it is read only."""
        return self.directory.writable

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition in the folder's name; None if the name is no partition's."""
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


@dataclass(frozen=True, slots=True)
class ReplicatedFolder(PartitionFolder):
    """The folders of one partition's log in several log directories, to be read as one log.

    As a folder, it is one of them: the leader's, once the layout has been read.

    Attributes
    ----------
    replicas : tuple of PartitionFolder
        The folders.
    replicas_min : int or None
        How many of them must have a record; None if the log ends at the high watermark.
    """

    replicas: tuple[PartitionFolder, ...]
    replicas_min: int | None

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplicatedFolder, (self.directory, self.topic, self.partition, self.replicas, self.replicas_min)

    @property
    def copies(self) -> tuple[PartitionFolder, ...]:
        return self.replicas


def foresee(folders: Iterable[PartitionFolder]) -> None:
    """Have each storage list some folders of logs in one pass, for the present look."""
    names: dict[LogDirectory, list[str]] = {}
    for folder in (copy for each in folders for copy in each.copies):
        names.setdefault(folder.directory, []).append(folder.name)
    for directory, found in names.items():
        if directory.storage.capabilities.is_remote:
            directory.storage.foresee(directory.path, found)


def relative_path(folder: str, name: str) -> str:
    """Return the path of a file in a folder, relative to the log directory, by both names."""
    return f"{folder}/{name}"


def path_of(*parts: str) -> str:
    """Join names to a relative path, without empty ones."""
    return "/".join(part for part in parts if part)


def folder_of(relative: str) -> str:
    """Return the folder's name in a path relative to the log directory; empty for a file of the directory itself."""
    return relative.rpartition("/")[0]


def folders_of(relative: str) -> list[str]:
    """Return the names of the folders in a relative path, from the outermost on."""
    return relative.split("/")[:-1]


def split_path(path: str) -> tuple[str, str]:
    """Split a path into its folder's path and its last name; the name of the root is empty."""
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent or "/", name


def join_path(folder: str, name: str) -> str:
    """Return the path of a file in the folder at a path."""
    return f"/{name}" if folder == "/" else f"{folder}/{name}"


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder's or lies in it; both are absolute and have no links."""
    return path == folder or path.startswith(join_path(folder, ""))
