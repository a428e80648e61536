"""Cuts the beginning of a log, like an admin's ``DeleteRecords``, or its end, like a follower's truncation.

Users call `sparklog.topic.cutting` instead, which obeys a topic's stored properties.

Source: apache/kafka, UnifiedLog.java (maybeIncrementLogStartOffset, truncateTo).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.cleaner.cuts import (
    Cut,
    Extent,
    deletion,
    extent_of,
    first_to_keep,
    refuse_before_start,
    to_set_aside,
    truncation,
)
from sparklog.cleaner.opened import OpenedLog, open_to_clean
from sparklog.cleaner.swap import remove_before, remove_set_aside, set_aside
from sparklog.errors import InvalidOptionError
from sparklog.log import files
from sparklog.log.clock import Time, wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.folders import refuse_to_write
from sparklog.log.layout import read_layout
from sparklog.log.places import PartitionFolder
from sparklog.write.journal import apply_journal
from sparklog.write.locking import hold, refuse_link
from sparklog.write.recovery import recover_log
from sparklog.write.rolling import seal_active
from sparklog.write.small_files import BEFORE_LOG_END, lower_offset, set_checkpoint_offsets


def cut_start(
    folder: PartitionFolder,
    *,
    before_offset: int | None = None,
    before_time: Time | None = None,
    config: LogConfig,
    lock_timeout_seconds: float,
) -> Extent:
    """Delete the records of a partition before an offset, or before the first record that is as late as a time.

    The log start offset is raised. Segments without remaining records are removed; in the first one left, records
    before the start are skipped by every reader. For parameters and errors see `sparklog.topic.cutting.delete_records`.
    """
    _refuse_two(before_offset, before_time)
    with _opened(folder, config, lock_timeout_seconds) as (log, at):
        layout = log.layout
        start = first_to_keep(layout, before_offset, before_time)
        if start == layout.end_offset:
            log = log.roll()
        set_checkpoint_offsets(log.folder.directory, files.LOG_START_CHECKPOINT, {at: start})
        remove_before(log.folder, start, log.config, log.now_ms)
        return Extent(start, layout.end_offset)


def cut_end(
    folder: PartitionFolder,
    offset: int,
    *,
    seen: Extent | None = None,
    config: LogConfig,
    lock_timeout_seconds: float,
) -> Extent:
    """Cut off the end of a partition's log, from an offset on.

    For parameters and errors see `sparklog.topic.cutting.truncate_to`.

    Parameters
    ----------
    seen : Extent, optional
        The offsets that the log must still have.

    Raises
    ------
    InvalidOptionError
        The log's offsets have changed since they were `seen`; nothing was cut.
    """
    with _opened(folder, config, lock_timeout_seconds) as (log, at):
        now = extent_of(log.layout)
        if seen is not None and seen != now:
            raise InvalidOptionError(
                f"{log.layout.path} had offsets [{seen.start_offset}, {seen.end_offset}) when it was looked at, and "
                f"has [{now.start_offset}, {now.end_offset}) now; nothing was cut: look at it again"
            )
        return _truncated(log, at, offset)


def look_at_deletion(
    folder: PartitionFolder, *, before_offset: int | None = None, before_time: Time | None = None
) -> Cut:
    """Return what `cut_start` would remove, without a lock or a change. Parameters and errors are the same."""
    _refuse_two(before_offset, before_time)
    _refuse_other(folder)
    layout = read_layout(folder)
    return deletion(layout, first_to_keep(layout, before_offset, before_time))


def look_at_truncation(folder: PartitionFolder, offset: int) -> Cut:
    """Return what `cut_end` would remove, without a lock or a change. Parameters and errors are the same."""
    _refuse_other(folder)
    layout = read_layout(folder)
    refuse_before_start(layout, offset)
    return truncation(layout, offset)


def _refuse_two(before_offset: int | None, before_time: Time | None) -> None:
    if (before_offset is None) == (before_time is None):
        raise InvalidOptionError("give one of before_offset and before_time")


def _truncated(log: OpenedLog, at: TopicPartition, offset: int) -> Extent:
    """Cut an opened log at an offset, and return its new extent."""
    layout, folder = log.layout, log.folder
    refuse_before_start(layout, offset)
    if offset >= layout.end_offset:
        return Extent(layout.start_offset, layout.end_offset)
    gone = to_set_aside(layout, offset)
    is_all = len(gone) == len(layout.segments)
    # An interruption can leave nothing from the segment on.
    left = layout.start_offset if is_all else layout.segments[layout.segment_of(offset)].base_offset
    if is_all and left:
        # The names of its segments alone may say where it starts, and no segment stays.
        set_checkpoint_offsets(folder.directory, files.LOG_START_CHECKPOINT, {at: left})
    for name in BEFORE_LOG_END:
        # Before the log ends earlier: one that ends before its recovery point has lost its end, for recovery.
        lower_offset(folder.directory, name, at, left)
    for base in gone:
        # On the disk before the next one is removed, so that a whole log is left at any time.
        set_aside(folder, [base], log.config.file_delete_delay_ms, log.now_ms)
        folder.writable.sync_folder(folder.location)
    if not log.config.file_delete_delay_ms:
        remove_set_aside(folder, gone)
    if not is_all:
        _cut(log, offset)
    found = recover_log(folder, log.config, log.now_ms, is_quiet=True)
    seal_active(folder, found.state, found.producers)
    return Extent(found.start_offset, found.state.end_offset)


@contextmanager
def _opened(
    folder: PartitionFolder, config: LogConfig, lock_timeout_seconds: float
) -> Iterator[tuple[OpenedLog, TopicPartition]]:
    at = _refuse_other(folder)
    with hold(folder.directory, lock_timeout_seconds):
        apply_journal(folder.directory)
        yield open_to_clean(folder, config, wall_clock_ms()), at


def _refuse_other(folder: PartitionFolder) -> TopicPartition:
    """Return the partition of a folder; raise `InvalidOptionError` if it may not be written to."""
    at = folder.topic_partition
    if at is None:
        raise InvalidOptionError(f"{folder.location} is not named as a partition's folder, <topic>-<partition>")
    refuse_link(folder)
    refuse_to_write(folder)
    return at


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
