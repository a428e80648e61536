"""Plans which files each task of a load loads, and which offsets its records are expected to get.

A task that knows the offsets writes them into its batches as it encodes them. Otherwise the commit has to, and most of
the pages are on the disk by then, so they are written twice. Offsets are known if the number of rows for each
partition is: Parquet files have the number of rows, and all rows go to one partition if the target or the topic has
only one, or if the folder of the file names it, as in exports.

The offsets are only expected: another writer may come first, so the commit checks them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from sparklog.errors import SeglogError
from sparklog.jobs.load.inputs import PARQUET, InputFile
from sparklog.jobs.load.mapping import ColumnRoles
from sparklog.jobs.load.row_files import Footer, read_footer
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layouts
from sparklog.log.places import PartitionFolder
from sparklog.topic.write.target import WriteTarget

_TASK_BYTES_MAX: Final = 1 << 28
_TASK_BYTES_MIN: Final = 1 << 25
_TASKS_A_WORKER: Final = 2
"""More tasks would make more segments, and smaller ones."""
_UNCUT_SHARE: Final = 1 / 8
"""A file that reaches into another task by less than this share of a task is not split."""
_FOOTERS_FILE_BYTES_MIN: Final = 1 << 22
"""Footers are read to count rows only if files are this large on average: otherwise it costs more than it saves."""
_ROWS_MAX: Final = 1 << 40
"""A damaged file may claim any number of rows; above this number no offsets are expected."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, or some row groups of a Parquet file.

    Attributes
    ----------
    groups : range or None
        The row groups; None for all of the file.
    """

    file: InputFile
    groups: range | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Files that one task loads.

    Attributes
    ----------
    number : int
        The number of the task in the plan.
    base_offsets : mapping of str to int
        By the name of a partition's folder: the offset that the task's first record there is expected to get.
    """

    number: int
    parts: tuple[FilePart, ...]
    base_offsets: Mapping[str, int]

    @property
    def name(self) -> str:
        first, last = self.parts[0], self.parts[-1]
        groups = "" if first.groups is None else f", row groups {first.groups[0]} to {first.groups[-1]}"
        return first.file.name + (groups if len(self.parts) == 1 else f" to {last.file.name}")

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def follows(self) -> int | None:
        return None


def plan_tasks(to_load: Sequence[InputFile], workers: int, target: WriteTarget, columns: ColumnRoles) -> list[LoadTask]:
    """Return the tasks that load some files, in the order of their commit.

    Raises
    ------
    InputFileError
        A file that the plan had to open is damaged.
    """
    tasks = list(_grouped(to_load, workers))
    base_offsets = _base_offsets(tasks, _counted(to_load, target, columns), target)
    return [LoadTask(number, parts, base_offsets[number]) for number, parts in enumerate(tasks)]


