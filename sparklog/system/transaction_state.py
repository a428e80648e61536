"""Reads ``__transaction_state``: every transactional id, its producer, and its current or last transaction.

A key is int16 0 and the transactional id; a value is an int16 version and its fields.

Source: apache/kafka, TransactionLog.java, TransactionState.java; KIP-98, KIP-890, KIP-939.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sparklog.log import files
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
