"""How work is shared: pieces of such a size that no worker goes on alone at the end."""

from __future__ import annotations

import pytest

from sparklog.jobs.run.shares import even_share, task_slices

MIB = 1 << 20


def bytes_of_workers(logs: list[int], share: int, workers: int) -> list[int]:
    """Return how many bytes each worker has moved, if each takes the next piece when it is free."""
    taken = [0] * workers
    for each in logs:
        pieces = -(-each // share)
        for _ in range(pieces):
            taken[taken.index(min(taken))] += each // pieces
    return taken


@pytest.mark.parametrize(
    ("logs", "workers"),
    [([343, 326], 2), ([350, 350, 350], 2), ([2000], 4), ([800, 300], 3), ([1000, 70, 65], 2), ([700] * 5, 4)],
)
def test_workers_end_at_about_the_same_time(logs: list[int], workers: int) -> None:
    sizes = [each * MIB for each in logs]
    share = even_share(sizes, 256 * MIB, workers)
    taken = bytes_of_workers(sizes, share, workers)
    assert max(taken) <= 1.1 * sum(taken) / workers
    assert 32 * MIB <= share <= 256 * MIB


def test_no_more_files_are_made_than_that_takes() -> None:
    assert even_share([402 * MIB, 402 * MIB], 200 * MIB, 2) == 134 * MIB
    assert even_share([], 256 * MIB, 2) == even_share([0], 256 * MIB, 2) == 64 * MIB


def test_pieces_of_an_even_share_are_a_task_each() -> None:
    share = even_share([343 * MIB, 326 * MIB], 256 * MIB, 2)
    pieces = [each // -(-each // share) for each in (343 * MIB, 326 * MIB) for _ in range(-(-each // share))]
    assert len(task_slices(pieces, 256 * MIB, 2)) == len(pieces) == 8


def test_very_much_work_is_cut_as_it_may_be() -> None:
    assert even_share([1 << 36] * 100, 256 * MIB, 2) == 256 * MIB
