"""``__share_group_state``: snapshots, and updates that are folded into them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparklog.system.records import InternalLog, Undecodable
from sparklog.system.share_group_state import StateBatch, combine, current_states, states_history
from tests.system.logs import Put, keyed, put, write_log

ID = "nT3VsuYvSyWUb7u3L98_lA"
KEY = {"groupId": "g", "topicId": ID, "partition": 1}

BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 12),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 3),
    ),
    max_size=8,
)


@given(batches=BATCHES, start=st.integers(-1, 40))
def test_combined_batches_say_of_each_offset_what_the_largest_rank_says(batches: list[StateBatch], start: int) -> None:
    def winner(offset: int) -> tuple[int, int] | None:
        return max((each.rank for each in batches if each.first <= offset <= each.last), default=None)

    combined = combine(batches, start)
    said = {offset: each.rank for each in combined for offset in range(each.first, each.last + 1)}
    expected = {offset: winner(offset) for offset in range(max(start, 0), 50)}
    assert said == {offset: rank for offset, rank in expected.items() if rank is not None}
    assert sum(each.last + 1 - each.first for each in combined) == len(said)
    for before, after in pairwise(combined):
        assert before.last < after.first
        assert before.last + 1 < after.first or before.rank != after.rank


def batch(first: int, last: int, state: int, count: int) -> dict[str, int]:
    return {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}


def snapshot(start: int, *batches: dict[str, int], **more: Any) -> Put:
    value = {"snapshotEpoch": 1, "stateEpoch": 2, "leaderEpoch": 3, "startOffset": start, "stateBatches": batches}
    return put("ShareSnapshot", KEY, {**value, **more})


def update(start: int, *batches: dict[str, int], **more: Any) -> Put:
    return put("ShareUpdate", KEY, {"startOffset": start, "leaderEpoch": -1, "stateBatches": batches, **more})


def state_of(folder: Path, *steps: Put) -> list[dict[str, Any]]:
    log = write_log(folder / "__share_group_state-0", steps)
    named = InternalLog(log.layout, {ID: "orders"})
    rows: list[dict[str, Any]] = current_states(named, Undecodable()).to_pylist()
    return rows


def test_updates_are_folded_into_the_snapshot_before_them(tmp_path: Path) -> None:
    (row,) = state_of(
        tmp_path,
        snapshot(0, batch(0, 99, 0, 9)),
        snapshot(10, batch(10, 19, 0, 1), createTimestamp=5, writeTimestamp=6),
        update(-1, batch(15, 24, 2, 1), deliveryCompleteCount=4),
        update(12, leaderEpoch=7),
    )
    assert (row["group"], row["topic"], row["topic_id"], row["partition"]) == ("g", "orders", ID, 1)
    assert (row["start_offset"], row["leader_epoch"], row["state_epoch"]) == (12, 7, 2)
    assert row["delivery_complete_count"] is None
    found = [(each["first_offset"], each["last_offset"], each["delivery_state"]) for each in row["batches"]]
    assert found == [(12, 14, "Available"), (15, 24, "Acknowledged")]


def test_tombstone_of_a_snapshot_removes_the_state(tmp_path: Path) -> None:
    assert state_of(tmp_path, snapshot(0), update(5), put("ShareSnapshot", KEY, None)) == []


def test_state_behind_an_update_that_cannot_be_decoded_is_not_told_until_the_next_snapshot(tmp_path: Path) -> None:
    wrong = Put(keyed("ShareUpdate", KEY), b"\0\7")
    assert state_of(tmp_path / "a", snapshot(0), wrong, update(9)) == []
    (row,) = state_of(tmp_path / "b", snapshot(0), wrong, snapshot(7), update(9))
    assert row["start_offset"] == 9


def test_history_has_snapshots_and_updates(tmp_path: Path) -> None:
    log = write_log(tmp_path / "__share_group_state-0", [snapshot(0), update(5), Put(b"\0\2", b"")])
    rows = [row for each in states_history(log, Undecodable()) for row in each.to_pylist()]
    assert [(row["record"], row["group"], row["raw_key"]) for row in rows] == [
        ("ShareSnapshot", "g", None),
        ("ShareUpdate", "g", None),
        (None, None, b"\0\2"),
    ]
