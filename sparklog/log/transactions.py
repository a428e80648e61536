"""Finds the decided transactions of a log, and the aborted batches.

Both follow from the log alone: a transactional batch belongs to the transaction that its producer's next marker ends,
and if that is an abort marker, the batch must not be read. The transaction index lists the aborted transactions too,
but the cleaner may have removed entries from it, so it is not used.

Source: apache/kafka, ProducerStateManager.java, CompletedFetch.java; KIP-98.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from sparklog.log.layout import PartitionLayout, batch_holding
from sparklog.log.producer_snapshots import snapshot_before
from sparklog.log.producer_state import Producers
from sparklog.log.scans.of_range import refuse_damaged_window, scan_range
from sparklog.log.windows import Window
from sparklog.record.format import v2
from sparklog.record.format.headers import LOWEST_OFFSET, BatchHeaders


@dataclass(frozen=True)
class SeenTransactions:
    """The transactions of a log up to its end at one time, from which a later look continues.

    Attributes
    ----------
    end_offset : int
        The log end offset.
    last_batch : tuple of int
        The header of the batch before it, which proves that the log continues from there; empty if there is none.
    producers : Producers
        The producers with an open transaction.
    """

    end_offset: int
    last_batch: tuple[int, ...]
    producers: Producers


def last_stable_offset(layout: PartitionLayout) -> int:
    """Return the offset below which every transaction is decided.

    This is the first offset of the earliest open transaction, or the log end offset. The high watermark is not used: it
    is the offset up to which records were replicated when a broker last wrote it down, not the end of the log.

    The checksum of every marker is checked. If a transaction is open, every batch from it on is checked, since
    a marker with a wrong header may be among them. Batches before the last stable offset are checked when they are
    read.

    Raises
    ------
    CorruptBatchError
        A checksum is wrong.
    """
    stable_offset, _ = _stable_and_open(layout, *snapshot_before(layout), layout.start_offset)
    return stable_offset


def stable_offset_again(layout: PartitionLayout, seen: SeenTransactions | None) -> tuple[int, SeenTransactions]:
    """Return the last stable offset, and the state for the next call, which then reads only new batches.

    Parameters
    ----------
    seen : SeenTransactions or None
        The state from the last call. It is ignored if the log has been cut or made anew, or if the cleaner has touched
        the batch that was the last.

    Raises
    ------
    CorruptBatchError
        See `last_stable_offset`.
    """
    if seen is not None and seen.last_batch and seen.last_batch == _last_batch(layout, seen.end_offset):
        known = Producers(dict(seen.producers.entries)), seen.end_offset, seen.end_offset
    else:
        known = *snapshot_before(layout), layout.start_offset
    stable_offset, producers = _stable_and_open(layout, *known)
    return stable_offset, SeenTransactions(layout.end_offset, _last_batch(layout, layout.end_offset), producers)


def _stable_and_open(
    layout: PartitionLayout, producers: Producers, start_offset: int, checked_offset: int
) -> tuple[int, Producers]:
    """Return the last stable offset, and the producers with an open transaction.

    Parameters
    ----------
    producers : Producers
        The state at ``start_offset``; it is changed.
    checked_offset : int
        All batches between the previous last stable offset and this one have been checked.
    """
    for segment, window in scan_range(layout, start_offset, layout.end_offset, fail_on_data_loss=False):
        # Batches outside transactions, which may be nearly all, do not matter here.
        chosen = Window(window.buffer, window.headers.where(_is_in_transaction(window.headers)))
        refuse_damaged_window(segment, Window(window.buffer, chosen.headers.where(chosen.headers.is_control)))
        producers.fold(chosen)
    first_unstable = producers.first_unstable_offset
    is_open = {key: producers.entries[key] for key in producers.open_transactions}
    if first_unstable is None:
        return layout.end_offset, Producers(is_open)
    stable_offset = max(first_unstable, layout.start_offset)
    unchecked_offset = max(stable_offset, checked_offset)
    for _ in scan_range(layout, unchecked_offset, layout.end_offset, fail_on_data_loss=False, is_checked=True):
        pass
    return stable_offset, Producers(is_open)


def _last_batch(layout: PartitionLayout, end_offset: int) -> tuple[int, ...]:
    header = batch_holding(layout, end_offset - 1)
    # The lowest offset is no field of a header.
    return () if header is None else tuple(header.numbers[0, :LOWEST_OFFSET].tolist())


class TransactionMarkers:
    """The markers of a log, found by a scan that runs ahead of a reader only as far as necessary.

    Parameters
    ----------
    layout : PartitionLayout
        The layout of the log.
    start_offset : int
        The caller will ask for no batch below it.
    """

    def __init__(self, layout: PartitionLayout, start_offset: int) -> None:
        # Offsets that are gone meanwhile are no error here, since the reader notices. All batches are checked,
        # since a marker with a wrong header looks like any other batch.
        self._windows = scan_range(layout, start_offset, layout.end_offset, fail_on_data_loss=False, is_checked=True)
        self._markers: defaultdict[int, deque[tuple[int, bool]]] = defaultdict(deque)

    def is_aborted(self, headers: BatchHeaders) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for each data batch whether its transaction was aborted: shape (n_batches,).

        Ask for batches in offset order, and never twice: markers that have been passed are forgotten.
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
    """The outcome of a record's transaction."""

    NONE = 0
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3


class EndMarkers:
    """All markers of a log, read once. Answers how the transaction of any record ended.

    Parameters
    ----------
    layout : PartitionLayout
        The layout of the log.

    Raises
    ------
    CorruptBatchError
        The checksum of a marker is wrong. Other batches are checked when they are decoded.
    """

    def __init__(self, layout: PartitionLayout) -> None:
        found: defaultdict[int, list[tuple[int, TransactionState]]] = defaultdict(list)
        for segment, window in scan_range(layout, layout.start_offset, layout.end_offset, fail_on_data_loss=False):
            headers = window.headers
            refuse_damaged_window(segment, Window(window.buffer, headers.where(headers.is_control)))
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
        """Return the outcome of each record's transaction: values of `TransactionState`, shape (n_records,)."""
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
