"""Which partitions a path stands for, and what is said where it stands for none."""

from __future__ import annotations

import os
import re
import tempfile
from itertools import count
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError, StorageError
from sparklog.log.files import TopicPartition
from sparklog.log.places import PartitionFolder
from sparklog.topic.places.discovery import discover, read_found
from sparklog.topic.selection import Selection
from tests.places import directory_at
from tests.topic.staged import rows, write

UUID = "0123456789abcdef0123456789abcdef"


def make(log_dir: Path, *folders: str) -> Path:
    for folder in folders:
        (log_dir / folder).mkdir(parents=True)
    return log_dir


def names(found: list[PartitionFolder]) -> list[str]:
    return [str(each.topic_partition) for each in found]


def listed(*paths: Path | str) -> list[str]:
    return names(discover([str(path) for path in paths]).select())


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return make(tmp_path / "logs", "events-0", "events-1", "events-10", "my.topic-eu-0", "__consumer_offsets-3")


def test_log_directory_has_every_topic_but_internal_ones_in_order_of_partition(log_dir: Path) -> None:
    assert listed(log_dir) == ["events-0", "events-1", "events-10", "my.topic-eu-0"]


def test_topic_path_stands_for_its_partitions(log_dir: Path) -> None:
    assert listed(log_dir / "events") == ["events-0", "events-1", "events-10"]
    assert listed(log_dir / "my.topic-eu") == ["my.topic-eu-0"]


def test_partition_folder_stands_for_itself(log_dir: Path) -> None:
    found = discover([str(log_dir / "events-10")])
    assert found.select() == [PartitionFolder(directory_at(log_dir), "events", 10)]
    assert found.named_by_path == set(found.partitions)


def test_internal_topic_is_read_when_its_name_is_given(log_dir: Path) -> None:
    assert listed(log_dir / "__consumer_offsets") == ["__consumer_offsets-3"]
    assert listed(log_dir / "__consumer_offsets-3") == ["__consumer_offsets-3"]
    found = discover([str(log_dir)])
    assert names(found.select(Selection(topics=("__consumer_offsets",)))) == ["__consumer_offsets-3"]
    assert names(found.select(Selection(partitions=(TopicPartition("__consumer_offsets", 3),)))) == [
        "__consumer_offsets-3"
    ]
    assert names(found.select(Selection(topic_pattern=re.compile(".*")))) == [
        "events-0",
        "events-1",
        "events-10",
        "my.topic-eu-0",
    ]


def test_folders_that_kafka_set_aside_and_foreign_names_are_passed_over(log_dir: Path) -> None:
    make(
        log_dir,
        f"events-2.{UUID}-delete",
        f"events-3.{UUID}-future",
        f"events-4.{UUID}-stray",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "lost+found",
        "events-01",
        "events-x",
    )
    (log_dir / "events-5").write_text("a file")
    assert listed(log_dir) == ["events-0", "events-1", "events-10", "my.topic-eu-0"]


def test_log_directory_that_is_named_like_a_partition_is_a_log_directory(tmp_path: Path) -> None:
    assert listed(make(tmp_path / "kafka-logs-1", "events-0")) == ["events-0"]
    without_topics = make(tmp_path / "kafka-logs-2")
    without_topics.mkdir()
    (without_topics / "meta.properties").write_text("version=1\n")
    assert listed(without_topics) == []


def test_several_paths_are_read_together_and_a_folder_named_twice_once(tmp_path: Path, log_dir: Path) -> None:
    other = make(tmp_path / "disk2", "events-2")
    assert listed(log_dir / "events", other, log_dir / "events-1") == ["events-0", "events-1", "events-2", "events-10"]


def test_topic_partition_in_two_places_is_an_error_that_names_both(tmp_path: Path, log_dir: Path) -> None:
    other = make(tmp_path / "disk2", "events-1")
    with pytest.raises(InvalidOptionError, match="events-1 is in two places") as raised:
        listed(log_dir, other)
    assert str(log_dir / "events-1") in str(raised.value)
    assert str(other / "events-1") in str(raised.value)


def test_relative_paths_and_file_urls_become_absolute(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log_dir.parent)
    assert discover(["logs/events-0"]).partitions[0].location == str(log_dir / "events-0")
    assert discover(["logs/events/"]).partitions[0].location == str(log_dir / "events-0")
    assert discover([log_dir.as_uri()]).paths == (str(log_dir),)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("logs/evnets", "did you mean 'events'?"),
        ("logs/events-3", "did you mean 'events-"),
        ("lgos", "did you mean 'logs'?"),
        ("nowhere/at/all", "there is nothing at"),
        ("logs/zzzzzz", "there is __cluster_metadata-0, __consumer_offsets, backup, empty, events,"),
        ("logs/events-0/file", "it is a file"),
        ("logs/empty", "it is empty"),
        ("logs/foreign", "it holds a, b"),
        (f"logs/events-1.{UUID}-delete", "-delete"),
        ("logs/__cluster_metadata-0", "the metadata log of the cluster"),
        ("logs/backup", "must be <topic>-<partition>"),
    ],
)
def test_path_without_partitions_is_an_error_that_says_what_is_there(
    log_dir: Path, tmp_path: Path, path: str, told: str
) -> None:
    make(log_dir, "empty", "foreign/a", "foreign/b", "__cluster_metadata-0", "backup", f"events-1.{UUID}-delete")
    for folder in ("backup", f"events-1.{UUID}-delete", "__cluster_metadata-0"):
        (log_dir / folder / "00000000000000000000.log").touch()
    (log_dir / "events-0" / "file").touch()
    with pytest.raises(PathNotFoundError) as raised:
        discover([str(tmp_path / path)])
    assert str(tmp_path / path) in str(raised.value)
    assert told in str(raised.value)


