"""Finds the logs to look at that a path names: those of a log directory or a topic, or one partition's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparklog.errors import SeglogError
from sparklog.jobs.run.job import task_name
from sparklog.jobs.run.shares import task_slices
from sparklog.log.files import LOG, parse_offset_file
from sparklog.log.folders import holds_segments
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.registry import Location, PathText, expand, is_pattern
from sparklog.topic.places.discovery import PathKind, discover, interpret, places_at
from sparklog.topic.selection import ReplicaOptions

_TASK_BYTES: Final = 1 << 28


@dataclass(frozen=True)
class NamedLogs:
    """A path and the folders of the logs that it names.

    Attributes
    ----------
    is_directory : bool
        Whether the path is a log directory, and not only some of its partitions.
    """

    location: Location
    folders: tuple[PartitionFolder, ...]
    is_directory: bool = False

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def directory(self) -> LogDirectory:
        """The path as a log directory."""
        return LogDirectory(*self.location)


def logs_at(path: PathText, options: ReplicaOptions | None = None) -> NamedLogs:
    """Find the logs that a path names; ``options`` may merge replicas.

    Paths mean the same as in a read. In addition, a folder with segments counts as a log whatever its name, so that
    logs that Kafka has set aside, or someone has copied, can be looked at.

    Raises
    ------
    PathNotFoundError
        The path does not exist, or has no log.
    InvalidOptionError
        The text is not a valid path.
    """
    (located,) = places_at(path)
    if options is not None and options.merges_replicas:
        return NamedLogs(located, discover([located], options).partitions)
    matched = expand(located)
    if len(matched) == 1:
        place = interpret(matched[0], is_matched=is_pattern(located))
        if place.kind is PathKind.OTHER and holds_segments(place.folder.names):
            return NamedLogs(matched[0], (PartitionFolder.at(*matched[0]),))
        if place.kind is PathKind.LOG_DIRECTORY:
            return NamedLogs(matched[0], discover([located]).partitions, is_directory=True)
    return NamedLogs(located, discover([located]).partitions)


@dataclass(frozen=True)
class LogsTask:
    """A task that looks at some logs, one after the other.

    Attributes
    ----------
    directory : LogDirectory or None
        Their log directory, if it is looked at as a whole; a task without folders looks at the directory itself.
    is_search : bool
        Whether the task searches for records that must be absent.
    """

    name: str
    folders: tuple[PartitionFolder, ...] = ()
    size_bytes: int = 0
    directory: LogDirectory | None = None
    is_search: bool = False
    follows: int | None = None


def tasks_of_logs(
    folders: Sequence[PartitionFolder],
    workers: int,
    directory: LogDirectory | None = None,
    *,
    is_search: bool = False,
    look_bytes: int | None = None,
) -> Iterator[LogsTask]:
    """Distribute logs over tasks of about equal bytes.

    Parameters
    ----------
    look_bytes : int, optional
        The size that each log counts with, in bytes; by default the bytes of its segments.
    """
    sizes = [bytes_of_log(folder) if look_bytes is None else look_bytes for folder in folders]
    for rows in task_slices(sizes, _TASK_BYTES, workers):
        some = tuple(folders[rows])
        yield LogsTask(task_name([each.name for each in some]), some, sum(sizes[rows]), directory, is_search)


def bytes_of_log(folder: PartitionFolder) -> int:
    """Return the number of bytes of a log's segments; 0 if the folder cannot be listed."""
    with suppress(SeglogError):
        entries = folder.storage.entries(folder.location)
        return sum(each.size_bytes for each in entries if (at := parse_offset_file(each.name)) and at.suffix == LOG)
    return 0
