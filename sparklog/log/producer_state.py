"""What every producer of a log has in flight, and the rules by which its next batch is taken.

The state follows from the batches of the log: `Producers.fold` replays them, and refuses none, since what is in a log
was taken once. `Producers.check` is for the batch that a producer is about to append.

Source: apache/kafka, ProducerStateManager.java, ProducerStateEntry.java, ProducerAppendInfo.java; KIP-98, KIP-360.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

import numpy as np
from crc32c import crc32c

from sparklog.errors import (
    CorruptCheckpointError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from sparklog.log.index import TRANSACTION_ENTRY
from sparklog.log.layout import PartitionLayout
from sparklog.log.producers import SNAPSHOT_ENTRY, SNAPSHOT_HEADER, parse_snapshot, snapshots_of
from sparklog.log.segment import Window
from sparklog.log.walk import walk
from sparklog.record import v2

_NONE: Final = -1
_BATCHES_KEPT: Final = 5
_SNAPSHOT_VERSION: Final = 1
PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Kafka's ``producer.id.expiration.ms``: how long a producer that writes nothing is remembered."""


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index; see `sparklog.log.index`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """What the rules must know of a batch; offsets are -1 for one that has none yet."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool = False
    base_offset: int = _NONE
    last_offset: int = _NONE
    max_timestamp: int = _NONE


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer: its last batches, and its open transaction.

    Attributes
    ----------
    epoch : int
        The last that it wrote with; -1 not known.
    batches : tuple of ProducerBatch
        Of that epoch, at most five.
    timestamp : int
        ms, of its last batch or marker.
    coordinator_epoch : int
        Of its last marker; -1 none.
    first_offset : int
        Of its open transaction; -1 none.
    """

    epoch: int = _NONE
    batches: tuple[ProducerBatch, ...] = ()
    timestamp: int = _NONE
    coordinator_epoch: int = _NONE
    first_offset: int = _NONE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NONE

    def in_epoch(self, epoch: int) -> ProducerEntry:
        return self if epoch == self.epoch else replace(self, epoch=epoch, batches=())


