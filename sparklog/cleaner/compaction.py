"""Compaction: of each key only the last record stays, as Kafka's cleaner leaves it.

A round of it reads the dirty section of the log into an offset map, and then rewrites all segments up to where the map
reaches: the clean ones, too, since their records may have been replaced. The remains of a batch are a batch of the same
format, offsets, producer and sequence. A batch that loses nothing is copied as it is.

    record                                      stays
    of an aborted transaction                   no
    without a key                               no
    behind what the map has read                yes
    whose key has a later offset in the map     no
    with a value                                yes
    without one (tombstone), magic 2            until the delete horizon of its batch
    without one, magic 0 and 1                  until its file is old enough

The first cleaning that meets a tombstone, or the marker of a transaction that has no records left, gives its batch a
delete horizon, ``delete.retention.ms`` from then on. A batch that loses all records is dropped, except the last one of
a producer that may go on with its sequence, and one that ends where the log does: they stay as empty batches.

A broker since 4.0 writes what it changes of magic 0 and 1 as magic 2. Here each batch keeps its format; records and
offsets are the same.

Source: apache/kafka@0852898, Cleaner.java; KIP-58, KIP-98, KIP-534; KAFKA-20452.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparklog.cleaner.editor import SpanEditor
from sparklog.cleaner.transactions import AbortedTransactions, MarkerTracker
from sparklog.log.clock import NS_PER_MS
from sparklog.log.config import LogConfig
from sparklog.log.producer_state import AbortedTransaction, Producers
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.columns import DecodeLimits
from sparklog.record.decode.where_program import Mask
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.kernels import offset_map as kernels
from sparklog.record.kernels.spans import KEY, KEY_BYTES, OFFSET, VALUE_BYTES
from sparklog.record.rewrite.batches import rewritten
from sparklog.record.rewrite.changes import Changes
from sparklog.record.rewrite.offset_map import OffsetMap
from sparklog.record.rewrite.spans import RecordSpans

_NONE = -1


class LastBatch(NamedTuple):
    """The last batch of a producer, which its next one follows: the batch's last offset, -1 for none, and its epoch."""

    last_offset: int
    epoch: int


def last_batches(producers: Producers) -> dict[int, LastBatch]:
    """Return the last batch of each producer, by its id."""
    return {
        producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else _NONE, entry.epoch)
        for producer_id, entry in producers.entries.items()
    }


@dataclass(frozen=True)
class CompactionRound:
    """All that a round needs to know to decide which records stay.

    Attributes
    ----------
    offset_map : OffsetMap
        The latest offset of each key in the dirty section, as far as this round goes.
    aborted : AbortedTransactions
        The aborted transactions of the log.
    last_batches : mapping of int to LastBatch
        The last batches of the producers that may go on, by producer id.
    end_offset : int
        The log end offset.
    legacy_tombstones_end_ms : int
        The file time up to which segments lose their tombstones of magic 0 and 1.
    now_ms : int
        Wall-clock time, ms since the epoch.
    config : LogConfig
        The topic's configuration.
    """

    offset_map: OffsetMap
    aborted: AbortedTransactions
    last_batches: Mapping[int, LastBatch]
    end_offset: int
    legacy_tombstones_end_ms: int
    now_ms: int
    config: LogConfig


