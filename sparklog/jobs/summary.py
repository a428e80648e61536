"""Summarises the ranges of offsets that a job has moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.jobs.ledger import Moved
from sparklog.log.damage_rows import DamagedStretch


@dataclass(frozen=True)
class MovedSummary:
    """The ranges of offsets that a job has moved.

    Attributes
    ----------
    moved : tuple of Moved
        Ranges of offsets of the source, each with its files, if any; sorted by topic, partition and offset.
    """

    run_id: str
    moved: tuple[Moved, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.moved)

    @property
    def lost(self) -> tuple[DamagedStretch, ...]:
        """The damage that was skipped."""
        return tuple(stretch for each in self.moved for stretch in each.lost)

    @property
    def log_bytes(self) -> int:
        """The bytes of log that were moved, about."""
        return sum(each.log_bytes for each in self.moved)

    @property
    def partitions(self) -> int:
        """The number of partitions of the source that the ranges are of."""
        return len({each.topic_partition for each in self.moved})


def in_order(moved: Iterable[Moved]) -> tuple[Moved, ...]:
    """Return ranges sorted by topic, partition and offset."""
    return tuple(sorted(moved, key=lambda each: (each.topic_partition, each.start_offset)))
