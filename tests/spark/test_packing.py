"""Which ranges of offsets a task reads."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.schema import source_schema
from sparklog.spark.read import plan as planning
from sparklog.spark.read.batches import read_ranges
from sparklog.spark.read.decoding import ReadColumns
from sparklog.spark.read.plan import plan_batch
from sparklog.storage import registry
from sparklog.storage.base import Entry, Name
from sparklog.storage.local import LocalFile
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.places.packing import OPENING_BYTES
from sparklog.topic.places.ranges import ReadRange
from tests.log.logs import write

T = TypeVar("T")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Write ten partitions of 120 offsets each, and one of 2,000 in many segments; return their directory."""
    for partition in range(10):
        write(tmp_path / f"events-{partition}")
    write(tmp_path / "events-10", 200, segment_bytes=3000)
    return tmp_path


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "usable_cores", lambda: 1)


def plan(log_dir: Path, **options: str) -> list[tuple[ReadRange, ...]]:
    return plan_batch(SeglogOptions.parse({"path": str(log_dir), **options}))


def partitions(tasks: list[tuple[ReadRange, ...]]) -> list[list[int | None]]:
    return [[each.folder.partition for each in task] for task in tasks]


def test_small_partitions_share_a_task_unless_told_otherwise(log_dir: Path) -> None:
    assert partitions(plan(log_dir)) == [[*range(11)]]
    assert partitions(plan(log_dir, packBytes="0")) == [[n] for n in range(11)]
    assert partitions(plan(log_dir, packBytes=str(5 * OPENING_BYTES + 50_000))) == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10],
    ]


def test_every_core_has_a_task(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "usable_cores", lambda: 4)
    assert len(plan(log_dir)) == 4
    monkeypatch.setattr(planning, "usable_cores", lambda: 64)
    assert len(plan(log_dir)) == 11


def test_options_that_split_go_before_packing(log_dir: Path) -> None:
    assert partitions(plan(log_dir, minPartitions="5")) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]
    assert len(plan(log_dir, minPartitions="11")) == 11
    assert len(plan(log_dir, minPartitions="40")) == len(plan(log_dir, minPartitions="40", packBytes="0"))
    tasks = plan(log_dir, maxRecordsPerPartition="500")
    assert [sum(each.size for each in task) for task in tasks] == [480, 480, 240, 500, 500, 500, 500]


def test_large_partition_is_known_by_its_segments_and_by_the_part_that_is_read(log_dir: Path) -> None:
    log_bytes = sum(path.stat().st_size for path in (log_dir / "events-10").glob("*.log"))
    several = str(11 * OPENING_BYTES + log_bytes)
    assert partitions(plan(log_dir, packBytes=several)) == [[*range(10)], [10]]
    ends = {str(partition): -1 for partition in range(10)} | {"10": 200}
    options = {"endingOffsets": str({"events": ends}).replace("'", '"')}
    assert partitions(plan(log_dir, packBytes=several, **options)) == [[*range(11)]]


def test_tasks_of_many_partitions_are_small_to_send(log_dir: Path) -> None:
    (task,) = plan(log_dir)
    assert len(pickle.dumps(task)) < 600 + 120 * len(task)


# What planning costs


class WorkCountingStorage(LocalWritableStorage):
    """Counts the calls that planning makes, the names that they list, and the reads of files."""

    def __init__(self) -> None:
        super().__init__()
        self.work = 0

    def names(self, path: str) -> list[Name]:
        return self._counted(super().names(path))

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        return self._counted(super().entries(path, wanted))

    def is_folder(self, path: str) -> bool:
        self.work += 1
        return super().is_folder(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        self.work += 1
        return super().identity(path)

    def open(self, path: str) -> LocalFile:
        """Count it: small files are opened so, too."""
        self.work += 1
        return _CountedFile(path, self)

    def _counted(self, listed: list[T]) -> list[T]:
        self.work += 1 + len(listed)
        return listed


class _CountedFile(LocalFile):
    def __init__(self, path: str, storage: WorkCountingStorage) -> None:
        super().__init__(path)
        self._storage = storage

    def read(self, position: int, length_bytes: int) -> memoryview:
        self._storage.work += 1
        return super().read(position, length_bytes)

    def read_into(self, position: int, room: memoryview) -> int:
        self._storage.work += 1
        return super().read_into(position, room)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> WorkCountingStorage:
    """Return the storage that every path without a scheme is in."""
    counting = WorkCountingStorage()
    monkeypatch.setitem(registry._schemes, "file", registry._schemes["file"]._replace(open_storage=lambda *_: counting))
    return counting


def planning_work(log_dir: Path, storage: WorkCountingStorage) -> int:
    for folder in log_dir.iterdir():
        # A folder that was changed just now is listed twice.
        os.utime(folder, (1_700_000_000, 1_700_000_000))
    storage.work = 0
    plan(log_dir)
    return storage.work


def test_planning_costs_the_same_for_each_partition_however_many_there_are(
    tmp_path: Path, storage: WorkCountingStorage
) -> None:
    works = []
    for partitions in (5, 20, 80):
        log_dir = tmp_path / str(partitions)
        for partition in range(partitions):
            write(log_dir / f"events-{partition}", 1)
        works.append(planning_work(log_dir, storage))
    assert works[2] - works[1] == 4 * (works[1] - works[0]) > 0


def test_planning_costs_the_same_for_each_segment_however_many_there_are(
    tmp_path: Path, storage: WorkCountingStorage
) -> None:
    works = []
    for segments in (5, 20, 80):
        log_dir = tmp_path / str(segments)
        write(log_dir / "events-0", segments, segment_bytes=1)
        assert len(list(log_dir.glob("events-0/*.log"))) == segments
        works.append(planning_work(log_dir, storage))
    assert works[2] - works[1] == 4 * (works[1] - works[0]) > 0


def test_partition_of_a_broker_takes_few_calls_to_plan_and_to_read(
    tmp_path: Path, storage: WorkCountingStorage
) -> None:
    works = []
    for partitions in (5, 20, 80):
        log_dir = tmp_path / str(partitions)
        for partition in range(partitions):
            folder = log_dir / f"events-{partition}"
            write(folder, 4)
            for index in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
                # A broker makes the indexes of the segment that it writes to this long.
                os.truncate(index, 10 << 20)
        planned = planning_work(log_dir, storage)
        (task,) = plan(log_dir)
        storage.work = 0
        options, source = SeglogOptions.parse({"path": str(log_dir)}), source_schema((), include_headers=False)
        assert sum(batch.num_rows for batch in read_ranges(task, options, source, ReadColumns())) == 40 * partitions
        works.append((planned, storage.work))
    # To plan a partition: its name, before and behind all else; its folder, and the one segment in it; the log; the
    # index and its first entries; the batch that one of them names, and what is behind it. To read it: the same but for
    # its name; the log again, its records, and the folder with the three files in it, of which one may prove that a
    # segment is lost behind them. Beside that, what a directory says of 1, 2, 4, 8, 16 and then of 32 at a time.
    assert works == [(9 * n + 14, 13 * n + 4 * looks) for n, looks in ((5, 3), (20, 5), (80, 7))]
