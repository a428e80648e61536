"""What groups have committed, and where it is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.topic.internal import groups, views
from sparklog.topic.internal.groups import committed_by_groups, group_logs, partition_of_group
from sparklog.write.group_offsets import commit_group_offsets
from tests.growth import counted_work, settle
from tests.places import directory_at
from tests.topic.groups import commits, write_groups, write_shop


def committed(group: str, *paths: Path) -> dict[TopicPartition, int]:
    """Return the offsets of a group, which each way to ask gives."""
    directories = [directory_at(path) for path in paths]
    found = committed_by_groups([group], directories)[group]
    assert {at: each.offset for at, each in groups.committed(directories, group).items()} == found
    rows = views.read(paths, "consumer_offsets").to_pylist()
    assert {
        TopicPartition(row["topic"], row["partition"]): row["offset"] for row in rows if row["group"] == group
    } == found
    return found


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("hello", 99162322),
        ("Hello World", -862545276),
        ("polygenelubricants", -(1 << 31)),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
@pytest.mark.parametrize("partitions", [1, 5, 50])
def test_partition_of_a_group_is_by_the_hash_of_java(group: str, java_hash: int, partitions: int) -> None:
    # The smallest number has no absolute value in Java, and Kafka takes 0 for it.
    distance = 0 if java_hash == -(1 << 31) else abs(java_hash)
    assert partition_of_group(group, partitions) == distance % partitions


def test_last_offsets_of_the_group_are_found_and_no_others(tmp_path: Path) -> None:
    first, second = commits("g", {("a", 0): 1, ("a", 1): 2}), commits("g", {("a", 0): 5})
    write_groups(tmp_path, {"g": [*first, *second], "other": commits("other", {("a", 0): 9, ("b", 0): 9})})
    assert committed("g", tmp_path) == {("a", 0): 5, ("a", 1): 2}


def test_group_is_found_where_not_all_partitions_are_here(tmp_path: Path) -> None:
    write_groups(tmp_path, {"g": commits("g", {("a", 0): 1})}, partitions=50)
    there = f"__consumer_offsets-{partition_of_group('g', 50)}"
    for each in tmp_path.iterdir():
        if each.name not in (there, "__consumer_offsets-0", "__consumer_offsets-1"):
            shutil.rmtree(each)
    assert committed("g", tmp_path) == {("a", 0): 1}
    # Two that are here look like all of them.
    for name in ("__consumer_offsets-0", "__consumer_offsets-1"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / there).rename(tmp_path / "__consumer_offsets-0")
    (tmp_path / "__consumer_offsets-1").mkdir()
    assert committed("g", tmp_path) == {("a", 0): 1}


def test_partitions_may_be_in_several_directories(tmp_path: Path) -> None:
    groups = ["g", "other", "third", "fourth"]
    write_groups(tmp_path / "one", {group: commits(group, {("a", 0): 1}) for group in groups})
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "__consumer_offsets-1").rename(tmp_path / "two" / "__consumer_offsets-1")
    assert all(committed(group, tmp_path / "one", tmp_path / "two") == {("a", 0): 1} for group in groups)


def test_unknown_group_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    write_shop(tmp_path, {"billing": {("a", 0): 1}, "fraud": {("a", 0): 1}})
    with pytest.raises(InvalidOptionError, match=r"no group 'biling' has committed .* did you mean 'billing'"):
        committed("biling", tmp_path)
    with pytest.raises(InvalidOptionError, match="groups are billing, fraud"):
        committed("xyz", tmp_path)


def test_directory_without_offsets_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    with pytest.raises(InvalidOptionError, match="consumerOffsetsPath"):
        committed("g", tmp_path)
    with pytest.raises(PathNotFoundError):
        group_logs([directory_at(tmp_path)], [tmp_path / "nothing"])


def test_other_directories_are_looked_in_when_they_are_given(tmp_path: Path) -> None:
    write_shop(tmp_path / "one", {"g": {("a", 0): 1}})
    write_shop(tmp_path / "two", {"g": {("a", 0): 2}})
    one, two = (directory_at(tmp_path / name) for name in ("one", "two"))
    assert committed_by_groups(["g"], [one], [tmp_path / "two"])["g"] == {("a", 0): 2}
    with pytest.raises(InvalidOptionError, match="is in two places"):
        group_logs([one, two])


def test_later_commit_counts_wherever_it_is(tmp_path: Path) -> None:
    at, other = TopicPartition("events", 0), TopicPartition("events", 1)
    directory = directory_at(tmp_path)
    with pytest.raises(InvalidOptionError, match="there is no __consumer_offsets"):
        committed("mine", tmp_path)
    commit_group_offsets(directory, "mine", {at: OffsetCommit(4, "", 800)})
    assert committed("mine", tmp_path) == {at: 4}
    of_cluster = [
        *commits("mine", {at: 1}, time_ms=799),
        *commits("mine", {other: 2}, time_ms=1),
        *commits("theirs", {at: 1}),
    ]
    write_groups(tmp_path, {"mine": of_cluster[:2], "theirs": of_cluster[2:]})
    assert committed("mine", tmp_path) == {at: 4, other: 2}
    assert committed("theirs", tmp_path) == {at: 1}
    write_groups(tmp_path, {"mine": commits("mine", {at: 9, other: 2}, time_ms=801)})
    assert committed("mine", tmp_path) == {at: 9, other: 2}
    assert committed_by_groups(["mine"], [], [tmp_path]) == {"mine": {at: 9, other: 2}}
    commit_group_offsets(directory, "mine", {at: OffsetCommit(10, "", 802)})
    assert committed_by_groups(["mine"], [], [tmp_path]) == {"mine": {at: 10, other: 2}}
    with pytest.raises(InvalidOptionError, match="no group 'other'"):
        committed("other", tmp_path)


def test_group_that_has_committed_nothing_has_no_offset(tmp_path: Path) -> None:
    assert groups.committed(directory_at(tmp_path), "none") == {}


def test_commits_of_several_directories_are_told_apart_by_their_times(tmp_path: Path) -> None:
    at = TopicPartition("events", 0)
    for name, offset, time_ms in (("one", 7, 20), ("two", 3, 10)):
        (tmp_path / name).mkdir()
        commit_group_offsets(directory_at(tmp_path / name), "g", {at: OffsetCommit(offset, "", time_ms)})
    assert committed("g", tmp_path / "one", tmp_path / "two") == committed("g", tmp_path / "two", tmp_path / "one")
    assert committed("g", tmp_path / "one", tmp_path / "two") == {at: 7}


def test_log_in_two_places_is_not_passed_over_where_a_file_of_ours_has_the_group(tmp_path: Path) -> None:
    at = TopicPartition("events", 0)
    for name in ("one", "two"):
        write_groups(tmp_path / name, {"g": commits("g", {at: 1})})
        commit_group_offsets(directory_at(tmp_path / name), "g", {at: OffsetCommit(2, "", 10)})
    with pytest.raises(InvalidOptionError, match="is in two places"):
        committed("g", tmp_path / "one", tmp_path / "two")


def test_logs_of_groups_in_a_directory_at_rest_are_found_without_a_listing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("__consumer_offsets-0", "__consumer_offsets-10", "__consumer_offsets-02", "other-02"):
        (tmp_path / name).mkdir()
    settle(tmp_path)
    assert list(group_logs([directory_at(tmp_path)]).folders) == [0, 10]
    assert "__consumer_offsets-02 is passed over" in caplog.text
    assert "other-02" not in caplog.text
    with counted_work() as work:
        assert list(group_logs([directory_at(tmp_path)]).folders) == [0, 10]
    assert work.names == 0
