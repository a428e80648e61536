"""Scans a range of offsets past damage: the sound batches of many segments, and a row for all that is lost.

It is the counterpart of `sparklog.log.scans.of_range`, which stops at damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from sparklog.errors import CorruptBatchError, CorruptLogError, DiskError, PathNotFoundError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.directory_view import DirectoryView
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import PartitionFolder
from sparklog.log.scans.listed import refuse_replaced
from sparklog.log.scans.losses import LostSegments, refuse_cut_end
from sparklog.log.scans.merged import MissingOffsets, merged_pieces
from sparklog.log.segment import OpenSegment, Segment
from sparklog.log.sound_batches import Unreadable, scan_sound, seek_past_damage
from sparklog.log.windows import Window
from sparklog.record.format.v2 import OFFSET_MAX

_MISSES_MAX: Final = 5


def scan_range_past_damage(
    layout: PartitionLayout, start_offset: int, end_offset: int
) -> Iterator[tuple[Segment, Window] | DamagedStretch]:
    """Scan every sound batch that may hold an offset of a range.

    A gap between batches is damage only where nothing else explains it: a compaction leaves gaps.

    Yields
    ------
    (Segment, Window) or DamagedStretch
        The parts in offset order, except that stretches inside a window come before it. All its checksums are right;
        between its batches may be bytes of others. Its first and last batch may reach out of the range.

    Raises
    ------
    SeglogError
        A file cannot be opened or read.
    """
    if layout.copies:
        yield from _merged_past_damage(layout, start_offset, end_offset)
        return
    offset, misses, lost = start_offset, 0, LostSegments(layout.folder)
    # Damage after the last sound batch is damage of a range that reaches there, however short it is.
    while layout.segments and (offset < end_offset or offset == end_offset >= layout.end_offset):
        segment = layout.segments[layout.segment_of(offset)]
        begun_at = offset
        if offset < layout.start_offset:
            gone = min(layout.start_offset, end_offset)
            yield _stretch(segment, segment.path(), 0, 0, offset, gone, "the segments before it were removed")
            offset = gone
            continue
        try:
            with segment.open() as log:
                refuse_replaced(log, layout)
                for part in _segment_parts(log, layout, offset, end_offset, lost):
                    if not isinstance(part, DamagedStretch):
                        offset = max(offset, int(part[1].headers.column("last_offset")[-1]) + 1)
                    yield part
        except PathNotFoundError:
            # A cleaner has removed or replaced the segment.
            misses = 1 if offset > begun_at else misses + 1
            if misses > _MISSES_MAX:
                raise
            layout = read_layout(layout.folder, "skip")
            continue
        if segment.is_last:
            break
        offset = max(offset, segment.upper_offset)
    if end_offset >= layout.end_offset:
        for base in lost.within(layout.end_offset):
            missing = Segment(layout.folder, base, OFFSET_MAX, 0, is_last=False)
            reason = "the indexes of the segment exist, but its log does not"
            yield _stretch(missing, missing.path(), 0, 0, base, base, reason)


def _merged_past_damage(
    layout: PartitionLayout, start_offset: int, end_offset: int
) -> Iterator[tuple[Segment, Window] | DamagedStretch]:
    """Scan a log merged from replicas: lost is only what no replica has, at the place where one of them lacks it."""
    at, gone = layout.folder, min(layout.start_offset, end_offset)
    if start_offset < gone:
        reason = "the segments before it were removed"
        yield DamagedStretch(at.topic, at.partition, layout.path, 0, 0, start_offset, gone, reason)
    for piece in merged_pieces(layout, start_offset, end_offset, scan_range_past_damage):
        if not isinstance(piece, MissingOffsets):
            yield piece
            continue
        error = piece.error
        path, position = (error.path, error.position) if isinstance(error, CorruptLogError) else (None, None)
        reason = f"no replica has these offsets: {error}"
        yield DamagedStretch(
            *(at.topic, at.partition, path or layout.path, position or 0, 0),
            piece.first_offset,
            piece.end_offset,
            reason,
        )


def _segment_parts(
    log: OpenSegment, layout: PartitionLayout, start: int, end: int, lost: LostSegments
) -> Iterator[tuple[Segment, Window] | DamagedStretch]:
    """Scan the part of a range that is in one segment."""
    segment, reached, magic = log.segment, log.segment.base_offset, 0
    # A batch that is lost after the last sound one may have higher offsets.
    lost_to = OFFSET_MAX if end >= layout.end_offset else end
    begin = seek_past_damage(log, start)
    for found in scan_sound(log, begin, segment.size_bytes if segment.is_last else None):
        if isinstance(found, Unreadable):
            stretch = _of_unreadable(segment, found, layout)
            reached = max(reached, found.end_offset)
            if stretch is not None and stretch.end_offset >= start and stretch.first_offset <= lost_to:
                yield stretch
            continue
        headers = found.headers
        reached, magic = int(headers.column("last_offset")[-1]) + 1, int(headers.column("magic")[-1])
        inside = headers.where((headers.column("last_offset") >= start) & (headers.column("base_offset") < end))
        if len(inside):
            yield segment, Window(found.buffer, inside)
        if reached >= end and (end < layout.end_offset or not segment.is_last):
            return
    if segment.is_last or reached >= segment.upper_offset:
        return
    reason = None
    with suppress(DiskError):
        reason = lost.reason(max(reached, start), segment.upper_offset, magic=magic)
        try:
            refuse_cut_end(log, reached)
        except CorruptBatchError as error:
            reason = error.reason
    if reason is not None:
        yield _stretch(segment, segment.path(), log.size_bytes, 0, reached, segment.upper_offset, reason)


def _of_unreadable(segment: Segment, found: Unreadable, layout: PartitionLayout) -> DamagedStretch | None:
    """Return the row of unreadable bytes; None for what a crash or a broker leaves at the end of a sound log."""
    synced = 0
    if segment.is_last and found.end_offset == OFFSET_MAX:
        synced = DirectoryView(layout.folder.directory).synced_offset(layout.folder)
        if found.is_log_end and found.first_offset >= synced:
            return None
    end_offset = found.end_offset
    if end_offset == OFFSET_MAX:
        # Nothing tells how many offsets were there, except that the checkpoint may name one that was.
        end_offset = max(found.first_offset, synced if synced < OFFSET_MAX else 0)
    first, position, length_bytes = found.first_offset, found.position, found.length_bytes
    return _stretch(segment, found.path, position, length_bytes, first, end_offset, found.reason)


def _stretch(
    segment: Segment, path: str, position: int, length_bytes: int, first: int, end: int, reason: str
) -> DamagedStretch:
    folder: PartitionFolder = segment.folder
    return DamagedStretch(folder.topic, folder.partition, path, position, length_bytes, first, end, reason)
