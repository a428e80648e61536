"""Finds the state of the producers of a log: the last sound snapshot of them, and the batches after it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparklog.errors import CorruptCheckpointError
from sparklog.log import files
from sparklog.log.layout import PartitionLayout, batch_holding
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import ProducerBatch, Producers, producer_batches
from sparklog.log.scans.of_range import scan_range

_NONE: Final = -1
_ENTRIES_COMPARED: Final = 3

_log = logging.getLogger("sparklog")


class KnownProducers(NamedTuple):
    """The producers of a log at an offset."""

    producers: Producers
    offset: int


def producers_at_end(layout: PartitionLayout, now_ms: int | None = None) -> Producers:
    """Return the state at the end of a log, from its last sound snapshot and the batches after it.

    Parameters
    ----------
    layout : PartitionLayout
        The layout of the log.
    now_ms : int, optional
        The current time, for forgetting producers of the snapshot that have been idle too long, as when a broker loads
        it; producers with later batches are kept. By default none is forgotten.

    Raises
    ------
    CorruptBatchError
        The checksum of a batch after the snapshot is wrong.
    """
    return producers_after(snapshot_before(layout), layout, now_ms)


def producers_after(known: KnownProducers, layout: PartitionLayout, now_ms: int | None = None) -> Producers:
    """Return the state at the end of a log from the state at an offset; see `producers_at_end`."""
    producers = known.producers if now_ms is None else known.producers.without_expired(now_ms)
    if known.offset < layout.end_offset:
        for _, window in scan_range(layout, known.offset, layout.end_offset, fail_on_data_loss=False, is_checked=True):
            producers.fold(window)
    return producers


def snapshot_before(layout: PartitionLayout) -> KnownProducers:
    """Return the state in the last sound snapshot of a log; without one, no producers at the log's start."""
    offsets = [offset for offset, _ in snapshots_of(layout.folder)]
    return last_snapshot(layout, offsets) or KnownProducers(Producers(), layout.start_offset)


def last_snapshot(layout: PartitionLayout, offsets: Iterable[int]) -> KnownProducers | None:
    """Return the state in the first sound snapshot among those with the given offsets, the last one first."""
    for offset in offsets:
        path = layout.folder.path(offset, files.SNAPSHOT)
        data = layout.storage.read_small(path) if layout.start_offset <= offset <= layout.end_offset else None
        if data is not None:
            try:
                producers = Producers.parse(data, path)
            except CorruptCheckpointError as error:
                _log.warning("%s; reading the producers' state from an earlier offset instead", error)
                continue
            if is_of_log(producers, offset, layout):
                return KnownProducers(producers, offset)
            _log.warning(
                "%s is not of this log: a producer has not written where it says; reading the producers' state from an "
                "earlier offset instead",
                path,
            )
    return None


def is_of_log(producers: Producers, offset: int, layout: PartitionLayout) -> bool:
    """Return whether a snapshot may belong to a log, by comparing a few of its entries with the log's batches.

    Its checksum proves that the writer of some log wrote it. Its open transactions must have begun at their
    offsets, and the producers that wrote last must have written there, unless the cleaner has removed that batch since.
    """
    entries = producers.entries.values()
    if any(entry.batches and entry.batches[-1].last_offset >= offset for entry in entries):
        return False
    begun = [(entry.first_offset, key) for key, entry in producers.entries.items() if entry.first_offset >= 0]
    for first_offset, producer_id in sorted(begun)[:_ENTRIES_COMPARED]:
        found = _batch_at(layout, first_offset)
        # The cleaner removes nothing from an open transaction.
        is_begun = found is not None and found.producer_id == producer_id and found.is_transactional
        if not is_begun and first_offset >= layout.start_offset:
            return False
    latest = sorted((entry.batches[-1] for entry in entries if entry.batches), key=lambda batch: -batch.last_offset)
    for batch in latest[:_ENTRIES_COMPARED]:
        found = _batch_at(layout, batch.last_offset)
        if found is not None and (found.producer_id, found.last_sequence) != (batch.producer_id, batch.last_sequence):
            return False
    return True


def _batch_at(layout: PartitionLayout, offset: int) -> ProducerBatch | None:
    """Return the batch that holds an offset; None if the log has none."""
    header = batch_holding(layout, offset)
    if header is None:
        return None
    nobody = ProducerBatch(_NONE, _NONE, _NONE, _NONE)
    return next(producer_batches(header.table), nobody)


def snapshots_of(folder: PartitionFolder) -> list[tuple[int, str]]:
    """List the snapshots of a folder by offset and path, the last first, without looking up their sizes."""
    found: list[tuple[int, str]] = []
    for each in folder.storage.names(folder.location):
        named = None
        if each.name.endswith(files.SNAPSHOT) and not each.is_folder:
            named = files.parse_offset_file(each.name)
        if named is not None:
            found.append((named.offset, folder.file(each.name)))
    return sorted(found, reverse=True)
