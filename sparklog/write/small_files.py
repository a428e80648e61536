"""Changes a log directory so that a crash or a power cut leaves it whole: makes it, and replaces its small files.

In offset checkpoints single lines are changed; the caller has locked the directory. The lines of other logs stay. A
damaged checkpoint is refused, since its lines about other logs would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sparklog.log import files
from sparklog.log.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from sparklog.log.files import TopicPartition, being_written
from sparklog.log.places import LogDirectory, PartitionFolder, split_path
from sparklog.storage.capabilities import to_writable


def make_directory(directory: LogDirectory) -> None:
    """Make a log directory and its parents, unless they exist, and put their names on the disk.

    Syncing a folder does not sync the folder's own name, which its parent holds.
    """
    storage, parents = to_writable(directory.storage, directory.path), []
    path = whole = storage.real(directory.path)
    while path != "/" and not storage.is_folder(path):
        path, _ = split_path(path)
        parents.append(path)
    if not parents and not storage.names(whole):
        # Its maker may have died before the name was on the disk.
        parents = [split_path(whole)[0]]
    directory.writable.make_folder(directory.path)
    storage.sync_folders(parents)


def write_atomically(folder: LogDirectory | PartitionFolder, name: str, data: bytes) -> None:
    """Replace a small file atomically, and sync it."""
    storage, beside = folder.writable, folder.file(being_written(name))
    with storage.create(beside, like=folder.file(name)) as file:
        file.append(data)
        file.sync()
    storage.rename(beside, folder.file(name))
    storage.sync_folder(folder.location)


BEFORE_LOG_END: Final = (files.RECOVERY_POINT_CHECKPOINT, files.HIGH_WATERMARK_CHECKPOINT, files.CLEANER_CHECKPOINT)
"""The checkpoints whose offsets are at or before the end of their log."""


def set_checkpoint_offsets(directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set lines of a checkpoint.

    Raises
    ------
    CorruptCheckpointError
        The checkpoint is damaged.
    """
    _change(directory, name, lambda known: {**known, **offsets})


def lower_offset(directory: LogDirectory, name: str, at: TopicPartition, offset: int) -> None:
    """Lower the line of a log to an offset, if it is above; for errors see `set_checkpoint_offsets`."""
    _change(directory, name, lambda known: {**known, at: offset} if known.get(at, offset) > offset else known)


def keep_offsets(directory: LogDirectory, name: str, is_kept: Callable[[TopicPartition], bool]) -> None:
    """Remove the lines of a checkpoint for which ``is_kept`` is false; for errors see `set_checkpoint_offsets`."""
    _change(directory, name, lambda known: {at: offset for at, offset in known.items() if is_kept(at)})


def _change(
    directory: LogDirectory, name: str, change: Callable[[dict[TopicPartition, int]], dict[TopicPartition, int]]
) -> None:
    path = directory.file(name)
    known = parse_offset_checkpoint(directory.storage.read_small(path) or b"", path)
    changed = change(known)
    if changed != known:
        write_atomically(directory, name, encode_offset_checkpoint(changed))
