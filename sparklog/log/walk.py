"""Walks the batches of a log by offset, over segments that a broker may replace or remove meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from sparklog.errors import DataLossError, PathNotFoundError
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.segment import Segment, Window

_log = logging.getLogger("sparklog")


def walk(
    layout: PartitionLayout, start_offset: int, end_offset: int, fail_on_data_loss: bool = True
) -> Iterator[tuple[Segment, Window]]:
    """Walk every batch that may hold an offset of a range.

    Parameters
    ----------
    layout : PartitionLayout
        Of the log, as it was. Where a segment is not there any more the folder is listed again, and the walk goes on in
        whatever segment holds the offset by then.
    start_offset, end_offset : int
        The range, the end exclusive.
    fail_on_data_loss : bool
        Whether it is an error, or a warning, that offsets of the range are gone.

    Yields
    ------
    (Segment, Window)
        In offset order. The first and last window of a range may hold records before and after it.

    Raises
    ------
    DataLossError
        Offsets of the range are gone.
    CorruptBatchError
        A batch is damaged, as far as its header tells.
    """
    path, offset = layout.path, start_offset
    while offset < end_offset:
        if offset < layout.start_offset or not layout.segments:
            offset = _lose(path, offset, min(layout.start_offset, end_offset), fail_on_data_loss)
            if not layout.segments:
                return
            continue
        segment = layout.segments[layout.segment_of(offset)]
        try:
            log = segment.open()
        except PathNotFoundError:
            layout = read_layout(path, layout.storage)
            continue
        with log:
            for window in log.windows(log.seek(offset)):
                last_offsets = window.headers.column("last_offset")
                first, last = np.searchsorted(last_offsets, [offset, end_offset - 1]).tolist()
                if first < len(last_offsets):
                    yield segment, Window(window.buffer, window.headers[first : last + 1])
                offset = max(offset, int(last_offsets[-1]) + 1)
                if offset >= end_offset:
                    return
        offset = (
            _lose(path, offset, end_offset, fail_on_data_loss) if segment.is_last else max(offset, segment.upper_offset)
        )


def _lose(path: str, offset: int, end_offset: int, fail_on_data_loss: bool) -> int:
    """Say that offsets are gone; where reading goes on."""
    message = f"offsets [{offset}, {end_offset}) of {path} were there when the read was planned, and are gone"
    if fail_on_data_loss:
        raise DataLossError(f"{message}: retention removed them, or the log was truncated")
    _log.warning("%s; reading on after them", message)
    return end_offset
