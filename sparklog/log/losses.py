"""Finds proof that batches of a log are lost: what is left in its folder of batches that are not there."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sparklog.errors import CorruptBatchError
from sparklog.log import files
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY, read_entries
from sparklog.log.segment import READ_AROUND, OpenSegment

_INDEXES: Final = ((files.TIME_INDEX, TIME_ENTRY), (files.OFFSET_INDEX, OFFSET_ENTRY))


def refuse_cut_end(log: OpenSegment, end_offset: int) -> None:
    """Raise if an index of a sealed segment proves that batches are missing at the end of its log.

    The last entry of an index is for an offset that was once in the log. Between the end of the log and the next
    segment, it proves that batches are missing. The first or last entry before the end must agree with the log.

    Parameters
    ----------
    log : OpenSegment
        The segment.
    end_offset : int
        The offset after its last batch.
    """
    segment = log.segment
    if segment.is_last or end_offset >= segment.upper_offset:
        return
    for suffix, layout in _INDEXES:
        known_offset = _known_offset(log, suffix, layout, end_offset)
        if known_offset is not None:
            raise CorruptBatchError(
                f"the log of the segment ends before offset {end_offset}, and its {suffix[1:]} file has an entry "
                f"for offset {known_offset}: batches are missing at its end",
                path=segment.path(),
                position=log.size_bytes,
                offset=end_offset,
                hint=f"{READ_AROUND}; a replica may have them",
            )


def _known_offset(log: OpenSegment, suffix: str, layout: np.dtype[Any], end_offset: int) -> int | None:
    """Return the offset of an index's last entry if it proves that the log went on to it."""
    with log.index(suffix) as index:
        if index is None:
            return None
        entries = read_entries(index, layout)
    offsets = log.segment.base_offset + entries["relative_offset"].astype(np.int64)
    first_field = entries[layout.names[0]].astype(np.int64) if layout.names else offsets
    if not len(entries) or not end_offset <= offsets[-1] < log.segment.upper_offset:
        return None
    if (np.diff(first_field) <= 0).any() or (np.diff(offsets) < 0).any():
        return None
    inside = np.flatnonzero(offsets < end_offset)
    # The one before the end may be of a batch that the damage has changed.
    nearest = {int(row) for row in inside[[0, -1]]} if len(inside) else set[int]()
    if nearest and not any(_agrees(log, layout, entries[row], int(offsets[row])) for row in nearest):
        return None
    return int(offsets[-1])


def _agrees(log: OpenSegment, layout: np.dtype[Any], entry: Any, offset: int) -> bool:
    """Tell whether an entry of an index is for the batch that holds an offset."""
    header = log.first_batch_from(offset)
    if header is None:
        return False
    if layout == TIME_ENTRY:
        return int(header.column("max_timestamp")[0]) == int(entry["timestamp"])
    # Older brokers wrote one entry for each append: the batch at the position is then the first of several.
    return int(entry["position"]) <= int(header.column("position")[0])
