"""Topics that are created, listed and deleted without a broker."""

from __future__ import annotations

import itertools
import shutil
import time
from functools import cache
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import (
    CorruptCheckpointError,
    InvalidOptionError,
    InvalidTopicError,
    LockedError,
    PathNotFoundError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from sparklog.log.files import TopicPartition
from sparklog.log.layout import topic_id_of
from sparklog.topic.log_manager import LogManager
from tests.growth import SIZES, counted_work, make_partitions, settle
from tests.topic.staged import findings


def test_new_topic_has_empty_logs_and_its_properties(tmp_path: Path) -> None:
    manager = LogManager(tmp_path / "logs", num_partitions=2, configs={"retention.ms": "5"})
    manager.create_topic("a")
    manager.create_topic("b.c", 3, {"cleanup.policy": "compact"})
    assert manager.topics() == {"a": 2, "b.c": 3}
    assert manager.configs("b.c") == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert manager.config("b.c").cleanup_policy == ("compact",)
    assert sparklog.open_topic(tmp_path / "logs").end_offsets[TopicPartition("b.c", 2)] == 0
    assert findings(tmp_path / "logs") == []


def test_empty_disk_that_is_named_like_a_partition_gets_topics(tmp_path: Path) -> None:
    disks = [tmp_path / "kafka-logs-0", tmp_path / "kafka-logs-1"]
    for disk in disks:
        disk.mkdir()
    LogManager(disks).create_topic("events", 2)
    assert [[each.name for each in disk.glob("events-*")] for disk in disks] == [["events-0"], ["events-1"]]
    with pytest.raises(PathNotFoundError, match="is not a log directory"):
        LogManager(disks[0] / "events-0").create_topic("other", 1)


def test_altered_properties_are_those_of_the_next_writer(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("a", configs={"retention.ms": "5"})
    assert manager.alter_configs("a", {"retention.ms": None, "segment.bytes": "100"}) == {"segment.bytes": "100"}
    assert manager.config("a").segment_bytes == 100
    with pytest.raises(UnknownTopicOrPartitionError, match="create_topic makes it"):
        manager.alter_configs("b", {})


def test_partitions_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    LogManager(first).create_topic("old", 3)
    both = LogManager([first, second])
    placed = both.create_topic("new", 5, {"retention.ms": "7"})
    assert [str(Path(folder.directory.path).name) for folder in placed.values()] == ["2", "2", "2", "1", "2"]
    assert both.topics() == {"new": 5, "old": 3}
    assert LogManager(first).configs("new") == LogManager(second).configs("new") == {"retention.ms": "7"}


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250, "__cluster_metadata"])
def test_name_that_no_topic_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        LogManager(tmp_path).create_topic(name)


