"""Checks the end of a log for recovery: where its sound batches end, and whether a crash may have torn the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sparklog.errors import CorruptBatchError, CorruptLogError
from sparklog.log import files
from sparklog.log.files import offset_file_name
from sparklog.log.layout import PartitionLayout
from sparklog.log.scans.losses import refuse_cut_end
from sparklog.log.scans.of_range import refuse_damaged_end, refuse_damaged_window
from sparklog.log.segment import OffsetPosition, OpenSegment, Segment
from sparklog.log.windows import Window
from sparklog.record.format.headers import BatchHeaders
from sparklog.write.recovery_actions import LOSSY, RecoveryActions


class SoundLog(NamedTuple):
    """A log whose end has been checked.

    Attributes
    ----------
    layout : PartitionLayout
        The log up to the end of its sound batches.
    tail : BatchHeaders or None
        The last consecutive batches before its end, with right checksums: as many as the check has
        seen together. None if they have not been read.
    """

    layout: PartitionLayout
    tail: BatchHeaders | None

    def tail_from(self, position: int) -> BatchHeaders | None:
        """Return the tail from the batch on that begins at a position; None if no batch of it does."""
        if self.tail is None:
            return None
        positions = self.tail.column("position")
        row = int(positions.searchsorted(position))
        return self.tail[row:] if row < len(positions) and positions[row] == position else None


def check_end(actions: RecoveryActions, layout: PartitionLayout, *, is_thorough: bool) -> SoundLog:
    """Check the batches that may not have been on the disk, or all; return the log up to the end of the sound ones.

    Raises
    ------
    CorruptLogError
        The damage is not at the end of the log, or no crash can have torn the end.
    """
    found = _checked(actions, layout, is_thorough=is_thorough)
    _refuse_damaged_tail(actions, found.layout)
    if found.tail is None or found.tail.column("record_count")[-1] < 0:
        # The checksum of the last batch has not been checked; or it is a wrapper, and its contents have not.
        refuse_damaged_end(found.layout)
    return found


def _refuse_damaged_tail(actions: RecoveryActions, layout: PartitionLayout) -> None:
    """Raise if the log ends within a batch that was on the disk, since no crash tears such a batch."""
    if not layout.segments or layout.segments[-1].size_bytes <= layout.end.position:
        return
    if not _may_be_torn(actions, layout.end_offset):
        last = layout.segments[-1]
        raise CorruptLogError(
            f"the last {last.size_bytes - layout.end.position} bytes are no whole batch, although all of it was on the "
            f"disk when its writer last said so, by a clean shutdown or the recovery point: they are damaged",
            path=last.path(),
            position=layout.end.position,
            offset=layout.end_offset,
            hint=LOSSY,
        )


def _may_be_torn(actions: RecoveryActions, offset: int) -> bool:
    return offset >= actions.view.synced_offset(actions.folder)


def _checked(actions: RecoveryActions, layout: PartitionLayout, *, is_thorough: bool) -> SoundLog:
    """Check the checksums and the order of batches up to the first damage, where a torn log ends."""
    tail: BatchHeaders | None = None
    for segment in _to_check(actions, layout, is_thorough=is_thorough):
        with segment.open() as log:
            # In a closed log only the last batches are checked, from a position that its index gives.
            is_closed = not is_thorough and _was_closed(actions, layout)
            tail, end = _sound_end(log, log.seek(layout.end_offset) if is_closed else log.start, layout)
            if end is None:
                continue
            if segment.is_last and end.is_unwritten and _may_be_torn(actions, end.start.offset):
                damage = log.judge_checksum(end.start, end.error.reason)
                if damage.may_be_torn:
                    return SoundLog(replace(layout, end=end.start, zeros_from=damage.zeros_from), None)
            raise end.error
    # A misleading index may have stopped the scan elsewhere.
    return SoundLog(layout, tail if tail is not None and _end_position(tail) == layout.end.position else None)


def _end_position(headers: BatchHeaders) -> int:
    return int(headers.column("position")[-1] + headers.column("batch_bytes")[-1])


class _FirstDamage(NamedTuple):
    """The first damaged batch of a segment.

    Attributes
    ----------
    start : OffsetPosition
        The offset and position where it begins.
    error : CorruptBatchError
        The error that describes the damage.
    is_unwritten : bool
        Whether its checksum is wrong, so that it may never have been written whole. An intact batch in a wrong place
        was written whole.
    """

    start: OffsetPosition
    error: CorruptBatchError
    is_unwritten: bool


def _sound_end(
    log: OpenSegment, start: OffsetPosition, layout: PartitionLayout
) -> tuple[BatchHeaders | None, _FirstDamage | None]:
    """Find the first damaged batch of a segment.

    Returns
    -------
    (BatchHeaders or None, _FirstDamage or None)
        The last batches of the segment that were checked together, and None; or None and the damage. Both are None
        if there is no batch.
    """
    segment, offset, is_checking = log.segment, start.offset, False
    window: Window | None = None
    try:
        for window in log.windows(start, end_position=layout.end.position if segment.is_last else None):
            is_checking = True
            refuse_damaged_window(segment, window)
            is_checking = False
            offset = int(window.headers.column("last_offset")[-1]) + 1
        refuse_cut_end(log, offset)
    except CorruptBatchError as error:
        position = error.position or 0
        if window is not None:
            before = window.headers.where(window.headers.column("position") < position)
            offset = max(offset, int(before.column("last_offset")[-1]) + 1) if len(before) else offset
        found = CorruptBatchError(error.reason, path=segment.path(), position=position, offset=offset, hint=LOSSY)
        found.__cause__ = error
        return None, _FirstDamage(OffsetPosition(position, offset), found, is_checking)
    return None if window is None else window.headers, None


def _to_check(actions: RecoveryActions, layout: PartitionLayout, *, is_thorough: bool) -> Sequence[Segment]:
    if is_thorough:
        return layout.segments
    return layout.segments[-1:] if _was_closed(actions, layout) else _unsynced(actions, layout)


def _was_closed(actions: RecoveryActions, layout: PartitionLayout) -> bool:
    """Return whether its last writer synced the whole log."""
    if actions.view.is_clean:
        return True
    return layout.end_offset == 0 or actions.lists(offset_file_name(layout.end_offset, files.SNAPSHOT))


def _unsynced(actions: RecoveryActions, layout: PartitionLayout) -> Sequence[Segment]:
    """Return the segments from the recovery point on; all before it were on the disk."""
    known = actions.view.recovery_point(actions.folder)
    first = len(layout.segments) - 1 if known is None else layout.segment_of(known)
    return layout.segments[first:]
