"""Finds offsets by time: by the timestamps of records, and by the times of the segments' files."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError, PathNotFoundError, StorageError
from sparklog.log.clock import NS_PER_MS
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.scans.listed import is_as_listed, refuse_replaced
from sparklog.log.scans.losses import refuse_cut_after_times
from sparklog.log.scans.of_range import located, scan_range
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.columns import decode_batches
from sparklog.record.format.arrays import numbers_of

# Source: apache/kafka, ListOffsetsRequest.java.
LATEST_TIME: Final = -1
_EARLIEST_TIME: Final = -2
_LOOKS_MAX: Final = 5


def first_offset_at(layout: PartitionLayout, time_ms: int) -> int | None:
    """Find the first offset of a log whose record is at or after a time; None where no record is as late."""
    if layout.copies:
        return _first_of_replicas(layout, time_ms)
    listed = layout
    for _ in range(_LOOKS_MAX):
        try:
            return _look(listed, layout.start_offset, time_ms)
        except (PathNotFoundError, CorruptBatchError):
            # A cleaner may have replaced what was listed; but nobody finds a record that came later.
            again = replace(read_layout(layout.folder), end=layout.end)
            if all(is_as_listed(segment, again) for segment in listed.segments):
                raise
            listed = again
    raise PathNotFoundError(f"segments of {layout.path} are replaced faster than they can be looked at; try again")


def starts_by_file_times(layout: PartitionLayout, time_ms: int, max_offsets: int, now_ms: int | None) -> list[int]:
    """Return where segments begin whose files were last written to no later than a time, the newest first."""
    times = list[tuple[int, int]]()
    for segment in layout.segments:
        with segment.file() as file:
            times.append((max(segment.base_offset, layout.start_offset), file.modified_ns() // NS_PER_MS))
    if layout.segments and layout.end_offset > layout.segments[-1].base_offset:
        times.append((layout.end_offset, times[-1][1] if now_ms is None else now_ms))
    chosen = {LATEST_TIME: len(times), _EARLIEST_TIME: min(len(times), 1)}.get(time_ms)
    if chosen is None:
        chosen = next((row for row in range(len(times), 0, -1) if times[row - 1][1] <= time_ms), 0)
    return sorted((offset for offset, _ in times[max(chosen - max_offsets, 0) : chosen]), reverse=True)


def _look(layout: PartitionLayout, start_offset: int, time_ms: int) -> int | None:
    for segment in layout.segments:
        if segment.ends_before(time_ms):
            continue
        with segment.open() as log:
            refuse_replaced(log, layout)
            header = log.first_batch_at(time_ms, start_offset)
            while header is not None:
                found = _first_late(log.segment, log.read(header), start_offset, time_ms)
                if found is not None:
                    return found if found < layout.end_offset else None
                # Only records before the log start offset are as late: on with the next batch.
                header = log.first_batch_at(time_ms, int(header.column("last_offset")[0]) + 1)
            refuse_cut_after_times(log)
    return None


def _first_of_replicas(layout: PartitionLayout, time_ms: int) -> int | None:
    """Find the first offset in a log merged from replicas: that of the earliest in any, since each may lack segments.

    If one of them is damaged, every batch up to that record is read.
    """
    start_offset, found = layout.start_offset, list[int]()
    try:
        for replica, copy in zip(layout.replicas, layout.copies, strict=True):
            end_offset = min(replica.agreed_offset, layout.end_offset)
            if copy.start_offset < end_offset:
                bounded = replace(copy, end=replace(copy.end, offset=end_offset))
                offset = _look(bounded, max(start_offset, copy.start_offset), time_ms)
                found += [] if offset is None else [offset]
    except (PathNotFoundError, CorruptBatchError, StorageError):
        return _first_in_scan(layout, time_ms)
    return min(found, default=None)


def _first_in_scan(layout: PartitionLayout, time_ms: int) -> int | None:
    for segment, window in scan_range(layout, layout.start_offset, layout.end_offset, fail_on_data_loss=False):
        late = window.headers.where(window.headers.column("max_timestamp") >= time_ms)
        found = _first_late(segment, Window(window.buffer, late), layout.start_offset, time_ms)
        if found is not None:
            return found if found < layout.end_offset else None
    return None


def _first_late(segment: Segment, window: Window, start_offset: int, time_ms: int) -> int | None:
    decoded = decode_batches(
        window.buffer, window.headers, columns=("offset", "timestamp"), start_offset=start_offset, reaches_log_end=True
    )
    with located(segment):
        for batch in decoded:
            late = np.flatnonzero(numbers_of(batch.column("timestamp")) >= time_ms)
            if len(late):
                return int(batch.column("offset")[int(late[0])].as_py())
    return None