class Compaction(SpanEditor):
    """Removes the records of each batch that a round of compaction does not keep.

    Attributes
    ----------
    removed_records : int
        How many records it has removed so far.
    """

    def __init__(self, of_round: CompactionRound, limits: DecodeLimits) -> None:
        super().__init__(limits)
        self._round = of_round
        self._markers = MarkerTracker(of_round.aborted)
        self._last_offsets = np.unique([each.last_offset for each in of_round.last_batches.values()])
        self._keeps_legacy_tombstones = True
        self.removed_records = 0

    def begin(self, segment: Segment) -> None:
        super().begin(segment)
        with segment.file() as log:
            modified_ms = log.modified_ns() // NS_PER_MS
        self._keeps_legacy_tombstones = modified_ms > self._round.legacy_tombstones_end_ms

    def edit(self, window: Window) -> Iterator[memoryview]:
        for spans in self.spans(window):
            batches = list(rewritten(spans, self._changes(spans)))
            # The machine does some work for each piece, and most pieces are single batches.
            yield batches[0] if len(batches) == 1 else memoryview(b"".join(batches))

    def aborted(self) -> Sequence[AbortedTransaction]:
        return self._markers.take_retained()

    def _changes(self, spans: RecordSpans) -> Changes:
        headers = spans.headers
        discardable = self._markers.discardable(headers, Window(spans.buffer, headers).batch)
        is_control = headers.is_control
        has_horizon = (headers.column("magic") == 2) & (headers.column("attributes") & v2.DELETE_HORIZON != 0)
        is_past = has_horizon & (headers.column("base_timestamp") <= self._round.now_ms)
        keep, counts = self._judged(spans, self._rules(headers, discardable, is_past))
        kept, tombstones = counts[:, kernels.KEPT], counts[:, kernels.TOMBSTONES_KEPT]
        is_waiting = np.where(is_control, discardable & (kept > 0), tombstones > 0)
        needs_horizon = is_waiting & ~has_horizon & (headers.column("magic") == 2)
        horizon_ms = self._round.now_ms + self._round.config.delete_retention_ms
        self.removed_records += int((np.diff(spans.batch_ends, prepend=0) - kept)[~is_control].sum())
        return Changes(
            keep=keep,
            delete_horizons=np.where(needs_horizon, horizon_ms, _NONE),
            retain_empty=self._must_stay(headers, is_control),
        )

    def _rules(self, headers: BatchHeaders, discardable: Mask, is_past: Mask) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the rule of each batch, as `record.kernels.offset_map.judge_records` takes them."""
        is_control = headers.is_control
        without_tombstones = is_past if self._keeps_legacy_tombstones else is_past | (headers.column("magic") < 2)
        rules = np.where(without_tombstones, kernels.KEEP_LATEST_VALUES, kernels.KEEP_LATEST)
        rules[is_control] = kernels.KEEP_ALL
        rules[discardable & (is_past | ~is_control)] = kernels.KEEP_NONE
        return rules.astype(np.uint8)

    def _judged(
        self, spans: RecordSpans, rules: np.ndarray[Any, np.dtype[np.uint8]]
    ) -> tuple[Mask, np.ndarray[Any, np.dtype[np.int64]]]:
        """Return which records stay, and the counts of each batch."""
        table, offset_map = spans.table, self._round.offset_map
        found = np.full(len(table), _NONE, dtype=np.int64)
        if len(table) and table[0, OFFSET] <= offset_map.latest_offset:
            offset_map.find(spans.octets, table[:, KEY], table[:, KEY_BYTES], found)
        keep = np.empty(len(table), dtype=np.uint8)
        counts = np.empty((len(spans), kernels.COUNTS), dtype=np.int64)
        if not kernels.judge_records(
            table[:, OFFSET],
            table[:, KEY_BYTES],
            table[:, VALUE_BYTES],
            found,
            spans.batch_ends,
            rules,
            offset_map.latest_offset,
            keep,
            counts,
        ):
            raise AssertionError("the spans of records do not fit their batches")
        return keep.view(np.bool_), counts

    def _must_stay(self, headers: BatchHeaders, is_control: Mask) -> Mask:
        """Tell which batches stay even where all of their records go."""
        last_offsets, producer_ids = headers.column("last_offset"), headers.column("producer_id")
        # A broker of 4.4 does this where the high watermark is; without a broker it is at the end of the log.
        must_stay = last_offsets + 1 == self._round.end_offset
        may_be_last = (producer_ids >= 0) & (is_control | np.isin(last_offsets, self._last_offsets))
        for row in np.flatnonzero(may_be_last).tolist():
            last = self._round.last_batches.get(int(producer_ids[row]))
            if last is not None and last.last_offset >= 0:
                must_stay[row] |= last.last_offset == last_offsets[row]
            elif last is not None:
                must_stay[row] |= is_control[row] and last.epoch == headers.column("producer_epoch")[row]
        mask: Mask = must_stay
        return mask
