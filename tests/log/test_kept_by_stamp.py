"""Values that are kept while their file stays: read once, never older than the file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from sparklog.errors import CorruptCheckpointError
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.files import TopicPartition
from sparklog.log.kept_by_stamp import LastUsed, StampedFile, StampedLines, StampedLog, names_in
from sparklog.log.places import LogDirectory, PartitionFolder
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


def put(folder: Path, name: str, data: bytes, *, at_seconds: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    for path in (folder / name, folder):
        os.utime(path, (0, at_seconds))


def test_log_that_rests_is_read_once_and_again_when_its_last_segment_or_its_folder_changes(
    tmp_path: Path, directory: LogDirectory
) -> None:
    def value(folder: PartitionFolder) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in Path(folder.location).iterdir()}

    folder, path = directory.folder("events-0"), tmp_path / "events-0"
    kept = StampedLog(read := Mock(wraps=value))
    assert kept.read(folder) is None
    first, second, snapshot = f"{0:020d}.log", f"{9:020d}.log", "x.checkpoint"
    expected = {}
    changes = [(first, b"a"), (first, b"b"), (second, b""), (second, b"c"), (snapshot, b"d")]
    for count, (name, data) in enumerate(changes, 1):
        put(path, name, data, at_seconds=count)
        expected[name] = data
        known = kept.read(folder)
        assert known == expected
        with counted_work() as work:
            assert kept.read(folder) is known
        assert (work.calls, read.call_count) == (2, count)


def test_log_that_changed_a_moment_ago_is_read_again_and_an_error_is_not_kept(
    tmp_path: Path, directory: LogDirectory
) -> None:
    kept = StampedLog(Mock(side_effect=[CorruptCheckpointError("damaged"), 1, 2, 3]))
    put(tmp_path / "events-0", f"{0:020d}.log", b"a")
    folder = directory.folder("events-0")
    with pytest.raises(CorruptCheckpointError):
        kept.read(folder)
    (tmp_path / "events-0" / f"{0:020d}.log").write_bytes(b"b")
    assert [kept.read(folder) for _ in range(2)] == [1, 2]
    put(tmp_path / "events-0", f"{0:020d}.log", b"b")
    assert [kept.read(folder) for _ in range(2)] == [3, 3]


@dataclass(frozen=True)
class Lines:
    """The lines of a file, for `StampedLines`."""

    lines: tuple[bytes, ...] = ()
    end_position: int = 0
    follow: str = ""

    @property
    def ending(self) -> bytes:
        return self.lines[-1] if self.lines else b""


def added(value: Lines, data: bytes, path: str) -> Lines:
    if b"bad" in data:
        raise CorruptCheckpointError("bad", path=path)
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        return value
    lines = (*value.lines, *whole.splitlines(keepends=True))
    return replace(value, lines=lines, end_position=value.end_position + len(whole))


@pytest.mark.parametrize("rests", [False, True])
def test_only_new_lines_of_a_file_are_read(tmp_path: Path, directory: LogDirectory, rests: bool) -> None:
    kept, first = StampedLines(added), Lines()
    assert kept.read(directory, NAME, first) is first
    (tmp_path / NAME).write_bytes(b"".join(b"line %d\n" % number for number in range(1000)))
    settle(tmp_path)
    before = kept.read(directory, NAME, first)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"one\ntwo\nthr")
    if rests:
        settle(tmp_path)
    with counted_work() as work:
        found = kept.read(directory, NAME, first)
        assert kept.read(directory, NAME, first) is found
    assert found.lines == (*before.lines, b"one\n", b"two\n")
    assert work.read_bytes == len(b"line 999\none\ntwo\nthr") + (0 if rests else len(b"two\nthr"))


@pytest.mark.parametrize("other", [b"other\n", b"other\nothers\n", b"a\nb\nd\n", b"", b"a\nb\nd\ne\n"])
def test_file_with_other_lines_is_not_continued(tmp_path: Path, directory: LogDirectory, other: bytes) -> None:
    kept, first = StampedLines(added), Lines()
    (tmp_path / NAME).write_bytes(b"a\nb\nc\n")
    found = (tmp_path / NAME).stat()
    assert kept.read(directory, NAME, first).lines == (b"a\n", b"b\n", b"c\n")
    (tmp_path / NAME).write_bytes(other)
    os.utime(tmp_path / NAME, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert kept.read(directory, NAME, first).lines == tuple(other.splitlines(keepends=True))
    (tmp_path / NAME).unlink()
    assert kept.read(directory, NAME, first) is first


def test_lines_are_continued_only_behind_the_same_first_value(tmp_path: Path, directory: LogDirectory) -> None:
    kept = StampedLines(added)
    (tmp_path / NAME).write_bytes(b"a\n")
    settle(tmp_path)
    for follow in ("a file", "another", "a file"):
        assert kept.read(directory, NAME, Lines(follow=follow)) == Lines((b"a\n",), 2, follow)


def test_damaged_line_is_an_error_each_time_unless_the_file_changes_while_it_is_read(
    tmp_path: Path, directory: LogDirectory
) -> None:
    (tmp_path / NAME).write_bytes(b"bad\n")
    settle(tmp_path)
    kept = StampedLines(added)
    for _ in range(2):
        with pytest.raises(CorruptCheckpointError):
            kept.read(directory, NAME, Lines())

    def cut_meanwhile(value: Lines, data: bytes, path: str) -> Lines:
        if b"bad" in data:
            (tmp_path / NAME).write_bytes(b"good\n")
        return added(value, data, path)

    assert StampedLines(cut_meanwhile).read(directory, NAME, Lines()).lines == (b"good\n",)


def test_what_is_used_least_is_dropped_by_its_weight_and_a_forked_process_begins_without() -> None:
    kept: LastUsed[str, list[int]] = LastUsed(10, len)
    kept.put("a", [0] * 4)
    kept.put("b", [0] * 4)
    kept.put("a", [0] * 5)
    assert kept.get("b") == [0] * 4
    kept.put("c", [0] * 3)
    assert [kept.get(name) for name in "abc"] == [None, [0] * 4, [0] * 3]
    kept.put("d", [0] * 11)
    assert [kept.get(name) for name in "abcd"] == [None] * 4
    kept.put("e", [0] * 9)
    process = os.fork()
    if not process:
        kept.put("f", [0] * 10)
        os._exit(0 if kept.get("e") is None and kept.get("f") else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert kept.get("e") == [0] * 9


def test_later_list_takes_the_folders_of_an_earlier_one(tmp_path: Path, directory: LogDirectory) -> None:
    for name in ("a-0", "b-1"):
        (tmp_path / name).mkdir()
    before = names_in(directory).topics
    (tmp_path / "b-1").rmdir()
    (tmp_path / "c-2").mkdir()
    after = names_in(directory).topics
    assert after["a"][0] is before["a"][0]
    assert {topic: list(folders) for topic, folders in after.items()} == {"a": [0], "c": [2]}
