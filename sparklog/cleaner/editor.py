"""Editors decide what happens to the batches of a log; `sparklog.cleaner.rewriting` asks them and writes the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sparklog.errors import CorruptBatchError, PathNotFoundError
from sparklog.log import files
from sparklog.log.index import TRANSACTION_ENTRY
from sparklog.log.producer_state import AbortedTransaction
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.columns import LIMITS, DecodeLimits
from sparklog.record.rewrite.spans import RecordSpans, SpanProgress, record_spans


class Editor:
    """Decides what happens to the batches of one log. This base class leaves all of them as they are.

    The rewriter takes the source segments in offset order. For each it calls `begin`, then `edit` for each of its
    windows, then `aborted`. The checksums of a window's batches have been checked.

    Batches keep their base offset and last offset, producer id, epoch and sequence, leader epoch and timestamp type.
    If the last source of a group loses all its records, the rewriter keeps an empty batch in place of its last one.
    """

    segment: Segment

    def begin(self, segment: Segment) -> None:
        """Go on with the next source segment."""
        self.segment = segment

    def edit(self, window: Window) -> Iterator[memoryview]:
        """Yield the batches that replace those of a window: whole batches, in offset order.

        Runs of unchanged batches are yielded as slices of the window's buffer. If a whole segment is unchanged,
        it is not written again. Each slice is used before the next one is requested.
        """
        yield window.buffer[: window.headers.valid_bytes]

    def aborted(self) -> Sequence[AbortedTransaction]:
        """Return the entries for the transaction index whose markers were in the segment, and stay."""
        return aborted_in(self.segment)


class SpanEditor(Editor):
    """Base of the editors that look at the records of batches.

    Parameters
    ----------
    limits : DecodeLimits
        How many bytes are decompressed at a time, and how many a batch may have.
    """

    def __init__(self, limits: DecodeLimits = LIMITS) -> None:
        self._limits = limits
        self._progress = SpanProgress()

    def begin(self, segment: Segment) -> None:
        """Go on with the next source segment."""
        super().begin(segment)
        # The rewriter scans each segment by itself.
        self._progress = SpanProgress()

    def spans(self, window: Window) -> Iterator[RecordSpans]:
        """Find the records of a window's batches, some batches at a time."""
        try:
            yield from record_spans(window.buffer, window.headers, limits=self._limits, progress=self._progress)
        except CorruptBatchError as error:
            raise error.located(path=self.segment.path()) from error


def aborted_in(segment: Segment) -> list[AbortedTransaction]:
    """Return the entries of a segment's transaction index that can concern its offsets, in order."""
    try:
        with segment.file(files.TRANSACTION_INDEX) as index:
            data = index.read(0, index.size_bytes())
    except PathNotFoundError:
        return []
    entries = np.frombuffer(data, TRANSACTION_ENTRY, len(data) // TRANSACTION_ENTRY.itemsize)
    found: list[AbortedTransaction] = []
    lowest_offset = segment.base_offset
    for version, *fields in entries.tolist():
        entry = AbortedTransaction(*fields)
        if version == 0 and lowest_offset <= entry.last_offset < segment.upper_offset:
            found.append(entry)
            lowest_offset = entry.last_offset + 1
    return found
