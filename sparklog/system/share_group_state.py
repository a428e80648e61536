"""Reads ``__share_group_state``: how far share groups are in each partition, and which records are acknowledged.

A key is int16 0 for a snapshot or 1 for an update, then group, topic id and partition. A snapshot has the whole
state; an update has the changes since, and is folded into it. The topic is not compacted: records before the oldest
snapshot in use are deleted.

The state of a partition is its start offset, before which all records are done, and batches of offsets from there on.
If batches overlap, the larger delivery count wins, and among equal counts the larger state.

Source: apache/kafka, ShareCoordinatorShard.java, PersisterStateBatchCombiner.java; KIP-932.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparklog.system.codecs import MessageFields
from sparklog.system.messages import json_of
from sparklog.system.records import (
    HISTORY_FIELDS,
    TIMESTAMP,
    DecodedMessage,
    InternalLog,
    Undecodable,
    arrays_of,
    decode_coordinator_records,
    history,
    known,
)

TOPIC: Final = "__share_group_state"
_COMPONENT: Final = "share-coordinator"

DELIVERY_STATES: Final = {0: "Available", 1: "Acquired", 2: "Acknowledged", 3: "Archiving", 4: "Archived"}

_BATCH_TYPE: Final = pa.struct(
    [
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("delivery_state", pa.string()),
        ("delivery_count", pa.int32()),
    ]
)
SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("start_offset", pa.int64()),
        ("snapshot_epoch", pa.int32()),
        ("state_epoch", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("delivery_complete_count", pa.int32()),
        ("create_timestamp", TIMESTAMP),
        ("write_timestamp", TIMESTAMP),
        ("batches", pa.list_(_BATCH_TYPE)),
    ]
)
"""The state of a share group in a partition.

``topic`` is null if the directory has no name for the id, and ``start_offset`` if the group has not begun.
"""

HISTORY_SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("record", pa.string()),
        ("version", pa.int32()),
        ("fields", pa.string()),
        *HISTORY_FIELDS,
    ]
)


class StateBatch(NamedTuple):
    """A run of offsets, the last one inclusive, and the state of their records."""

    first: int
    last: int
    state: int
    deliveries: int

    @property
    def rank(self) -> tuple[int, int]:
        """The rank of the batch: if two overlap, the larger wins."""
        return self.deliveries, self.state


def combine(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Resolve overlaps between batches.

    Parameters
    ----------
    start_offset : int
        Offsets before it are left out; -1 leaves out none.

    Returns
    -------
    list of StateBatch
        Ascending. Each offset is in the batch of the largest rank that holds it; neighbours of the same rank are
        joined.
    """
    clipped = (each._replace(first=max(each.first, start_offset)) for each in batches)
    waiting = sorted(each for each in clipped if each.first <= each.last)
    combined: list[StateBatch] = []
    holding: list[tuple[int, int, int]] = []
    position, row = 0, 0
    while row < len(waiting) or holding:
        if not holding:
            position = max(position, waiting[row].first) if combined else waiting[row].first
        while row < len(waiting) and waiting[row].first <= position:
            each = waiting[row]
            heapq.heappush(holding, (-each.deliveries, -each.state, each.last))
            row += 1
        while holding and holding[0][2] < position:
            heapq.heappop(holding)
        if not holding:
            continue
        count, state, last = holding[0]
        end = min(last, waiting[row].first - 1) if row < len(waiting) else last
        _append(combined, StateBatch(position, end, -state, -count))
        position = end + 1
    return combined


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    last = combined[-1] if combined else None
    if last is not None and last.rank == batch.rank and last.last + 1 == batch.first:
        combined[-1] = last._replace(last=batch.last)
    else:
        combined.append(batch)


_Place = tuple[str, str, int]


def current_states(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the state of each share group in each partition."""
    states: dict[_Place, MessageFields] = {}
    damaged: set[_Place] = set()
    for batch in log.batches():
        for _, found in decode_coordinator_records(log, batch, _COMPONENT, unreadable, lambda _: True):
            if not found.key:
                continue
            place = found.key["groupId"], found.key["topicId"], found.key["partition"]
            if found.is_raw:
                damaged.add(place)
                states.pop(place, None)
            elif found.name == "ShareSnapshot":
                damaged.discard(place)
                _take_snapshot(states, place, found.value)
            elif found.value is not None and place not in damaged:
                states[place] = _updated(states.get(place), found.value)
    rows = [_row(place, states[place], log) for place in sorted(states)]
    return pa.table(arrays_of(rows, SCHEMA), schema=SCHEMA)


def states_history(log: InternalLog, unreadable: Undecodable) -> Iterator[pa.RecordBatch]:
    """Return every snapshot and update, in the order of the log."""
    return history(log, _COMPONENT, unreadable, lambda _: True, _history_row, HISTORY_SCHEMA)


def _take_snapshot(states: dict[_Place, MessageFields], place: _Place, value: MessageFields | None) -> None:
    if value is None:
        states.pop(place, None)
    else:
        states[place] = {**value, "batches": _batches(value)}


def _updated(state: MessageFields | None, update: MessageFields) -> MessageFields:
    """Return a state with an update folded into it. An update without a snapshot before it is the whole known state."""
    if state is None:
        return {**update, "batches": _batches(update)}
    start = state["startOffset"] if update["startOffset"] == -1 else update["startOffset"]
    return {
        **state,
        "startOffset": start,
        "leaderEpoch": state["leaderEpoch"] if update["leaderEpoch"] == -1 else update["leaderEpoch"],
        "deliveryCompleteCount": update["deliveryCompleteCount"],
        "batches": combine([*state["batches"], *_batches(update)], start),
    }


def _batches(value: MessageFields) -> list[StateBatch]:
    return [
        StateBatch(each["firstOffset"], each["lastOffset"], each["deliveryState"], each["deliveryCount"])
        for each in value["stateBatches"]
    ]


def _row(place: _Place, state: MessageFields, log: InternalLog) -> tuple[Any, ...]:
    group, topic_id, partition = place
    return (
        group,
        log.topic_names.get(topic_id),
        topic_id,
        partition,
        known(state["startOffset"]),
        state["snapshotEpoch"],
        state.get("stateEpoch"),
        state["leaderEpoch"],
        known(state["deliveryCompleteCount"]),
        known(state.get("createTimestamp", -1)),
        known(state.get("writeTimestamp", -1)),
        [
            {
                "first_offset": each.first,
                "last_offset": each.last,
                "delivery_state": DELIVERY_STATES.get(each.state, f"Unknown({each.state})"),
                "delivery_count": each.deliveries,
            }
            for each in state["batches"]
        ],
    )


def _history_row(found: DecodedMessage) -> tuple[Any, ...]:
    key, fields = found.key, None if found.value is None else json_of(found.value)
    return key["groupId"], key["topicId"], key["partition"], found.name, found.version, fields
