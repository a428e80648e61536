"""Kafka's cleaner, slow and plain: one record at a time, over batches that are Python values.

It follows Cleaner.java and CleanedTransactionMetadata.java of apache/kafka step by step, with a dict for the offset
map, the transactions' first offsets known beforehand, and formats kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.build import Record, control_batch, empty_batch, legacy_message, legacy_wrapper, v2_batch

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key, value."""


@dataclass(frozen=True)
class Batch:
    """A batch; ``marker`` is ``"commit"``, ``"abort"`` or, of a data batch, empty."""

    base_offset: int
    last_offset: int
    rows: tuple[Row, ...]
    magic: int = 2
    codec: str = "none"
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: str = ""
    horizon_ms: int | None = None

    def encode(self) -> bytes:
        fields: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.base_sequence,
        }
        if self.marker:
            delta = None if self.horizon_ms is None else self.horizon_ms
            return control_batch(
                self.marker, self.base_offset, self.producer_id, self.epoch, self.rows[0][1], delete_horizon_ms=delta
            )
        made = [Record(offset - self.base_offset, at, key, value) for offset, at, key, value in self.rows]
        if self.magic < 2:
            if self.codec == "none":
                ((offset, at, key, value),) = self.rows
                return legacy_message(offset, key, value, magic=self.magic, timestamp=at)
            return legacy_wrapper(made, magic=self.magic, codec=self.codec, base_offset=self.base_offset)
        if not made:
            return empty_batch(
                self.base_offset,
                self.last_offset,
                transactional=self.is_transactional,
                **fields,
            )
        return v2_batch(
            made,
            base_offset=self.base_offset,
            codec=self.codec,
            last_offset_delta=self.last_offset - self.base_offset,
            transactional=self.is_transactional,
            delete_horizon_ms=self.horizon_ms,
            **fields,
        )

    def told(self) -> tuple[object, ...]:
        """Return what a header says, as far as cleaning changes it."""
        count = len(self.rows) if self.magic == 2 or self.codec == "none" else -1
        ids = (self.producer_id, self.epoch, self.base_sequence) if self.magic == 2 else (-1, -1, -1)
        first = self.base_offset if self.magic == 2 else self.last_offset
        return (self.magic, first, self.last_offset, *ids, count, self.horizon_ms if self.rows else None)


@dataclass(frozen=True)
class Cleaning:
    """One round: what is dirty, and what decides besides the batches."""

    start_offset: int
    end_offset: int
    log_end_offset: int
    now_ms: int
    delete_retention_ms: int
    last_batches: Mapping[int, tuple[int, int]]
    keeps_legacy_tombstones: bool = True


def aborted_transactions(batches: Iterable[Batch]) -> list[tuple[int, int, int]]:
    """Return (producer id, first offset, offset of its marker) of each aborted transaction."""
    since: dict[int, int] = {}
    found = []
    for batch in batches:
        if batch.marker:
            first = since.pop(batch.producer_id, None)
            if batch.marker == "abort" and first is not None:
                found.append((batch.producer_id, first, batch.last_offset))
        elif batch.is_transactional:
            since.setdefault(batch.producer_id, batch.base_offset)
    return found


class _Transactions:
    """CleanedTransactionMetadata."""

    def __init__(self, aborted: Sequence[tuple[int, int, int]]) -> None:
        self._waiting = sorted(aborted, key=lambda each: each[1])
        self._aborted: dict[int, bool] = {}
        self._committed: set[int] = set()

    def can_discard(self, batch: Batch) -> bool:
        while self._waiting and self._waiting[0][1] <= batch.last_offset:
            self._aborted.setdefault(self._waiting.pop(0)[0], False)
        if batch.marker == "abort":
            return not self._aborted.pop(batch.producer_id, False)
        if batch.marker == "commit":
            was_met = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not was_met
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._aborted[batch.producer_id] = True
            return True
        self._committed.add(batch.producer_id)
        return False


def clean(batches: Sequence[Batch], how: Cleaning) -> list[Batch]:
    """Return what a round leaves of the batches before its end, and the others as they are."""
    aborted = aborted_transactions(batches)
    latest: dict[bytes, int] = {}
    transactions = _Transactions([each for each in aborted if each[2] >= how.start_offset])
    for batch in batches:
        if how.start_offset <= batch.last_offset < how.end_offset:
            is_discarded = transactions.can_discard(batch)
            if not batch.marker and not is_discarded:
                latest.update({k: at for at, _, k, _ in batch.rows if k is not None and at >= how.start_offset})
    transactions = _Transactions(aborted)
    left = []
    for batch in batches:
        if batch.base_offset >= how.end_offset:
            left.append(batch)
            continue
        can_discard = transactions.can_discard(batch)
        after = _filtered(batch, how, latest, can_discard=can_discard)
        if after is not None:
            left.append(after)
    return left


def _filtered(batch: Batch, how: Cleaning, latest: Mapping[bytes, int], *, can_discard: bool) -> Batch | None:
    is_past = batch.horizon_ms is not None and batch.horizon_ms <= how.now_ms
    is_discarded = can_discard and (is_past or not batch.marker)
    kept = tuple(row for row in batch.rows if not is_discarded and _stays(batch, row, how, latest, is_past=is_past))
    if not kept:
        last = how.last_batches.get(batch.producer_id)
        must_stay = batch.last_offset + 1 == how.log_end_offset
        if last is not None and batch.producer_id >= 0:
            is_last_marker = bool(batch.marker) and batch.epoch == last[1]
            must_stay |= batch.last_offset == last[0] if last[0] >= 0 else is_last_marker
        return replace(batch, rows=(), horizon_ms=None) if must_stay and batch.magic == 2 else None
    is_waiting = can_discard if batch.marker else any(row[3] is None for row in kept)
    horizon_ms = batch.horizon_ms
    if is_waiting and horizon_ms is None and batch.magic == 2:
        horizon_ms = how.now_ms + how.delete_retention_ms
    # A wrapper's only offset is that of its last message.
    last_offset = batch.last_offset if batch.magic == 2 else kept[-1][0]
    return replace(batch, rows=kept, horizon_ms=horizon_ms, last_offset=last_offset)


def _stays(batch: Batch, row: Row, how: Cleaning, latest: Mapping[bytes, int], *, is_past: bool) -> bool:
    offset, _, key, value = row
    if batch.marker or offset >= how.end_offset:
        return True
    if key is None or offset < latest.get(key, -1):
        return False
    keeps_tombstones = not is_past if batch.magic == 2 else how.keeps_legacy_tombstones
    return value is not None or keeps_tombstones
