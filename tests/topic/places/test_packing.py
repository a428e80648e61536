"""Which ranges go to a task together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparklog.topic.places.packing import OPENING_BYTES, PACK_BYTES, pack

MIB = 1 << 20


def lengths(tasks: list[slice]) -> list[int]:
    return [rows.stop - rows.start for rows in tasks]


def test_task_takes_ranges_until_it_has_enough() -> None:
    few = 4 * OPENING_BYTES
    assert lengths(pack([few] * 7, [1] * 7, bytes_max=3 * (few + OPENING_BYTES))) == [3, 3, 1]
    assert lengths(pack([few] * 7, [1] * 7, bytes_max=3 * (few + OPENING_BYTES) - 1)) == [2, 2, 2, 1]
    assert lengths(pack([0, 9 * few, 0, 0], [1] * 4, bytes_max=few)) == [1, 1, 2]


def test_empty_ranges_of_a_default_task_are_bounded_by_what_it_takes_to_open_them() -> None:
    assert max(lengths(pack([0] * 8_000, [30] * 8_000, bytes_max=PACK_BYTES))) == PACK_BYTES // OPENING_BYTES == 256


def test_no_bytes_give_each_range_its_own_task() -> None:
    assert lengths(pack([0] * 5, [1] * 5, bytes_max=0)) == [1] * 5
    assert pack([], [], bytes_max=PACK_BYTES) == []


def test_tasks_are_no_fewer_than_asked_for_and_about_the_same_size() -> None:
    assert lengths(pack([100] * 12, [1] * 12, bytes_max=PACK_BYTES, tasks_min=4)) == [3, 3, 3, 3]
    assert lengths(pack([100] * 3, [1] * 3, bytes_max=PACK_BYTES, tasks_min=4)) == [1, 1, 1]
    # One that is larger than all others together leaves them to the other tasks.
    assert lengths(pack([64 * MIB, *[100] * 6], [1] * 7, bytes_max=128 * MIB, tasks_min=4)) == [1, 2, 2, 2]


def test_tasks_of_several_ranges_have_no_more_offsets_than_allowed() -> None:
    assert lengths(pack([0] * 6, [40, 40, 40, 90, 10, 1], bytes_max=PACK_BYTES, offsets_max=100)) == [2, 1, 2, 1]


@given(
    st.lists(st.tuples(st.integers(0, 64 * MIB), st.integers(1, 1000)), max_size=60),
    st.integers(0, 128 * MIB) | st.just((1 << 63) - 1),
    st.none() | st.integers(1, 2000),
    st.integers(1, 80),
)
def test_packing_keeps_order_and_bounds(
    ranges: list[tuple[int, int]], bytes_max: int, offsets_max: int | None, tasks_min: int
) -> None:
    sizes, counts = [size for size, _ in ranges], [count for _, count in ranges]
    tasks = pack(sizes, counts, bytes_max=bytes_max, offsets_max=offsets_max, tasks_min=tasks_min)
    assert [row for rows in tasks for row in range(len(ranges))[rows]] == list(range(len(ranges)))
    assert all(length > 0 for length in lengths(tasks))
    assert len(tasks) >= min(tasks_min, len(ranges))
    for rows, length in zip(tasks, lengths(tasks), strict=True):
        assert length == 1 or sum(sizes[rows]) + length * OPENING_BYTES <= bytes_max
        assert length == 1 or offsets_max is None or sum(counts[rows]) <= offsets_max


# Through the plan
