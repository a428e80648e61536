"""Folders of topics in directories that change all the time: found as they are, and seldom listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.places.topic_folders import TopicFolders
from tests.growth import counted_work, make_partitions, settle


def folders_in(*paths: Path) -> TopicFolders:
    return TopicFolders([LogDirectory(LocalWritableStorage(), str(path)) for path in paths])


def make(path: Path, *names: str) -> None:
    for name in names:
        (path / name).mkdir(parents=True)


def numbers(folders: TopicFolders, topic: str) -> list[int]:
    return list(folders.find(topic))


def test_topics_of_several_directories_are_put_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    make(one, "b-10", "b-0", "a-0")
    make(two, "b-9", "c-0")
    found = folders_in(one, two, tmp_path / "none").by_topic()
    assert {topic: list(folders) for topic, folders in found.items()} == {"a": [0], "b": [0, 9, 10], "c": [0]}
    assert found["b"][9].location == str(two / "b-9")
    make(two, "a-0")
    with pytest.raises(InvalidOptionError, match="a-0 is in two log directories"):
        folders_in(one, two).by_topic()


def test_directories_at_rest_are_listed_and_put_together_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(tmp_path / name, f"{name}-0")
        settle(tmp_path / name)
    folders = folders_in(tmp_path / "one", tmp_path / "two")
    first = folders.by_topic()
    with counted_work() as work:
        assert folders.by_topic() is first
    assert (work.calls, work.names) == (2, 0)


def test_topic_is_found_as_it_is_by_an_older_list(tmp_path: Path) -> None:
    make(tmp_path, "same-0", "grown-0", "shrunk-0", "shrunk-1", "gone-0", "parts-1")
    folders = folders_in(tmp_path)
    folders.by_topic()
    make(tmp_path, "grown-1", "new-0", "new-1")
    (tmp_path / "shrunk-0").rmdir()
    (tmp_path / "gone-0").rmdir()
    assert numbers(folders, "same") == [0]
    # The first of them has the directory listed again, and each would have done so alone.
    for topic, wanted in {"grown": [0, 1], "shrunk": [1], "gone": [], "new": [0, 1], "parts": [1], "none": []}.items():
        assert numbers(folders, topic) == wanted


@pytest.mark.parametrize(
    ("change", "wanted"),
    [("mkdir", [0, 1, 2]), ("rmdir", [0]), ("move", [0, 1])],
)
def test_each_change_of_a_topic_is_seen_alone(tmp_path: Path, change: str, wanted: list[int]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    make(one, "a-0", "a-1")
    make(two, "b-0")
    folders = folders_in(one, two)
    assert numbers(folders, "a") == [0, 1]
    if change == "mkdir":
        make(two, "a-2")
    elif change == "rmdir":
        (one / "a-1").rmdir()
    else:
        (one / "a-1").rename(two / "a-1")
    found = folders.find("a")
    assert list(found) == wanted
    assert all(Path(each.location).is_dir() for each in found.values())


def test_partitions_are_found_as_they_are(tmp_path: Path) -> None:
    at = [TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("c", 0)]
    make(tmp_path, "a-0", "b-0", "c-0")
    folders = folders_in(tmp_path)
    assert list(folders.find_partitions(at)) == [at[0], at[2]]
    make(tmp_path, "b-1")
    assert list(folders.find_partitions(at)) == at
    (tmp_path / "a-0").rmdir()
    assert list(folders.find_partitions(at)) == at[1:]


def test_topics_of_a_directory_that_changes_all_the_time_are_found_by_few_lists(tmp_path: Path) -> None:
    make_partitions(tmp_path, 300)
    folders = folders_in(tmp_path)
    with counted_work() as work:
        for number in range(30):
            make(tmp_path, f"other-{number}")
            assert numbers(folders, f"topic-{number:05d}") == list(range(10))
    assert work.names < 3 * 340


def test_topics_that_this_process_has_just_made_are_found_without_a_list(tmp_path: Path) -> None:
    make(tmp_path, "a-0")
    folders, others = folders_in(tmp_path), folders_in(tmp_path)
    assert numbers(folders, "a") == [0]
    with counted_work() as work:
        for number in range(3):
            make(tmp_path, f"new-{number}")
            others.add(PartitionFolder(LogDirectory(LocalWritableStorage(), str(tmp_path)), "new", number))
            assert numbers(folders, "new") == list(range(number + 1))
    assert work.names == 0
    (tmp_path / "new-1").rmdir()
    assert numbers(folders, "new") == [0, 2]


def test_partitions_just_made_count_for_the_next_place(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    make(one, "old-0", "old-1")
    folders = folders_in(one, two)
    for number in range(8):
        (folder,) = folders.place(f"new-{number}", 1).values()
        make(Path(folder.directory.path), folder.name)
        folders.add(folder)
    assert [len(list(path.iterdir())) for path in (one, two)] == [5, 5]
    placed = folders.place("wide", 3).values()
    assert [Path(each.directory.path).name for each in placed] == ["one", "two", "one"]
