"""Finds how the transactions of batches ended: in a damaged log, a marker may be among the bytes that are lost.

A transactional batch belongs to the transaction that its producer's next marker ends. If bytes that may hold a marker
are lost between the two, the fate of the batch is unknown: it may belong to an earlier transaction, whose marker is
lost. Nothing else in a log tells it: sequence numbers continue from one transaction of a producer to the next.

So lost bytes end every open transaction, and its records are of unknown fate. In particular, a transaction whose marker
is lost does not hold back the last stable offset for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final

import numpy as np

from sparklog.log.damage import WRONG_CHECKSUM_REASON
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.layout import PartitionLayout
from sparklog.log.producer_snapshots import snapshot_before
from sparklog.log.producer_state import Producers
from sparklog.log.scans.of_range import scan_range
from sparklog.log.scans.sound_range import scan_range_past_damage
from sparklog.log.segment import Segment
from sparklog.log.transactions import end_markers, is_in_transaction
from sparklog.log.windows import Window
from sparklog.record.format.headers import BatchHeaders

_MARKER_BYTES_MIN: Final = 78
_MARKER_BYTES_MAX: Final = 128
_NONE: Final = -1


class BatchFate(IntEnum):
    """How the transaction of a batch ended."""

    GIVEN = 0
    """It was committed, or the batch belongs to none."""
    ABORTED = 1
    UNKNOWN = 2


def may_hold_marker(stretch: DamagedStretch) -> bool:
    """Return whether a marker may be among lost bytes. A longer batch with a wrong checksum is none: its size fits."""
    if stretch.reason == WRONG_CHECKSUM_REASON:
        return _MARKER_BYTES_MIN <= stretch.length_bytes <= _MARKER_BYTES_MAX
    return not 0 < stretch.length_bytes < _MARKER_BYTES_MIN


def stable_offset_past_damage(layout: PartitionLayout) -> int:
    """Return the offset below which every transaction is decided, or of unknown fate."""
    producers, start_offset = snapshot_before(layout)
    barriers: list[int] = []
    for part in scan_range_past_damage(layout, start_offset, layout.end_offset):
        if isinstance(part, DamagedStretch):
            barriers += [part.first_offset] if may_hold_marker(part) else []
            continue
        window = part[1]
        headers = window.headers.where(is_in_transaction(window.headers))
        for barrier in barriers:
            is_before = headers.column("base_offset") < barrier
            producers.fold(Window(window.buffer, headers.where(is_before)))
            _forget_open(producers)
            headers = headers.where(~is_before)
        producers.fold(Window(window.buffer, headers))
        barriers = []
    if barriers:
        _forget_open(producers)
    first_unstable = producers.first_unstable_offset
    return layout.end_offset if first_unstable is None else max(first_unstable, layout.start_offset)


def _forget_open(producers: Producers) -> None:
    for key in list(producers.open_transactions):
        producers.put_back(key, replace(producers.entries[key], first_offset=_NONE))


class TransactionFates:
    """The fates of batches, found by a scan that runs ahead of a reader only as far as necessary.

    Parameters
    ----------
    layout : PartitionLayout
        The layout of the log.
    start_offset : int
        The caller will ask for no batch below it.
    skips_damage : bool
        Whether the scan goes on past damage, which is an error otherwise.
    """

    def __init__(self, layout: PartitionLayout, start_offset: int, *, skips_damage: bool) -> None:
        # Offsets that are gone meanwhile are no error here, since the reader notices. All batches are checked,
        # since a marker with a wrong header looks like any other batch.
        self._parts: Iterator[tuple[Segment, Window] | DamagedStretch] = (
            scan_range_past_damage(layout, start_offset, layout.end_offset)
            if skips_damage
            else scan_range(layout, start_offset, layout.end_offset, fail_on_data_loss=False, is_checked=True)
        )
        self._markers: defaultdict[int, deque[tuple[int, BatchFate]]] = defaultdict(deque)
        self._barriers: list[int] = []
        self._reached = _NONE

    def of(self, headers: BatchHeaders) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Return the `BatchFate` of each batch, shape (n_batches,).

        Ask for batches in offset order, and never twice: markers that have been passed are forgotten.
        """
        fates = np.full(len(headers), BatchFate.GIVEN, np.int8)
        producer_ids, last_offsets = headers.column("producer_id"), headers.column("last_offset")
        for row in np.flatnonzero(is_in_transaction(headers) & ~headers.is_control).tolist():
            fates[row] = self._fate(int(producer_ids[row]), int(last_offsets[row]))
        return fates

    def _fate(self, producer_id: int, offset: int) -> BatchFate:
        markers = self._markers[producer_id]
        while True:
            while markers and markers[0][0] < offset:
                markers.popleft()
            at = bisect_right(self._barriers, offset)
            barrier = self._barriers[at] if at < len(self._barriers) else None
            if markers and (barrier is None or markers[0][0] < barrier):
                return markers[0][1]
            # Damage inside a window comes before it.
            if barrier is not None and self._reached >= barrier:
                return BatchFate.UNKNOWN
            part = next(self._parts, None)
            if part is None:
                return BatchFate.GIVEN if barrier is None else BatchFate.UNKNOWN
            if isinstance(part, DamagedStretch):
                if may_hold_marker(part):
                    self._barriers.append(max(part.first_offset, self._reached))
                continue
            for each, end, is_abort in end_markers(part[1]):
                self._markers[each].append((end, BatchFate.ABORTED if is_abort else BatchFate.GIVEN))
            self._reached = int(part[1].headers.column("last_offset")[-1])
