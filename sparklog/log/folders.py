"""Recognises log directories and partitions' folders, by their contents first and then by their names.

A name alone proves little: a log directory may be called ``kafka-logs-1``, and ``/etc`` has a ``dbus-1``. In this
order:

- a file that only a log directory has (``meta.properties``, a checkpoint, ``.lock``, the marker of a clean shutdown, or
  one of our own) makes it a log directory;
- so does the folder of a partition in it, unless it holds a partition's files itself: then it is ambiguous;
- a partition's folder is named ``<topic>-<n>``, and holds a partition's files (segments, indexes, snapshots,
  ``leader-epoch-checkpoint``, ``partition.metadata``) or only unfinished files;
- a folder of another name with segments is a copy of one, or one that Kafka has set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from sparklog.errors import InvalidOptionError, PathNotFoundError, StorageError
from sparklog.log import files
from sparklog.log.files import parse_offset_file, parse_partition_folder
from sparklog.log.places import LogDirectory, PartitionFolder, split_path
from sparklog.storage.base import Name, Storage

_NAMES_SHOWN_MAX: Final = 8
_OF_DIRECTORY: Final = frozenset(
    {
        files.LOG_START_CHECKPOINT,
        files.RECOVERY_POINT_CHECKPOINT,
        files.HIGH_WATERMARK_CHECKPOINT,
        files.CLEANER_CHECKPOINT,
        files.BOOTSTRAP_CHECKPOINT,
        files.META_PROPERTIES,
        files.LOCK,
    }
)
_OF_SEGMENT: Final = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX, files.SNAPSHOT)
_OF_PARTITION: Final = (files.LEADER_EPOCH_CHECKPOINT, files.PARTITION_METADATA, files.LOG_IDENTITY)


class FolderKind(Enum):
    """The kinds of things at a path."""

    LOG_DIRECTORY = auto()
    PARTITION = auto()
    """Named ``<topic>-<n>``; also an empty one."""
    COPY = auto()
    """Segments in a folder of another name."""
    SET_ASIDE = auto()
    """Named ``-delete``, ``-future`` or ``-stray``."""
    MIXED = auto()
    """A partition's files together with partitions' folders, and no proof which of them counts."""
    EMPTY = auto()
    FOREIGN = auto()
    FILE = auto()
    NOTHING = auto()


class Folder(NamedTuple):
    """The kind of thing at a path, and the names in it, sorted."""

    kind: FolderKind
    names: list[Name]


def look_at(storage: Storage, path: str) -> Folder:
    """Recognise the thing at a path.

    Raises
    ------
    StorageError
        The folder cannot be listed.
    """
    try:
        names = storage.names(path)
    except PathNotFoundError:
        return Folder(FolderKind.NOTHING, [])
    except StorageError:
        if storage.is_folder(path):
            raise
        return Folder(FolderKind.NOTHING if storage.identity(path) is None else FolderKind.FILE, [])
    return Folder(_kind(storage, path, names), names)


def _kind(storage: Storage, path: str, names: list[Name]) -> FolderKind:
    if any(_is_of_directory(each) for each in names):
        return FolderKind.LOG_DIRECTORY
    holds_partition_files = any(_is_of_partition(each) for each in names)
    if _holds_partitions(storage, path, names):
        return FolderKind.MIXED if holds_partition_files else FolderKind.LOG_DIRECTORY
    _, name = split_path(path)
    if files.is_set_aside(name):
        return FolderKind.SET_ASIDE
    if parse_partition_folder(name) is not None:
        return FolderKind.PARTITION if _may_be_partition(names) else FolderKind.FOREIGN
    if holds_segments(names):
        return FolderKind.COPY
    return FolderKind.FOREIGN if names else FolderKind.EMPTY


def what_it_is(storage: Storage, path: str) -> str:
    """Describe the thing at a path where a partition was expected, as the end of a sentence."""
    (kind, within), (_, name) = look_at(storage, path), split_path(path)
    if kind is FolderKind.NOTHING:
        return "there is nothing"
    if kind is FolderKind.FILE:
        return "it is a file; give a folder: a log directory, <topic>-<partition>, or a topic's path"
    if files.METADATA_TOPIC in name:
        return "it is the metadata log of the cluster, which holds no topic's records"
    names = [each.name for each in within]
    if kind is FolderKind.LOG_DIRECTORY:
        partitions = [name for name in names if parse_partition_folder(name)]
        return f"it is a log directory, {f'of {listed(partitions)}' if partitions else 'which holds no partition yet'}"
    if kind is FolderKind.MIXED:
        return (
            f"it holds {listed([name for name in names if parse_partition_folder(name)])} as a log directory does, and "
            f"segments as a partition's folder does: move away what does not belong there"
        )
    if kind is FolderKind.SET_ASIDE:
        return "Kafka has set it aside (-delete, -future, -stray): to read its records, copy or rename it"
    if kind is FolderKind.COPY:
        return (
            f"it holds segments, but a folder's name must be <topic>-<partition>, with a partition of at most "
            f"{files.PARTITION_MAX}: copy or rename it"
        )
    return f"it holds {listed(names)}" if names else "it is empty"


def is_proven_directory(directory: LogDirectory) -> bool:
    """Return whether files, and not only names, prove that a folder is a log directory."""
    names = directory.storage.names(directory.path)
    return any(_is_of_directory(each) for each in names) or any(
        _is_of_partition(within)
        for each in names
        if each.is_folder and parse_partition_folder(each.name) is not None
        for within in directory.storage.names(directory.file(each.name))
    )


def refuse_to_write(folder: PartitionFolder) -> None:
    """Raise `InvalidOptionError` unless a folder is a partition's, or one may be made there. Change nothing.

    Parameters
    ----------
    folder : PartitionFolder
        The folder, with a path without links.
    """
    storage, path = folder.storage, folder.location
    if folder.partition is None:
        raise InvalidOptionError(f"a partition's folder is named <topic>-<partition>, and not {path!r}")
    kind = look_at(storage, path).kind
    if kind is FolderKind.NOTHING:
        files.checked_partition(folder.topic, folder.partition)
    elif kind is not FolderKind.PARTITION:
        raise InvalidOptionError(f"{path} is not the folder of a partition: {what_it_is(storage, path)}")
    if storage.is_folder(folder.directory.path):
        refuse_within_partition(folder.directory)


def refuse_within_partition(directory: LogDirectory) -> None:
    """Raise `InvalidOptionError` if a prospective log directory holds a partition's files itself."""
    if any(directory.storage.identity(directory.file(name)) for name in (files.WRITERS_LOCK, files.LOCK)):
        # A writer or a broker has taken it for a log directory: its names, one for each log, need not be listed.
        return
    names = directory.storage.names(directory.path)
    if any(_is_of_partition(each) for each in names) and not any(_is_of_directory(each) for each in names):
        raise InvalidOptionError(
            f"{directory.path} is not a log directory: it holds the files of a partition, such as "
            f"{next(each.name for each in names if _is_of_partition(each))}"
        )


