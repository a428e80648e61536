"""Finds which transactions of a log are decided, and which batches were aborted.

Both follow from the log alone: a transactional batch belongs to the transaction that the producer's next marker ends,
and where that is an abort marker, the batch must not be read. The transaction index lists the aborted transactions too,
but the cleaner may have removed entries from it, so it is not used.

Source: apache/kafka, ProducerStateManager.java, CompletedFetch.java; KIP-98.
"""

from __future__ import annotations

from collections import defaultdict, deque
from enum import IntEnum
from typing import Any

import numpy as np

from sparklog.log.layout import PartitionLayout
from sparklog.log.producer_state import snapshot_before
from sparklog.log.scan import refuse_damaged, scan
from sparklog.log.segment import Window
from sparklog.record import v2
from sparklog.record.headers import BatchHeaders


def last_stable_offset(layout: PartitionLayout) -> int:
    """Return the offset below which every transaction is decided.

    It is the first offset of the earliest open transaction, or the log end offset. The high watermark is not used: it
    is the offset up to which records were replicated when a broker last wrote it down, and not the end of the log.

    The checksum of every marker is checked. Where a transaction is open, so are those of all batches from it on, since
    a marker whose header is wrong may be among them. Batches before the last stable offset are checked when they are
    read.

    Raises
    ------
    CorruptBatchError
        A checksum differs.
    """
    producers, start_offset = snapshot_before(layout)
    for segment, window in scan(layout, start_offset, layout.end_offset, fail_on_data_loss=False):
        # Batches of no transaction, which may be nearly all, do not matter here.
        chosen = Window(window.buffer, window.headers.where(_is_in_transaction(window.headers)))
        refuse_damaged(segment, Window(window.buffer, chosen.headers.where(chosen.headers.is_control)))
        producers.fold(chosen)
    first_unstable = producers.first_unstable_offset
    if first_unstable is None:
        return layout.end_offset
    stable_offset = max(first_unstable, layout.start_offset)
    for _ in scan(layout, stable_offset, layout.end_offset, fail_on_data_loss=False, is_checked=True):
        pass
    return stable_offset


class TransactionMarkers:
    """The markers of a log, found by a scan ahead of a reader that goes no further than it must.

    Parameters
    ----------
    layout : PartitionLayout
        Of the log.
    start_offset : int
        No batch below it will be asked for.
    """

    def __init__(self, layout: PartitionLayout, start_offset: int) -> None:
        # Offsets that are gone by then are no error here, since the reader finds them missing. All batches are checked,
        # since a marker whose header is wrong looks like any other batch.
        self._windows = scan(layout, start_offset, layout.end_offset, fail_on_data_loss=False, is_checked=True)
        self._markers: defaultdict[int, deque[tuple[int, bool]]] = defaultdict(deque)

    def is_aborted(self, headers: BatchHeaders) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tell of each data batch whether its transaction was aborted: shape (n_batches,).

        Batches are asked for in offset order, and never twice: markers that have been passed are forgotten.
        """
        aborted = np.zeros(len(headers), dtype=bool)
        producer_ids, last_offsets = headers.column("producer_id"), headers.column("last_offset")
        for row in np.flatnonzero(_is_in_transaction(headers)).tolist():
            aborted[row] = self._ends_in_abort(int(producer_ids[row]), int(last_offsets[row]))
        return aborted

    def _ends_in_abort(self, producer_id: int, offset: int) -> bool:
        markers = self._markers[producer_id]
        while True:
            while markers and markers[0][0] < offset:
                markers.popleft()
            if markers:
                return markers[0][1]
            found = next(self._windows, None)
            if found is None:
                return False
            self._note(found[1])

    def _note(self, window: Window) -> None:
        for row in np.flatnonzero(window.headers.is_control).tolist():
            marker = v2.end_marker(window.batch(row))
            if marker is not None:
                batch = window.headers.table[row]
                self._markers[int(batch["producer_id"])].append((int(batch["last_offset"]), marker.is_abort))


class TransactionState(IntEnum):
    """What became of the transaction that a record is part of."""

    NONE = 0
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3


class EndMarkers:
    """All markers of a log, read once, to ask of any record how its transaction ended.

    Parameters
    ----------
    layout : PartitionLayout
        Of the log.

    Raises
    ------
    CorruptBatchError
        The checksum of a marker differs. Those of other batches are checked where these are decoded.
    """

    def __init__(self, layout: PartitionLayout) -> None:
        found: defaultdict[int, list[tuple[int, TransactionState]]] = defaultdict(list)
        for segment, window in scan(layout, layout.start_offset, layout.end_offset, fail_on_data_loss=False):
            headers = window.headers
            refuse_damaged(segment, Window(window.buffer, headers.where(headers.is_control)))
            for row in np.flatnonzero(headers.is_control).tolist():
                marker = v2.end_marker(window.batch(row))
                if marker is not None:
                    state = TransactionState.ABORTED if marker.is_abort else TransactionState.COMMITTED
                    batch = headers.table[row]
                    found[int(batch["producer_id"])].append((int(batch["last_offset"]), state))
        self._markers = {producer: np.array(markers, np.int64).T for producer, markers in found.items()}

    def states(
        self, producer_ids: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], is_transactional: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Tell of each record how its transaction ended: values of `TransactionState`, shape (n_records,)."""
        states = np.where(is_transactional, TransactionState.OPEN, TransactionState.NONE).astype(np.int8)
        for producer in np.unique(producer_ids[is_transactional]).tolist():
            if producer not in self._markers:
                continue
            ends, kinds = self._markers[producer]
            rows = np.flatnonzero(is_transactional & (producer_ids == producer))
            following = np.searchsorted(ends, offsets[rows])
            is_ended = following < len(ends)
            states[rows[is_ended]] = kinds[following[is_ended]]
        return states


def _is_in_transaction(headers: BatchHeaders) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return headers.is_transactional & (headers.column("producer_id") >= 0)
