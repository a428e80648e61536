"""Counts batches, records and bytes by time, in spans that widen so that their number stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sparklog.record.format.streams import Int64s

SPANS_MAX: Final = 1024
_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_WIDTHS_MS: Final = (
    *(_SECOND * width for width in (1, 5, 10, 30)),
    *(_MINUTE * width for width in (1, 5, 10, 30)),
    *(_HOUR * width for width in (1, 3, 6, 12, 24, 7 * 24)),
)
_WIDER: Final = 4


@dataclass
class Span:
    """The amounts with timestamps in a span of time; ``records`` is None if a header does not give its number."""

    batches: int = 0
    records: int | None = 0
    bytes: int = 0

    def add(self, other: Span) -> None:
        self.batches += other.batches
        self.records = None if self.records is None or other.records is None else self.records + other.records
        self.bytes += other.bytes


@dataclass
class TimeHistogram:
    """The batches by the largest timestamp in each; batches without timestamps are not counted.

    Attributes
    ----------
    width_ms : int
        The length of each span. The widths divide each other, so that histograms can be added.
    spans : dict
        The spans that are not empty, by the time at which they begin, ms.
    """

    width_ms: int = _WIDTHS_MS[0]
    spans: dict[int, Span] = field(default_factory=dict)

    def count(self, timestamps: Int64s, records: Int64s, sizes: Int64s) -> None:
        """Add batches: the largest timestamp (-1 for none), number of records (-1 if unknown) and size of each."""
        has_time = timestamps >= 0
        starts, which = np.unique(timestamps[has_time] // self.width_ms * self.width_ms, return_inverse=True)
        totals = np.zeros((len(starts), 4), np.int64)
        records, sizes = records[has_time], sizes[has_time]
        for column, amounts in enumerate((np.ones_like(sizes), np.maximum(records, 0), sizes, records < 0)):
            np.add.at(totals[:, column], which, amounts)
        for start, (batches, count, size, unknown) in zip(starts.tolist(), totals.tolist(), strict=True):
            self._at(start).add(Span(batches, None if unknown else count, size))
        while len(self.spans) > SPANS_MAX:
            self._widen()

    def add(self, other: TimeHistogram) -> None:
        """Add another histogram; the result has the wider spans of the two."""
        while self.width_ms < other.width_ms:
            self._widen()
        for start, span in other.spans.items():
            self._at(start // self.width_ms * self.width_ms).add(span)
        while len(self.spans) > SPANS_MAX:
            self._widen()

    def rows(self, rows_max: int) -> Iterator[tuple[int, Span]]:
        """Yield the start and the counts of each span from the first to the last, including empty ones between."""
        shown = TimeHistogram(self.width_ms)
        shown.add(self)
        while shown.spans and (max(shown.spans) - min(shown.spans)) // shown.width_ms >= rows_max:
            shown._widen()
        if shown.spans:
            for start in range(min(shown.spans), max(shown.spans) + 1, shown.width_ms):
                yield start, shown.spans.get(start, Span())

    def _at(self, start: int) -> Span:
        return self.spans.setdefault(start, Span())

    def _widen(self) -> None:
        self.width_ms = next((width for width in _WIDTHS_MS if width > self.width_ms), _WIDER * self.width_ms)
        narrow, self.spans = self.spans, {}
        for start, span in narrow.items():
            self._at(start // self.width_ms * self.width_ms).add(span)
