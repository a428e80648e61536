"""Reads ``__transaction_state``: every transactional id, its producer, and its current or last transaction.

A key is int16 0 and the transactional id; a value is an int16 version and its fields.

Source: apache/kafka, TransactionLog.java, TransactionState.java; KIP-98, KIP-890, KIP-939.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparklog.log import files
from sparklog.system.messages import message
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
    last_records,
)

TOPIC: Final = files.TRANSACTION_STATE_TOPIC
COMPONENT: Final = "transaction-coordinator"

TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""The states of a transaction by their numbers, as ``kafka-transactions`` names them."""

UNDECIDED: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The states of a transaction that has begun and whose markers are not all written."""

_EPOCH_USED_MAX: Final = (1 << 15) - 2
"""The last epoch in which a producer begins transactions; a coordinator keeps the one above for itself."""

SCHEMA: Final = pa.schema(
    [
        ("transactional_id", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("state", pa.string()),
        ("timeout_ms", pa.int32()),
        ("partitions", pa.list_(pa.struct([("topic", pa.string()), ("partitions", pa.list_(pa.int32()))]))),
        ("start_timestamp", TIMESTAMP),
        ("last_update_timestamp", TIMESTAMP),
        ("previous_producer_id", pa.int64()),
        ("next_producer_id", pa.int64()),
        ("next_producer_epoch", pa.int32()),
        ("client_transaction_version", pa.int32()),
    ]
)
"""A transactional id, with the ``partitions`` of its transaction. Absent fields are null."""

HISTORY_SCHEMA: Final = pa.schema([*SCHEMA, *HISTORY_FIELDS])


def current_transactions(log: InternalLog, unreadable: Undecodable) -> pa.Table:
    """Return the current state of each transactional id."""
    rows = [
        _row(found)
        for _, found in decode_coordinator_records(log, last_records(log), COMPONENT, unreadable, lambda _: True)
        if found.is_there
    ]
    return pa.table(arrays_of(rows, SCHEMA), schema=SCHEMA)


def transactions_history(log: InternalLog, unreadable: Undecodable) -> Iterator[pa.RecordBatch]:
    """Return every change of a transactional id, in the order of the log."""
    return history(log, COMPONENT, unreadable, lambda _: True, _row, HISTORY_SCHEMA)


class EndedTransaction(NamedTuple):
    """A transaction that was open, its end, and the record that says so.

    Attributes
    ----------
    producer_id, marker_epoch : int
        The producer of its batches, and the producer epoch for its markers.
    """

    producer_id: int
    marker_epoch: int
    is_abort: bool
    key: bytes
    value: bytes


def ended_transactions(log: InternalLog, now_ms: int) -> list[EndedTransaction]:
    """End all open transactions, as a coordinator does when it loads the log, or when they time out.

    A transaction in the state PrepareCommit was decided, and is committed. Others are aborted; an ongoing one gets the
    next producer epoch, which fences a producer that still runs.
    """
    ended: list[EndedTransaction] = []
    unreadable, rows = Undecodable(), last_records(log)
    for row, found in decode_coordinator_records(log, rows, COMPONENT, unreadable, lambda _: True):
        value = found.value
        if value is None or state_name(value["transactionStatus"]) not in UNDECIDED:
            continue
        state = state_name(value["transactionStatus"])
        is_abort, epoch = state != "PrepareCommit", value["producerEpoch"]
        if state == "Ongoing" and epoch < _EPOCH_USED_MAX:
            epoch += 1
        changed = {
            "producerEpoch": epoch,
            "transactionStatus": TRANSACTION_STATES.index("CompleteAbort" if is_abort else "CompleteCommit"),
            "transactionPartitions": [],
            "transactionLastUpdateTimestampMs": now_ms,
        }
        if value["nextProducerId"] >= 0:
            # The next transaction has another producer, since the epochs of this one are used up.
            next_epoch = max(value.get("nextProducerEpoch", 0), 0)
            changed |= {"producerId": value["nextProducerId"], "producerEpoch": next_epoch}
            changed |= {"previousProducerId": value["producerId"], "nextProducerId": -1, "nextProducerEpoch": -1}
        encoded = message("TransactionLogValue").encode_versioned({**value, **changed}, found.version or 0)
        ended.append(EndedTransaction(value["producerId"], epoch, is_abort, rows["key"][row].as_py(), encoded))
    unreadable.warn(is_history=False)
    return ended


def _row(found: DecodedMessage) -> tuple[Any, ...]:
    value = found.value
    if value is None:
        return (found.key["transactionalId"], *[None] * (len(SCHEMA) - 1))
    return (
        found.key["transactionalId"],
        value["producerId"],
        value["producerEpoch"],
        state_name(value["transactionStatus"]),
        value["transactionTimeoutMs"],
        [
            {"topic": each["topic"], "partitions": sorted(each["partitionIds"])}
            for each in value["transactionPartitions"] or ()
        ],
        known(value["transactionStartTimestampMs"]),
        known(value["transactionLastUpdateTimestampMs"]),
        known(value["previousProducerId"]),
        known(value["nextProducerId"]),
        known(value["nextProducerEpoch"]),
        value["clientTransactionVersion"],
    )


def state_name(number: int) -> str:
    """Return the name of a state by its number."""
    return TRANSACTION_STATES[number] if 0 <= number < len(TRANSACTION_STATES) else f"Unknown({number})"
