"""Erases records that have one of the given keys or pass a filter: removes them, or only their values.

Only batches that hold such a record are written anew. All others are copied as they are, and a segment without any is
not touched. A batch of magic 2 that loses all records is kept as an empty one: with it the log keeps its end, and
producers their sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sparklog.cleaner.editor import SpanEditor
from sparklog.cleaner.opened import OpenedLog
from sparklog.cleaner.partition import PassDone
from sparklog.cleaner.rewriting import Rewriter
from sparklog.log.windows import Window
from sparklog.record.decode.columns import LIMITS, DecodeLimits
from sparklog.record.decode.where import Where
from sparklog.record.decode.where_program import Mask, program_of
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels.spans import OFFSET, VALUE_BYTES
from sparklog.record.rewrite.batches import rewritten
from sparklog.record.rewrite.changes import NULL, Changes
from sparklog.record.rewrite.matching import AnyOf, KeySet, Matcher, Passing, is_data
from sparklog.record.rewrite.spans import RecordSpans


@dataclass
class ErasedOffsets:
    """The offsets of one partition's records that were removed, or lost their values."""

    _pieces: list[Int64s] = field(default_factory=list)

    def add(self, offsets: Int64s) -> None:
        """Add offsets, all larger than those so far."""
        self._pieces.append(offsets)

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def ranges(self) -> list[tuple[int, int]]:
        """Return the offsets as ascending ranges, both ends included, with a gap between any two."""
        if not self._pieces:
            return []
        offsets = np.concatenate(self._pieces)
        first = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
        last = np.append(first[1:], len(offsets)) - 1
        return list(zip(offsets[first].tolist(), offsets[last].tolist(), strict=True))


class Erasure(SpanEditor):
    """Erases the records that a matcher selects. Markers of transactions stay.

    Parameters
    ----------
    matcher : Matcher
        Selects the records to erase.
    is_blanked : bool
        Whether records stay, and only their values are replaced.
    blank_bytes : int
        The new values: `sparklog.record.rewrite.changes.NULL`, which makes tombstones in a compacted topic,
        or `EMPTY`.
    limits : DecodeLimits
        See `SpanEditor`.

    Attributes
    ----------
    erased : ErasedOffsets
        The records erased so far, without records whose values were blank already.
    """

    def __init__(
        self, matcher: Matcher, *, is_blanked: bool = False, blank_bytes: int = NULL, limits: DecodeLimits = LIMITS
    ) -> None:
        super().__init__(limits)
        self._matcher, self._is_blanked, self._blank_bytes = matcher, is_blanked, blank_bytes
        self.erased = ErasedOffsets()

    def edit(self, window: Window) -> Iterator[memoryview]:
        """Yield the batches of a window without the selected records, or with their values blanked."""
        kept_from, position = 0, 0
        for spans in self.spans(window):
            last = spans.headers.table[-1]
            end = int(last["position"] + last["batch_bytes"]) - spans.headers.origin
            chosen = self._chosen(spans)
            if chosen is not None:
                if kept_from < position:
                    yield window.buffer[kept_from:position]
                yield from rewritten(spans, self._changes(chosen))
                kept_from = end
            position = end
        if kept_from < position:
            yield window.buffer[kept_from:position]

    def _chosen(self, spans: RecordSpans) -> Mask | None:
        """Return which records are erased, or None if there are none."""
        mask = self._matcher.matches(spans)
        if mask is None:
            return None
        mask = mask & is_data(spans)
        if self._is_blanked:
            mask &= spans.table[:, VALUE_BYTES] != self._blank_bytes
        if not mask.any():
            return None
        self.erased.add(spans.table[mask, OFFSET])
        return mask

    def _changes(self, chosen: Mask) -> Changes:
        if self._is_blanked:
            return Changes(blank=chosen, blank_bytes=self._blank_bytes)
        return Changes(keep=~chosen)


@dataclass(frozen=True)
class ErasurePass:
    """Erases records from a whole log. The active segment is sealed first.

    Attributes
    ----------
    keys : KeySet or None
        Records with one of these keys are erased.
    where : Where or None
        Records that pass this filter are erased, too.
    is_blanked : bool
        Whether records stay, and only their values are replaced.
    blank_bytes : int
        See `Erasure`.
    """

    keys: KeySet | None = None
    where: Where | None = None
    is_blanked: bool = False
    blank_bytes: int = NULL

    name: str = field(default="erasure", init=False)
    needs_active: bool = field(default=True, init=False)

    def run(self, log: OpenedLog, rewriter: Rewriter) -> PassDone:
        """Rewrite each segment that holds such a record, by itself, and leave all others alone."""
        at = log.topic_partition
        parts: list[Matcher] = [] if self.keys is None else [self.keys]
        if self.where is not None and self.where.can_pass(at.topic, at.partition):
            parts.append(Passing(program_of(self.where.of_partition(at.topic, at.partition).tree)))
        if not parts:
            return PassDone()
        erasure = Erasure(
            AnyOf(tuple(parts)), is_blanked=self.is_blanked, blank_bytes=self.blank_bytes, limits=log.limits
        )
        done = tuple(rewriter.rewrite((segment,), erasure) for segment in log.rewritable)
        return PassDone(
            rewritten=done,
            removed_records=0 if self.is_blanked else len(erasure.erased),
            erased=tuple(erasure.erased.ranges()),
        )
