"""What producers have in flight: open transactions, and which batches were aborted.

Both follow from the log alone: a transactional batch belongs to the transaction that the producer's next marker ends,
and where that is an abort marker the batch must not be read. The transaction index says the same of aborted
transactions, but may have lost entries to the cleaner, so it is not asked.

A producer snapshot (``<offset>.snapshot``) is the state as of an offset, so that a log need not be read from its start:

    byte  size  field
    0     2     version              1
    2     4     crc                  CRC-32C of what follows
    6     4     count
    10    46    for each producer:
          8     producer_id
          2     producer_epoch
          4     last_sequence
          8     last_offset          of its last batch; below 0 none
          4     offset_delta         last - first offset of that batch
          8     timestamp            ms, of that batch
          4     coordinator_epoch
          8     first_offset         of its open transaction; -1 none

Source: apache/kafka, ProducerStateManager.java, ProducerSnapshot.json; KIP-98.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from sparklog.errors import CorruptCheckpointError
from sparklog.log import files
from sparklog.log.layout import PartitionLayout
from sparklog.log.segment import Window
from sparklog.log.walk import walk
from sparklog.record import v2
from sparklog.record.headers import BatchHeaders
from sparklog.storage.base import Storage

SNAPSHOT_ENTRY: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("first_offset", ">i8"),
    ]
)
SNAPSHOT_HEADER: Final = np.dtype([("version", ">i2"), ("crc", ">u4"), ("count", ">i4")])
assert SNAPSHOT_ENTRY.itemsize == 46
assert SNAPSHOT_HEADER.itemsize == 10

_log = logging.getLogger("sparklog")


def parse_snapshot(data: bytes, path: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Read the entries of a producer snapshot.

    Raises
    ------
    CorruptCheckpointError
        The version is not 1, the checksum differs, or the file is not as long as its count says.
    """
    if len(data) < SNAPSHOT_HEADER.itemsize:
        raise CorruptCheckpointError("the producer snapshot is cut short", path=path)
    header = np.frombuffer(data, dtype=SNAPSHOT_HEADER, count=1)[0]
    if header["version"] != 1:
        raise CorruptCheckpointError(f"unknown version {header['version']} of a producer snapshot", path=path)
    if crc32c(data[6:]) != header["crc"]:
        raise CorruptCheckpointError("the checksum of the producer snapshot differs", path=path)
    entries_bytes = len(data) - SNAPSHOT_HEADER.itemsize
    if int(header["count"]) * SNAPSHOT_ENTRY.itemsize != entries_bytes:
        raise CorruptCheckpointError(f"the producer snapshot is not of {header['count']} entries", path=path)
    return np.frombuffer(data, dtype=SNAPSHOT_ENTRY, offset=SNAPSHOT_HEADER.itemsize)


def last_stable_offset(layout: PartitionLayout) -> int:
    """Return the offset below which every transaction is decided.

    It is the first offset of the earliest open transaction, or the log end offset. The high watermark is not asked: it
    says what was replicated when a broker last wrote it down, not what the log holds.
    """
    ongoing, start_offset = snapshot_before(layout)
    for _, window in walk(layout, start_offset, layout.end_offset, fail_on_data_loss=False):
        for row in np.flatnonzero(_is_in_transaction(window.headers)).tolist():
            batch = window.headers.table[row]
            producer_id = int(batch["producer_id"])
            if not batch["attributes"] & v2.CONTROL:
                ongoing.setdefault(producer_id, int(batch["base_offset"]))
            elif _marker(window, row) is not None:
                ongoing.pop(producer_id, None)
    return max(min(ongoing.values(), default=layout.end_offset), layout.start_offset)


class TransactionMarkers:
    """The markers of a log, found by walking ahead of a reader no further than it must.

    Parameters
    ----------
    layout : PartitionLayout
        Of the log.
    start_offset : int
        No batch below it will be asked for.
    """

    def __init__(self, layout: PartitionLayout, start_offset: int) -> None:
        # What is gone by then is not asked for either: whoever reads it finds it missing.
        self._windows = walk(layout, start_offset, layout.end_offset, fail_on_data_loss=False)
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
            kind = _marker(window, row)
            if kind is not None:
                batch = window.headers.table[row]
                self._markers[int(batch["producer_id"])].append((int(batch["last_offset"]), kind == v2.ABORT))


def _is_in_transaction(headers: BatchHeaders) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return headers.is_transactional & (headers.column("producer_id") >= 0)


def _marker(window: Window, row: int) -> int | None:
    """Return `v2.ABORT` or `v2.COMMIT` for a control batch that is such a marker; None for any other."""
    kind = v2.control_type(window.batch(row))
    return kind if kind in (v2.ABORT, v2.COMMIT) else None


def snapshot_before(layout: PartitionLayout) -> tuple[dict[int, int], int]:
    """Return the open transactions of the last sound snapshot, and the offset that it is of."""
    for offset, path in snapshots_of(layout.storage, layout.path):
        if layout.start_offset <= offset <= layout.end_offset:
            data = layout.storage.read_small(path)
            if data is None:
                continue
            try:
                entries = parse_snapshot(data, path)
            except CorruptCheckpointError as error:
                _log.warning("%s; reading transactions from an earlier offset instead", error)
                continue
            open_entries = entries[entries["first_offset"] >= 0]
            return dict(
                zip(open_entries["producer_id"].tolist(), open_entries["first_offset"].tolist(), strict=True)
            ), offset
    return {}, layout.start_offset


def snapshots_of(storage: Storage, folder: str) -> list[tuple[int, str]]:
    """List the snapshots of a folder, the last first."""
    named = [(files.parse_offset_file(entry.name), entry.name) for entry in storage.entries(folder)]
    found = [(name.offset, f"{folder}/{text}") for name, text in named if name and name.suffix == files.SNAPSHOT]
    return sorted(found, reverse=True)
