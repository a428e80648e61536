"""Removes the beginning or the end of a log.

The new log start offset is on the disk before any file is removed. Whole segments before it are then set aside; of
the segment that holds it nothing is cut, and readers pass over the records before it.

Source: apache/kafka, UnifiedLog.java (maybeIncrementLogStartOffset, deleteSegments, truncateTo), LeaderEpochFileCache.
"""

from __future__ import annotations

from sparklog.cleaner.swap import remove_set_aside, set_aside
from sparklog.errors import CorruptCheckpointError
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, parse_leader_epochs
from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.log.segment_listing import list_segments
from sparklog.write.small_files import write_atomically


def remove_before(folder: PartitionFolder, start_offset: int, config: LogConfig, now_ms: int) -> list[Segment]:
    """Set aside the segments wholly before the log start offset, which the checkpoint has already.

    Returns
    -------
    list of Segment
        The removed segments.
    """
    gone = [each for each in list_segments(folder) if each.upper_offset <= start_offset]
    _trim_epochs_before(folder, start_offset)
    if gone:
        bases = [each.base_offset for each in gone]
        set_aside(folder, bases, config.file_delete_delay_ms, now_ms)
        folder.writable.sync_folder(folder.location)
        if not config.file_delete_delay_ms:
            remove_set_aside(folder, bases)
    return gone


def _trim_epochs_before(folder: PartitionFolder, start_offset: int) -> None:
    """Drop the leader epochs of a log that end before its start offset."""
    path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
    try:
        epochs = parse_leader_epochs(folder.storage.read_small(path) or b"", path)
    except CorruptCheckpointError:
        # Recovery makes it again from the batches.
        return
    before = [epoch for epoch, offset in epochs if offset <= start_offset]
    kept = [(epoch, offset) for epoch, offset in epochs if offset > start_offset]
    trimmed = [(before[-1], start_offset), *kept] if before else kept
    if trimmed != epochs:
        write_atomically(folder, files.LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(trimmed))