def _task_count(total_bytes: int, workers: int) -> int:
    """Return the number of tasks; if there are more than workers, a multiple, so that workers end together."""
    tasks = max(min(workers * _TASKS_A_WORKER, total_bytes // _TASK_BYTES_MIN), -(-total_bytes // _TASK_BYTES_MAX), 1)
    return tasks if tasks < workers else -(-tasks // workers) * workers


def _grouped(to_load: Sequence[InputFile], workers: int) -> Iterator[tuple[FilePart, ...]]:
    """Yield the parts of each task in the order of files; tasks have about equal bytes, and at least one part."""
    total_bytes = sum(file.size_bytes for file in to_load)
    shares = _Shares(total_bytes, _task_count(total_bytes, workers))
    parts = [part for file in to_load for part in _parts(file, shares)]
    for _, group in groupby(parts, key=lambda part: part[0]):
        yield tuple(part for _, part in group)


class _Shares:
    """Assigns consecutive bytes to tasks of about equal size."""

    def __init__(self, total_bytes: int, tasks: int) -> None:
        self._task_bytes, self._last, self._done_bytes = max(total_bytes / tasks, 1), tasks - 1, 0

    def are_cut_by(self, size_bytes: int) -> bool:
        """Return whether the next ``size_bytes`` bytes reach from one task well into another."""
        little = self._task_bytes * _UNCUT_SHARE
        first, last = self._done_bytes + little, self._done_bytes + size_bytes - little
        return first < last and self._task_at(first) != self._task_at(last)

    def take(self, size_bytes: int) -> int:
        """Return the task that most of the next ``size_bytes`` bytes belong to, and advance past them."""
        middle, self._done_bytes = self._done_bytes + size_bytes / 2, self._done_bytes + size_bytes
        return self._task_at(middle)

    def _task_at(self, position: float) -> int:
        return min(int(position / self._task_bytes), self._last)


def _parts(file: InputFile, shares: _Shares) -> Iterator[tuple[int, FilePart]]:
    """Yield the parts of a file, each with its task; a file is split between tasks if its format allows that."""
    if file.format != PARQUET or not shares.are_cut_by(file.size_bytes):
        yield shares.take(file.size_bytes), FilePart(file, None, file.size_bytes)
        return
    sizes = list(read_footer(file).group_bytes) or [0]
    # Bytes outside of row groups count with the last one, so that parts add up to the file.
    sizes[-1] += file.size_bytes - sum(sizes)
    tasks = [shares.take(size_bytes) for size_bytes in sizes]
    for task, rows in groupby(range(len(sizes)), key=lambda number: tasks[number]):
        numbers = list(rows)
        groups = None if len(numbers) == len(sizes) else range(numbers[0], numbers[-1] + 1)
        yield task, FilePart(file, groups, sum(sizes[number] for number in numbers))


@dataclass(frozen=True, slots=True)
class _CountedFile:
    """A file with a known number of rows, all for the partition ``at``."""

    at: TopicPartition
    footer: Footer


def _counted(to_load: Sequence[InputFile], target: WriteTarget, columns: ColumnRoles) -> Mapping[str, _CountedFile]:
    """Return the counted files by name; none unless the partition of all rows is known for every file."""
    if sum(file.size_bytes for file in to_load) < _FOOTERS_FILE_BYTES_MIN * len(to_load):
        return {}
    if any(file.format != PARQUET or _partition_of(file, (), target, columns) is None for file in to_load):
        return {}
    found: dict[str, _CountedFile] = {}
    for file in to_load:
        footer = read_footer(file)
        at = _partition_of(file, footer.columns, target, columns)
        if at is None or not 0 <= min(footer.group_rows, default=0) <= footer.rows_in(None) <= _ROWS_MAX:
            return {}
        found[file.name] = _CountedFile(at, footer)
    return found


def _partition_of(
    file: InputFile, own_columns: Collection[str], target: WriteTarget, columns: ColumnRoles
) -> TopicPartition | None:
    """Return the partition that all rows of a file go to; None if it is not known.

    Parameters
    ----------
    own_columns : collection of str
        The columns in the file; they take precedence over those from its folders' names.
    """
    said = {name: value for name, value in file.columns if name not in own_columns}
    topic = target.topic or said.get(columns.topic or "")
    if topic is None:
        return None
    if target.partition is not None:
        return TopicPartition(topic, target.partition)
    number = said.get(columns.partition or "")
    if number is not None:
        return TopicPartition(topic, int(number)) if number.isascii() and number.isdecimal() else None
    partitions = len(target.there.get(topic, ())) or target.new_partitions
    return TopicPartition(topic, 0) if partitions == 1 else None


def _base_offsets(
    tasks: Sequence[Sequence[FilePart]], counted: Mapping[str, _CountedFile], target: WriteTarget
) -> list[dict[str, int]]:
    """Return the offsets that each task is expected to begin with: the ends of the tasks before it."""
    base_offsets: list[dict[str, int]] = [{} for _ in tasks]
    end_offsets = _end_offsets({file.at for file in counted.values()}, target)
    if not end_offsets:
        return base_offsets
    for of_task, parts in zip(base_offsets, tasks, strict=True):
        for part in parts:
            file = counted[part.file.name]
            folder = str(file.at)
            of_task.setdefault(folder, end_offsets[folder])
            end_offsets[folder] += file.footer.rows_in(part.groups)
    return base_offsets


def _end_offsets(partitions: Collection[TopicPartition], target: WriteTarget) -> dict[str, int]:
    """Return the end offsets of the logs of partitions, by the names of their folders."""
    there = [at for at in partitions if at.partition in target.there.get(at.topic, ())]
    try:
        layouts = read_layouts([PartitionFolder(target.directory, at.topic, at.partition) for at in there])
    except SeglogError:
        # If a log cannot be recovered, the commit reports why.
        return {}
    known = {layout.folder.name: layout.end_offset for layout in layouts}
    return {str(at): known.get(str(at), 0) for at in partitions}
