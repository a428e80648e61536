"""Finds the logs of a path on the command line: a log directory, a topic, a partition's folder, or one file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparklog.errors import StorageError
from sparklog.log.files import LOG, parse_offset_file
from sparklog.log.folders import holds_segments
from sparklog.log.places import LogDirectory, PartitionFolder, split_path
from sparklog.storage.process import usable_cores
from sparklog.storage.registry import Location, expand, is_pattern, locate
from sparklog.topic.places.discovery import PathKind, discover, interpret

_FOLDERS_WORTH_PROCESSES: Final = 512
_BYTES_WORTH_PROCESSES: Final = 1 << 28


@dataclass(frozen=True)
class CliPath:
    """A path and the folders of logs that it names.

    Attributes
    ----------
    is_directory : bool
        Whether it is a log directory, and not only some of its partitions.
    """

    location: Location
    folders: tuple[PartitionFolder, ...]
    is_directory: bool = False

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def directory(self) -> LogDirectory:
        """The log directory that the path is of."""
        return LogDirectory(*self.location)


def find_path(path: str) -> CliPath:
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
    matched = expand(located)
    if len(matched) == 1:
        place = interpret(matched[0], is_matched=is_pattern(located))
        if place.kind is PathKind.OTHER and holds_segments(place.folder.names):
            return CliPath(matched[0], (PartitionFolder.at(*matched[0]),))
        if place.kind is PathKind.LOG_DIRECTORY:
            return CliPath(matched[0], discover([located]).partitions, is_directory=True)
    return CliPath(located, discover([located]).partitions)


def is_file(path: str) -> bool:
    """Tell whether there is a file at a path."""
    storage, plain = locate(path)
    parent, name = split_path(plain)
    if storage.is_folder(plain) or not storage.is_folder(parent):
        return False
    return any(entry.name == name for entry in storage.entries(parent))


def logs_size(target: CliPath) -> int:
    """Return how many bytes the segments below a target have; those of a folder that cannot be listed are not known."""
    total_bytes = 0
    for folder in target.folders:
        with suppress(StorageError):
            total_bytes += sum(
                entry.size_bytes
                for entry in folder.storage.entries(folder.location)
                if (found := parse_offset_file(entry.name)) and found.suffix == LOG
            )
    return total_bytes


def processes_for(folders: int, work_bytes: int, given: int | None) -> int:
    """Return how many processes should work on some folders: one where starting more takes longer than the work."""
    if given is None and folders < _FOLDERS_WORTH_PROCESSES and work_bytes < _BYTES_WORTH_PROCESSES:
        return 1
    return max(1, min(given or usable_cores(), folders))
