"""Finds gaps in the offsets of a log: between batches, or between the end of a segment and the next one.

A leader assigns offsets without gaps; only the cleaner makes gaps. In a log that was never cleaned, a sealed segment
that ends before the next one begins has most likely lost its end. An index entry for a batch in the gap proves it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log.scans.past_damage import CheckedBatches
from sparklog.log.segment import RELATIVE_OFFSET_MAX, Segment
from sparklog.record.format import v2


@dataclass(frozen=True)
class Gap:
    """The offsets missing at a sealed segment's end, from ``start_offset`` up to ``end_offset``, exclusive.

    ``magic`` is the magic of the segment's last batch.
    """

    path: str
    position: int
    start_offset: int
    end_offset: int
    magic: int

    def proven(self, known_offset: int) -> Finding:
        """Return the error about a gap, proven by an index entry with this offset."""
        message = (
            f"the sealed segment ends early, before offset {self.start_offset}: its indexes know a batch with offset "
            f"{known_offset}, and the next segment begins at {self.end_offset}"
        )
        return Finding(Severity.ERROR, "ends-early", self.path, message, self.position, self.start_offset)


class OffsetGaps:
    """Finds gaps in the offsets of one segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._next_offset = segment.base_offset
        self._position = self._magic = 0
        self.has_inner = False

    def add(self, batches: CheckedBatches) -> None:
        headers = batches.headers
        bases, lasts = headers.column("base_offset"), headers.column("last_offset")
        # The header of a wrapper of magic 0 or 1 has neither its first offset nor the number of its messages.
        is_known = (headers.column("magic") == 2) | (headers.column("attributes") & v2.CODEC_MASK == 0)
        expected = np.concatenate([[self._next_offset], lasts[:-1] + 1])
        is_sparse = headers.column("record_count") <= lasts - bases
        self.has_inner |= bool((is_known & ((bases > expected) | is_sparse)).any())
        self._next_offset = int(lasts[-1]) + 1
        self._position = headers.origin + headers.valid_bytes
        self._magic = int(headers.column("magic")[-1])

    def at_end(self) -> Gap | None:
        """Return the gap between the end of the segment and the next one; None without a gap or a next segment."""
        segment = self._segment
        is_bounded = not segment.is_last and segment.upper_offset <= segment.base_offset + RELATIVE_OFFSET_MAX
        if not is_bounded or self._next_offset >= segment.upper_offset:
            return None
        return Gap(segment.path(), self._position, self._next_offset, segment.upper_offset, self._magic)


def likely_cuts(gaps: list[Gap], *, is_proven: bool) -> list[Finding]:
    """Return the findings about segments that end early, in a log that does not look compacted.

    They are errors if the log was provably never compacted, otherwise notes.
    """
    why = "by its stored cleanup.policy the topic is not compacted: they are lost"
    likely = "nothing else in the log looks as if it had been compacted: batches may be missing from the segment's end"
    return [
        Finding(
            Severity.ERROR if is_proven else Severity.NOTE,
            "ends-early",
            gap.path,
            f"the segment ends before offset {gap.start_offset}, the next one begins at {gap.end_offset}, and "
            f"{why if is_proven else likely}",
            gap.position,
            gap.start_offset,
        )
        for gap in gaps
    ]
