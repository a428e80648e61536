"""Finds the decided transactions of a log, and how they ended.

Both follow from the log alone: a transactional batch belongs to the transaction that its producer's next marker ends,
and if that is an abort marker, the batch must not be read. The transaction index lists the aborted transactions too,
but the cleaner may have removed entries from it, so it is not used.

Source: apache/kafka, ProducerStateManager.java, CompletedFetch.java; KIP-98.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np

from sparklog.log.kept_by_stamp import LastUsed
from sparklog.log.layout import PartitionLayout, batch_holding
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_snapshots import snapshot_before
from sparklog.log.producer_state import ProducerEntry, Producers
from sparklog.log.scans.of_range import refuse_damaged_window, scan_range
from sparklog.log.windows import Window
from sparklog.record.format import v2
from sparklog.record.format.headers import LOWEST_OFFSET, BatchHeaders
from sparklog.storage.base import Stamp

_SEEN_MAX: Final = 1 << 16
"""The transactions of how many logs are kept, less than 1 kB each."""


class _Proof(NamedTuple):
    """Shows that a log still begins as it did when its transactions were found.

    Attributes
    ----------
    stamp : Stamp
        The stamp of the file with the last batch.
    last_batch : bytes
        The header of that batch.
    """

    stamp: Stamp
    last_batch: bytes

    def holds(self, now: _Proof | None, *, is_longer: bool) -> bool:
        """Return whether the file is the same, and was appended to if it was changed."""
        if now is None or (now.stamp.identity, now.last_batch) != (self.stamp.identity, self.last_batch):
            return False
        return is_longer or now.stamp.size_bytes > self.stamp.size_bytes or now.stamp == self.stamp


class _SeenTransactions(NamedTuple):
    """The transactions of a log up to its end at one time, from which a later look continues.

    Attributes
    ----------
    end_offset : int
        The log end offset.
    proof : _Proof
        Shows that the log before it is the same.
    open : mapping of int to ProducerEntry
        The producers with an open transaction, by id.
    """

    end_offset: int
    proof: _Proof
    open: Mapping[int, ProducerEntry]


_seen: LastUsed[PartitionFolder, _SeenTransactions] = LastUsed(_SEEN_MAX)


def last_stable_offset(layout: PartitionLayout) -> int:
    """Return the offset below which every transaction is decided.

    This is the first offset of the earliest open transaction, or the log end offset. The high watermark is not used: it
    is the offset up to which records were replicated when a broker last wrote it down, not the end of the log.

    The checksum of every marker is checked. If a transaction is open, every batch from it on is checked, since
    a marker with a wrong header may be among them. Batches before the last stable offset are checked when they are
    read. The result is kept for the process: the next call reads only new batches.

    Raises
    ------
    CorruptBatchError
        A checksum is wrong.
    """
    seen, proof = _seen.get(layout.folder), _proof(layout, layout.end_offset)
    if seen is not None and _continues(layout, seen, proof):
        producers, start_offset = Producers(dict(seen.open)), seen.end_offset
        checked_offset = start_offset
    else:
        producers, start_offset = snapshot_before(layout)
        checked_offset = layout.start_offset
    stable_offset, still_open = _stable_and_open(layout, producers, start_offset, checked_offset)
    # The file may have been replaced since; if it was changed in place, the proof does not hold at the next call.
    stamp = None if proof is None else _stamp_at(layout, layout.end_offset)
    if proof is not None and stamp is not None and stamp.identity == proof.stamp.identity:
        _seen.put(layout.folder, _SeenTransactions(layout.end_offset, proof, still_open))
    return stable_offset


def _continues(layout: PartitionLayout, seen: _SeenTransactions, proof: _Proof | None) -> bool:
    """Return whether a log continues one whose transactions are known, from the same log start offset on."""
    if any(entry.first_offset < layout.start_offset for entry in seen.open.values()):
        return False
    if seen.end_offset >= layout.end_offset:
        return seen.end_offset == layout.end_offset and seen.proof.holds(proof, is_longer=False)
    return seen.proof.holds(_proof(layout, seen.end_offset), is_longer=True)


def _proof(layout: PartitionLayout, end_offset: int) -> _Proof | None:
    """Return what proves that a log is the same before an offset; None if there is no batch at its end."""
    header = batch_holding(layout, end_offset - 1)
    if header is None:
        return None
    stamp = _stamp_at(layout, end_offset)
    # The lowest offset is no field of a header.
    return None if stamp is None else _Proof(stamp, header.numbers[0, :LOWEST_OFFSET].tobytes())


def _stamp_at(layout: PartitionLayout, end_offset: int) -> Stamp | None:
    """Return the stamp of the file that holds the last batch before an offset."""
    return layout.storage.stamp(layout.segments[layout.segment_of(end_offset - 1)].path())


def _stable_and_open(
    layout: PartitionLayout, producers: Producers, start_offset: int, checked_offset: int
) -> tuple[int, Mapping[int, ProducerEntry]]:
    """Return the last stable offset, and the producers with an open transaction.

    Parameters
    ----------
    producers : Producers
        The state at ``start_offset``; it is changed.
    checked_offset : int
        All batches between the previous last stable offset and this one have been checked.
    """
    for segment, window in scan_range(
        layout, start_offset, layout.end_offset, fail_on_data_loss=False, needs_data=False
    ):
        # Batches outside transactions, which may be nearly all, do not matter here.
        chosen = Window(window.buffer, window.headers.where(is_in_transaction(window.headers)))
        refuse_damaged_window(segment, Window(window.buffer, chosen.headers.where(chosen.headers.is_control)))
        producers.fold(chosen)
    first_unstable = producers.first_unstable_offset
    is_open = {key: producers.entries[key] for key in producers.open_transactions}
    if first_unstable is None:
        return layout.end_offset, is_open
    stable_offset = max(first_unstable, layout.start_offset)
    unchecked_offset = max(stable_offset, checked_offset)
    for _ in scan_range(layout, unchecked_offset, layout.end_offset, fail_on_data_loss=False, is_checked=True):
        pass
    return stable_offset, is_open


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
        for segment, window in scan_range(
            layout, layout.start_offset, layout.end_offset, fail_on_data_loss=False, needs_data=False
        ):
            headers = window.headers
            refuse_damaged_window(segment, Window(window.buffer, headers.where(headers.is_control)))
            for producer_id, offset, is_abort in end_markers(window):
                state = TransactionState.ABORTED if is_abort else TransactionState.COMMITTED
                found[producer_id].append((offset, state))
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


def is_in_transaction(headers: BatchHeaders) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which batches are of transactions, markers among them."""
    return headers.is_transactional & (headers.column("producer_id") >= 0)


def end_markers(window: Window) -> Iterator[tuple[int, int, bool]]:
    """Yield the producer and the offset of each marker that ends a transaction, and whether it is an abort."""
    for row in np.flatnonzero(window.headers.is_control).tolist():
        marker = v2.end_marker(window.batch(row))
        if marker is not None:
            batch = window.headers.table[row]
            yield int(batch["producer_id"]), int(batch["last_offset"]), marker.is_abort
