"""Finds the aborted transactions of a log, and decides which markers compaction may remove.

A marker stays as long as a batch of its transaction does: without it an aborted record would be read, or a transaction
would seem open. Once a cleaning meets no batch before a marker any more, it gives the marker a delete horizon, as it
does to a tombstone, and a cleaning after that removes it.

Source: apache/kafka, CleanedTransactionMetadata.java; KIP-534.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sparklog.log.producer_state import AbortedTransaction, Producers
from sparklog.log.scans.of_range import refuse_damaged_window
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.where_program import Mask
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders


class AbortedTransactions:
    """The aborted transactions of a log. Answers whether a batch is part of one.

    They are computed from the markers. The transaction indexes say the same but have no checksum: if an entry is
    missing, an aborted record would replace a committed one.

    Parameters
    ----------
    list_segments : callable
        Lists the segments of the log. All are read when the first batch of a transaction is asked about; by
        then a cleaning may have swapped some. The checksum of every batch is checked, since a marker whose header is
        wrong looks like any other batch.
    """

    def __init__(self, list_segments: Callable[[], Sequence[Segment]]) -> None:
        self._list_segments = list_segments
        self._found: dict[int, tuple[list[int], list[AbortedTransaction]]] | None = None

    def of(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Return the aborted transaction that an offset of a producer is in, its marker included; None for none."""
        if self._found is None:
            self._found = self._read()
        if producer_id not in self._found:
            return None
        last_offsets, transactions = self._found[producer_id]
        row = bisect_left(last_offsets, offset)
        if row == len(transactions) or transactions[row].first_offset > offset:
            return None
        return transactions[row]

    def are_aborted(self, headers: BatchHeaders) -> Mask:
        """Tell of each data batch whether its transaction was aborted: shape (n_batches,)."""
        aborted = np.zeros(len(headers), dtype=bool)
        for row, producer_id, last_offset in _transactional(headers, ~headers.is_control):
            aborted[row] = self.of(producer_id, last_offset) is not None
        return aborted

    def _read(self) -> dict[int, tuple[list[int], list[AbortedTransaction]]]:
        found: defaultdict[int, tuple[list[int], list[AbortedTransaction]]] = defaultdict(lambda: ([], []))
        producers = Producers()
        for segment in self._list_segments():
            with segment.open() as log:
                for window in log.windows(log.start):
                    refuse_damaged_window(segment, window)
                    chosen = window.headers.where(window.headers.is_transactional | window.headers.is_control)
                    for each in producers.fold(Window(window.buffer, chosen)):
                        last_offsets, transactions = found[each.producer_id]
                        last_offsets.append(each.last_offset)
                        transactions.append(each)
        return dict(found)


class MarkerTracker:
    """Follows the transactions of a log through one cleaning, batch by batch in offset order.

    Parameters
    ----------
    aborted : AbortedTransactions
        The aborted transactions of the log.
    """

    def __init__(self, aborted: AbortedTransactions) -> None:
        self._aborted = aborted
        self._with_batches: set[tuple[bool, int]] = set()
        self._retained: list[AbortedTransaction] = []

    def discardable(self, headers: BatchHeaders, batch: Callable[[int], memoryview]) -> Mask:
        """Return which batches may be removed: aborted batches, and markers whose transactions have no batch left.

        Parameters
        ----------
        headers : BatchHeaders, length n_batches
            The batches after those of the last call.
        batch : callable
            Gives the bytes of a batch by its row.
        """
        discardable = np.zeros(len(headers), dtype=bool)
        is_control = headers.is_control
        for row, producer_id, last_offset in _transactional(headers, np.ones(len(headers), dtype=bool)):
            if is_control[row]:
                discardable[row] = self._is_done(producer_id, last_offset, batch(row))
            else:
                is_aborted = self._aborted.of(producer_id, last_offset) is not None
                self._with_batches.add((is_aborted, producer_id))
                discardable[row] = is_aborted
        return discardable

    def _is_done(self, producer_id: int, offset: int, batch: memoryview) -> bool:
        """Tell whether nothing that a cleaning has met needs a control batch."""
        if int.from_bytes(batch[57:61], "big") == 0:
            return True
        marker = v2.end_marker(batch)
        if marker is None:
            return False
        met = (marker.is_abort, producer_id)
        if met not in self._with_batches:
            return True
        self._with_batches.remove(met)
        transaction = self._aborted.of(producer_id, offset) if marker.is_abort else None
        if transaction is not None:
            self._retained.append(transaction)
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """Return the aborted transactions whose markers had to stay since the last call, for a transaction index."""
        retained, self._retained = self._retained, []
        return retained


def _transactional(headers: BatchHeaders, chosen: Mask) -> Iterator[tuple[int, int, int]]:
    """Yield row, producer id and last offset of the chosen batches that are part of a transaction, or end one."""
    rows = np.flatnonzero((headers.is_transactional | headers.is_control) & chosen)
    columns = (rows, headers.column("producer_id")[rows], headers.column("last_offset")[rows])
    return zip(*(column.tolist() for column in columns), strict=True)
