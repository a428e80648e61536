"""Collects the damage that a read meets: counts it, keeps its bytes in a quarantine, and words the one warning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from sparklog.log.damage_rows import DamagedStretch
from sparklog.storage.base import Storage
from sparklog.topic.quarantine import Quarantine

_log = logging.getLogger("sparklog")

STRETCHES_MAX: Final = 10_000
"""The most rows that are remembered: so long that a ledger can hold them, and so few that memory does not grow."""
_KEPT_AT_ONCE: Final = 1_000

_Part = TypeVar("_Part")


class FoundDamage:
    """The damaged stretches that a read has met.

    Parameters
    ----------
    quarantine : Quarantine, optional
        Keeps their bytes.

    Attributes
    ----------
    stretches, lost_bytes, lost_offsets : int
        The number of stretches, of their bytes, and of the offsets that they may have held.
    """

    def __init__(self, quarantine: Quarantine | None = None) -> None:
        self.stretches = self.lost_bytes = self.lost_offsets = 0
        self._quarantine = quarantine
        self._rows: list[DamagedStretch] = []
        self._rest: DamagedStretch | None = None
        self._rest_count = 0

    @property
    def rows(self) -> tuple[DamagedStretch, ...]:
        """The stretches in order; one row stands for all after the first `STRETCHES_MAX`."""
        if self._rest is None:
            return tuple(self._rows)
        more = f"{self._rest_count:,} damaged stretches, from the first to the last: 'sparklog verify' lists them"
        return (*self._rows, replace(self._rest, reason=more))

    def pass_on(
        self,
        parts: Iterable[_Part | DamagedStretch],
        source: Storage,
        is_ours: Callable[[DamagedStretch], bool] = lambda _: True,
    ) -> Iterator[_Part]:
        """Yield the parts of a read that are no damage, and collect the others.

        Parameters
        ----------
        source : Storage
            The storage of the files that the stretches are in.
        is_ours : callable
            Whether a stretch counts here; it may belong to another part of the log, which another task reads.
        """
        waiting: list[DamagedStretch] = []
        for part in parts:
            if not isinstance(part, DamagedStretch):
                yield part
            elif is_ours(part):
                self._add(part)
                waiting.append(part)
            if len(waiting) == _KEPT_AT_ONCE:
                self._keep(waiting, source)
                waiting = []
        self._keep(waiting, source)

    def _add(self, stretch: DamagedStretch) -> None:
        self.stretches += 1
        self.lost_bytes += stretch.length_bytes
        self.lost_offsets += stretch.end_offset - stretch.first_offset
        if len(self._rows) < STRETCHES_MAX:
            self._rows.append(stretch)
            return
        first = self._rest or stretch
        self._rest_count += 1
        self._rest = replace(
            first,
            length_bytes=first.length_bytes + (stretch.length_bytes if self._rest else 0),
            end_offset=max(first.end_offset, stretch.end_offset),
        )

    def _keep(self, stretches: list[DamagedStretch], source: Storage) -> None:
        if self._quarantine is not None:
            self._quarantine.keep(stretches, source)


def warn_of_damage(found: Iterable[FoundDamage], where: str) -> None:
    """Log one warning with the counts of all, if there was any damage."""
    counts = [(each.stretches, each.lost_bytes, each.lost_offsets) for each in found]
    stretches, lost_bytes, lost_offsets = (sum(column) for column in zip((0, 0, 0), *counts, strict=True))
    if stretches:
        _log.warning(
            "%s: %d damaged stretches were skipped, %d bytes, with up to %d offsets; 'sparklog verify' lists them",
            where,
            stretches,
            lost_bytes,
            lost_offsets,
        )