def test_folder_of_a_deleted_partition_that_is_a_link_is_not_emptied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = LogManager(tmp_path / "logs")
    manager.create_topic("a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    link = tmp_path / "logs" / "a-0.0123456789ab70123456789012345678-delete"
    link.symlink_to(tmp_path / "outside")
    assert manager.remove_deleted() == []
    assert "could not be removed yet" in caplog.text
    assert f"{link} is a symbolic link, not a folder" in caplog.text
    assert (tmp_path / "outside" / "file").exists()


def test_topic_that_is_there_is_refused_and_one_half_made_is_finished(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    sparklog.PartitionLog.open(tmp_path / "a-1").close()
    assert sorted(manager.create_topic("a", 2)) == [0, 1]
    with pytest.raises(TopicAlreadyExistsError, match="with 2 partitions"):
        manager.create_topic("a", 2)


def test_wrong_properties_make_nothing(tmp_path: Path) -> None:
    manager = LogManager(tmp_path / "logs")
    for partitions, configs in ((0, {}), (1, {"segment.bytes": "1"})):
        with pytest.raises(InvalidOptionError):
            manager.create_topic("a", partitions, configs)
    assert not (tmp_path / "logs").exists()


def test_deleted_topic_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    now_ms = [1_700_000_000_000]
    manager = LogManager(tmp_path, clock=lambda: now_ms[0])
    manager.create_topic("a", 2, {"file.delete.delay.ms": "1000"})
    manager.create_topic("b")
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    checkpoint.write_bytes(encode_offset_checkpoint({TopicPartition("a", 0): 7, TopicPartition("b", 0): 8}))
    manager.delete_topic("a")
    assert manager.topics() == {"b": 1}
    assert manager.configs("a") == {}
    assert len(list(tmp_path.glob("a-?.*-delete"))) == 2
    assert parse_offset_checkpoint(checkpoint.read_bytes(), "") == {TopicPartition("b", 0): 8}
    manager.create_topic("a")
    assert len(list(tmp_path.glob("a-?.*-delete"))) == 2
    now_ms[0] += 1000
    assert len(manager.remove_deleted()) == 2
    assert list(tmp_path.glob("*-delete")) == []
    assert manager.topics() == {"a": 1, "b": 1}


def test_topic_without_a_delay_is_removed_at_once_also_in_a_loop(tmp_path: Path) -> None:
    manager = LogManager(tmp_path, configs={"file.delete.delay.ms": "0"})
    for name in ("a", "b", "c"):
        manager.create_topic(name, 2)
        manager.delete_topic(name)
        assert not [each for each in tmp_path.iterdir() if each.is_dir()]


def test_new_topic_gets_no_checkpoint_entries_of_an_earlier_one(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    sparklog.PartitionLog.open(tmp_path / "a-3").close()
    names = ("log-start-offset-checkpoint", "cleaner-offset-checkpoint")
    lines = {TopicPartition(topic, number): 7 for topic in ("a", "b") for number in range(6)}
    for name in names:
        (tmp_path / name).write_bytes(encode_offset_checkpoint(lines))
    manager.create_topic("a", 2)
    for name in names:
        found = parse_offset_checkpoint((tmp_path / name).read_bytes(), "")
        assert sorted(at.partition for at in found if at.topic == "a") == [3]
        assert sorted(at.partition for at in found if at.topic == "b") == list(range(6))
    (tmp_path / names[0]).write_bytes(encode_offset_checkpoint(lines))
    (tmp_path / "a-3").rename(tmp_path / "a-2")
    manager.add_partitions("a", 4)
    found = parse_offset_checkpoint((tmp_path / names[0]).read_bytes(), "")
    assert sorted(at.partition for at in found if at.topic == "a") == [0, 1, 2]


def test_damaged_checkpoint_is_refused_before_a_topic_is_made(tmp_path: Path) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\n")
    with pytest.raises(CorruptCheckpointError):
        LogManager(tmp_path).create_topic("a")
    assert LogManager(tmp_path).topics() == {}


def test_topics_that_are_made_extended_and_deleted_one_by_one_list_the_directory_seldom(tmp_path: Path) -> None:
    for size in SIZES:
        make_partitions(tmp_path / str(size), size)
        manager = LogManager(tmp_path / str(size))
        begun = time.monotonic()
        with counted_work() as work:
            for number in range(20):
                manager.create_topic(f"new-{number}", 2)
            for number in range(20):
                manager.add_partitions(f"new-{number}", 3)
                manager.alter_configs(f"new-{number}", {})
            for number in range(20):
                manager.delete_topic(f"new-{number}")
        assert manager.topics() == {f"topic-{number:05d}": 10 for number in range(size // 10)}
        # A list for the names and one for what is to be removed, each once a second; and the folders of the new logs.
        assert work.names <= (size + 130) * 2 * (time.monotonic() - begun + 1) + 1000


def test_making_a_topic_with_properties_asks_no_more_of_the_storage_in_a_larger_directory(tmp_path: Path) -> None:
    manager_of, numbers = cache(LogManager), itertools.count()

    def make(directory: Path) -> None:
        manager_of(directory).create_topic(f"new-{next(numbers)}", 2, {"retention.ms": "5"})

    found = []
    for size in SIZES:
        make_partitions(tmp_path / str(size), size)
        make(tmp_path / str(size))
        settle(tmp_path / str(size))
        with counted_work() as work:
            make(tmp_path / str(size))
        # The file of properties is replaced as a whole. Names are listed once a second, however many topics are made.
        assert work.written_bytes < 2000 + 2 * 40 * size // 10
        found.append((work.calls, work.names if work.names < size else 0))
    assert max(found) <= (min(found)[0] * 1.1, 100), found


def test_topic_with_an_open_log_is_not_deleted(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("a")
    with sparklog.PartitionLog.open(tmp_path / "a-0"), pytest.raises(LockedError, match="open in this process"):
        manager.delete_topic("a")
    assert manager.topics() == {"a": 1}


def test_long_name_is_cut_as_kafka_cuts_it(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("x" * 249)
    manager.delete_topic("x" * 249)
    (deleted,) = tmp_path.glob("x*")
    assert len(deleted.name) == 255
    assert manager.topics() == {}


def test_topic_gets_more_partitions_with_its_properties_and_its_id(tmp_path: Path) -> None:
    manager = LogManager([tmp_path / "one", tmp_path / "two"])
    manager.create_topic("events", 2, {"retention.ms": "7"}, topic_id="nT3VsuYvSyWUb7u3L98_lA")
    made = manager.add_partitions("events", 5)
    assert list(made) == [2, 3, 4]
    assert list(manager.partitions("events")) == [0, 1, 2, 3, 4]
    assert {folder.directory for folder in made.values()} == set(manager.directories)
    assert {topic_id_of(folder) for folder in made.values()} == {"nT3VsuYvSyWUb7u3L98_lA"}
    assert manager.configs("events") == {"retention.ms": "7"}
    for count in (5, 4, 0, True):
        with pytest.raises(InvalidOptionError):
            manager.add_partitions("events", count)
    shutil.rmtree(manager.partitions("events")[1].location)
    with pytest.raises(InvalidOptionError, match="has partitions 0, 2, 3, 4 of events only"):
        manager.add_partitions("events", 6)
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.add_partitions("other", 2)
