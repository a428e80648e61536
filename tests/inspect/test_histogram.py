"""Histograms over time: nothing is lost, whatever the times are and however they are put together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.inspect.histogram import SPANS_MAX, Span, TimeHistogram

TIMES = st.integers(-1, 10**7) | st.integers(0, (1 << 63) - 1)
BATCHES = st.lists(st.tuples(TIMES, st.integers(-1, 9), st.integers(1, 99)), max_size=40)


def counted(batches: list[tuple[int, int, int]]) -> TimeHistogram:
    histogram = TimeHistogram()
    times, records, sizes = (np.array(column, np.int64) for column in zip(*batches, strict=True))
    histogram.count(times, records, sizes)
    return histogram


def total(spans: list[Span]) -> Span:
    whole = Span()
    for span in spans:
        whole.add(span)
    return whole


@given(BATCHES, BATCHES)
def test_every_batch_with_a_time_is_in_the_span_of_its_time(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]
) -> None:
    histogram = TimeHistogram()
    for part in (first, second):
        if part:
            histogram.add(counted(part))
    with_time = [batch for batch in first + second if batch[0] >= 0]
    records = None if any(count < 0 for _, count, _ in with_time) else sum(count for _, count, _ in with_time)
    expected = Span(len(with_time), records, sum(size for *_, size in with_time))
    assert total(list(histogram.spans.values())) == expected
    rows = list(histogram.rows(5))
    assert len(rows) <= 5
    assert total([span for _, span in rows]) == expected
    starts = {start // histogram.width_ms for start in histogram.spans}
    assert starts == {time // histogram.width_ms for time, *_ in with_time}


def test_times_that_are_far_apart_take_no_memory() -> None:
    times = np.arange(3 * SPANS_MAX, dtype=np.int64) * ((1 << 63) // (3 * SPANS_MAX))
    histogram = TimeHistogram()
    histogram.count(times, np.ones_like(times), np.ones_like(times))
    assert len(histogram.spans) <= SPANS_MAX
    assert total(list(histogram.spans.values())).batches == len(times)


def test_spans_between_are_shown_though_nothing_is_in_them() -> None:
    histogram = counted([(1_000, 1, 10), (4_500, 2, 20)])
    assert [(start, span.bytes) for start, span in histogram.rows(9)] == [(1000, 10), (2000, 0), (3000, 0), (4000, 20)]
    assert [(start, span.bytes) for start, span in histogram.rows(2)] == [(0, 30)]
