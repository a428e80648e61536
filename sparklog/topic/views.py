"""Reads Kafka's internal topics as tables; public as ``sparklog.views``.

A view is a table by one of the names of `NAMES`, such as ``consumer_offsets``: its current state, as a broker that
loads the logs would have it, or with ``history`` every record of them. `sparklog.system` makes the rows of one log;
here are paths and the logs of a topic put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from sparklog.errors import SeglogError
from sparklog.log import files
from sparklog.log.checkpoints import parse_topic_id
from sparklog.log.files import parse_partition_folder
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.registry import PathText
from sparklog.system.records import InternalLog, Unreadable
from sparklog.system.views import VIEWS, View, view_of
from sparklog.topic.discovery import discover

NAMES: Final = tuple(VIEWS)
"""The names of the views."""

Paths = PathText | Sequence[PathText]


def schema(name: str, *, history: bool = False) -> pa.Schema:
    """Return the columns of a view.

    Raises
    ------
    InvalidOptionError
        There is no such view.
    """
    return view_of(name).schema_of(history=history)


def read(path: Paths, name: str, *, history: bool = False) -> pa.Table:
    """Read a view.

    Parameters
    ----------
    path : str, os.PathLike or a sequence of them
        A log directory, or the path or a partition's folder of the internal topic.
    name : str
        One of `NAMES`.
    history : bool
        Whether every record is wanted, and not the current state.

    Returns
    -------
    pyarrow.Table
        In the columns of `schema`. Records that cannot be decoded are in the history as their bytes, and not in the
        current state; one warning counts them.

    Raises
    ------
    InvalidOptionError
        There is no such view.
    PathNotFoundError
        There is nothing at the path, or not the internal topic.
    CorruptLogError
        A batch of a log is damaged.
    """
    return pa.Table.from_batches(batches(path, name, history=history), schema=schema(name, history=history))


def batches(path: Paths, name: str, *, history: bool = False) -> Iterator[pa.RecordBatch]:
    """Read a view, some rows at a time; as `read`.

    Yields
    ------
    pyarrow.RecordBatch
        Of one log each. The rows of a history are in the order of their log.
    """
    view, folders = view_of(name), find_logs(path, name)
    return _rows_of(view, folders, history)


def find_logs(path: Paths, name: str) -> list[PartitionFolder]:
    """Find the logs that a view is made of; parameters and errors as of `read`."""
    paths = [path] if isinstance(path, str) or not isinstance(path, Sequence) else path
    return discover(paths).named([view_of(name).topic])


def _rows_of(view: View, folders: Sequence[PartitionFolder], history: bool) -> Iterator[pa.RecordBatch]:
    unreadable = Unreadable()
    for folder in folders:
        yield from view.batches(open_internal(folder), unreadable, history=history)
    unreadable.warn(is_history=history)


def read_one(folder: PartitionFolder, name: str, *, history: bool) -> Iterator[pa.RecordBatch]:
    """Read what one log of `find_logs` adds to a view."""
    return _rows_of(view_of(name), [folder], history)


def open_internal(folder: PartitionFolder) -> InternalLog:
    """Look at one log, and at what the directory around it says."""
    return InternalLog(read_layout(folder), _topic_names(folder.directory))


def _topic_names(directory: LogDirectory) -> dict[str, str]:
    """Return the topics of a log directory by their ids, as far as its partitions say them."""
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
