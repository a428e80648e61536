"""``groups``, ``transactions`` and ``cluster``: internal topics at the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.output.fields import ROWS
from tests.cli.output.test_fields import disagreements
from tests.golden import golden_set
from tests.system.logs import End, Put, keyed, put, write_log
from tests.system.test_consumer_offsets import classic, commit, modern
from tests.terminal import on_a_terminal, run

GOLDEN = golden_set("v2-internal").log_dir

COMMANDS = [
    ("groups", "a group", []),
    ("groups", "an offset (--offsets)", ["--offsets"]),
    ("groups", "a member (--members)", ["--members"]),
    ("groups", "a record (--history)", ["--history"]),
    ("groups", "a commit (--offsets --history)", ["--offsets", "--history"]),
    ("transactions", "a transactional id", []),
    ("transactions", "a change (--history)", ["--history"]),
    ("cluster", "a topic", []),
    ("cluster", "a partition (partitions)", ["partitions"]),
    ("cluster", "a config (configs)", ["configs"]),
    ("cluster", "a broker (brokers)", ["brokers"]),
    ("cluster", "a feature (features)", ["features"]),
    ("cluster", "a record (records)", ["records"]),
    ("cluster", "a record (--history)", ["topics", "--history"]),
]


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with members, open transactions and records that cannot be decoded."""
    root = tmp_path_factory.mktemp("logs")
    steps: list[Put | End] = [
        *modern("consumer", 1, 1, {"m": (0, 1)}),
        classic("c", {"protocolType": "consumer", "generation": 1, "members": [{"memberId": "n"}]}),
        commit("g", "orders", 0, 5),
        commit("g", "orders", 0, 6, producer_id=3),
        commit("g", "orders", 1, None),
        Put(keyed("GroupMetadata", {"group": "x"}), b"\0\7\xff"),
        Put(keyed("OffsetCommit", {"group": "x", "topic": "t", "partition": 0}), b"\0\7\xff"),
    ]
    write_log(root / "__consumer_offsets-0", steps)
    ongoing = {"producerId": 4, "transactionPartitions": [{"topic": "t", "partitionIds": [0, 1]}]}
    name = {"transactionalId": "a"}
    write_log(
        root / "__transaction_state-0", [put("TransactionLog", name, ongoing, 1), put("TransactionLog", name, None)]
    )
    return root


@pytest.mark.parametrize(("command", "of", "options"), COMMANDS)
def test_every_field_is_said_in_its_order_with_its_type(logs: Path, command: str, of: str, options: list[str]) -> None:
    found = rows(command, GOLDEN, *options)
    if command != "cluster":
        found += rows(command, logs, *options)
    assert found
    assert [wrong for row in found for wrong in disagreements(row, ROWS[command][of])] == []


@pytest.mark.parametrize(("command", "of", "options"), COMMANDS)
def test_tables_are_printed_of_all_that_json_has(logs: Path, command: str, of: str, options: list[str]) -> None:
    for path in [GOLDEN] if command == "cluster" else [GOLDEN, logs]:
        ran = run(command, path, *options)
        assert ran.exit_code == 0, ran.output
        assert len(ran.stdout.splitlines()) > len(rows(command, path, *options)) or not rows(command, path, *options)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("groups", ["--history"]),
        ("groups", ["--offsets"]),
        ("transactions", []),
        ("cluster", []),
        ("cluster", ["records"]),
    ],
)
def test_no_line_is_wider_than_a_terminal_of_80_columns(command: str, options: list[str]) -> None:
    lines = on_a_terminal(80, command, str(GOLDEN), *options).splitlines()
    assert lines
    assert max(map(len, lines)) <= 80


def test_offsets_of_a_broker_are_those_that_its_groups_committed() -> None:
    lines = run("groups", GOLDEN, "--offsets").stdout.splitlines()
    assert lines[:4] == [
        "by-hand",
        "PARTITION         OFFSET  EPOCH  WHEN (UTC)           METADATA  IN",
        "read-by-groups-0       3      -  2026-11-20 23:57:54  three     __consumer_offsets",
        "read-by-groups-1       4      -  2026-11-20 23:57:54            __consumer_offsets",
    ]
    read = [line.split() for line in lines]
    assert ["read-by-groups-1", "10", "0", "2026-11-20", "23:57:53", "__consumer_offsets"] in read


def test_members_have_their_partitions(logs: Path) -> None:
    lines = run("groups", logs, "--members").stdout.splitlines()
    assert lines[0] == "c"
    assert lines[-1].split() == ["m", "c", "/h", "nT3VsuYvSyWUb7u3L98_lA-1,2"]


def test_history_says_what_became_of_a_commit(logs: Path) -> None:
    found = rows("groups", logs, "--offsets", "--history")
    assert [(row["offset"], row["transaction"], row["is_tombstone"]) for row in found] == [
        (5, None, False),
        (6, "open", False),
        (None, None, True),
        (None, None, False),
    ]
    assert found[3]["raw_value_base64"] == "AAf/"


def test_records_that_cannot_be_decoded_are_warned_of_once(logs: Path) -> None:
    ran = run("groups", logs)
    assert ran.exit_code == 0
    assert ran.stderr.count("warning: 2 records cannot be decoded") == 1
    assert "Unknown" in next(line for line in ran.stdout.splitlines() if line.startswith("x "))


@pytest.mark.parametrize("command", ["groups", "transactions", "cluster"])
def test_directory_without_the_topic_cannot_be_shown(tmp_path: Path, command: str) -> None:
    (tmp_path / "meta.properties").touch()
    ran = run(command, tmp_path)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: [SEGLOG_PATH_NOT_FOUND] no ")


def test_options_that_contradict_each_other_are_refused() -> None:
    for other in ("--offsets", "--history"):
        ran = run("groups", GOLDEN, "--members", other)
        assert ran.exit_code == 2
        assert "--members shows who is in a group now" in ran.stderr
    assert run("cluster", GOLDEN, "topic").exit_code == 2
