"""Counts batches, records and bytes by time, in as many spans of time as a person can read or a memory can hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

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

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass
class Span:
    """How much has timestamps in a span of time; ``records`` is None where a header does not say how many it has."""

    batches: int = 0
    records: int | None = 0
    bytes: int = 0

    def add(self, other: Span) -> None:
        self.batches += other.batches
        self.records = None if self.records is None or other.records is None else self.records + other.records
        self.bytes += other.bytes


@dataclass
class TimeHistogram:
    """Batches by the largest timestamp in each; those that have none are not counted.

    Attributes
    ----------
    width_ms : int
        How long each span is. The widths divide each other, so that histograms can be added.
    spans : dict
        By the time that they begin at, ms; those in which there is nothing are left out.
    """

    width_ms: int = _WIDTHS_MS[0]
    spans: dict[int, Span] = field(default_factory=dict)

    def count(self, timestamps: Numbers, records: Numbers, sizes: Numbers) -> None:
        """Add batches: the largest timestamp of each (-1 of none), its number of records (-1 unknown) and bytes."""
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
        """Add another histogram; the wider spans of the two are kept."""
        while self.width_ms < other.width_ms:
            self._widen()
        for start, span in other.spans.items():
            self._at(start // self.width_ms * self.width_ms).add(span)
        while len(self.spans) > SPANS_MAX:
            self._widen()

    def rows(self, rows_max: int) -> Iterator[tuple[int, Span]]:
        """Give the spans from the first to the last, also those between in which there is nothing, and their starts."""
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
