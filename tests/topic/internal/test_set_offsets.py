"""Offsets that are set in a stopped cluster; `tests/kafka/test_set_offsets.py` has brokers hand them out."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import (
    NOTHING_VISIBLE,
    BrokerRunningError,
    InvalidOptionError,
    PathNotFoundError,
)
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.topic.internal.groups import partition_of_group
from sparklog.topic.internal.lag import lag
from sparklog.topic.internal.set_offsets import Goal, OffsetChanges, OffsetRequest, set_group_offsets
from sparklog.write.group_offsets import commit_group_offsets
from tests.places import directory_at
from tests.system.logs import Put, keyed, put
from tests.topic.groups import PARTITIONS, classic, commits, write_groups, write_shop

NOW_MS = 1_790_000_000_000
BEFORE = {("a", 0): 40, ("b", 0): 5}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_shop(tmp_path / "logs", {"g": BEFORE, "other": {("a", 0): 1}})


def set_offsets(
    path: Path, goal: Goal, *topics: str, group: str = "g", executes: bool = True, **given: Any
) -> OffsetChanges:
    """Set offsets of whole topics, or by their mapping in `given`."""
    chosen = given.pop("topics", dict.fromkeys(topics, ()))
    request = OffsetRequest(group, chosen, goal, **given)
    return set_group_offsets([path], request, executes=executes, clock=lambda: NOW_MS)


def committed(path: Path, group: str = "g") -> dict[tuple[str, int], int]:
    rows = sparklog.views.read(path, "consumer_offsets").to_pylist()
    return {(row["topic"], row["partition"]): row["offset"] for row in rows if row["group"] == group}


def contents(path: Path) -> Mapping[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (Goal(offset=30), {("a", 0): 30, ("a", 1): 30}),
        (Goal(word="earliest"), {("a", 0): 0, ("a", 1): 0}),
        (Goal(word="latest"), {("a", 0): 100, ("a", 1): 50}),
        (Goal(time_ms=1045), {("a", 0): 45, ("a", 1): 45}),
        (Goal(time_ms=1060), {("a", 0): 60, ("a", 1): 50}),
        (Goal(offset=70), {("a", 0): 70, ("a", 1): 50}),
    ],
)
def test_offsets_are_set_where_the_goal_says_and_others_stay(
    shop: Path, goal: Goal, expected: Mapping[tuple[str, int], int]
) -> None:
    set_offsets(shop, goal, "a")
    assert committed(shop) == {("b", 0): 5, **expected}
    assert committed(shop, "other") == {("a", 0): 1}


def test_only_the_partitions_that_are_named_are_set(shop: Path) -> None:
    changes = set_offsets(shop, Goal(offset=9), topics={"a": (1,), "b": ()})
    assert [tuple(each) for each in changes.changes] == [(("a", 1), None, 9), (("b", 0), 5, 9)]
    assert committed(shop) == {("a", 0): 40, ("a", 1): 9, ("b", 0): 9}


def test_shift_counts_from_what_is_committed(shop: Path) -> None:
    set_offsets(shop, Goal(shift=-4))
    assert committed(shop) == {("a", 0): 36, ("b", 0): 1}
    set_offsets(shop, Goal(shift=-100))
    assert committed(shop) == {("a", 0): 0, ("b", 0): 0}
    with pytest.raises(InvalidOptionError, match="a-1 cannot be shifted"):
        set_offsets(shop, Goal(shift=1), "a")


def test_offsets_may_be_given_one_by_one(shop: Path) -> None:
    offsets = {TopicPartition("a", 1): 11, TopicPartition("b", 0): 12}
    set_offsets(shop, Goal(offsets=offsets))
    assert committed(shop) == {("a", 0): 40, ("a", 1): 11, ("b", 0): 12}
    with pytest.raises(PathNotFoundError, match="no offset of a-0"):
        set_offsets(shop, Goal(offsets=offsets), "a")


def test_offset_that_the_log_has_not_is_set_to_the_nearest_with_a_warning(
    shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        set_offsets(shop, Goal(offset=1000), "b")
    assert committed(shop)["b", 0] == 30
    assert "b-0 has offsets [0, 30), and 1000 is none of them: its offset is set to 30" in caplog.text


OURS = {TopicPartition("a", 0): OffsetCommit(77, "", NOW_MS + 5), TopicPartition("a", 1): OffsetCommit(7, "", 1)}


def test_offsets_that_are_set_count_over_those_of_our_consumers_whatever_the_clocks_say(shop: Path) -> None:
    commit_group_offsets(directory_at(shop), "g", OURS)
    changes = set_offsets(shop, Goal(shift=-3))
    assert [tuple(each) for each in changes.changes] == [(("a", 0), 77, 74), (("a", 1), 7, 4), (("b", 0), 5, 2)]
    assert committed(shop) == {("a", 0): 74, ("a", 1): 4, ("b", 0): 2}
    with sparklog.open_topic(shop / "a") as topic:
        assert topic.offsets_for_group("g") == {("a", 0): 74, ("a", 1): 4}
    assert {row["committed_in"] for row in lag(shop, "g").to_pylist()} == {"__consumer_offsets"}
    with sparklog.Consumer(shop, "a", group_id="g", enable_auto_commit=False) as consumer:
        assert consumer.position(("a", 0)) == 74
        consumer.commit({("a", 0): 80})
    # The consumer's commit is behind what it began with, also where the time of that is to come.
    assert committed(shop)["a", 0] == 80


@pytest.mark.parametrize("has_cluster", [False, True])
def test_offsets_of_a_group_of_our_consumers_alone_are_set_in_our_file(tmp_path: Path, has_cluster: bool) -> None:
    shop = write_shop(tmp_path / "logs", {"other": {("a", 0): 1}})
    for each in range(PARTITIONS):
        if not has_cluster or each == partition_of_group("g", PARTITIONS):
            shutil.rmtree(shop / f"__consumer_offsets-{each}")
    commit_group_offsets(directory_at(shop), "g", OURS)
    given: dict[str, Any] = {"offsets_partitions": PARTITIONS} if has_cluster else {}
    dry = set_offsets(shop, Goal(word="earliest"), executes=False, **given)
    assert committed(shop) == {("a", 0): 77, ("a", 1): 7}
    done = set_offsets(shop, Goal(word="earliest"), **given)
    assert (done.location, done.log_offset) == (dry.location, None) == (str(shop / "seglog.offsets"), None)
    assert committed(shop) == {("a", 0): 0, ("a", 1): 0}


def test_dry_run_changes_nothing_and_says_the_same(shop: Path) -> None:
    before = contents(shop)
    dry = set_offsets(shop, Goal(word="latest"), "a", "b", executes=False)
    assert contents(shop) == before
    assert dry.log_offset is None
    done = set_offsets(shop, Goal(word="latest"), "a", "b")
    assert (done.changes, done.location) == (dry.changes, dry.location)


def test_all_offsets_are_one_batch(shop: Path) -> None:
    done = set_offsets(shop, Goal(word="latest"), "a", "b")
    with sparklog.open_log(done.location) as log:
        written = log.read(done.log_offset, columns=["base_offset", "timestamp", "compression", "key"])
    assert set(written["base_offset"].to_pylist()) == {done.log_offset}
    assert set(written["compression"].to_pylist()) == {"none"}
    assert len(written) == 3


def test_new_group_is_made_and_said(shop: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        done = set_offsets(shop, Goal(offset=2), "b", group="new")
    assert committed(shop, "new") == {("b", 0): 2}
    assert done.location.endswith(f"-{partition_of_group('new', PARTITIONS)}")
    assert "there is no group new yet" in caplog.text
    with pytest.raises(InvalidOptionError, match="say which topics"):
        set_offsets(shop, Goal(offset=2), group="newer")


def test_group_with_members_is_refused_unless_forced(tmp_path: Path) -> None:
    write_shop(tmp_path, {})
    member = {"memberId": "m-1", "clientId": "", "clientHost": "", "subscription": b"", "assignment": b""}
    modern = [
        put("ConsumerGroupMetadata", {"groupId": "h"}, {"epoch": 1}),
        put("ConsumerGroupMemberMetadata", {"groupId": "h", "memberId": "m-2"}, {}),
    ]
    write_groups(tmp_path, {"g": [classic("g", [member])], "h": modern})
    before = contents(tmp_path)
    for group, name in (("g", "m-1"), ("h", "m-2")):
        for executes in (True, False):
            with pytest.raises(InvalidOptionError, match=rf"has members in .*{name}.* --force"):
                set_offsets(tmp_path, Goal(offset=1), "b", group=group, executes=executes)
    # A lock that was taken and given back leaves its file.
    assert {name: data for name, data in contents(tmp_path).items() if not name.endswith(".lock")} == before
    for group in ("g", "h"):
        set_offsets(tmp_path, Goal(offset=1), "b", group=group, is_forced=True)
        assert committed(tmp_path, group) == {("b", 0): 1}


def test_group_whose_record_cannot_be_decoded_may_have_members(tmp_path: Path) -> None:
    write_shop(tmp_path, {})
    write_groups(tmp_path, {"g": [*commits("g", BEFORE), Put(keyed("GroupMetadata", {"group": "g"}), b"\0\7\xff")]})
    with pytest.raises(InvalidOptionError, match=r"has members in .* that cannot be decoded"):
        set_offsets(tmp_path, Goal(offset=1), "b")
    assert set_offsets(tmp_path, Goal(offset=1), "b", is_forced=True).log_offset is not None
    assert [row["lag"] for row in lag(tmp_path, "g").to_pylist()] == [60, 29]


def test_share_group_is_refused_also_when_forced(tmp_path: Path) -> None:
    write_shop(tmp_path, {})
    write_groups(tmp_path, {"g": [put("ShareGroupMetadata", {"groupId": "g"}, {"epoch": 1})]})
    with pytest.raises(InvalidOptionError, match="is a share group"):
        set_offsets(tmp_path, Goal(offset=1), "b", is_forced=True)


def test_running_broker_is_refused_and_nothing_changes(shop: Path) -> None:
    (shop / ".lock").touch()
    holding = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True)"
    command = [sys.executable, "-c", f"{holding}; time.sleep(60)", str(shop / ".lock")]
    before = contents(shop)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(BrokerRunningError, match=f"a broker runs on .* {NOTHING_VISIBLE}"):
            set_offsets(shop, Goal(offset=1), "b")
        broker.kill()
    assert contents(shop) == before


@pytest.mark.parametrize(("topics", "named"), [({"c": ()}, "topic 'c'"), ({"a": (0, 7)}, "partition a-7")])
def test_partition_that_is_not_there_is_refused_and_none_is_set(
    shop: Path, topics: Mapping[str, tuple[int, ...]], named: str
) -> None:
    with pytest.raises(PathNotFoundError, match=f"no {named}"):
        set_offsets(shop, Goal(offset=1), topics={"b": (), **topics})
    assert committed(shop) == BEFORE


def test_directory_that_has_not_the_groups_partition_is_refused(shop: Path) -> None:
    mine = f"__consumer_offsets-{partition_of_group('g', PARTITIONS)}"
    (other,) = [n for n in range(PARTITIONS) if f"__consumer_offsets-{n}" != mine and not n]
    shutil.rmtree(shop / f"__consumer_offsets-{other}")
    with pytest.raises(InvalidOptionError, match="and so not all of them"):
        set_offsets(shop, Goal(offset=1), "b")
    set_offsets(shop, Goal(offset=1), "b", offsets_partitions=PARTITIONS)
    assert committed(shop)["b", 0] == 1
    shutil.rmtree(shop / mine)
    with pytest.raises(
        InvalidOptionError, match=f"is in partition .* of {PARTITIONS} of __consumer_offsets, and .* has partitions"
    ):
        set_offsets(shop, Goal(offset=1), "b", offsets_partitions=PARTITIONS)


def test_partitions_that_only_seem_to_be_all_are_found_out(tmp_path: Path) -> None:
    write_shop(tmp_path, {})
    group = next(
        name for name in map(str, range(99)) if partition_of_group(name, 50) == 0 != partition_of_group(name, 3)
    )
    write_groups(tmp_path, {group: commits(group, {("b", 0): 1})}, partitions=50)
    for number in range(3, 50):
        shutil.rmtree(tmp_path / f"__consumer_offsets-{number}")
    with pytest.raises(InvalidOptionError, match=f"group '{group}' is in .*-0, and would be in partition"):
        set_offsets(tmp_path, Goal(offset=1), "b")


def test_partition_of_the_group_may_be_in_another_directory(tmp_path: Path) -> None:
    write_shop(tmp_path / "one", {"g": BEFORE})
    (tmp_path / "two").mkdir()
    mine = f"__consumer_offsets-{partition_of_group('g', PARTITIONS)}"
    (tmp_path / "one" / mine).rename(tmp_path / "two" / mine)
    paths = [tmp_path / "one", tmp_path / "two"]
    set_group_offsets(paths, OffsetRequest("g", {}, Goal(word="earliest")), executes=True)
    assert [row["current_offset"] for row in lag(paths).to_pylist()] == [0, 0]
