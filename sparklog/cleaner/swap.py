"""Replaces old segments by new ones, with a broker's renames, so that either side can finish the other's swap.

    <base>.log.cleaned   the new segments are being written: files found in this state are removed
    <base>.log.swap      they are written. Once no ``.cleaned`` file is left, the swap is decided: whoever opens the log
                         removes the old segments from the first new base offset up to the last new end, and goes on
    <base>.log.deleted   an old file: no part of the log any more. It stays for ``file.delete.delay.ms``
    <base>.log           a new file, in place

The names are the journal; there is no other. Readers look through a swap that was decided (`sparklog.log.layout`), and
recovery finishes it (`sparklog.write.recovery`). Of several new segments the last is renamed first. A log is renamed
before its indexes: a broker before 3.0 removes all indexes of a segment beside which it finds an index' ``.swap`` file,
and makes them again.

Also removes the beginning of a log. The new log start offset is on the disk before any file is removed. Whole segments
before it are then set aside; of the segment that holds it nothing is cut, and readers pass over the records before it.

Source: apache/kafka, LocalLog.java (replaceSegments), LogLoader.java (removeTempFilesAndCollectSwapFiles),
UnifiedLog.java (maybeIncrementLogStartOffset, deleteSegments), LeaderEpochFileCache.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from sparklog.cleaner.new_segments import NewSegment
from sparklog.errors import CorruptCheckpointError, PathNotFoundError
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, parse_leader_epochs
from sparklog.log.clock import NS_PER_MS
from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.log.segment_listing import list_segments
from sparklog.write.small_files import write_atomically

_OF_SEGMENT: Final = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX)


def swap(
    folder: PartitionFolder, new: Sequence[NewSegment], old: Sequence[int], delete_delay_ms: int, now_ms: int
) -> None:
    """Replace old segments by new ones, which have been synced.

    Parameters
    ----------
    old : sequence of int
        The base offsets of the sources.
    delete_delay_ms : int
        How long the old files stay; 0 removes them at once.
    """
    storage = folder.writable
    for each in reversed(new):
        _rename(folder, each, files.CLEANED, files.SWAP)
    storage.sync_folder(folder.location)
    bases = {each.base_offset for each in new}
    set_aside(folder, old, delete_delay_ms, now_ms, kept_snapshots=bases)
    storage.sync_folder(folder.location)
    for each in new:
        _rename(folder, each, files.SWAP, "")
    storage.sync_folder(folder.location)
    if not delete_delay_ms:
        remove_set_aside(folder, old)


def _rename(folder: PartitionFolder, segment: NewSegment, suffix: str, new_suffix: str) -> None:
    for kind in segment.suffixes:
        folder.writable.rename(
            folder.path(segment.base_offset, kind + suffix), folder.path(segment.base_offset, kind + new_suffix)
        )


def set_aside(
    folder: PartitionFolder,
    bases: Sequence[int],
    delete_delay_ms: int,
    now_ms: int,
    kept_snapshots: Collection[int] = (),
) -> None:
    """Rename the files of segments, and the snapshots of their base offsets, to ``.deleted``."""
    storage = folder.writable
    for base in bases:
        suffixes = _OF_SEGMENT if base in kept_snapshots else (*_OF_SEGMENT, files.SNAPSHOT)
        for suffix in suffixes:
            deleted = folder.path(base, suffix + files.DELETED)
            with suppress(PathNotFoundError):
                storage.rename(folder.path(base, suffix), deleted)
                if delete_delay_ms:
                    # The delay counts from this time.
                    storage.set_modified_ns(deleted, now_ms * NS_PER_MS)


def remove_set_aside(folder: PartitionFolder, bases: Sequence[int]) -> None:
    """Remove the files of segments that have been set aside."""
    for base in bases:
        for suffix in (*_OF_SEGMENT, files.SNAPSHOT):
            folder.writable.remove(folder.path(base, suffix + files.DELETED))


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
