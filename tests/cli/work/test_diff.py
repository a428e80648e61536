"""``sparklog diff``: its lines, its JSON and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.cli.output.fields import DIFF
from tests.build import write_partition
from tests.log.logs import batch, batches
from tests.terminal import lines, run


@pytest.fixture
def replicas(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        write_partition(folder / "events-0", batches(5))
        write_partition(folder / "events-1", batches(5 if folder.name == "one" else 4))
        write_partition(folder / "events-2", [batch(0, producer_id=1 if folder.name == "one" else 2), *batches(4, 10)])
    return folders


def test_differences_end_with_1_and_are_printed_below_a_line_for_each_partition(replicas: list[Path]) -> None:
    result = run("diff", *replicas)
    assert result.exit_code == 1
    printed = [line.split() for line in result.stdout.splitlines()]
    assert ["events-0", "50", "0", "0", "0", "0", "0"] in printed
    assert ["events-1", "40", "10", "0", "0", "0", "1"] in printed
    assert ["events-2", "40", "0", "10", "0", "0", "0"] in printed
    assert ["events-1", "40", "50", "missing", "A,missing"] in printed
    assert result.stdout.splitlines()[-1].endswith("in 3 partitions compared: 3 differences")


def test_equal_directories_end_with_0(replicas: list[Path]) -> None:
    result = run("diff", replicas[0] / "events-0", replicas[1] / "events-0")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].endswith("in 1 partition compared: no difference")


def test_json_has_every_row_and_a_limit_changes_no_exit_status(replicas: list[Path]) -> None:
    result = run("diff", *replicas, "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert all(list(row) == [field.name for field in DIFF.fields] for row in rows)
    assert [(row["partition"], row["kind"]) for row in rows] == [
        *[(0, "equal"), (1, "equal"), (1, "missing"), (1, "end-offset"), (2, "divergent"), (2, "equal")],
    ]
    limited = run("diff", *replicas, "--json", "--limit", "1")
    assert (len(limited.stdout.splitlines()), limited.exit_code) == (1, 1)
    short = run("diff", *replicas, "--limit", "1")
    assert "... and 2 more" in short.stdout
    assert lines("diff", replicas[0] / "events-0", replicas[1] / "events-0") == rows[:1]


def test_what_cannot_be_compared_ends_with_2(replicas: list[Path]) -> None:
    for paths in ([replicas[0]], [replicas[0], replicas[0]], [replicas[0], "nowhere"]):
        result = run("diff", *paths)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
