"""Converts a log to another codec or record format.

Magic 0 and 1 know no transactions, so a conversion to them drops aborted records: nobody could tell them from others.
A log with an open transaction is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from sparklog.cleaner.editor import SpanEditor
from sparklog.cleaner.opened import OpenedLog
from sparklog.cleaner.partition import PassDone
from sparklog.cleaner.rewriting import Rewriter
from sparklog.errors import InvalidOptionError
from sparklog.log.producer_state import AbortedTransaction
from sparklog.log.scans.of_range import refuse_damaged_window
from sparklog.log.transactions import EndMarkers, TransactionState
from sparklog.log.windows import Window
from sparklog.record.decode.columns import LIMITS, DecodeLimits
from sparklog.record.decode.where_program import Mask
from sparklog.record.rewrite.convert import Losses, converted, losses
from sparklog.record.rewrite.spans import RecordSpans


class Conversion(SpanEditor):
    """Converts batches.

    Parameters
    ----------
    magic : int or None
        The new format; None keeps the format of each batch.
    codec : str or None
        Kafka's name of the new codec; None keeps the codec of each batch.
    level : int or None
        The compression level.
    markers : EndMarkers or None
        The transaction markers of the log; needed for magic 0 and 1.
    limits : DecodeLimits
        See `SpanEditor`.

    Attributes
    ----------
    lost : Losses
        The losses of the batches so far; in a dry run, those they would have.
    aborted_records : int
        How many records of aborted transactions were dropped, or would be.
    """

    def __init__(
        self,
        magic: int | None,
        codec: str | None,
        level: int | None = None,
        *,
        markers: EndMarkers | None = None,
        limits: DecodeLimits = LIMITS,
    ) -> None:
        super().__init__(limits)
        self._magic, self._codec, self._level, self._markers = magic, codec, level, markers
        self.lost, self.aborted_records, self._loses_end = Losses(), 0, False

    @property
    def losses(self) -> str:
        """The losses of the batches so far, in words; empty if there are none.

        A log whose last batch is a marker keeps its end, and has no batch before it.
        """
        end = ", the batch at its end: a consumer waits before the end of the log until the next message is written"
        return str(self.lost) + (end if self._loses_end else "")

    def edit(self, window: Window) -> Iterator[memoryview]:
        """Yield the batches of a window in their new form."""
        for spans, keep in self._decided(window):
            yield from converted(spans, self._magic, self._codec, self._level, keep)

    def count(self, window: Window) -> None:
        """Count what the batches of a window would lose."""
        for _ in self._decided(window):
            pass

    def _decided(self, window: Window) -> Iterator[tuple[RecordSpans, Mask | None]]:
        """Yield the records of a window's batches, and which of them stay; count what goes."""
        for spans in self.spans(window):
            keep = self._kept(spans)
            self.lost += losses(spans, self._magic)
            if self._magic in (0, 1) and len(spans.headers):
                has_no_records = np.diff(spans.batch_ends, prepend=0)[-1] == 0
                self._loses_end = bool(has_no_records or spans.headers.is_control[-1])
            self.aborted_records += 0 if keep is None else int((~keep).sum())
            yield spans, keep

    def _kept(self, spans: RecordSpans) -> Mask | None:
        """Tell which records are of no aborted transaction; None where all are, or it does not matter."""
        headers = spans.headers
        if self._markers is None or not headers.is_transactional.any():
            return None
        is_transactional = headers.is_transactional & ~headers.is_control
        states = self._markers.states(headers.column("producer_id"), headers.column("base_offset"), is_transactional)
        is_open = states == TransactionState.OPEN
        if is_open.any():
            offset = int(headers.column("base_offset")[is_open][0])
            raise InvalidOptionError(
                f"a transaction is open at offset {offset} of {self.segment.path()}, and format {self._magic} has no "
                f"transactions: nobody could tell its records from others"
            )
        counts = np.diff(spans.batch_ends, prepend=0)
        keep: Mask = np.repeat(states != TransactionState.ABORTED, counts)
        return None if keep.all() else keep

    def aborted(self) -> Sequence[AbortedTransaction]:
        """Return the entries for the transaction index; magic 0 and 1 have none."""
        return super().aborted() if self._magic in (None, 2) else ()


@dataclass(frozen=True)
class ConversionPass:
    """Converts a whole log. The active segment is sealed first.

    Attributes
    ----------
    magic, codec, level
        See `Conversion`.
    is_lossy : bool
        Whether a conversion to magic 0 or 1 may drop fields that these formats lack; if not, it is refused.
    """

    magic: int | None = None
    codec: str | None = None
    level: int | None = None
    is_lossy: bool = False

    name: str = field(default="conversion", init=False)
    needs_active: bool = field(default=True, init=False)

    def run(self, log: OpenedLog, rewriter: Rewriter) -> PassDone:
        """Rewrite each segment by itself.

        Raises
        ------
        InvalidOptionError
            The conversion would lose data without `is_lossy`, or a transaction is open. Nothing was changed.
        """
        is_down = self.magic in (0, 1)
        markers = EndMarkers(log.layout) if is_down else None
        conversion = self._conversion(log, markers)
        if is_down:
            self._refuse_losses(log, self._conversion(log, markers))
        done = tuple(rewriter.rewrite((segment,), conversion) for segment in log.rewritable)
        return PassDone(rewritten=done, removed_records=conversion.aborted_records, lost=conversion.losses)

    def _conversion(self, log: OpenedLog, markers: EndMarkers | None) -> Conversion:
        return Conversion(self.magic, self.codec, self.level, markers=markers, limits=log.limits)

    def _refuse_losses(self, log: OpenedLog, conversion: Conversion) -> None:
        """Go through the log once before anything is changed."""
        for segment in log.rewritable:
            conversion.begin(segment)
            with segment.open() as opened:
                for window in opened.windows(opened.start):
                    refuse_damaged_window(segment, window)
                    conversion.count(window)
        if conversion.lost and not self.is_lossy:
            raise InvalidOptionError(
                f"{log.folder.location} in format {self.magic} would lose {conversion.losses}: allow a lossy "
                f"conversion to do it all the same"
            )
