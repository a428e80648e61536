"""Finds the logs that a path names, to look at them: a log directory, a topic, or the folder of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparklog.errors import SeglogError
from sparklog.jobs.run.shares import grouped
from sparklog.log.files import LOG, parse_offset_file
from sparklog.log.folders import holds_segments
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.registry import Location, PathText, expand, is_pattern
from sparklog.topic.places.discovery import PathKind, discover, interpret, places_at

_TASK_BYTES: Final = 1 << 28


@dataclass(frozen=True)
class NamedLogs:
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


def logs_at(path: PathText) -> NamedLogs:
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
    (located,) = places_at(path)
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
    """Looks at some logs, one after the other.

    Attributes
    ----------
    directory : LogDirectory or None
        The log directory of all of them, where it is looked at as a whole; without folders the task is that itself.
    is_search : bool
        Whether records are searched for that must be absent.
    """

    name: str
    folders: tuple[PartitionFolder, ...] = ()
    size_bytes: int = 0
    directory: LogDirectory | None = None
    is_search: bool = False
    follows: int | None = None


def tasks_of(
    folders: Sequence[PartitionFolder],
    workers: int,
    directory: LogDirectory | None = None,
    *,
    is_search: bool = False,
    look_bytes: int | None = None,
) -> Iterator[LogsTask]:
    """Share logs out among tasks of about equal bytes.

    Parameters
    ----------
    look_bytes : int, optional
        The number of bytes that a look at one log is worth; by default all bytes of its segments.
    """
    sizes = [_log_bytes(folder) if look_bytes is None else look_bytes for folder in folders]
    for rows in grouped(sizes, _TASK_BYTES, workers):
        some = tuple(folders[rows])
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        yield LogsTask(f"{some[0].name}{more}", some, sum(sizes[rows]), directory, is_search)


def _log_bytes(folder: PartitionFolder) -> int:
    """Return the number of bytes of a log's segments; 0 where the folder cannot be listed."""
    with suppress(SeglogError):
        entries = folder.storage.entries(folder.location)
        return sum(each.size_bytes for each in entries if (at := parse_offset_file(each.name)) and at.suffix == LOG)
    return 0
