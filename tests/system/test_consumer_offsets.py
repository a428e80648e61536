"""``__consumer_offsets``: what is committed, and who is in a group, as a coordinator that loads the log has it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.layout import read_layout
from sparklog.system import records
from sparklog.system.consumer_offsets import current_groups, current_offsets, groups_history, offsets_history
from sparklog.system.messages import message
from sparklog.system.records import InternalLog, Undecodable
from tests.golden import golden_set
from tests.places import folder_at
from tests.system.logs import End, Put, keyed, put, write_log

ID = "nT3VsuYvSyWUb7u3L98_lA"


def commit(group: str, topic: str, partition: int, offset: int | None, version: int = 4, **step: Any) -> Put:
    value = None if offset is None else {"offset": offset, "commitTimestamp": 5}
    return put("OffsetCommit", {"group": group, "topic": topic, "partition": partition}, value, version, **step)


def committed(log: InternalLog) -> dict[tuple[str, str, int], int]:
    unreadable = Undecodable()
    rows = current_offsets(log, unreadable).to_pylist()
    assert not unreadable.count
    found = {(row["group"], row["topic"], row["partition"]): row["offset"] for row in rows}
    assert len(found) == len(rows)
    return found


STEPS = st.lists(
    st.one_of(
        st.builds(
            commit,
            st.sampled_from("ab"),
            st.sampled_from("xy"),
            st.integers(0, 1),
            st.one_of(st.none(), st.integers(0, 1 << 40)),
            st.sampled_from([0, 1, 3, 4]),
        ),
        st.builds(
            commit,
            st.sampled_from("ab"),
            st.sampled_from("xy"),
            st.integers(0, 1),
            st.integers(0, 1 << 40),
            producer_id=st.sampled_from([1, 2]),
        ),
        st.builds(End, st.sampled_from([1, 2, 3]), st.booleans()),
    ),
    max_size=40,
)


def replay(steps: list[Put | End]) -> dict[bytes, bytes]:
    """What a coordinator has after it applied records one by one, transactional ones when their marker comes."""
    offsets: dict[bytes, tuple[int, bytes]] = {}
    pending: dict[int, dict[bytes, tuple[int, bytes]]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, End):
            for key, entry in pending.pop(step.producer_id, {}).items():
                if step.is_commit and (key not in offsets or offsets[key][0] < entry[0]):
                    offsets[key] = entry
            continue
        assert step.key is not None
        if step.value is None:
            offsets.pop(step.key, None)
            for of_producer in pending.values():
                of_producer.pop(step.key, None)
        elif step.producer_id is None:
            offsets[step.key] = number, step.value
        else:
            pending.setdefault(step.producer_id, {})[step.key] = number, step.value
    return {key: value for key, (_, value) in offsets.items()}


@given(steps=STEPS, is_folded_often=st.booleans())
def test_committed_offsets_are_those_of_a_coordinator_that_replays_the_log(
    steps: list[Put | End], is_folded_often: bool
) -> None:
    expected = {}
    for key, value in replay(steps).items():
        fields = message("OffsetCommitKey").decode(key[2:], 0)
        offset = message("OffsetCommitValue").decode_versioned(value)["offset"]
        expected[fields["group"], fields["topic"], fields["partition"]] = offset
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_FOLD_ROWS_MIN", 1 if is_folded_often else 1 << 18)
        log = write_log(Path(folder) / "__consumer_offsets-0", steps)
        assert committed(log) == expected
        history = list(offsets_history(log, Undecodable()))
        assert sum(batch.num_rows for batch in history) == sum(isinstance(step, Put) for step in steps)


def test_what_a_commit_does_not_say_is_null(tmp_path: Path) -> None:
    value = {"offset": 7, "leaderEpoch": 3, "metadata": "m", "commitTimestamp": 5, "expireTimestamp": 9, "topicId": ID}
    steps = [
        put("OffsetCommit", {"group": "g", "topic": "t", "partition": version}, value, version) for version in range(5)
    ]
    rows = current_offsets(write_log(tmp_path / "__consumer_offsets-0", steps), Undecodable()).to_pylist()
    assert [row["leader_epoch"] for row in rows] == [None, None, None, 3, 3]
    assert [row["expire_timestamp"] is not None for row in rows] == [False, True, False, False, False]
    assert [row["topic_id"] for row in rows] == [None, None, None, None, ID]
    assert {(row["offset"], row["metadata"]) for row in rows} == {(7, "m")}


def test_key_of_a_broker_before_0_9_means_the_same_offset(tmp_path: Path) -> None:
    key = {"group": "g", "topic": "t", "partition": 0}
    legacy = put("LegacyOffsetCommit", key, {"offset": 4})
    log = write_log(tmp_path / "a-0", [legacy, commit("g", "t", 0, 9)])
    assert committed(log) == {("g", "t", 0): 9}
    log = write_log(tmp_path / "b-0", [legacy])
    assert committed(log) == {("g", "t", 0): 4}
    log = write_log(tmp_path / "c-0", [commit("g", "t", 0, 9), put("LegacyOffsetCommit", key, None)])
    assert committed(log) == {}


def test_group_of_an_open_transaction_is_there_before_its_offsets_are(tmp_path: Path) -> None:
    steps: list[Put | End] = [
        commit("open", "t", 0, 1, producer_id=1),
        commit("aborted", "t", 0, 2, producer_id=2),
        End(2, is_commit=False),
        commit("both", "t", 0, 3),
        commit("both", "t", 0, 4, producer_id=1),
    ]
    log = write_log(tmp_path / "__consumer_offsets-0", steps)
    assert committed(log) == {("both", "t", 0): 3}
    found = groups_of(log)
    assert set(found) == {"open", "both"}
    assert (found["open"]["type"], found["open"]["state"]) == ("classic", "Empty")
    log = write_log(tmp_path / "ended-0", [*steps, End(1, is_commit=False)])
    assert set(groups_of(log)) == {"both"}


def test_history_says_what_became_of_transactions(tmp_path: Path) -> None:
    steps: list[Put | End] = [
        commit("g", "t", 0, 1),
        commit("g", "t", 0, 2, producer_id=1),
        commit("g", "t", 0, 3, producer_id=2),
        End(1, is_commit=True),
        End(2, is_commit=False),
        commit("g", "t", 0, 4, producer_id=1),
        commit("g", "t", 0, None),
    ]
    (batch, *others) = offsets_history(write_log(tmp_path / "__consumer_offsets-7", steps), Undecodable())
    rows = [row for each in (batch, *others) for row in each.to_pylist()]
    assert [row["offset"] for row in rows] == [1, 2, 3, 4, None]
    assert [row["log_offset"] for row in rows] == [0, 1, 2, 5, 6]
    assert [row["transaction"] for row in rows] == [None, "committed", "aborted", "open", None]
    assert [row["is_tombstone"] for row in rows] == [False] * 4 + [True]
    assert {row["log_partition"] for row in rows} == {7}


WRONG = [
    Put(None, b"value"),
    Put(b"\0", b"value"),
    Put(keyed("OffsetCommit", {"group": "g", "topic": "t", "partition": 1}), b"\0\5" + b"\0" * 40),
    Put(keyed("OffsetCommit", {"group": "g", "topic": "t", "partition": 2}), b"\0\4\0"),
    Put(keyed("OffsetCommit", {"group": "g", "topic": "t", "partition": 3}) + b"\0", None),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_record_that_cannot_be_decoded_is_shown_as_its_bytes_and_makes_no_row(tmp_path: Path, wrong: Put) -> None:
    log = write_log(tmp_path / "__consumer_offsets-0", [commit("g", "t", 0, 1), wrong])
    unreadable = Undecodable()
    assert current_offsets(log, unreadable).num_rows == 1
    assert unreadable.count == 1
    assert "offset 1:" in unreadable.first
    rows = [row for batch in offsets_history(log, Undecodable()) for row in batch.to_pylist()]
    assert [(row["raw_key"], row["raw_value"]) for row in rows] == [(None, None), (wrong.key, wrong.value)]
    assert rows[1]["offset"] is rows[1]["group"] is None


def groups_of(log: InternalLog) -> dict[str, dict[str, Any]]:
    return {row["group"]: row for row in current_groups(log, Undecodable()).to_pylist()}


def classic(group: str, value: dict[str, Any] | None, version: int = 3) -> Put:
    return put("GroupMetadata", {"group": group}, value, version)


def test_classic_group_has_what_its_members_subscribe_to_and_are_assigned(tmp_path: Path) -> None:
    subscription = message("ConsumerProtocolSubscription").encode_versioned({"topics": ["t", "u"]}, 3)
    assigned = {"assignedPartitions": [{"topic": "t", "partitions": [1, 0]}]}
    member = {
        "memberId": "m1",
        "clientId": "c",
        "clientHost": "/h",
        "subscription": subscription,
        "assignment": message("ConsumerProtocolAssignment").encode_versioned(assigned, 1),
    }
    connect = {**member, "subscription": b"\0", "assignment": b""}
    steps = [
        classic(
            "g", {"protocolType": "consumer", "generation": 4, "protocol": "range", "leader": "m1", "members": [member]}
        ),
        classic("empty", {"protocolType": "consumer", "generation": 9}),
        classic("gone", {"protocolType": "consumer"}),
        classic("gone", None),
        classic("connect", {"protocolType": "connect", "generation": 1, "members": [connect]}),
        classic("strange", {"protocolType": "consumer", "generation": 1, "members": [connect]}),
        commit("by-hand", "t", 0, 5),
    ]
    found = groups_of(write_log(tmp_path / "__consumer_offsets-0", steps))
    assert {name: (row["type"], row["state"], row["epoch"]) for name, row in found.items()} == {
        "g": ("classic", "Stable", 4),
        "empty": ("classic", "Empty", 9),
        "connect": ("classic", "Stable", 1),
        "strange": ("classic", "Stable", 1),
        "by-hand": ("classic", "Empty", None),
    }
    (only,) = found["g"]["members"]
    assert (only["member_id"], only["client_id"], only["client_host"], only["instance_id"]) == ("m1", "c", "/h", None)
    assert only["subscribed_topics"] == ["t", "u"]
    (partitions,) = only["assigned_partitions"]
    assert (partitions["topic"], partitions["partitions"]) == ("t", [0, 1])
    assert found["connect"]["members"][0]["subscribed_topics"] is None
    assert found["strange"]["members"][0]["subscribed_topics"] is None


KINDS = {"consumer": "ConsumerGroup", "share": "ShareGroup", "streams": "StreamsGroup"}


def modern(kind: str, epoch: int, target: int, members: dict[str, tuple[int, int]]) -> list[Put]:
    """The records of a group: its epoch, that of its target assignment, and state and epoch of each member."""
    name, group = KINDS[kind], {"groupId": "g"}
    steps = [put(f"{name}Metadata", group, {"epoch": epoch})]
    steps.append(put(f"{name}TargetAssignmentMetadata", group, {"assignmentEpoch": target}))
    for member, (state, member_epoch) in members.items():
        of_member = {**group, "memberId": member}
        steps.append(put(f"{name}MemberMetadata", of_member, {"clientId": "c", "clientHost": "/h"}))
        current: dict[str, Any] = {"state": state, "memberEpoch": member_epoch}
        if kind == "streams":
            current["activeTasks"] = [{"subtopologyId": "0", "partitions": [2, 1]}]
        else:
            current["assignedPartitions"] = [{"topicId": ID, "partitions": [2, 1]}]
        steps.append(put(f"{name}CurrentMemberAssignment", of_member, current))
    return steps


@pytest.mark.parametrize(
    ("epoch", "target", "members", "state"),
    [
        (3, 3, {}, "Empty"),
        (4, 3, {"m": (0, 3)}, "Assigning"),
        (4, 4, {"m": (0, 4), "n": (0, 3)}, "Reconciling"),
        (4, 4, {"m": (1, 4)}, "Reconciling"),
        (4, 4, {"m": (0, 4), "n": (0, 4)}, "Stable"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_state_of_a_group_follows_from_its_epochs(
    tmp_path: Path, kind: str, epoch: int, target: int, members: dict[str, tuple[int, int]], state: str
) -> None:
    steps = modern(kind, epoch, target, members)
    if kind == "streams":
        steps.append(put("StreamsGroupTopology", {"groupId": "g"}, {}))
    row = groups_of(write_log(tmp_path / "__consumer_offsets-0", steps))["g"]
    expected = "Stable" if kind == "share" and members else state
    assert (row["type"], row["state"], row["epoch"]) == (kind, expected, epoch)
    assert [member["member_id"] for member in row["members"]] == sorted(members)
    for member in row["members"]:
        (assigned,) = member["assigned_partitions"]
        assert assigned["partitions"] == [1, 2]
        assert (assigned["topic_id"], assigned["subtopology_id"]) == ((None, "0") if kind == "streams" else (ID, None))


def test_streams_group_without_its_topology_is_not_ready(tmp_path: Path) -> None:
    log = write_log(tmp_path / "__consumer_offsets-0", modern("streams", 1, 1, {"m": (0, 1)}))
    assert groups_of(log)["g"]["state"] == "NotReady"


def test_topics_of_assignments_are_named_where_their_ids_are_known(tmp_path: Path) -> None:
    log = write_log(tmp_path / "__consumer_offsets-0", modern("consumer", 1, 1, {"m": (0, 1)}))
    named = InternalLog(log.layout, {ID: "orders"})
    assert groups_of(named)["g"]["members"][0]["assigned_partitions"][0]["topic"] == "orders"
    assert groups_of(log)["g"]["members"][0]["assigned_partitions"][0]["topic"] is None


def test_group_that_has_moved_to_the_other_protocol_is_of_that(tmp_path: Path) -> None:
    old = classic("g", {"protocolType": "consumer", "generation": 4})
    new = modern("consumer", 5, 5, {})
    for number, (steps, kind) in enumerate([([old, *new], "consumer"), ([*new, old], "classic")]):
        assert groups_of(write_log(tmp_path / f"x-{number}", steps))["g"]["type"] == kind


def test_group_with_a_record_that_cannot_be_decoded_is_unknown(tmp_path: Path) -> None:
    damaged = Put(keyed("GroupMetadata", {"group": "g"}), b"\0\7abc")
    log = write_log(tmp_path / "__consumer_offsets-0", [commit("g", "t", 0, 1), damaged])
    row = groups_of(log)["g"]
    assert (row["state"], row["type"], row["members"]) == ("Unknown", None, None)
    rows = [row for batch in groups_history(log, Undecodable()) for row in batch.to_pylist()]
    assert [(row["raw_key"], row["raw_value"]) for row in rows] == [(damaged.key, damaged.value)]


def test_record_of_a_type_that_is_not_known_tells_of_no_offset_and_of_no_group(tmp_path: Path) -> None:
    later = Put(b"\0\x18\0\1g", b"\0\0")
    log, unreadable = write_log(tmp_path / "__consumer_offsets-0", [later]), Undecodable()
    assert committed(log) == {}
    assert current_groups(log, unreadable).num_rows == 0
    assert (unreadable.count, "type 24, which is not known" in unreadable.first) == (1, True)
    (row,) = [row for batch in groups_history(log, Undecodable()) for row in batch.to_pylist()]
    assert (row["raw_key"], row["raw_value"], row["group"]) == (later.key, later.value, None)


def test_history_of_groups_has_every_record_by_name_and_as_json(tmp_path: Path) -> None:
    steps = [*modern("consumer", 1, 1, {"m": (0, 1)}), commit("g", "t", 0, 1), classic("h", None)]
    rows = [
        row for batch in groups_history(write_log(tmp_path / "x-0", steps), Undecodable()) for row in batch.to_pylist()
    ]
    assert [(row["record"], row["group"], row["member_id"], row["version"]) for row in rows] == [
        ("ConsumerGroupMetadata", "g", None, 0),
        ("ConsumerGroupTargetAssignmentMetadata", "g", None, 0),
        ("ConsumerGroupMemberMetadata", "g", "m", 0),
        ("ConsumerGroupCurrentMemberAssignment", "g", "m", 0),
        ("GroupMetadata", "h", None, None),
    ]
    assert rows[0]["fields"] == '{"epoch":1,"metadataHash":0}'
    assert rows[4]["fields"] is None


def test_groups_of_a_broker(tmp_path: Path) -> None:
    """The page of the set says: a classic group, one of the new protocol, offsets committed by hand; all are empty."""
    log = InternalLog(read_layout(folder_at(golden_set("v2-internal").log_dir / "__consumer_offsets-0")))
    assert committed(log) == {
        ("classic-group", "read-by-groups", 0): 10,
        ("classic-group", "read-by-groups", 1): 10,
        ("new-group", "read-by-groups", 0): 10,
        ("new-group", "read-by-groups", 1): 10,
        ("by-hand", "read-by-groups", 0): 3,
        ("by-hand", "read-by-groups", 1): 4,
    }
    assert {name: (row["type"], row["state"], row["epoch"]) for name, row in groups_of(log).items()} == {
        "classic-group": ("classic", "Empty", 2),
        "new-group": ("consumer", "Empty", 3),
        "by-hand": ("classic", "Empty", None),
    }
