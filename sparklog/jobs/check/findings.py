"""Defines the findings of checks of moved data, such as gaps between ranges and files that have changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sparklog.jobs.ledger import LedgerCommit, Moved
from sparklog.log.files import TopicPartition

FindingKind = Literal[
    "ledger",
    "missing",
    "unfinished",
    "size",
    "checksum",
    "rows",
    "doubled",
    "overlap",
    "gap",
    "lost",
    "unknown",
    "staged",
    "rewritten",
    "foreign",
]


@dataclass(frozen=True)
class LedgerFinding:
    """A difference between a target and its ledger.

    Attributes
    ----------
    kind : str
        ``ledger`` is damaged; a file is ``missing``, ``unfinished`` (the next run puts it in its place), of another
        ``size``, ``checksum`` or number of ``rows``, ``doubled`` (two ranges name it), ``unknown`` to the ledger,
        ``staged`` by a run that is active or dead, or ``foreign``, such as a link; ranges of a partition have an
        ``overlap`` or a ``gap``, or had damage whose records are ``lost``; others have ``rewritten`` a table, so that
        its rows cannot be checked.
    path : str
        The path of the file, or of the ledger.
    reason : str
        The difference, in a sentence.
    """

    kind: FindingKind
    path: str
    reason: str

    @property
    def is_damage(self) -> bool:
        """Whether rows may be lost, doubled or changed; otherwise the finding is only worth knowing."""
        return self.kind not in ("gap", "lost", "staged", "unfinished", "rewritten")


def unjoined_ranges(commit: LedgerCommit, last: dict[TopicPartition, Moved], path: str) -> Iterator[LedgerFinding]:
    """Yield the gaps and overlaps between ranges of a partition, and the damage that they had."""
    for moved in commit.moved:
        for stretch in moved.lost:
            lost = f"offsets [{stretch.first_offset}, {stretch.end_offset}) of {moved.topic_partition}"
            where = f"position {stretch.position}, {stretch.length_bytes:,} bytes"
            yield LedgerFinding("lost", stretch.file, f"{lost} could not be read ({where}): {stretch.reason}")
        before = last.get(moved.topic_partition)
        last[moved.topic_partition] = moved
        if before is None or before.end_offset == moved.start_offset:
            continue
        if before.end_offset < moved.start_offset:
            yield LedgerFinding(
                "gap",
                path,
                f"offsets [{before.end_offset}, {moved.start_offset}) of {moved.topic_partition} were not moved",
            )
        else:
            yield LedgerFinding(
                "overlap",
                path,
                f"offsets [{moved.start_offset}, {moved.end_offset}) of {moved.topic_partition} were moved, and those "
                f"up to {before.end_offset} had been before",
            )
