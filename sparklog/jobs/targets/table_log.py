"""What the own log of a table of Delta Lake or Iceberg says of the exports to it: its commits, and its files.

A commit of a job has a mark for each partition that it moved, which `sparklog.jobs.targets.unfinished_files.to_marks`
makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.jobs.ledger import LedgerCommit, Moved, MovedFile
from sparklog.jobs.targets.outputs import FileName, parse_file_name
from sparklog.log.files import TopicPartition

Marks = Mapping[str, Mapping[str, Any]]
"""By the names of partitions what was moved of each last."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that is part of a table now; ``path`` is relative to the table's folder where it lies in it."""

    path: str
    size_bytes: int
    rows: int | None

    @property
    def name(self) -> FileName | None:
        """What its name says that it holds; None of a file that no export has written."""
        return parse_file_name(self.path)


@dataclass(frozen=True, slots=True)
class MarkedCommit:
    """A commit of a table that a job has made."""

    number: int
    run: str
    time_ms: int
    marks: Marks


@dataclass(frozen=True)
class TableLog:
    """What a table says of the exports to it.

    Attributes
    ----------
    commits : tuple of LedgerCommit
        Those of jobs that the table still knows, the oldest first. The files of a range are those of its name that are
        part of the table now; nothing is known of their checksums.
    ends : mapping of TopicPartition to int
        The offset of each partition that is moved next, which is what a job goes by.
    files : tuple of TableFile
    is_append_only : bool
        Whether it is certain that nobody has done anything but add files.
    keeps_rows : bool
        Whether it is certain that nobody has done anything but that, and put rows together in other files.
    outlived : tuple of str
        What the table says to be moved though it was restored to a version before that.
    """

    commits: tuple[LedgerCommit, ...]
    ends: Mapping[TopicPartition, int]
    files: tuple[TableFile, ...]
    is_append_only: bool
    keeps_rows: bool = False
    outlived: tuple[str, ...] = ()


def to_commits(marked: Iterable[MarkedCommit], files: Iterable[TableFile]) -> tuple[LedgerCommit, ...]:
    """Return the commits of jobs, the oldest first, from what they have marked; a mark that is repeated counts once."""
    by_partition: dict[TopicPartition, list[tuple[FileName, TableFile]]] = {}
    for file in files:
        if file.name is not None:
            by_partition.setdefault(file.name.topic_partition, []).append((file.name, file))
    before: dict[str, Mapping[str, Any]] = {}
    commits = []
    for each in marked:
        new = {name: mark for name, mark in each.marks.items() if before.get(name) != mark and "from" in mark}
        before.update(each.marks)
        entries = tuple(
            _moved(at, mark, by_partition.get(at, ())) for at, mark in ((_partition(name), new[name]) for name in new)
        )
        commits.append(LedgerCommit(each.number, "export", each.run, each.time_ms, entries, 0))
    return tuple(commits)


def ends_of(marks: Marks) -> dict[TopicPartition, int]:
    """Return where marks end."""
    return {_partition(name): int(mark["to"]) for name, mark in marks.items()}


def _partition(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


def _moved(at: TopicPartition, mark: Mapping[str, Any], files: Iterable[tuple[FileName, TableFile]]) -> Moved:
    start, end = int(mark["from"]), int(mark["to"])
    within = tuple(
        MovedFile(file.path, file.size_bytes, file.rows or 0, 0, "")
        for name, file in files
        if start <= name.start_offset and name.end_offset <= end
    )
    return Moved(*at, start, end, int(mark["rows"]), 0, mark.get("topic_id"), mark.get("leader_epoch"), within)
