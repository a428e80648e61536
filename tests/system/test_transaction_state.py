"""``__transaction_state``: the transactional ids that there are, and what they have gone through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklog.log.layout import read_layout
from sparklog.system.records import InternalLog, Undecodable
from sparklog.system.transaction_state import current_transactions, transactions_history
from tests.golden import golden_set
from tests.places import folder_at
from tests.system.logs import Put, keyed, put, write_log


def transaction(name: str, value: dict[str, Any] | None, version: int = 1) -> Put:
    return put("TransactionLog", {"transactionalId": name}, value, version)


def test_last_record_of_each_id_counts_and_tombstones_are_gone(tmp_path: Path) -> None:
    partitions = [{"topic": "t", "partitionIds": [2, 0]}]
    ongoing = {"producerId": 1, "transactionStatus": 1, "transactionPartitions": partitions}
    steps = [
        transaction("a", {"producerId": 1, "transactionStatus": 0}),
        transaction("b", {"producerId": 2, "transactionStatus": 1}),
        transaction("a", ongoing),
        transaction("b", None),
        transaction("c", {"producerId": 3, "transactionStatus": 7, "transactionPartitions": None}, 0),
        transaction("d", {"producerId": 3, "transactionStatus": 99}, 0),
    ]
    log = write_log(tmp_path / "__transaction_state-3", steps)
    rows = {row["transactional_id"]: row for row in current_transactions(log, Undecodable()).to_pylist()}
    assert {name: (row["producer_id"], row["state"]) for name, row in rows.items()} == {
        "a": (1, "Ongoing"),
        "c": (3, "PrepareEpochFence"),
        "d": (3, "Unknown(99)"),
    }
    assert rows["a"]["partitions"] == [{"topic": "t", "partitions": [0, 2]}]
    assert rows["a"]["previous_producer_id"] is rows["a"]["next_producer_epoch"] is None
    history = [row for batch in transactions_history(log, Undecodable()) for row in batch.to_pylist()]
    assert [row["transactional_id"] for row in history] == ["a", "b", "a", "b", "c", "d"]
    assert [row["is_tombstone"] for row in history] == [False, False, False, True, False, False]
    assert {row["log_partition"] for row in history} == {3}


@pytest.mark.parametrize("value", [b"", b"\0\2" + b"\0" * 40, b"\0\1\0"])
def test_record_that_cannot_be_decoded_is_shown_as_its_bytes_and_makes_no_row(tmp_path: Path, value: bytes) -> None:
    wrong = Put(keyed("TransactionLog", {"transactionalId": "a"}), value)
    log, unreadable = write_log(tmp_path / "x-0", [transaction("a", {"producerId": 1}), wrong]), Undecodable()
    assert current_transactions(log, unreadable).num_rows == 0
    assert unreadable.count == 1
    rows = [row for batch in transactions_history(log, Undecodable()) for row in batch.to_pylist()]
    assert [row["raw_value"] for row in rows] == [None, value]


def test_transactions_of_a_broker() -> None:
    """A commit, and then an abort, by the second version of the protocol: each transaction has its own epoch."""
    log = InternalLog(read_layout(folder_at(golden_set("v2-internal").log_dir / "__transaction_state-0")))
    (row,) = current_transactions(log, Undecodable()).to_pylist()
    assert (row["transactional_id"], row["producer_id"], row["producer_epoch"]) == ("bookkeeper", 2, 2)
    assert (row["state"], row["partitions"], row["timeout_ms"]) == ("CompleteAbort", [], 60000)
    history = [each for batch in transactions_history(log, Undecodable()) for each in batch.to_pylist()]
    assert [each["state"] for each in history] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
    ]
