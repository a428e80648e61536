"""Ranges that are cut by bytes: every offset in one piece, pieces of about the same size, cuts where batches begin."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.log.layout import read_layout
from sparklog.topic.places.ranges import ReadRange, cut_by_bytes, log_bytes
from tests.build import Record, v2_batch, write_partition
from tests.log.logs import write
from tests.places import folder_at


def batches(counts: list[int], base_offset: int, value_bytes: int) -> list[bytes]:
    bases = accumulate(counts, initial=base_offset)
    return [
        v2_batch([Record(n, value=bytes(value_bytes)) for n in range(count)], base_offset=base)
        for count, base in zip(counts, bases, strict=False)
    ]


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    base_offset=st.integers(0, 5000),
    value_bytes=st.integers(0, 100),
    interval_bytes=st.sampled_from([1, 200, 4096]),
    bytes_max=st.integers(1, 6000),
    bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    index=st.sampled_from(["right", "reversed", "none"]),
)
def test_pieces_cover_every_offset_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    base_offset: int,
    value_bytes: int,
    interval_bytes: int,
    bytes_max: int,
    bounds: tuple[float, float],
    index: str,
) -> None:
    folder = tmp_path_factory.mktemp("logs") / "a-0"
    written = batches(counts, base_offset, value_bytes)
    write_partition(folder, written, base_offset=base_offset, segment_bytes=3000, index_interval_bytes=interval_bytes)
    for each in folder.glob("*.index"):
        if index == "reversed":
            each.write_bytes(each.read_bytes()[::-1])
        elif index == "none":
            each.unlink()
    layout = read_layout(folder_at(folder))
    first, last = sorted(base_offset + round(bound * sum(counts)) for bound in bounds)
    whole = ReadRange(layout.folder, first, last, last)
    pieces = cut_by_bytes(whole, layout, bytes_max)
    if first == last:
        assert pieces == []
        return
    ranges = [piece for piece, _ in pieces]
    assert (ranges[0].start_offset, ranges[-1].end_offset) == (first, last)
    assert all(one.end_offset == other.start_offset for one, other in pairwise(ranges))
    assert all(each.size > 0 for each in ranges)
    assert all(size >= 0 for _, size in pieces)
    if index == "right":
        boundaries = set(accumulate(counts, initial=base_offset))
        assert all(each.start_offset in boundaries for each in ranges[1:])


def test_pieces_are_of_about_equal_bytes_though_records_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    # The records of the first half of the log have a tenth of the bytes of those behind them.
    written = batches([10] * 500, 0, 20) + batches([10] * 500, 5000, 200)
    write_partition(folder, written, segment_bytes=1 << 17, index_interval_bytes=4096)
    layout = read_layout(folder_at(folder))
    pieces = cut_by_bytes(ReadRange(layout.folder, 0, 10_000, 10_000), layout, 100_000)
    total = sum(each.size_bytes for each in layout.segments)
    assert len(pieces) == -(-total // 100_000)
    assert sum(size for _, size in pieces) == total
    bounds = [piece.start_offset // 10 for piece, _ in pieces] + [1000]
    sizes = [sum(len(each) for each in written[start:end]) for start, end in pairwise(bounds)]
    assert max(sizes) - min(sizes) < 3 * 4096
    # What a piece is said to have is what it has, but for what the index does not tell.
    assert all(abs(said - has) < 3 * 4096 for (_, said), has in zip(pieces, sizes, strict=True))


def test_a_small_range_is_one_piece_and_no_index_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    write(folder)
    for index in folder.glob("*.index"):
        index.unlink()
        index.mkdir()
    layout = read_layout(folder_at(folder))
    whole = ReadRange(layout.folder, 5, 100, 120)
    assert cut_by_bytes(whole, layout, 1 << 20) == [(whole, log_bytes(whole, layout))]
