"""What a job that moves ranges of offsets says of them when it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.jobs.ledger import Moved


@dataclass(frozen=True)
class MovedSummary:
    """What was moved.

    Attributes
    ----------
    moved : tuple of Moved
        A range of offsets of the source each, with its files if there are any, by topic, partition and offset.
    """

    run_id: str
    moved: tuple[Moved, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.moved)

    @property
    def log_bytes(self) -> int:
        """About how many bytes of log were moved."""
        return sum(each.log_bytes for each in self.moved)

    @property
    def partitions(self) -> int:
        """How many partitions of the source they are of."""
        return len({each.topic_partition for each in self.moved})


def in_order(moved: Iterable[Moved]) -> tuple[Moved, ...]:
    """Sort ranges by topic, partition and offset."""
    return tuple(sorted(moved, key=lambda each: (each.topic_partition, each.start_offset)))
