"""Scans the batches of a log by offset, even if a broker replaces or removes segments meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError, CorruptLogError, DataLossError, PathNotFoundError
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.scans.listed import is_as_listed, refuse_replaced
from sparklog.log.scans.losses import LostSegments, refuse_cut_end
from sparklog.log.scans.merged import MissingOffsets, merged_pieces
from sparklog.log.scans.sound_range import scan_range_past_damage
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.batches.framing import checksum_fault
from sparklog.record.format.streams import Int64s

_log = logging.getLogger("sparklog")

_MISSES_MAX: Final = 5


def scan_range(
    layout: PartitionLayout,
    start_offset: int,
    end_offset: int,
    fail_on_data_loss: bool = True,
    *,
    is_checked: bool = False,
    needs_data: bool = True,
) -> Iterator[tuple[Segment, Window]]:
    """Scan every batch that may hold an offset of a range.

    Parameters
    ----------
    layout : PartitionLayout
        The layout of the log when the range was chosen. If a segment has gone since, the folder is listed again, and
        the scan continues in the segment that now holds the offset.
    start_offset, end_offset : int
        The range, the end exclusive.
    fail_on_data_loss : bool
        Whether missing offsets of the range are an error, not only a warning.
    is_checked : bool
        Whether to check the checksum of every batch before it is yielded. Otherwise the caller checks every batch that
        it uses or leaves out. In a log merged from replicas, every batch is checked.
    needs_data : bool
        Whether the caller uses more of a batch of data than its header: otherwise long ones have no bytes.

    Yields
    ------
    (Segment, Window)
        The batches in offset order. The first and last window of a range may hold records before and after it.

    Raises
    ------
    DataLossError
        Offsets of the range are gone: removed meanwhile, or provably lost before.
    CorruptBatchError
        The header of a batch is damaged, or a checksum that is checked does not match; or a segment before the last
        has lost its end.
    """
    if layout.copies:
        yield from _merged(layout, start_offset, end_offset, fail_on_data_loss)
        return
    lost = LostSegments(layout.folder)
    yield from _batches(layout, start_offset, end_offset, fail_on_data_loss, is_checked, needs_data, lost)
    if fail_on_data_loss and end_offset == layout.end_offset:
        lost.refuse_end(end_offset)


def _batches(
    layout: PartitionLayout,
    start_offset: int,
    end_offset: int,
    fail_on_data_loss: bool,
    is_checked: bool,
    needs_data: bool,
    lost: LostSegments,
) -> Iterator[tuple[Segment, Window]]:
    """Scan the batches of one log for `scan_range`."""
    path, offset, misses = layout.path, start_offset, 0
    while offset < end_offset:
        if offset < layout.start_offset or not layout.segments:
            offset = _lose(path, offset, min(layout.start_offset, end_offset), fail_on_data_loss)
            if not layout.segments:
                return
            continue
        segment, begun_at = layout.segments[layout.segment_of(offset)], offset
        try:
            with segment.open() as log:
                refuse_replaced(log, layout)
                reached, magic = segment.base_offset, 0
                # Bytes after the end may belong to a commit that a power cut has left half done.
                end_position = layout.end.position if segment.is_last else None
                for window in log.windows(log.seek(offset), end_position, None if needs_data else offset):
                    last_offsets = window.headers.column("last_offset")
                    first, last = _rows_of(last_offsets, offset, end_offset)
                    _check_skipped(segment, window, first, offset)
                    if first < len(last_offsets):
                        chosen = Window(window.buffer, window.headers[first : last + 1])
                        failure = first_damaged(segment, chosen) if is_checked else None
                        if failure is not None:
                            chosen = Window(window.buffer, chosen.headers.before(failure.position or 0))
                            sound_offsets = chosen.headers.column("last_offset")
                            if len(sound_offsets):
                                offset = max(offset, int(sound_offsets[-1]) + 1)
                                yield segment, chosen
                            raise failure
                        yield segment, chosen
                    reached, magic = int(last_offsets[-1]) + 1, int(window.headers.column("magic")[-1])
                    offset = max(offset, reached)
                    if offset >= end_offset:
                        log.refuse_misplaced(window.headers, end_offset, layout.end)
                        return
                refuse_cut_end(log, reached)
        except DataLossError as error:
            offset = _lose(path, offset, min(segment.upper_offset, end_offset), fail_on_data_loss, error.message)
            continue
        except (PathNotFoundError, CorruptBatchError) as error:
            # A cleaner has removed or replaced the segment, which it does not do again and again.
            listed = _listed_after(error, layout)
            misses = 1 if offset > begun_at else misses + 1
            if misses > _MISSES_MAX or is_as_listed(segment, listed):
                raise
            layout = listed
            continue
        if not segment.is_last:
            upper = min(segment.upper_offset, end_offset)
            why = lost.reason(reached, segment.upper_offset, magic=magic) if offset < upper else None
            if why is not None:
                _lose(path, offset, upper, fail_on_data_loss, why)
            offset = max(offset, segment.upper_offset)
            continue
        listed = read_layout(layout.folder)
        if listed.end_offset > offset and not is_as_listed(segment, listed):
            # The segment was rolled and cleaned since, which removed its end.
            layout = listed
        else:
            offset = _lose(path, offset, end_offset, fail_on_data_loss)


def _merged(
    layout: PartitionLayout, start_offset: int, end_offset: int, fail_on_data_loss: bool
) -> Iterator[tuple[Segment, Window]]:
    """Scan a log merged from replicas up to the first offsets that all of them lack."""
    if start_offset < layout.start_offset:
        _lose(layout.path, start_offset, min(layout.start_offset, end_offset), fail_on_data_loss)
    for piece in merged_pieces(layout, start_offset, end_offset, scan_range_past_damage):
        if not isinstance(piece, MissingOffsets):
            yield piece
        elif piece.error is not None:
            if fail_on_data_loss or not isinstance(piece.error, DataLossError):
                raise piece.error
            _log.warning("%s; reading on after them", piece.error)


def _listed_after(error: PathNotFoundError | CorruptBatchError, layout: PartitionLayout) -> PartitionLayout:
    """List a log again after an error of one of its segments; raise that error if the log's end is damaged as well."""
    try:
        return read_layout(layout.folder)
    except CorruptLogError:
        raise error from None


