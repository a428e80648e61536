"""`diff` of whole directories: which logs are copies, and the same rows whoever works."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.inspect.diff import DiffKind
from tests.build import write_partition
from tests.golden import EXAMPLES
from tests.log.logs import batch, batches


@pytest.fixture
def replicas(tmp_path: Path) -> list[Path]:
    """Make two brokers' directories of forty logs, every third of which has another last batch on the second one."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for number in range(40):
        for folder in folders:
            last = batch(40, producer_id=5 if folder.name == "two" and number % 3 == 0 else -1)
            write_partition(folder / f"events-{number}", [*batches(4), last])
    return folders


def test_processes_find_what_one_finds(replicas: list[Path]) -> None:
    alone, together = (list(sparklog.diff(*replicas, processes=count)) for count in (1, 2))
    assert alone == together
    found = {row.partition for row in alone if row.kind is DiffKind.DIVERGENT}
    assert found == set(range(0, 40, 3))
    assert {(row.start_offset, row.end_offset) for row in alone if row.kind is DiffKind.DIVERGENT} == {(40, 50)}


def test_copy_of_a_directory_is_equal(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "copy")
    rows = list(sparklog.diff(EXAMPLES, tmp_path / "copy"))
    assert {row.kind for row in rows} == {DiffKind.EQUAL}
    assert len({(row.topic, row.partition) for row in rows}) == len(rows)


def test_topics_and_folders_of_other_names_are_copies(replicas: list[Path]) -> None:
    one, two = replicas
    for number in range(40):
        (two / f"events-{number}").rename(two / f"restored-{number}")
    by_topic = list(sparklog.diff(one / "events", two / "restored"))
    assert {row.partition for row in by_topic if row.kind is DiffKind.DIVERGENT} == set(range(0, 40, 3))
    assert DiffKind.PARTITION not in {row.kind for row in by_topic}
    assert [row.kind for row in sparklog.diff(one / "events-7", two / "restored-8")] == [DiffKind.EQUAL]
    # Directories are compared by the names of their partitions.
    assert {row.kind for row in sparklog.diff(one, two)} == {DiffKind.PARTITION}


def test_partition_that_cannot_be_read_does_not_end_the_others(replicas: list[Path]) -> None:
    one, two = replicas
    for path in (two / "events-7").iterdir():
        path.unlink()
    (two / "events-7" / f"{0:020d}.log").mkdir()
    rows = list(sparklog.diff(one, two))
    assert {row.partition for row in rows} == set(range(40))
    assert [row.kind for row in rows if row.partition == 7] != [DiffKind.EQUAL]


def test_paths_are_checked_before_anything_is_asked_for(replicas: list[Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(replicas[0])
    for paths in ([replicas[0]], [replicas[0]] * 2, [replicas[0], tmp_path / "link"], [replicas[0]] * 27, []):
        with pytest.raises(InvalidOptionError):
            sparklog.diff(*paths)
    with pytest.raises(PathNotFoundError):
        sparklog.diff(replicas[0], tmp_path / "none")