def refuse_to_read(folder: PartitionFolder) -> None:
    """Raise `PathNotFoundError` unless a folder is a partition's, or holds the segments of one."""
    path = folder.location
    kind = look_at(folder.storage, path).kind
    if kind is FolderKind.NOTHING:
        raise PathNotFoundError(f"no such folder: {path}")
    if kind not in (FolderKind.PARTITION, FolderKind.COPY):
        raise PathNotFoundError(f"no partition's log at {path}: {what_it_is(folder.storage, path)}")


def holds_segments(names: Iterable[Name]) -> bool:
    """Return whether a folder's names include segments."""
    return any(_is_segment(each) for each in names)


def listed(names: Sequence[str]) -> str:
    """List the first few names, and count the rest."""
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return shown if len(names) <= _NAMES_SHOWN_MAX else f"{shown} and {len(names) - _NAMES_SHOWN_MAX} more"


def _is_of_directory(entry: Name) -> bool:
    if entry.is_folder or entry.name[:1].isdigit():
        # A segment's name; there may be many thousands.
        return False
    name = entry.name.removesuffix(files.BEING_WRITTEN)
    return (
        name in _OF_DIRECTORY or name.startswith((files.CLEAN_SHUTDOWN, files.OWN_PREFIX)) or files.is_running_job(name)
    )


def _is_of_partition(entry: Name) -> bool:
    if entry.is_folder:
        return False
    found = parse_offset_file(entry.name)
    is_offset_file = found is not None and found.suffix.startswith(_OF_SEGMENT)
    return is_offset_file or entry.name.removesuffix(files.BEING_WRITTEN) in _OF_PARTITION


def _is_segment(entry: Name) -> bool:
    if not entry.name.endswith(files.LOG):
        return False
    found = parse_offset_file(entry.name)
    return found is not None and found.suffix == files.LOG


def _may_be_partition(names: Iterable[Name]) -> bool:
    """Return whether a folder named like a partition is one: it holds a partition's files, or next to nothing."""
    has_foreign = False
    for each in names:
        if _is_of_partition(each):
            return True
        has_foreign |= not each.name.startswith(".") and not each.name.endswith(files.STAGED)
    return not has_foreign


def _holds_partitions(storage: Storage, path: str, names: Iterable[Name]) -> bool:
    """Return whether a folder contains a partition's folder, by name and contents."""
    for each in names:
        if not each.is_folder:
            continue
        if files.is_set_aside(each.name):
            return True
        if parse_partition_folder(each.name) is None:
            continue
        try:
            within = storage.names(LogDirectory(storage, path).file(each.name))
        except PathNotFoundError:
            continue
        except StorageError:
            # It may be one; only its owner could tell.
            return True
        if _may_be_partition(within) and not any(_is_of_directory(entry) for entry in within):
            return True
    return False
