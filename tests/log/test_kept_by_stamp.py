"""Values that are kept while their file stays: read once, never older than the file."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from sparklog.errors import CorruptCheckpointError
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.files import TopicPartition
from sparklog.log.kept_by_stamp import StampedFile, names_in
from sparklog.log.places import LogDirectory
from sparklog.storage.local_writing import LocalWritableStorage
from tests.growth import counted_work, settle

NAME = "log-start-offset-checkpoint"


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(LocalWritableStorage(), str(tmp_path))


def checkpoint(path: Path, offset: int) -> None:
    (path / NAME).write_text(f"0\n1\nevents 0 {offset}\n")


def test_file_that_rests_is_read_and_parsed_once(tmp_path: Path, directory: LogDirectory) -> None:
    checkpoint(tmp_path, 7)
    settle(tmp_path)
    kept = StampedFile(parse := Mock(wraps=parse_offset_checkpoint))
    first = kept.read(directory, NAME)
    with counted_work() as work:
        assert kept.read(directory, NAME) is first
    assert (work.calls, work.read_bytes, parse.call_count) == (1, 0, 1)


def test_file_written_again_within_a_tick_of_the_clock_is_not_taken_for_the_old_one(
    tmp_path: Path, directory: LogDirectory
) -> None:
    kept = StampedFile(parse_offset_checkpoint)
    checkpoint(tmp_path, 7)
    found = (tmp_path / NAME).stat()
    assert kept.read(directory, NAME) == {TopicPartition("events", 0): 7}
    checkpoint(tmp_path, 8)
    os.utime(tmp_path / NAME, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert kept.read(directory, NAME) == {TopicPartition("events", 0): 8}


def test_file_that_was_touched_is_read_and_not_parsed_again(tmp_path: Path, directory: LogDirectory) -> None:
    kept = StampedFile(parse_offset_checkpoint)
    checkpoint(tmp_path, 7)
    first = kept.read(directory, NAME)
    (tmp_path / NAME).touch()
    assert kept.read(directory, NAME) is first


def test_file_that_has_gone_is_missed_and_a_damaged_one_is_read_again(tmp_path: Path, directory: LogDirectory) -> None:
    kept = StampedFile(parse_offset_checkpoint)
    checkpoint(tmp_path, 7)
    settle(tmp_path)
    assert kept.read(directory, NAME) is not None
    (tmp_path / NAME).unlink()
    assert kept.read(directory, NAME) is None
    (tmp_path / NAME).write_text("0\n1\n")
    settle(tmp_path)
    for _ in range(2):
        with pytest.raises(CorruptCheckpointError):
            kept.read(directory, NAME)
    checkpoint(tmp_path, 8)
    assert kept.read(directory, NAME) == {TopicPartition("events", 0): 8}


def test_value_of_the_writer_is_kept_only_for_the_bytes_that_it_has_written(
    tmp_path: Path, directory: LogDirectory
) -> None:
    kept = StampedFile(parse := Mock(wraps=parse_offset_checkpoint))
    checkpoint(tmp_path, 9)
    kept.written(directory, NAME, (tmp_path / NAME).read_bytes(), value := {TopicPartition("events", 0): 9})
    assert kept.read(directory, NAME) is value
    assert not parse.called
    others = StampedFile(parse_offset_checkpoint)
    others.written(directory, NAME, b"other", {})
    assert others.read(directory, NAME) == value


def test_directory_that_rests_is_listed_once(tmp_path: Path, directory: LogDirectory) -> None:
    for name in ("events-10", "events-9", "__internal-0", "events-0.0123456789abcdef0123456789abcdef-delete"):
        (tmp_path / name).mkdir()
    (tmp_path / "other-0").touch()
    settle(tmp_path)
    first = names_in(directory)
    assert {topic: list(folders) for topic, folders in first.topics.items()} == {"__internal": [0], "events": [9, 10]}
    assert first.others == ("events-0.0123456789abcdef0123456789abcdef-delete",)
    assert first.partitions == 3
    with counted_work() as work:
        assert names_in(directory) is first
    assert (work.calls, work.names) == (1, 0)


def test_folder_made_after_a_listing_is_found_at_once_unless_an_older_list_will_do(
    tmp_path: Path, directory: LogDirectory
) -> None:
    before = tmp_path.stat()
    assert not names_in(directory).topics
    (tmp_path / "events-0").mkdir()
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not names_in(directory, age_seconds=60).topics
    assert list(names_in(directory).topics) == ["events"]
    assert list(names_in(directory, age_seconds=60).topics) == ["events"]


def test_missing_directory_has_no_names(tmp_path: Path) -> None:
    assert names_in(LogDirectory(LocalWritableStorage(), str(tmp_path / "none"))).names == ()


def test_last_used_values_are_kept(tmp_path: Path) -> None:
    kept = StampedFile(parse_offset_checkpoint)
    for number in range(100):
        (tmp_path / str(number)).mkdir()
        checkpoint(tmp_path / str(number), number)
        settle(tmp_path / str(number))
        kept.read(LogDirectory(LocalWritableStorage(), str(tmp_path / str(number))), NAME)
    with counted_work() as work:
        kept.read(LogDirectory(LocalWritableStorage(), str(tmp_path / "99")), NAME)
        assert work.calls == 1
        kept.read(LogDirectory(LocalWritableStorage(), str(tmp_path / "0")), NAME)
        assert work.calls > 2
