"""Where a write goes, by its path and options."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.topic.write.target import WriteTarget, find_target
from tests.places import location_of


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in ("events-0", "events-1", "other-0", "partial-1", "meta.properties-0.0-delete"):
        (tmp_path / "logs" / name).mkdir(parents=True)
    return tmp_path / "logs"


def target(path: Path, topic: str | None = None, partitions: int | None = None, *, column: bool = False) -> WriteTarget:
    return find_target(location_of(path), topic, partitions, has_topic_column=column)


def test_log_directory_takes_the_topic_of_the_option(logs: Path) -> None:
    found = target(logs, "events")
    assert (found.directory.path, found.topic, found.partition) == (str(logs), "events", None)
    assert found.partitions_of("events") == 2
    assert not found.is_new("events")


def test_path_of_a_topic_names_it(logs: Path) -> None:
    assert target(logs / "events").topic == "events"
    assert target(logs / "new", partitions=3).partitions_of("new") == 3
    assert target(logs / "events", "events").topic == "events"
    with pytest.raises(InvalidOptionError, match="the path is of topic 'events', and the option topic says 'other'"):
        target(logs / "events", "other")


def test_folder_of_a_partition_is_the_only_one(logs: Path) -> None:
    found = target(logs / "partial-1")
    assert (found.directory.path, found.topic, found.partition) == (str(logs), "partial", 1)


def test_directory_that_is_not_there_is_one_to_be_made(tmp_path: Path) -> None:
    assert target(tmp_path / "a" / "b", "t", 2).directory.path == str(tmp_path / "a" / "b")
    found = target(tmp_path / "a" / "t", None, 2)
    assert (found.directory.path, found.topic) == (str(tmp_path / "a"), "t")


def test_rows_may_name_their_topics(logs: Path) -> None:
    found = target(logs, column=True)
    assert found.topic is None
    assert found.partitions_of("events") == 2
    with pytest.raises(InvalidOptionError, match=r"no topic 'event' in .*did you mean 'events'"):
        found.partitions_of("event")
    with pytest.raises(InvalidOptionError, match="not a topic's name: 'a b'"):
        found.partitions_of("a b")


def test_topic_must_be_said(logs: Path) -> None:
    with pytest.raises(InvalidOptionError, match="topic option required when no 'topic' attribute is present"):
        target(logs)


def test_part_of_a_topics_partitions_is_not_written_to(logs: Path) -> None:
    with pytest.raises(InvalidOptionError, match="has partitions 1 of partial, and so not all of them"):
        target(logs, "partial")


def test_number_of_partitions_is_not_changed(logs: Path) -> None:
    assert target(logs, "events", 2).partitions_of("events") == 2
    with pytest.raises(InvalidOptionError, match=r"numPartitions is 3, and events in .* has 2 partitions"):
        target(logs, "events", 3)


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    with pytest.raises(PathNotFoundError, match="not a log directory: it holds 'src'"):
        target(tmp_path, "t", 1)


@pytest.mark.parametrize(("topic", "column"), [(None, True), ("events", False), ("events", True)])
def test_empty_disk_that_is_named_like_a_partition_is_a_log_directory_to_rows_of_other_topics(
    tmp_path: Path, topic: str | None, column: bool
) -> None:
    for name in ("kafka-logs-0", "kafka-logs-1", "kafka-logs-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "kafka-logs-0" / "meta.properties").touch()
    found = target(tmp_path / "kafka-logs-1", topic, 3, column=column)
    assert (found.directory.path, found.topic, found.partition) == (str(tmp_path / "kafka-logs-1"), topic, None)
    assert found.partitions_of("events") == 3


def test_empty_folder_is_a_partition_where_files_or_the_topic_say_so(tmp_path: Path) -> None:
    (tmp_path / "events-1").mkdir()
    assert target(tmp_path / "events-1", "events").partition == 1
    assert target(tmp_path / "events-1").partition == 1
    (tmp_path / "events-0").mkdir()
    (tmp_path / "events-0" / f"{0:020}.log").touch()
    assert target(tmp_path / "events-1", column=True).partition == 1
    with pytest.raises(InvalidOptionError, match="the path is of topic 'events', and the option topic says 'other'"):
        target(tmp_path / "events-1", "other", 1)
