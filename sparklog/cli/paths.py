"""Finds the logs of a path on the command line: a log directory, a topic, a partition's folder, or one file."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.log.files import LOG, parse_offset_file, parse_partition_folder
from sparklog.log.folders import holds_segments
from sparklog.storage.registry import locate
from sparklog.topic.discovery import PathKind, discover, interpret


@dataclass(frozen=True)
class LogFolder:
    """A folder that holds a partition's log; of one that Kafka has set aside, only the name is known."""

    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def topic(self) -> str:
        found = parse_partition_folder(self.name)
        return found.topic if found else self.name

    @property
    def partition(self) -> int | None:
        found = parse_partition_folder(self.name)
        return found.partition if found else None


@dataclass(frozen=True)
class CliPath:
    """A path and the folders of logs that it names.

    Attributes
    ----------
    is_directory : bool
        Whether it is a log directory, and not only some of its partitions.
    """

    path: str
    folders: tuple[LogFolder, ...]
    is_directory: bool = False


def find_target(path: str) -> CliPath:
    """Tell what a path stands for.

    It is the same that a read takes it for. Beyond that, a folder that holds segments is taken for a log whatever its
    name, so that what Kafka has set aside, or someone has copied, can be looked at.

    Raises
    ------
    PathNotFoundError
        There is nothing, or no log.
    InvalidOptionError
        No file can have such a path.
    """
    located = locate(path)
    place = interpret(located.storage, located.path)
    if place.kind is PathKind.OTHER and holds_segments(place.folder.names):
        return CliPath(located.path, (LogFolder(located.path),))
    folders = tuple(LogFolder(found.folder) for found in discover([path]).partitions)
    return CliPath(located.path, folders, place.kind is PathKind.LOG_DIRECTORY)


def is_file(path: str) -> bool:
    """Tell whether there is a file at a path."""
    located = locate(path)
    parent, _, name = located.path.rpartition("/")
    if located.storage.is_folder(located.path) or not located.storage.is_folder(parent or "/"):
        return False
    return any(entry.name == name for entry in located.storage.entries(parent or "/"))


def log_bytes(target: CliPath) -> int:
    """Return how many bytes the segments below a target have."""
    storage = locate(target.path).storage
    return sum(
        entry.size_bytes
        for folder in target.folders
        for entry in storage.entries(folder.path)
        if (found := parse_offset_file(entry.name)) and found.suffix == LOG
    )
