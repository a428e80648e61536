"""Reads Kafka's internal topics as tables; public as ``sparklog.views``.

A view is a table with one of the names in `NAMES`, such as ``consumer_offsets``. It has the current state, as a broker
that loads the logs would have it, or with ``history`` every record of the logs. `sparklog.system` makes the rows of one
log; this module finds paths and joins the logs of a topic. Offsets that sparklog's consumers have committed in a log
directory (``seglog.offsets``) are in the current state of offsets and groups if they are later than the logs' offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from sparklog.errors import InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.log import files
from sparklog.log.checkpoints import parse_topic_id
from sparklog.log.files import parse_partition_folder
from sparklog.log.folders import what_it_is
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.registry import PathText, paths_of
from sparklog.system.records import InternalLog, Undecodable
from sparklog.system.views import VIEWS, View, view_of
from sparklog.topic.internal.group_tables import OF_GROUPS, GroupOffsetsOf
from sparklog.topic.places.discovery import discover, log_directories, place_at
from sparklog.topic.selection import Selection

NAMES: Final = tuple(VIEWS)
"""The names of the views."""

_Paths = PathText | Sequence[PathText]


def schema(name: str, *, history: bool = False) -> pa.Schema:
    """Return the columns of a view.

    Raises
    ------
    InvalidOptionError
        There is no such view.
    """
    return view_of(name).schema_of(history=history)


def read(
    path: _Paths, name: str, *, history: bool = False, storage_options: Mapping[str, Any] | None = None
) -> pa.Table:
    """Read a view.

    Parameters
    ----------
    path : str, os.PathLike or a sequence of them
        A log directory, the path of the internal topic, or the folder of one of its partitions.
    name : str
        One of `NAMES`.
    history : bool
        Whether to return every record instead of the current state.
    storage_options : mapping of str to str, optional
        The options of paths that are URLs, such as ``endpoint``; see `sparklog.place`.

    Returns
    -------
    pyarrow.Table
        The view in the columns of `schema`. Records that cannot be decoded are in the history as their bytes, and
        missing from the current state; one warning counts them.

    Raises
    ------
    InvalidOptionError
        There is no such view.
    PathNotFoundError
        The path does not exist, or lacks the internal topic.
    CorruptLogError
        A batch of a log is damaged.
    CorruptCheckpointError
        The offsets committed by sparklog's consumers cannot be read.
    """
    rows = batches(path, name, history=history, storage_options=storage_options)
    return pa.Table.from_batches(rows, schema=schema(name, history=history))


def batches(
    path: _Paths, name: str, *, history: bool = False, storage_options: Mapping[str, Any] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read a view, some rows at a time; for parameters and errors see `read`.

    Yields
    ------
    pyarrow.RecordBatch
        A batch of one log. The rows of a history are in the order of their log.
    """
    with with_storage_options(storage_options):
        return find_view(path, name, history=history).batches()


@dataclass(frozen=True)
class FoundView:
    """A view, and the sources of its rows.

    Attributes
    ----------
    name : str
        The name of the view.
    folders : tuple of PartitionFolder
        The logs of the internal topic; empty if only sparklog's consumers have committed.
    own : GroupOffsetsOf
        Offsets committed by sparklog's consumers; empty in a history, which `seglog.offsets` does not keep.
    history : bool
        Whether every record is a row.
    """

    name: str
    folders: tuple[PartitionFolder, ...]
    own: GroupOffsetsOf
    history: bool = False

    def parts(self) -> list[FoundView]:
        """Return parts that can be read separately: one per log, or a single one if ``own`` must be merged in."""
        if self.own.groups:
            return [self]
        return [replace(self, folders=(folder,)) for folder in self.folders]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see the function `batches`."""
        view = view_of(self.name)
        rows = _rows_of(view, self.folders, self.history)
        return self.own.over(pa.Table.from_batches(rows, schema=view.schema), self.name) if self.own.groups else rows


def find_view(path: _Paths, name: str, *, history: bool = False) -> FoundView:
    """Find the sources of a view; for parameters see `read`.

    Raises
    ------
    InvalidOptionError
        There is no such view.
    PathNotFoundError
        The path does not exist or lacks the internal topic, and none of sparklog's consumers has committed there.
    CorruptCheckpointError
        The offsets committed by sparklog's consumers cannot be read.
    """
    try:
        folders = _find_logs(path, name)
    except PathNotFoundError as error:
        own = _own_offsets(path, name)
        if own.groups and history:
            raise PathNotFoundError(f"{error}; {files.GROUP_OFFSETS} is there, and keeps no history") from error
        if not own.groups:
            raise
        return FoundView(name, (), own)
    return FoundView(name, tuple(folders), GroupOffsetsOf() if history else _own_offsets(path, name), history)


def _own_offsets(path: _Paths, name: str) -> GroupOffsetsOf:
    if name not in OF_GROUPS:
        return GroupOffsetsOf()
    return GroupOffsetsOf.directories(log_directories(paths_of(path)))


def _find_logs(path: _Paths, name: str) -> list[PartitionFolder]:
    paths = paths_of(path)
    topic = view_of(name).topic
    return [_metadata_log(paths)] if topic == files.METADATA_TOPIC else discover(paths).select(Selection((topic,)))


def _metadata_log(paths: Sequence[PathText]) -> PartitionFolder:
    """Find the log of a cluster's metadata, which discovery does not list, by its folder or its log directory."""
    if len(paths) != 1:
        raise InvalidOptionError(
            f"{len(paths)} paths are given, and the metadata of one cluster is read: name one path"
        )
    storage, path = place_at(paths[0])
    folder = PartitionFolder.at(storage, path)
    if folder.name != files.METADATA_FOLDER:
        folder = LogDirectory(storage, path).folder(files.METADATA_FOLDER)
    if not storage.is_folder(folder.location):
        raise PathNotFoundError(f"no {files.METADATA_FOLDER} at {path}: {what_it_is(storage, path)}")
    return folder


def _rows_of(view: View, folders: Sequence[PartitionFolder], history: bool) -> Iterator[pa.RecordBatch]:
    unreadable = Undecodable()
    # Once per directory, however many logs of the topic it has.
    topic_names = lru_cache(maxsize=None)(_topic_names) if view.names_topics and not history else _no_names
    for folder in folders:
        log = InternalLog(read_layout(folder), topic_names(folder.directory))
        yield from view.batches(log, unreadable, history=history)
    unreadable.warn(is_history=history)


def read_one(folder: PartitionFolder, name: str, *, history: bool) -> Iterator[pa.RecordBatch]:
    """Read the rows that one log of the internal topic adds to a view."""
    return _rows_of(view_of(name), [folder], history)


def _no_names(_: LogDirectory) -> dict[str, str]:
    return {}


def _topic_names(directory: LogDirectory) -> dict[str, str]:
    """Return the topics of a log directory by topic id, for partitions that store one."""
    found: dict[str, str] = {}
    named: set[str] = set()
    for each in directory.storage.names(directory.path):
        at = parse_partition_folder(each.name) if each.is_folder else None
        if at is None or at.topic in named:
            continue
        topic_id = _topic_id(directory.folder(each.name))
        if topic_id is not None:
            named.add(at.topic)
            found[topic_id] = at.topic
    return found


def _topic_id(folder: PartitionFolder) -> str | None:
    path = folder.file(files.PARTITION_METADATA)
    try:
        data = folder.storage.read_small(path)
        return None if data is None else parse_topic_id(data, path)
    except SeglogError:
        return None
