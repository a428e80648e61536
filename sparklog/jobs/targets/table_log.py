"""Describes the exports to a Delta Lake or Iceberg table by the table's own log: its commits and its files.

A commit of a job has a mark for each partition that it moved, made by
`sparklog.jobs.targets.unfinished_files.to_marks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.jobs.ledger import LedgerCommit, Moved, MovedFile, lost_of
from sparklog.jobs.targets.outputs import FileName, parse_file_name
from sparklog.log.files import TopicPartition

Marks = Mapping[str, Mapping[str, Any]]
"""By the names of partitions: the range that was moved last."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that is part of a table now; ``path`` is relative to the table's folder if the file is in it."""

    path: str
    size_bytes: int
    rows: int | None

    @property
    def name(self) -> FileName | None:
        """The range in the file's name; None for a file that no export has written."""
        return parse_file_name(self.path)


@dataclass(frozen=True, slots=True)
class MarkedCommit:
    """A table's commit that a job has made."""

    number: int
    run: str
    time_ms: int
    marks: Marks


@dataclass(frozen=True)
class TableLog:
    """The exports to a table, by the table's own log.

    Attributes
    ----------
    commits : tuple of LedgerCommit
        The commits by jobs that the table still knows, oldest first. The files of a range are the files with its name
        that are part of the table now; their checksums are not known.
    ends : mapping of TopicPartition to int
        The next offset to move of each partition; jobs begin there.
    files : tuple of TableFile
        The files that are part of the table now.
    is_append_only : bool
        Whether all commits certainly did nothing except add files.
    keeps_rows : bool
        Whether all commits certainly did nothing except add files, and merge rows into other files.
    outlived : tuple of str
        A message for each partition that is marked as moved beyond the version that the table was restored to.
    """

    commits: tuple[LedgerCommit, ...]
    ends: Mapping[TopicPartition, int]
    files: tuple[TableFile, ...]
    is_append_only: bool
    keeps_rows: bool = False
    outlived: tuple[str, ...] = ()


def to_commits(marked: Iterable[MarkedCommit], files: Iterable[TableFile]) -> tuple[LedgerCommit, ...]:
    """Return the commits of jobs, oldest first, from their marks; a repeated mark counts once."""
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
    """Return the end offsets in marks, by partition."""
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
    rows, topic_id, epoch = int(mark["rows"]), mark.get("topic_id"), mark.get("leader_epoch")
    return Moved(*at, start, end, rows, 0, topic_id, epoch, within, lost=lost_of(at, mark))
