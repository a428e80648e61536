"""Changes a log directory so that a crash or a power cut leaves it whole: makes it, and replaces its small files.

In offset checkpoints single lines are changed; the caller has locked the directory. The lines of other logs stay. A
damaged checkpoint is refused, since its lines about other logs would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from sparklog.errors import StorageError
from sparklog.log import files
from sparklog.log.checkpoints import encode_offset_checkpoint
from sparklog.log.directory_view import CheckpointOffsets, kept_checkpoints, read_offsets
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
    # A lock shows that the directory is in use, so that nobody lists all its logs to see that it is not empty.
    is_in_use = storage.identity(directory.file(files.WRITERS_LOCK)) is not None
    if not parents and not is_in_use and not storage.names(whole):
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


def append_line(directory: LogDirectory, name: str, end_position: int, line: bytes, *, like: str) -> None:
    """Write a line to a file of checked lines, and sync it. Whoever writes the file holds its lock.

    Parameters
    ----------
    end_position : int
        The end of the lines in the file; whatever follows is cut off, since a crash has left it. If it is 0, the file
        is replaced: bytes that count for nothing must never mix with new ones.
    like : str
        The name of the file whose owner and mode a new file gets.
    """
    storage, path = directory.writable, directory.file(name)
    with storage.open_for_append(path) if end_position else storage.create(path, directory.file(like)) as file:
        if file.size_bytes() != end_position:
            file.truncate(end_position)
        # All before the line must be on the disk, so that a power cut damages no line but the last. A process may have
        # died before it had synced its own.
        if end_position:
            file.sync()
        else:
            storage.sync_folder(directory.path)
        try:
            file.append(line)
            file.sync()
        except StorageError:
            # The error means to the caller that nothing was written.
            with suppress(StorageError):
                file.truncate(end_position)
            raise


BEFORE_LOG_END: Final = (files.RECOVERY_POINT_CHECKPOINT, files.HIGH_WATERMARK_CHECKPOINT, files.CLEANER_CHECKPOINT)
"""The checkpoints whose offsets are at or before the end of their log."""


def set_checkpoint_offsets(directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set lines of a checkpoint.

    Raises
    ------
    CorruptCheckpointError
        The checkpoint is damaged.
    """
    known = read_offsets(directory, name)
    if any(known.get(at) != offset for at, offset in offsets.items()):
        _write(directory, name, {**known, **offsets})


def lower_offset(directory: LogDirectory, name: str, at: TopicPartition, offset: int) -> None:
    """Lower the line of a log to an offset, if it is above; for errors see `set_checkpoint_offsets`."""
    if read_offsets(directory, name).get(at, offset) > offset:
        set_checkpoint_offsets(directory, name, {at: offset})


def keep_offsets(directory: LogDirectory, name: str, topic: str, is_kept: Callable[[TopicPartition], bool]) -> None:
    """Remove the lines of a topic for which ``is_kept`` is false; for errors see `set_checkpoint_offsets`."""
    known = read_offsets(directory, name)
    gone = {at for at in known.of_topic(topic) if not is_kept(at)}
    if gone:
        _write(directory, name, {at: offset for at, offset in known.items() if at not in gone})


def _write(directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    data = encode_offset_checkpoint(offsets)
    write_atomically(directory, name, data)
    kept_checkpoints.written(directory, name, data, CheckpointOffsets(offsets))
