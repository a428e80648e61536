"""Reads the dirty section of a log into an offset map: the first half of a compaction."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sparklog.cleaner.rewriting import Throttle
from sparklog.cleaner.transactions import AbortedTransactions
from sparklog.errors import CorruptBatchError
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.columns import DecodeLimits
from sparklog.record.kernels.spans import KEY, KEY_BYTES, OFFSET
from sparklog.record.rewrite.offset_map import OffsetMap
from sparklog.record.rewrite.spans import RecordSpans, SpanProgress, record_spans


class MapFiller:
    """Puts the keys of a dirty section into an offset map, until the map is full.

    Records of control batches, records of aborted transactions and records without a key are skipped. If the
    map is full before the end, its ``latest_offset`` is the last offset of the last batch that it holds whole.

    Parameters
    ----------
    offset_map : OffsetMap
        An empty one.
    aborted : AbortedTransactions
        The aborted transactions of the log.
    start_offset, end_offset : int
        The section; its end is the base offset of a segment.
    limits : DecodeLimits
        How many bytes are decompressed at a time, and how many a batch may have.
    throttle : Throttle or None
        Limits how fast the log is read.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        aborted: AbortedTransactions,
        start_offset: int,
        end_offset: int,
        limits: DecodeLimits,
        throttle: Throttle | None,
    ) -> None:
        self._map, self._aborted = offset_map, aborted
        self._start_offset, self._end_offset = start_offset, end_offset
        self._limits, self._throttle = limits, throttle

    def fill(self, segments: Iterable[Segment]) -> None:
        """Put the keys of all segments that are in the section.

        Raises
        ------
        CorruptLogError
            A segment is damaged.
        """
        for segment in segments:
            if segment.upper_offset <= self._start_offset:
                continue
            if segment.base_offset >= self._end_offset or not self._fill_from(segment):
                return

    def _fill_from(self, segment: Segment) -> bool:
        """Put the keys of a segment; return whether there was room for all of them."""
        progress = SpanProgress()
        with segment.open() as log:
            for window in log.windows(log.seek(max(self._start_offset, segment.base_offset))):
                try:
                    is_done = self._fill_from_window(window, progress)
                except CorruptBatchError as error:
                    raise error.located(path=segment.path()) from error
                if self._throttle is not None:
                    self._throttle.add(window.headers.valid_bytes)
                if not is_done:
                    return False
        # The offsets of this segment end where the next one begins, whatever its last batch is.
        self._map.latest_offset = min(segment.upper_offset, self._end_offset) - 1
        return True

    def _fill_from_window(self, window: Window, progress: SpanProgress) -> bool:
        headers = window.headers.where(window.headers.column("last_offset") >= self._start_offset)
        data = headers.where(~headers.is_control)
        data = data.where(~self._aborted.are_aborted(data))
        for spans in record_spans(window.buffer, data, limits=self._limits, progress=progress):
            if not self._put(spans):
                return False
        if len(headers):
            self._map.latest_offset = int(headers.column("last_offset")[-1])
        return True

    def _put(self, spans: RecordSpans) -> bool:
        table = spans.table
        done = self._map.put(spans.octets, table[:, KEY], table[:, KEY_BYTES], table[:, OFFSET], self._start_offset)
        if done < len(table):
            batch = int(np.searchsorted(spans.batch_ends, done, side="right"))
            self._map.latest_offset = int(spans.headers.column("base_offset")[batch]) - 1
            return False
        return True
