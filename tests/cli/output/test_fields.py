"""What is said of the fields of JSON is what the commands print."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.output.columns import Field
from sparklog.cli.output.fields import ROWS
from tests.golden import EXAMPLES, golden_sets
from tests.terminal import run

KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
EVERYWHERE = [golden.log_dir for golden in golden_sets()]
OPTIONS: dict[str, dict[str, list[str]]] = {
    "describe": {
        "a topic": ["--ratio", "--histogram"],
        "a partition (--partitions)": ["--partitions", "--ratio", "--histogram"],
        "a segment (--segments)": ["--segments", "--ratio", "--histogram"],
    },
    "dump": {"a record": [], "a batch (--batches)": ["--batches"]},
    "verify": {"a finding": []},
    "export": {"a range of a task (--dry-run)": ["/nowhere", "--dry-run"]},
    "copy": {"a range of a task (--dry-run)": ["/nowhere", "--dry-run"]},
}


def rows(command: str, options: list[str]) -> list[dict[str, Any]]:
    paths = [str(path) for path in EVERYWHERE]
    runs = [run(command, path, *options, "--json") for path in paths]
    return [json.loads(line) for each in runs for line in each.stdout.splitlines()]


def disagreements(row: dict[str, Any], fields: tuple[Field, ...]) -> list[str]:
    given = {name.removesuffix("_base64"): value for name, value in row.items()}
    told = [field for field in fields if not isinstance(given.get(field.name, field), Field)]
    wrong = [] if list(given) == [field.name for field in fields] else [f"names are {list(given)}"]
    for field in told:
        value, kind = given[field.name], field.kind.removesuffix("?")
        if value is None:
            wrong += [] if field.kind.endswith("?") else [f"{field.name} is null"]
        elif not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):  # type: ignore[arg-type]
            wrong.append(f"{field.name} is {value!r}")
    return wrong


@pytest.mark.parametrize(("command", "of"), [(command, of) for command, each in OPTIONS.items() for of in each])
def test_every_field_is_said_in_its_order_with_its_type(command: str, of: str) -> None:
    found = rows(command, OPTIONS[command][of])
    assert found
    assert {wrong for row in found for wrong in disagreements(row, ROWS[command][of])} == set()


def test_actions_have_the_fields_that_are_said(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "logs")
    (tmp_path / "logs" / "shop-events-0" / "seglog-00000000000000-0-0-0.log.staged").write_bytes(b"x")
    found = [json.loads(line) for line in run("recover", "--dry-run", tmp_path / "logs", "--json").stdout.splitlines()]
    assert found
    assert [wrong for row in found for wrong in disagreements(row, ROWS["recover"]["an action"])] == []


def test_what_was_moved_and_its_ledger_have_the_fields_that_are_said(tmp_path: Path) -> None:
    commands: dict[tuple[str, str], list[str | Path]] = {
        ("export", "a range of offsets"): ["export", EXAMPLES, tmp_path / "out", "--processes", "1"],
        ("copy", "a range of offsets"): ["copy", EXAMPLES, tmp_path / "logs", "--processes", "1"],
        ("ledger show", "a partition"): ["ledger", "show", tmp_path / "out"],
        ("ledger show", "a commit (--commits)"): ["ledger", "show", "--commits", tmp_path / "out"],
    }
    for (command, of), arguments in commands.items():
        found = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
        assert found
        assert [wrong for row in found for wrong in disagreements(row, ROWS[command][of])] == []


@pytest.mark.parametrize("options", [[], ["--partitions"], ["--segments"]])
def test_fields_that_cost_a_scan_are_not_there_without_it(options: list[str]) -> None:
    with_all = run("describe", EXAMPLES, *options, "--ratio", "--histogram", "--json").stdout.splitlines()[0]
    without = run("describe", EXAMPLES, *options, "--json").stdout.splitlines()[0]
    of = next(of for of in ROWS["describe"] if (options or ["topic"])[0] in of)
    missing = set(json.loads(with_all)) - set(json.loads(without))
    assert missing == {field.name for field in ROWS["describe"][of] if field.meaning.startswith("with --")}


@pytest.mark.parametrize("command", list(ROWS))
def test_fields_are_shown_without_a_path(command: str) -> None:
    result = run(*command.split(), "--fields")
    assert result.exit_code == 0
    for of, fields in ROWS[command].items():
        assert of in result.stdout
        assert all(field.name in result.stdout for field in fields)
