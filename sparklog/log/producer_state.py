"""The state of every producer of a log, and the rules that its next batch must obey.

The state follows from the batches of the log: `Producers.fold` replays them, without refusing any, since every batch of
a log was accepted once. `Producers.check` is for the batch that a producer appends next.

A producer snapshot (``<offset>.snapshot``) has the state at an offset, so that a log need not be read from its start:

    byte  size  field
    0     2     version              1
    2     4     crc                  CRC-32C of the bytes after it
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

It has only the last batch of each producer. The order of the producers means nothing; Kafka writes them in the order
of a Java hash map, and they are written here in the order of such a map that has just been filled.

Source: apache/kafka, ProducerStateManager.java, ProducerStateEntry.java, ProducerAppendInfo.java; KIP-98, KIP-360;
ProducerSnapshot.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np
from crc32c import crc32c

from sparklog.errors import (
    CorruptCheckpointError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from sparklog.log.index import TRANSACTION_ENTRY
from sparklog.log.windows import Window
from sparklog.record.format import v2

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

PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Kafka's ``producer.id.expiration.ms``: how long a producer that writes nothing is remembered."""

_NONE: Final = -1
_BATCHES_KEPT: Final = 5
_SNAPSHOT_VERSION: Final = 1
_HASH_TABLE_MIN: Final = 16


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
        raise CorruptCheckpointError(f"the producer snapshot does not have {header['count']} entries", path=path)
    return np.frombuffer(data, dtype=SNAPSHOT_ENTRY, offset=SNAPSHOT_HEADER.itemsize)


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index; see `sparklog.log.index`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """The fields of a batch that the rules need; offsets are -1 if it has none yet."""

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
        The last epoch that it wrote with; -1 if unknown.
    batches : tuple of ProducerBatch
        Its last batches in that epoch, at most five.
    timestamp : int
        The time of its last batch or marker, ms.
    coordinator_epoch : int
        The coordinator's epoch in its last marker; -1 none.
    first_offset : int
        The first offset of its open transaction; -1 none.
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


_UNKNOWN: Final = ProducerEntry()