def test_topic_or_partition_that_is_not_there_is_an_error_that_names_the_nearest(log_dir: Path) -> None:
    found = discover([str(log_dir)])
    with pytest.raises(PathNotFoundError, match=r"no topic 'event' in .*logs; did you mean 'events'\?"):
        found.select(Selection(topics=("events", "event")))
    with pytest.raises(PathNotFoundError, match=r"no partition events-2 in .*did you mean 'events-"):
        found.select(Selection(partitions=(TopicPartition("events", 0), TopicPartition("events", 2))))
    with pytest.raises(PathNotFoundError, match=r"no topic whose name matches 'x.*'"):
        found.select(Selection(topic_pattern=re.compile("x.*")))


def test_long_lists_are_cut(tmp_path: Path) -> None:
    make(tmp_path, *[f"t{number}-0" for number in range(100)])
    with pytest.raises(PathNotFoundError, match="and 92 more"):
        discover([str(tmp_path)]).select(Selection(topics=("??????",)))


def test_scheme_without_a_storage_is_an_error() -> None:
    with pytest.raises(InvalidOptionError, match="oss:"):
        discover(["oss://bucket/logs"])


@pytest.mark.parametrize("closed", ["logs", "."])
def test_folder_without_permission_is_an_error_that_names_it(closed: str) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        make(Path(name) / "logs", "events-0")
        (Path(name) / closed).chmod(0)
        try:
            if user == 0:  # whom nothing is closed to
                os.seteuid(65534)
            with pytest.raises(StorageError, match=f"no permission to read {name}"):
                discover([f"{name}/logs/events"])
        finally:
            os.seteuid(user)
            (Path(name) / closed).chmod(0o755)


# Patterns


def test_pattern_stands_for_the_partitions_that_it_matches(log_dir: Path) -> None:
    assert listed(log_dir / "events-?") == ["events-0", "events-1"]
    assert listed(f"{log_dir.as_uri()}/my*") == ["my.topic-eu-0"]
    assert listed(log_dir.parent / "l?gs") == listed(log_dir)


def test_several_patterns_and_paths_are_read_together(log_dir: Path) -> None:
    found = discover([log_dir / "events-[01]", str(log_dir / "my*")])
    assert names(found.select()) == ["events-0", "events-1", "my.topic-eu-0"]


def test_pattern_passes_over_what_cannot_be_read_and_says_so_where_that_is_all(log_dir: Path) -> None:
    (log_dir / "events.txt").touch()
    assert listed(log_dir / "events*") == ["events-0", "events-1", "events-10"]
    with pytest.raises(PathNotFoundError, match=r"events\.t\* matches .*events\.txt, and none of that"):
        listed(log_dir / "events.t*")
    with pytest.raises(PathNotFoundError, match=r"nothing matches .*/nosuch"):
        listed(log_dir / "nosuch*")


def test_pattern_stands_for_internal_topics_only_where_it_names_them(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-0", "events-0"):
        (tmp_path / "logs" / name).mkdir(parents=True)
    assert listed(tmp_path / "logs" / "*-0") == ["events-0"]
    assert listed(tmp_path / "logs" / "__*") == ["__consumer_offsets-0"]


def test_pattern_of_the_parts_of_a_path_before_a_topic(tmp_path: Path) -> None:
    for name in ("disk1/events-0", "disk2/events-1", "disk3/other-0"):
        (tmp_path / name).mkdir(parents=True)
    assert listed(tmp_path / "disk*" / "events") == ["events-0", "events-1"]


@pytest.mark.parametrize("path", ["logs", "logs/events"])
@pytest.mark.parametrize("name", ["events-2147483648", "events-01"])
def test_folder_with_a_number_that_no_partition_has_is_passed_over_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, path: str
) -> None:
    for each in ("events-0", name, "other-0", "remote-log-index-cache"):
        (tmp_path / "logs" / each).mkdir(parents=True)
    assert listed(tmp_path / "logs" / "other") == ["other-0"]
    assert not caplog.records
    for _ in range(2):
        assert "events-0" in listed(tmp_path / path)
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}/logs/{name} is passed over: the number of a partition is at most 2147483647, without leading zeros"
    ]


def test_topic_that_a_commit_makes_while_logs_are_looked_for_is_found_whole(tmp_path: Path) -> None:
    """Its records are those of the same commit as others that are read."""
    rounds = count()

    def find() -> list[PartitionFolder]:
        found = discover([tmp_path]).select()
        if next(rounds) == 0:
            write(tmp_path, [rows(["a", "b", "c"], partition=[0, 1, 2])], topic="more", partitions=3)
        return found

    write(tmp_path, [rows(["old"])], partitions=1)
    assert [str(each) for each in read_found(find)] == ["events-0", "more-0", "more-1", "more-2"]


def test_topics_that_are_made_without_end_are_not_waited_for(tmp_path: Path) -> None:
    numbers = count()

    def find() -> list[PartitionFolder]:
        (tmp_path / f"events-{next(numbers)}").mkdir()
        return discover([tmp_path]).select()

    assert len(read_found(find)) == next(numbers) - 1


def test_topics_are_sorted_once_however_many_are_named(log_dir: Path) -> None:
    found = discover([log_dir])
    assert found.topics is found.topics