def refuse_damaged_window(segment: Segment, window: Window) -> None:
    """Raise `CorruptBatchError` for the first batch of a window whose checksum differs."""
    # The import loads compiled code, which the planning of a read without transactions does not need.
    from sparklog.record.decode.columns import check_crcs

    with located(segment):
        check_crcs(window.buffer, window.headers)


def first_damaged(segment: Segment, window: Window) -> CorruptBatchError | None:
    """Return the error of the first batch of a window whose checksum differs; None where all are right."""
    try:
        refuse_damaged_window(segment, window)
    except CorruptBatchError as error:
        return error
    return None


@contextmanager
def located(segment: Segment) -> Iterator[None]:
    """Have errors say which segment they are of."""
    try:
        yield
    except CorruptLogError as error:
        raise error.located(path=segment.path()) from error


def refuse_damaged_end(layout: PartitionLayout) -> None:
    """Raise `CorruptBatchError` unless everything in the last batch that decides the log's end is sound.

    Its checksum must be right. The offset of a wrapper of magic 0 or 1, which no checksum covers, must be that of its
    last message.
    """
    if not layout.segments or layout.copies:
        return  # The end of a merged log has been decided by batches that were checked.
    segment = layout.segments[-1]
    with segment.open() as log:
        header = log.last_batch_before(layout.end)
        if header is None:
            return
        window = log.read(header)
    refuse_damaged_window(segment, window)
    if int(header.column("record_count")[0]) < 0:
        # The import loads compiled code, as above.
        from sparklog.record.decode.columns import decode_batches

        with located(segment):
            for _ in decode_batches(window.buffer, window.headers, columns=("offset",)):
                pass


def _check_skipped(segment: Segment, window: Window, first: int, offset: int) -> None:
    """Check the last batch that is skipped because it ends before an offset.

    If the last offset in its header were wrong, it might hold that offset after all. It cannot if the next batch begins
    at or before the offset.
    """
    headers = window.headers
    if not first or (first < len(headers) and headers.column("base_offset")[first] <= offset):
        return
    fault = checksum_fault(window.batch(first - 1))
    if fault is not None:
        batch = headers.table[first - 1]
        raise CorruptBatchError(
            fault, path=segment.path(), position=int(batch["position"]), offset=int(batch["base_offset"])
        )


def _rows_of(last_offsets: Int64s, start_offset: int, end_offset: int) -> tuple[int, int]:
    """Return the rows of the first and the last batch of a range; if the range continues, the last row is the end."""
    # Shortcut: a search copies the column, and most ranges hold all batches of a window.
    if last_offsets[0] >= start_offset and last_offsets[-1] < end_offset - 1:
        return 0, len(last_offsets)
    first, last = np.searchsorted(last_offsets, [start_offset, end_offset - 1]).tolist()
    return first, last


def _lose(
    path: str,
    offset: int,
    end_offset: int,
    fail_on_data_loss: bool,
    why: str = "retention removed them, or the log was truncated",
) -> int:
    """Raise or warn that offsets are gone; return the offset at which reading continues."""
    message = f"offsets [{offset}, {end_offset}) of {path} were there when the read was planned, and are gone: {why}"
    if fail_on_data_loss:
        raise DataLossError(message)
    _log.warning("%s; reading on after them", message)
    return end_offset