@dataclass
class Producers:
    """The producers of a log at an offset, by producer id, in order of appearance."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)
    _open_since: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Needed at every abort marker, where a search through all entries would be too slow.
        self._open_since = {key: entry.first_offset for key, entry in self.entries.items() if entry.first_offset >= 0}

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Read a producer snapshot; raise `CorruptCheckpointError` if it is not sound."""
        entries: dict[int, ProducerEntry] = {}
        for found in parse_snapshot(data, path).tolist():
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = found
            base_sequence = _minus(last_sequence, delta) if last_sequence >= 0 else _NONE
            last = ProducerBatch(
                producer_id, epoch, base_sequence, last_sequence, first_offset >= 0,
                last_offset - delta, last_offset, timestamp,
            )  # fmt: skip
            batches = (last,) if last_offset >= 0 else ()
            entries[producer_id] = ProducerEntry(epoch, batches, timestamp, coordinator_epoch, first_offset)
        return cls(entries)

    def encode(self) -> bytes:
        """Return the bytes of a snapshot, equal to those of a broker that has just loaded these producers."""
        rows = [_snapshot_row(producer_id, self.entries[producer_id]) for producer_id in _in_java_order(self.entries)]
        body = np.array(rows, dtype=SNAPSHOT_ENTRY).tobytes()
        header = np.array([(_SNAPSHOT_VERSION, 0, len(rows))], dtype=SNAPSHOT_HEADER)
        header["crc"] = crc32c(body, crc32c(header.tobytes()[6:]))
        return header.tobytes() + body

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction; None if none is open."""
        return min(self._open_since.values(), default=None)

    def without_expired(self, now_ms: int) -> Producers:
        """Return the producers without those that a broker forgets, since they have not written for long."""
        earliest_ms = now_ms - PRODUCER_EXPIRATION_MS
        kept = {
            producer_id: entry
            for producer_id, entry in self.entries.items()
            if entry.first_offset >= 0 or entry.timestamp > earliest_ms
        }
        return Producers(kept)

    def fold(self, window: Window) -> list[AbortedTransaction]:
        """Replay batches, including control batches; return the transactions that they abort."""
        headers = window.headers.where(window.headers.column("producer_id") >= 0)
        of_producers = Window(window.buffer, headers)
        markers = {row: v2.end_marker(of_producers.batch(row)) for row in np.flatnonzero(headers.is_control).tolist()}
        return self.fold_table(headers.table, markers)

    def fold_table(
        self, table: np.ndarray[Any, np.dtype[Any]], markers: Mapping[int, v2.EndMarker | None]
    ) -> list[AbortedTransaction]:
        """Replay batches from a table of their headers; return the transactions that they abort.

        Parameters
        ----------
        table : structured array, length n_batches
            The columns of `BatchHeaders` that `producer_batches` needs; all batches have a producer id.
        markers : mapping of int to EndMarker or None
            All control batches by their rows, with their contents; None for one that ends no transaction.
        """
        aborted: list[AbortedTransaction] = []
        for row, batch in enumerate(producer_batches(table)):
            if row in markers:
                ended = self._fold_marker(batch, markers[row])
                aborted += [] if ended is None else [ended]
            else:
                self.fold_batch(batch)
        return aborted

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """The first offset of each open transaction, by producer id."""
        return self._open_since

    def put_back(self, producer_id: int, entry: ProducerEntry | None) -> None:
        """Restore the entry that a producer had before its last batches; None removes it."""
        if entry is None:
            self.entries.pop(producer_id, None)
        else:
            self.entries[producer_id] = entry
        if entry is None or entry.first_offset < 0:
            self._open_since.pop(producer_id, None)
        else:
            self._open_since[producer_id] = entry.first_offset

    def fold_batch(self, batch: ProducerBatch) -> None:
        """Add an appended data batch."""
        entry = self.entries.get(batch.producer_id, _UNKNOWN)
        batches = entry.batches[1 - _BATCHES_KEPT :] if entry.epoch == batch.producer_epoch else ()
        opens = batch.is_transactional and entry.first_offset < 0
        first_offset = batch.base_offset if opens else entry.first_offset
        self.entries[batch.producer_id] = ProducerEntry(
            batch.producer_epoch, (*batches, batch), batch.max_timestamp, entry.coordinator_epoch, first_offset
        )
        if opens:
            self._open_since[batch.producer_id] = first_offset

    def _fold_marker(self, batch: ProducerBatch, marker: v2.EndMarker | None) -> AbortedTransaction | None:
        entry = self.entries.setdefault(batch.producer_id, _UNKNOWN)
        if marker is None:
            # Emptied by the cleaner: it ends no transaction, but makes the producer known to a broker that loads it.
            return None
        self.entries[batch.producer_id] = replace(
            entry.in_epoch(batch.producer_epoch),
            timestamp=batch.max_timestamp,
            coordinator_epoch=marker.coordinator_epoch,
            first_offset=_NONE,
        )
        self._open_since.pop(batch.producer_id, None)
        if entry.first_offset < 0 or not marker.is_abort:
            return None
        undecided, end_offset = self.first_unstable_offset, batch.last_offset + 1
        return AbortedTransaction(
            batch.producer_id,
            entry.first_offset,
            batch.last_offset,
            end_offset if undecided is None else undecided,
        )

    def duplicate_of(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Return the batch among the producer's last five that this one repeats."""
        entry = self.entries.get(batch.producer_id, _UNKNOWN)
        # Without sequence numbers, as in commits of groups' offsets, repeated batches cannot be recognised.
        if entry.epoch != batch.producer_epoch or batch.base_sequence < 0:
            return None
        sequences = (batch.base_sequence, batch.last_sequence)
        return next((old for old in entry.batches if (old.base_sequence, old.last_sequence) == sequences), None)

    def check(self, batch: ProducerBatch) -> None:
        """Raise unless a producer may append a batch now. Repeated batches must be ruled out before.

        Raises
        ------
        InvalidProducerEpochError
            The producer id has written with a higher epoch: this one is fenced.
        OutOfOrderSequenceError
            The batch does not follow the producer's last one, or does not begin a new epoch at 0.
        InvalidTransactionStateError
            The producer has an open transaction, and the batch is not transactional.
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
                f"{name} in epoch {batch.producer_epoch} must continue with sequence {expected}, "
                f"but the batch begins with {batch.base_sequence}"
            )
        if entry.first_offset >= 0 and not batch.is_transactional:
            raise InvalidTransactionStateError(
                f"{name} has a transaction open since offset {entry.first_offset}, but the batch is not transactional"
            )


def producer_batches(table: np.ndarray[Any, np.dtype[Any]]) -> Iterator[ProducerBatch]:
    """Yield the batches with a producer id in a table of headers."""
    has_producer = table["producer_id"] >= 0
    if not has_producer.any():
        return iter(())
    table = table[has_producer]
    base_sequences, deltas = table["base_sequence"], table["last_offset"] - table["base_offset"]
    columns = (
        table["producer_id"],
        table["producer_epoch"],
        base_sequences,
        np.where(base_sequences >= 0, (base_sequences + deltas) & v2.SEQUENCE_MAX, _NONE),
        table["attributes"] & v2.TRANSACTIONAL != 0,
        table["base_offset"],
        table["last_offset"],
        table["max_timestamp"],
    )
    return map(ProducerBatch, *(column.tolist() for column in columns))


def plus(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` later; 0 follows the largest."""
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


def _in_java_order(producer_ids: Iterable[int]) -> list[int]:
    """Order producer ids like a Java ``HashMap`` that they were put into in this order.

    The order means nothing to a reader of a snapshot. With it, the file equals, byte for byte, the file of a broker
    that has just loaded these producers, and tests can compare the two. Such a map has 16 slots, and doubles them
    whenever it has more ids than three quarters of its slots; the lowest bits of an id's hash are its slot. A broker's
    order differs if more than eight ids share a slot, or if its map was larger once.
    """
    ids = list(producer_ids)
    places = _HASH_TABLE_MIN
    while len(ids) > places * 3 // 4:
        places *= 2

    def place(producer_id: int) -> int:
        hashed = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
        return (hashed ^ (hashed >> 16)) & (places - 1)

    return sorted(ids, key=place)


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Return the entries of a transaction index."""
    rows: Sequence[tuple[int, ...]] = [(0, *each) for each in transactions]
    return np.array(rows, dtype=TRANSACTION_ENTRY).tobytes()
