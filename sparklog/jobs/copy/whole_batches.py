"""Widens a range of offsets to the whole batches that a copy takes; only the batches at its ends are read."""

from __future__ import annotations

from sparklog.errors import CorruptBatchError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.layout import PartitionLayout, cut_at
from sparklog.log.reads.fates import stable_offset_past_damage
from sparklog.log.scans.of_range import refuse_damaged_end
from sparklog.log.scans.sound_range import scan_range_past_damage
from sparklog.log.transactions import last_stable_offset
from sparklog.log.windows import Window
from sparklog.record.batches.wrappers import last_offset_inside
from sparklog.topic.places.ranges import ReadRange


def whole_batches(wanted: ReadRange, layout: PartitionLayout, *, is_committed: bool, skips_damage: bool) -> ReadRange:
    """Widen a range to the batch at its end; if only decided transactions are copied, cut others off."""
    start, end = wanted.start_offset, wanted.end_offset
    if end == layout.end_offset:
        if not skips_damage:
            refuse_damaged_end(layout)
    elif end > start:
        end = _end_offset_at(layout, end - 1, skips_damage=skips_damage)
    stable = stable_offset_past_damage if skips_damage else last_stable_offset
    while is_committed and start < end < layout.end_offset:
        # A transaction decided before the last stable offset may have its marker after it, as within a log.
        stable_offset = stable(cut_at(layout, end))
        if stable_offset == end:
            break
        end = stable_offset
    return wanted.within(start, max(start, end))


def base_offset_at(layout: PartitionLayout, offset: int, *, skips_damage: bool) -> int:
    """Return the first offset of the batch that holds an offset, or the offset itself if no batch does."""
    window = _batch_at(layout, offset, skips_damage=skips_damage)
    if window is None:
        return offset
    base_offset = int(window.headers.column("base_offset")[0])
    if window.headers.column("record_count")[0] < 0 and window.headers.column("magic")[0] == 1:
        inside = last_offset_inside(window.batch(0))
        base_offset -= inside or 0
    return min(base_offset, offset)


def _end_offset_at(layout: PartitionLayout, offset: int, *, skips_damage: bool) -> int:
    """Return the offset after the batch that holds an offset, or the next offset if no batch does."""
    window = _batch_at(layout, offset, skips_damage=skips_damage)
    if window is None or window.headers.column("base_offset")[0] > offset:
        return offset + 1
    return int(window.headers.column("last_offset")[0]) + 1


def _batch_at(layout: PartitionLayout, offset: int, *, skips_damage: bool) -> Window | None:
    """Return the first batch that ends at or after an offset, in the segment that holds it; None if there is none."""
    if not layout.segments or offset >= layout.end_offset:
        return None
    try:
        with layout.segments[layout.segment_of(offset)].open() as log:
            header = log.first_batch_from(offset)
            return None if header is None else log.read(header)
    except CorruptBatchError:
        if not skips_damage:
            raise
    for part in scan_range_past_damage(layout, offset, offset + 1):
        if not isinstance(part, DamagedStretch):
            window = part[1]
            return Window(window.buffer, window.headers[:1])
    return None
