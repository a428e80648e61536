"""``topics`` at the terminal: topics are made, changed and deleted, and nothing is deleted unasked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import sparklog
from sparklog.cli.output.fields import ROWS
from tests import terminal
from tests.cli.output.test_fields import disagreements


def run(*arguments: Any, answer: str = "") -> Result:
    return terminal.run("topics", *arguments, answer=answer)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    config = ("--config", "retention.ms=1000", "--config", "cleanup.policy=compact")
    assert run("create", tmp_path, "--topic", "events", "--partitions", 2, *config).exit_code == 0
    sparklog.PartitionLog.open(tmp_path / "orders-0").close()
    return tmp_path


def test_topics_are_listed_with_their_properties(logs: Path) -> None:
    result = run("list", logs)
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["TOPIC", "PARTS", "CONFIGS"],
        ["events", "2", "retention.ms=1000", "cleanup.policy=compact"],
        ["orders", "1", "-"],
    ]
    found = [json.loads(line) for line in run("list", logs, "--json").stdout.splitlines()]
    assert found[0]["configs"] == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert [wrong for row in found for wrong in disagreements(row, ROWS["topics list"]["a topic"])] == []


def test_topic_gets_more_partitions_and_other_properties(logs: Path) -> None:
    altered = run(
        "alter", logs, "--topic", "events", "--partitions", 5, "--config", "retention.ms=5",
        "--delete-config", "cleanup.policy",
    )  # fmt: skip
    assert (altered.exit_code, altered.stdout) == (0, "topic events has 5 partitions\n")
    manager = sparklog.LogManager(logs)
    assert (manager.topics()["events"], manager.configs("events")) == (5, {"retention.ms": "5"})
    for wrong, reason in (
        (("--partitions", 5), "partitions are only added"),
        ((), "say what to change"),
        (("--config", "retention.m=1"), "retention.ms"),
    ):
        result = run("alter", logs, "--topic", "events", *wrong)
        assert result.exit_code == 2
        assert reason in result.stderr
    assert manager.topics()["events"] == 5


def test_topic_is_deleted_after_yes_and_not_after_anything_else(logs: Path) -> None:
    for answer, code in (("n\n", 0), ("\n", 0), ("yes please\n", 0), ("", 2)):
        result = run("delete", logs, "--topic", "events", answer=answer)
        assert result.exit_code == code
        assert "events: 2 partitions, " in result.stderr
        assert "--yes does not ask" in result.stderr or result.stdout == "nothing was changed\n"
    assert " would go" in run("delete", logs, "--topic", "events", "--dry-run", "--yes").stdout
    assert "events" in sparklog.LogManager(logs).topics()
    assert run("delete", logs, "--topic", "events", answer="y\n").exit_code == 0
    assert run("delete", logs, "--topic", "orders", "--yes").exit_code == 0
    assert sparklog.LogManager(logs).topics() == {}
    assert len([path for path in logs.iterdir() if path.name.endswith("-delete")]) == 3


def test_topic_that_is_there_or_is_not_is_named(logs: Path) -> None:
    assert "is in" in run("create", logs, "--topic", "events").stderr
    for command in ("alter", "delete"):
        result = run(command, logs, "--topic", "event", *(("--partitions", 2) if command == "alter" else ()))
        assert result.exit_code == 2
        assert "did you mean 'events'" in result.stderr
