"""Cuts logs by hand: their beginning, as an admin's ``DeleteRecords``, or their end, as a follower's truncation.

Source: apache/kafka, UnifiedLog.java (maybeIncrementLogStartOffset, truncateTo).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sparklog.cleaner.opened import OpenedLog, open_to_clean
from sparklog.cleaner.removal import remove_before
from sparklog.cleaner.swap import remove_set_aside, set_aside
from sparklog.errors import InvalidOptionError, OffsetOutOfRangeError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.folders import refuse_to_write
from sparklog.log.layout import PartitionLayout
from sparklog.log.places import PartitionFolder
from sparklog.log.reader import LogReader
from sparklog.log.times import Time
from sparklog.storage.registry import PathText, expand_one, locate
from sparklog.write.clock import wall_clock_ms
from sparklog.write.journal import apply_journal
from sparklog.write.locking import hold, refuse_link
from sparklog.write.offset_checkpoints import BEFORE_LOG_END, lower_offset, set_offsets
from sparklog.write.recovery import recover
from sparklog.write.rolling import seal_active


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a log, the end exclusive."""

    start_offset: int
    end_offset: int


def delete_records(
    path: PathText,
    *,
    before_offset: int | None = None,
    before_time: Time | None = None,
    config: LogConfig | None = None,
    lock_timeout_seconds: float = 60.0,
) -> Extent:
    """Delete the records of a partition before an offset, or those before the first that is as late as a time.

    The log start offset is raised. Segments of which nothing is left go; in the one that is left, the records before
    the start are passed over by every reader.

    Parameters
    ----------
    path : str or os.PathLike
        The partition's folder, ``<topic>-<partition>``.
    before_offset : int, optional
        -1 is the log end offset, as of Kafka's admin client.
    before_time : int or datetime, optional
        ms since the epoch, or a datetime that has a time zone. Where no record is as late, all are deleted.
    config : LogConfig, optional
        For ``file.delete.delay.ms``.
    lock_timeout_seconds : float
        How long to wait for other writers; a running broker is not waited for.

    Returns
    -------
    Extent
        What the log has now.

    Raises
    ------
    InvalidOptionError
        Both or none of offset and time are given, or no partition has such a folder.
    OffsetOutOfRangeError
        The offset is past the end of the log.
    LockedError
        A broker runs on the directory, or another writer has it.
    """
    if (before_offset is None) == (before_time is None):
        raise InvalidOptionError("give one of before_offset and before_time")
    with _opened(path, config, lock_timeout_seconds) as (log, at):
        layout = log.layout
        if before_time is not None:
            found = LogReader(layout).offset_for_time(before_time)
            start = layout.end_offset if found is None else found
        else:
            start = layout.end_offset if before_offset == -1 else int(before_offset or 0)
        if not 0 <= start <= layout.end_offset:
            raise OffsetOutOfRangeError(
                f"records before offset {start} of {layout.path} cannot be deleted: it has offsets up to "
                f"{layout.end_offset}"
            )
        start = max(start, layout.start_offset)
        if start == layout.end_offset:
            log = log.roll()
        set_offsets(log.folder.directory, files.LOG_START_CHECKPOINT, {at: start})
        remove_before(log.folder, start, log.config, log.now_ms)
        return Extent(start, layout.end_offset)


def truncate_to(
    path: PathText, offset: int, *, config: LogConfig | None = None, lock_timeout_seconds: float = 60.0
) -> Extent:
    """Cut the end of a partition's log off, from an offset on.

    A batch is cut off whole, so that the log may end before the offset: at the end of the last batch that is wholly
    before it. What is cut off is gone for good: there is no ``.cut`` file, and of the segments that go whole the files
    stay for ``file.delete.delay.ms``. Killed on the way, it leaves a sound log that ends later; run it again.

    Parameters
    ----------
    path, config, lock_timeout_seconds
        As of `delete_records`.
    offset : int
        The first that is not to stay.

    Returns
    -------
    Extent
        What the log has now.

    Raises
    ------
    OffsetOutOfRangeError
        The offset is before the log start offset.
    InvalidOptionError, LockedError
        As of `delete_records`.
    """
    with _opened(path, config, lock_timeout_seconds) as (log, at):
        layout, folder = log.layout, log.folder
        if offset < layout.start_offset:
            raise OffsetOutOfRangeError(
                f"{layout.path} cannot be cut at offset {offset}: it begins at offset {layout.start_offset}"
            )
        if offset >= layout.end_offset:
            return Extent(layout.start_offset, layout.end_offset)
        gone = _to_set_aside(layout, offset)
        is_all = len(gone) == len(layout.segments)
        # Everything from the segment on may be gone when this is interrupted.
        left = layout.start_offset if is_all else layout.segments[layout.segment_of(offset)].base_offset
        for name in BEFORE_LOG_END:
            # Before the log ends earlier: one that ends before its recovery point has lost its end, for recovery.
            lower_offset(folder.directory, name, at, left)
        for base in gone:
            # On the disk before the next one goes: what is left is always a whole log.
            set_aside(folder, [base], log.config.file_delete_delay_ms, log.now_ms)
            folder.writable.sync_folder(folder.location)
        if not log.config.file_delete_delay_ms:
            remove_set_aside(folder, gone)
        if not is_all:
            _cut(log, offset)
        found = recover(folder, log.config, log.now_ms, is_quiet=True)
        seal_active(folder, found.state, found.producers)
        return Extent(found.start_offset, found.state.end_offset)


@contextmanager
def _opened(
    path: PathText, config: LogConfig | None, lock_timeout_seconds: float
) -> Iterator[tuple[OpenedLog, TopicPartition]]:
    located = expand_one(locate(path))
    folder = PartitionFolder.at(located.storage, located.path)
    at = folder.topic_partition
    if at is None:
        raise InvalidOptionError(f"{path} is not named as a partition's folder, <topic>-<partition>")
    refuse_link(folder)
    refuse_to_write(folder)
    with hold(folder.directory, lock_timeout_seconds):
        apply_journal(folder.directory)
        yield open_to_clean(folder, config or LogConfig(), wall_clock_ms()), at


def _to_set_aside(layout: PartitionLayout, offset: int) -> list[int]:
    """Return the base offsets of the segments that go whole, in the order in which they go: the last first.

    Where nothing is left from the log start on, all go, and the log begins anew at its start: batches that lie wholly
    before it would be a log that ends before it starts. Segments of such batches alone go before all others.
    """
    bases = [each.base_offset for each in layout.segments]
    row = -1
    first = None
    while first is None and row + 1 < len(layout.segments):
        row += 1
        with layout.segments[row].open() as opened:
            first = opened.first_batch_from(layout.start_offset)
    if first is not None and int(first.column("last_offset")[0]) < offset:
        return bases[: layout.segment_of(offset) : -1]
    return [*bases[:row], *reversed(bases[row:])]


def _cut(log: OpenedLog, offset: int) -> None:
    """Cut the segment that holds an offset at the batch that does."""
    segment = log.layout.segments[log.layout.segment_of(offset)]
    with segment.open() as opened:
        header = opened.first_batch_from(offset)
        position = None if header is None else int(header.column("position")[0])
    if position is not None:
        with log.folder.writable.open_for_append(segment.path()) as file:
            file.truncate(position)
            file.sync()
