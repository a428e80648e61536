"""``transactions --hanging`` and ``--abort``: what is open in logs, and how it is ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cli.output.fields import ROWS
from sparklog.log.config import LogConfig
from sparklog.topic.transactions.writer import TransactionalWriter
from sparklog.topic.write.open_logs import OpenLogs
from tests.cli.output.test_fields import disagreements
from tests.places import directory_at
from tests.system.logs import put, write_log
from tests.terminal import on_a_terminal, run

HANGING = 17
FIELDS = ROWS["transactions"]["an open transaction (--hanging, --abort)"]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs with a transaction that a coordinator of ours knows, one that a broker's does, and one that hangs."""
    with OpenLogs(directory_at(tmp_path), LogConfig()) as open_logs:
        writer = TransactionalWriter.open(tmp_path, "ours", logs=open_logs)
        writer.begin()
        for partition in range(2):
            writer.append("orders", partition, {"value": [b"open"]})
    for partition, producer_id in ((0, HANGING), (0, 18)):
        with sparklog.PartitionLog.open(tmp_path / f"orders-{partition}") as log:
            log.append(
                {"value": [b"open too"]},
                producer_id=producer_id, producer_epoch=2, base_sequence=0, is_transactional=True,
            )  # fmt: skip
    ongoing = {
        "producerId": 18,
        "transactionStatus": 1,
        "transactionTimeoutMs": 900_000,
        "transactionPartitions": [{"topic": "orders", "partitionIds": [0]}],
    }
    write_log(tmp_path / "__transaction_state-0", [put("TransactionLog", {"transactionalId": "theirs"}, ongoing, 1)])
    return tmp_path


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    ran = run("transactions", *arguments, "--json")
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_open_transactions_are_listed_with_what_coordinators_know(logs: Path) -> None:
    found = rows(logs, "--hanging")
    assert [wrong for row in found for wrong in disagreements(row, FIELDS)] == []
    assert [
        (row["partition"], row["first_offset"], row["transactional_id"], row["timeout_ms"], row["is_hanging"])
        for row in found
    ] == [
        (0, 0, "ours", 60_000, False),
        (0, 1, None, None, True),
        (0, 2, "theirs", 900_000, False),
        (1, 0, "ours", 60_000, False),
    ]
    assert {row["last_stable_offset"] for row in found} == {0}
    lines = on_a_terminal(80, "transactions", str(logs), "--hanging").splitlines()
    assert lines[-1] == "4 transactions open, 1 hanging"
    assert max(map(len, lines)) <= 80


def test_one_transaction_is_aborted_by_its_partition_and_producer(logs: Path) -> None:
    arguments = (logs, "--abort", "--partition", "orders-0", "--producer-id", str(HANGING))
    assert [row["status"] for row in rows(*arguments, "--dry-run")] == ["would be aborted"]
    assert len(rows(logs, "--hanging")) == 4
    (row,) = rows(*arguments)
    assert (row["status"], row["producer_id"], row["first_offset"]) == ("aborted", HANGING, 1)
    assert [row["producer_id"] for row in rows(logs, "--hanging") if row["partition"] == 0][1:] == [18]
    ran = run("transactions", *arguments)
    assert ran.exit_code == 2
    assert "producer 17 has no transaction open in orders-0" in ran.stderr


def test_all_transactions_are_aborted_by_one_commit_and_readers_go_on(logs: Path) -> None:
    assert [row["status"] for row in rows(logs, "--abort", "--all", "--partition", "orders-1")] == ["aborted"]
    with sparklog.PartitionLog.open(logs / "orders-0") as log:
        log.append({"value": [b"behind"]})
    ran = run("transactions", logs, "--abort", "--all")
    assert ran.stdout.splitlines()[-1] == "3 transactions aborted"
    assert rows(logs, "--hanging") == []
    with sparklog.open_log(logs / "orders-0") as log:
        assert log.last_stable_offset == log.end_offset == 7
        assert log.read(isolation_level="read_committed")["value"].to_pylist() == [b"behind"]
    # The next start of the transactional id aborts what it knows of once more, which changes nothing.
    with sparklog.transaction(logs, "ours") as writer:
        writer.append("orders", 0, {"value": [b"next"]})
    assert rows(logs, "--hanging") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--abort"], "say which transactions to abort"),
        (["--abort", "--producer-id", "3"], "say which transactions to abort"),
        (["--abort", "--partition", "orders-0"], "say which transactions to abort"),
        (["--abort", "--all", "--producer-id", "3"], "say which transactions to abort"),
        (["--abort", "--partition", "orders", "--producer-id", "3"], "is not topic-partition, such as orders-0"),
        (["--hanging", "--all"], "say what --abort does: add it"),
        (["--hanging", "--history"], "leave out --history"),
    ],
    ids=str,
)
def test_wrong_option_is_named(logs: Path, arguments: list[str], message: str) -> None:
    ran = run("transactions", logs, *arguments)
    assert ran.exit_code == 2
    assert message in " ".join(ran.stderr.split())
    assert len(rows(logs, "--hanging")) == 4
