"""Replaces the small files of a log directory atomically: a crash leaves the old file or the new one.

In offset checkpoints single lines are changed; the caller has locked the directory. The lines of other logs stay. A
damaged checkpoint is refused, since its lines about other logs would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sparklog.log import files
from sparklog.log.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from sparklog.log.files import TopicPartition, being_written
from sparklog.log.places import LogDirectory, PartitionFolder


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