@dataclass
class Producers:
    """The producers of a log, as of an offset; by producer id."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Read a producer snapshot; `CorruptCheckpointError` where it is none."""
        entries: dict[int, ProducerEntry] = {}
        for found in parse_snapshot(data, path).tolist():
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = found
            last = ProducerBatch(
                producer_id, epoch, _minus(last_sequence, delta), last_sequence, first_offset >= 0,
                last_offset - delta, last_offset, timestamp,
            )  # fmt: skip
            batches = (last,) if last_offset >= 0 else ()
            entries[producer_id] = ProducerEntry(epoch, batches, timestamp, coordinator_epoch, first_offset)
        return cls(entries)

    def encode(self) -> bytes:
        """Return the bytes of a snapshot, producers in the order of their ids; of each its last batch."""
        rows = [_snapshot_row(producer_id, entry) for producer_id, entry in sorted(self.entries.items())]
        body = np.array(rows, dtype=SNAPSHOT_ENTRY).tobytes()
        header = np.array([(_SNAPSHOT_VERSION, 0, len(rows))], dtype=SNAPSHOT_HEADER)
        header["crc"] = crc32c(body, crc32c(header.tobytes()[6:]))
        return header.tobytes() + body

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction; None where none is open."""
        return min((entry.first_offset for entry in self.entries.values() if entry.first_offset >= 0), default=None)

    def without_expired(self, now_ms: int) -> Producers:
        """Leave out producers that have not written for so long that a broker forgets them."""
        earliest_ms = now_ms - PRODUCER_EXPIRATION_MS
        kept = {
            producer_id: entry
            for producer_id, entry in self.entries.items()
            if entry.first_offset >= 0 or entry.timestamp > earliest_ms
        }
        return Producers(kept)

    def fold(self, window: Window) -> list[AbortedTransaction]:
        """Replay batches, control batches among them; the transactions that were aborted in them."""
        table = window.headers.table
        aborted: list[AbortedTransaction] = []
        for row in np.flatnonzero((table["producer_id"] >= 0) & (table["magic"] == 2)).tolist():
            batch = table[row]
            if batch["attributes"] & v2.CONTROL:
                ended = self._fold_marker(window.batch(row), batch)
                aborted += [] if ended is None else [ended]
            else:
                self.fold_batch(batch_of(batch))
        return aborted

    def fold_batch(self, batch: ProducerBatch) -> None:
        """Note a data batch that has been appended."""
        entry = self.entries.get(batch.producer_id, ProducerEntry()).in_epoch(batch.producer_epoch)
        opens = batch.is_transactional and entry.first_offset < 0
        self.entries[batch.producer_id] = replace(
            entry,
            batches=(*entry.batches, batch)[-_BATCHES_KEPT:],
            timestamp=batch.max_timestamp,
            first_offset=batch.base_offset if opens else entry.first_offset,
        )

    def _fold_marker(self, data: memoryview, header: np.void) -> AbortedTransaction | None:
        marker = v2.end_marker(data)
        if marker is None:
            return None
        producer_id, offset = int(header["producer_id"]), int(header["last_offset"])
        entry = self.entries.get(producer_id, ProducerEntry()).in_epoch(int(header["producer_epoch"]))
        first_offset = entry.first_offset
        self.entries[producer_id] = replace(
            entry,
            timestamp=int(header["max_timestamp"]),
            coordinator_epoch=marker.coordinator_epoch,
            first_offset=_NONE,
        )
        if first_offset < 0 or not marker.is_abort:
            return None
        stable_offset = self.first_unstable_offset
        return AbortedTransaction(
            producer_id, first_offset, offset, offset + 1 if stable_offset is None else stable_offset
        )

    def duplicate_of(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Return the batch, of the producer's last five, that this one repeats."""
        entry = self.entries.get(batch.producer_id, ProducerEntry())
        if entry.epoch != batch.producer_epoch:
            return None
        sequences = (batch.base_sequence, batch.last_sequence)
        return next((old for old in entry.batches if (old.base_sequence, old.last_sequence) == sequences), None)

    def check(self, batch: ProducerBatch) -> None:
        """Raise unless a producer may append a batch now; one that repeats another is not asked about here.

        Raises
        ------
        InvalidProducerEpochError
            The epoch is lower than one that the producer id has written with: it is fenced.
        OutOfOrderSequenceError
            The batch does not follow the producer's last one, or does not begin a new epoch at 0.
        InvalidTransactionStateError
            The producer has a transaction open, and the batch is of none.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch == _NONE:
            return
        name = f"producer {batch.producer_id}"
        if batch.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"{name} has epoch {batch.producer_epoch}, and has written with epoch {entry.epoch}: it is fenced"
            )
        expected = 0 if batch.producer_epoch > entry.epoch else plus(entry.last_sequence, 1)
        if batch.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"{name} in epoch {batch.producer_epoch} must go on with sequence {expected}, "
                f"and the batch begins with {batch.base_sequence}"
            )
        if entry.first_offset >= 0 and not batch.is_transactional:
            raise InvalidTransactionStateError(
                f"{name} has a transaction open since offset {entry.first_offset}, and the batch is of none"
            )


def batch_of(header: np.void) -> ProducerBatch:
    """Return what the rules must know of a batch, from its row in a table of headers."""
    base_offset, last_offset = int(header["base_offset"]), int(header["last_offset"])
    base_sequence = int(header["base_sequence"])
    return ProducerBatch(
        producer_id=int(header["producer_id"]),
        producer_epoch=int(header["producer_epoch"]),
        base_sequence=base_sequence,
        last_sequence=plus(base_sequence, last_offset - base_offset) if base_sequence >= 0 else _NONE,
        is_transactional=bool(header["attributes"] & v2.TRANSACTIONAL),
        base_offset=base_offset,
        last_offset=last_offset,
        max_timestamp=int(header["max_timestamp"]),
    )


def plus(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` after one: after the largest comes 0."""
    return (sequence + count) & v2.SEQUENCE_MAX


def _minus(sequence: int, count: int) -> int:
    return (sequence - count) & v2.SEQUENCE_MAX


def _snapshot_row(producer_id: int, entry: ProducerEntry) -> tuple[int, ...]:
    last = entry.batches[-1] if entry.batches else None
    last_offset, delta = (_NONE, 0) if last is None else (last.last_offset, last.last_offset - last.base_offset)
    return (
        producer_id, entry.epoch, entry.last_sequence, last_offset, delta, entry.timestamp, entry.coordinator_epoch,
        entry.first_offset,
    )  # fmt: skip


def producers_at_end(layout: PartitionLayout) -> Producers:
    """Return the state at the end of a log: that of its last sound snapshot, and what came after it."""
    producers, start_offset = _snapshot_before(layout)
    for _, window in walk(layout, start_offset, layout.end_offset, fail_on_data_loss=False):
        producers.fold(window)
    return producers


def _snapshot_before(layout: PartitionLayout) -> tuple[Producers, int]:
    for offset, path in snapshots_of(layout.storage, layout.path):
        data = layout.storage.read_small(path) if layout.start_offset <= offset <= layout.end_offset else None
        if data is not None:
            try:
                return Producers.parse(data, path), offset
            except CorruptCheckpointError:
                # It is made anew from an earlier one.
                continue
    return Producers(), layout.start_offset


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Return the entries of a transaction index."""
    rows: Sequence[tuple[int, ...]] = [(0, *each) for each in transactions]
    return np.array(rows, dtype=TRANSACTION_ENTRY).tobytes()
