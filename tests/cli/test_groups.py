"""``groups --lag`` and ``groups set``: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparklog import views
from sparklog.cli.output.fields import ROWS
from tests.cli.output.test_fields import disagreements
from tests.golden import EXAMPLES
from tests.terminal import on_a_terminal, run
from tests.topic.groups import write_shop


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


def committed(path: Path, group: str = "g") -> dict[tuple[str, int], int]:
    found = views.lag(path, group).to_pylist()
    return {(row["topic"], row["partition"]): row["current_offset"] for row in found}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_shop(tmp_path / "logs", {"g": {("a", 0): 40, ("b", 0): 5}, "h": {("a", 0): 1}})


def test_lag_is_printed_as_a_table_and_as_json() -> None:
    found = rows("groups", EXAMPLES, "--lag")
    assert found == views.lag(EXAMPLES).to_pylist()
    assert [wrong for row in found for wrong in disagreements(row, ROWS["groups"]["a partition (--lag)"])] == []
    printed = run("groups", EXAMPLES, "--lag").stdout
    groups, partitions = (each.splitlines() for each in printed.split("\n\n", 1))
    assert groups[0].split() == ["GROUP", "PARTITIONS", "LAG", "NOT", "KNOWN"]
    for line in groups[1:]:
        lags = [row["lag"] for row in found if row["group"] == line.split()[0]]
        known = [lag for lag in lags if lag is not None]
        assert line.split()[1:] == [str(len(lags)), str(sum(known)) if known else "-", str(len(lags) - len(known))]
    assert [line.split()[0] for line in groups[1:]] == sorted({row["group"] for row in found})
    assert partitions[0] == "dashboard"
    assert "shop-events-2              25      569  544  -" in printed
    assert "shop-orders-1               -       94    -  fraud-check-1-" in printed


def test_lines_of_lag_are_limited_and_the_rest_is_counted(tmp_path: Path) -> None:
    partitions = 30
    committed_offsets = {("a", number): 1 for number in range(partitions)}
    logs = str(write_shop(tmp_path / "logs", {f"g{number:02d}": committed_offsets for number in range(21)}))
    shown = on_a_terminal(100, "groups", logs, "--lag")
    assert "(1 more group: --limit shows them)" in shown
    assert "(610 more partitions: --limit shows them)" in shown
    limited = run("groups", logs, "--lag", "--limit", "2").stdout
    assert [line.split()[0] for line in limited.splitlines()[1:3]] == ["g00", "g01"]
    assert "(628 more partitions" in limited
    assert "more" not in run("groups", logs, "--lag").stdout


def test_options_may_come_before_the_path_and_choose_groups(shop: Path) -> None:
    assert {row["group"] for row in rows("groups", "--lag", "--group", "h", shop)} == {"h"}
    assert {row["group"] for row in rows("groups", "--lag", shop)} == {"g", "h"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--lag", "--offsets"], "--lag shows where groups are now"),
        (["--lag", "--history"], "--lag shows where groups are now"),
        (["--group", "g"], "--group chooses what --lag shows"),
        (["--limit", "2"], "--limit is for the tables of --lag"),
        (["--lag", "--json", "--limit", "2"], "--limit is for the tables of --lag"),
        (["--lag", "--group", "gg"], "no group 'gg': did you mean 'g'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(shop: Path, options: list[str], told: str) -> None:
    ran = run("groups", shop, *options)
    assert ran.exit_code == 2
    assert told in ran.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--all-topics", "--to-earliest"], {("a", 0): 0, ("b", 0): 0}),
        (["--all-topics", "--to-latest"], {("a", 0): 100, ("b", 0): 30}),
        (["--all-topics", "--shift-by", "-5"], {("a", 0): 35, ("b", 0): 0}),
        (["--topic", "b", "--to-offset", "7"], {("a", 0): 40, ("b", 0): 7}),
        (["--topic", "a:1,0", "--to-offset", "7"], {("a", 0): 7, ("a", 1): 7, ("b", 0): 5}),
        (["--topic", "a:1", "--topic", "a", "--to-offset", "7"], {("a", 0): 7, ("a", 1): 7, ("b", 0): 5}),
        (["--topic", "a", "--to-datetime", "1970-01-01T00:00:01.042Z"], {("a", 0): 42, ("a", 1): 42, ("b", 0): 5}),
        (["--topic", "a:0", "--to-datetime", "1042"], {("a", 0): 42, ("b", 0): 5}),
    ],
)
def test_offsets_are_set_when_it_is_said_twice(
    shop: Path, options: list[str], expected: dict[tuple[str, int], int]
) -> None:
    before = committed(shop)
    dry = rows("groups", "set", shop, "--group", "g", *options)
    assert committed(shop) == before
    done = rows("groups", "set", shop, "--group", "g", *options, "--execute")
    assert done == dry
    assert committed(shop) == expected
    assert [wrong for row in done for wrong in disagreements(row, ROWS["groups set"]["an offset"])] == []


def test_offsets_are_read_from_a_file(shop: Path) -> None:
    file = shop.parent / "offsets.csv"
    file.write_text("a,1,11\r\n\n b , 0 , 12\n")
    ran = run("groups", "set", shop, "--group", "g", "--from-file", file, "--execute")
    assert ran.exit_code == 0
    assert committed(shop) == {("a", 0): 40, ("a", 1): 11, ("b", 0): 12}
    for text, told in (("a,1", "line 1 of"), ("a,0,1\na,x,1", "line 2 of"), ("", "has no line"), ("a,0,-1", "line 1")):
        file.write_text(text)
        ran = run("groups", "set", shop, "--group", "g", "--from-file", file)
        assert (ran.exit_code, told in ran.stderr) == (2, True), text


def test_table_says_what_was_done_or_would_be(shop: Path) -> None:
    command = ("groups", "set", shop, "--group", "g", "--topic", "a:0", "--to-latest")
    assert run(*command).stdout.splitlines()[-1].endswith("nothing was changed, --execute writes them")
    *_, row, last = run(*command, "--execute").stdout.splitlines()
    assert row.split() == ["a-0", "40", "100"]
    assert last.startswith("1 offset of group g set, in ")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--topic", "a"], "say where to set the offsets: --to-offset, --to-earliest"),
        (["--topic", "a", "--to-latest", "--shift-by", "1"], "--to-latest and --shift-by both say where"),
        (["--to-latest"], "say whose offsets to set"),
        (["--to-latest", "--topic", "a", "--all-topics"], "say whose offsets to set"),
        (["--to-latest", "--topic", "a:x"], "--topic 'a:x' is neither"),
        (["--to-latest", "--topic", ":1"], "--topic ':1' is neither"),
        (["--to-datetime", "yesterday", "--topic", "a"], "--to-datetime 'yesterday' is neither"),
        (["--from-file", "/nowhere.csv"], "no file is there"),
        (["--to-latest", "--topic", "c"], "no topic 'c'"),
    ],
)
def test_wrong_options_are_refused_and_change_nothing(shop: Path, options: list[str], told: str) -> None:
    ran = run("groups", "set", shop, "--group", "g", *options, "--execute")
    assert ran.exit_code == 2
    assert told in ran.stderr
    assert committed(shop) == {("a", 0): 40, ("b", 0): 5}


def test_group_with_a_member_is_set_by_force_only(tmp_path: Path) -> None:
    command = ("groups", "set", EXAMPLES, "--group", "fraud-check", "--topic", "shop-orders", "--to-earliest")
    refused = run(*command)
    assert refused.exit_code == 2
    assert "has members" in refused.stderr
    assert [row["new_offset"] for row in rows(*command, "--force")] == [0, 0]


def test_help_is_of_the_command() -> None:
    assert "--to-datetime" in run("groups", "set", "--help").stdout
    assert "--lag" in run("groups", "--help").stdout
