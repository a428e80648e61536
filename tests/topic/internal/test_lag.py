"""The lag of groups; `tests/kafka/test_cluster.py` holds it against what a broker's own tool says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog import views
from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.system.messages import message
from sparklog.topic.internal.lag import SCHEMA, lag
from sparklog.write.group_offsets import commit_group_offsets
from tests.log.logs import only_log, write
from tests.places import directory_at
from tests.system.logs import Put, put
from tests.topic.groups import classic, commits, write_groups, write_shop

NOBODY = {"consumer_id": None, "host": None, "client_id": None}
IN_CLUSTER = {"committed_in": "__consumer_offsets"}
MEMBER = {"memberId": "m-1", "clientId": "m", "clientHost": "/10.0.0.1", "sessionTimeout": 1, "subscription": b""}


def numbers(path: Path, *groups: str) -> list[tuple[object, ...]]:
    return [tuple(row.values())[:6] for row in lag(path, groups).to_pylist()]


def test_lag_is_what_lies_between_the_offset_and_the_end(tmp_path: Path) -> None:
    write_shop(tmp_path, {"g": {("b", 0): 30, ("a", 1): 0, ("a", 0): 99}, "f": {("a", 0): 100}})
    found = lag(str(tmp_path))
    assert found.schema == SCHEMA
    assert found.to_pylist()[0] == {
        "group": "f", "topic": "a", "partition": 0, "current_offset": 100, "log_end_offset": 100, "lag": 0, **NOBODY,
        **IN_CLUSTER,
    }  # fmt: skip
    assert numbers(tmp_path)[1:] == [
        ("g", "a", 0, 99, 100, 1),
        ("g", "a", 1, 0, 50, 50),
        ("g", "b", 0, 30, 30, 0),
    ]
    assert views.lag is lag


def test_log_that_is_not_there_or_damaged_has_no_end_and_no_lag(tmp_path: Path) -> None:
    write_shop(tmp_path, {"g": {("a", 0): 1, ("gone", 7): 1, ("b", 0): 1}})
    log = only_log(tmp_path / "b-0")
    log.write_bytes(log.read_bytes()[:-1] + b"\xff" + bytes(500) + log.read_bytes())
    assert numbers(tmp_path) == [
        ("g", "a", 0, 1, 100, 99),
        ("g", "b", 0, 1, None, None),
        ("g", "gone", 7, 1, None, None),
    ]


def test_offset_beyond_the_end_gives_what_kafka_prints(tmp_path: Path) -> None:
    write_shop(tmp_path, {"g": {("b", 0): 45}})
    assert numbers(tmp_path) == [("g", "b", 0, 45, 30, -15)]


def test_partitions_of_members_are_there_with_and_without_offsets(tmp_path: Path) -> None:
    write(tmp_path / "a-0", 10)
    write(tmp_path / "a-1", 5)
    assigned = {"assignedPartitions": [{"topic": "a", "partitions": [1, 0]}]}
    assignment = message("ConsumerProtocolAssignment").encode_versioned(assigned, 0)
    group = classic("g", [{**MEMBER, "assignment": assignment}])
    write_groups(tmp_path, {"g": [group, *commits("g", {("a", 1): 20, ("b", 0): 3})]})
    member = {"consumer_id": "m-1", "host": "/10.0.0.1", "client_id": "m"}
    assert [
        (row["partition"], row["lag"], {name: row[name] for name in NOBODY}) for row in lag(tmp_path).to_pylist()
    ] == [
        (0, None, member),
        (1, 30, member),
        (0, None, NOBODY),
    ]


def test_partitions_of_a_topic_that_no_partition_here_names_are_left_out(tmp_path: Path) -> None:
    key = {"groupId": "g", "memberId": "m"}
    current = {"assignedPartitions": [{"topicId": "nT3VsuYvSyWUb7u3L98_lA", "partitions": [0]}]}
    steps: list[Put] = [
        put("ConsumerGroupMemberMetadata", key, {}),
        put("ConsumerGroupCurrentMemberAssignment", key, current),
        *commits("g", {("a", 0): 3}),
    ]
    write_groups(tmp_path, {"g": steps})
    assert numbers(tmp_path) == [("g", "a", 0, 3, None, None)]


def test_groups_that_the_tool_leaves_out_are_shown_where_they_are_named(tmp_path: Path) -> None:
    groups = {
        "streams": [put("StreamsGroupMetadata", {"groupId": "streams"}, {"epoch": 1})],
        "connect": [put("GroupMetadata", {"group": "connect"}, {"protocolType": "connect", "members": []}, 3)],
        "consumers": [classic("consumers")],
        "simple": [],
    }
    write(tmp_path / "a-0", 10)
    write_groups(tmp_path, {name: [*steps, *commits(name, {("a", 0): 3})] for name, steps in groups.items()})
    assert [row[0] for row in numbers(tmp_path)] == ["consumers", "simple"]
    assert [row[0] for row in numbers(tmp_path, "streams", "connect")] == ["connect", "streams"]


def test_rows_say_where_the_offset_is_committed(tmp_path: Path) -> None:
    write_shop(tmp_path, {"g": {("a", 0): 1, ("a", 1): 1}})
    commit_group_offsets(directory_at(tmp_path), "g", {TopicPartition("a", 1): OffsetCommit(9, "", 8)})
    rows = lag(tmp_path).select(["partition", "current_offset", "committed_in"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 1, "__consumer_offsets"), (1, 9, "seglog.offsets")]


def test_groups_may_be_chosen_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    write_shop(tmp_path, {name: {("a", 0): 1} for name in ("billing", "fraud", "audit")})
    assert {row[0] for row in numbers(tmp_path, "fraud", "audit")} == {"fraud", "audit"}
    assert lag(tmp_path, "fraud").num_rows == 1
    with pytest.raises(InvalidOptionError, match="did you mean 'billing'"):
        lag(tmp_path, "biling")
    with pytest.raises(PathNotFoundError):
        lag(tmp_path / "a-0")
