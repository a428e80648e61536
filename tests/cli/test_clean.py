"""``clean`` at the terminal: what goes, what would go, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.cli.fields import ROWS
from tests.clean.logs import ALL, values, write
from tests.cli.test_fields import disagreements
from tests.cli.test_main import lines, run

OLD = ("--retention-ms", "3600000", "--processes", "1")
(OF,) = ROWS["clean"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path / "events-0")
    write(tmp_path / "orders-0")
    return tmp_path


def test_table_says_what_would_go_and_then_what_went(directory: Path) -> None:
    would = run("clean", directory, *OLD, "--dry-run")
    assert would.exit_code == 0
    assert would.stdout.splitlines()[0].split()[:6] == ["PARTITION", "START", "END", "SEGMENTS", "OFFSETS", "DROPPED"]
    assert would.stdout.splitlines()[1].split()[:5] == ["events-0", "120", "120", "6", "120"]
    assert would.stdout.endswith(" of 2 partitions would go\n")
    assert values(directory / "events-0") == ALL
    done = run("clean", directory, *OLD)
    assert done.stdout.splitlines()[:-1] == would.stdout.splitlines()[:-1]
    assert " of 2 partitions went in " in done.stdout
    assert values(directory / "events-0") == []
    assert run("clean", directory, *OLD).stdout == "nothing to clean in 2 partitions\n"


def test_json_has_the_fields_that_are_said(directory: Path) -> None:
    found = lines("clean", directory, *OLD, "--partitions", "orders:0", "--json")
    assert [(row["topic"], row["partition"], row["dropped_segments"]) for row in found] == [("orders", 0, 6)]
    assert [wrong for row in found for wrong in disagreements(row, ROWS["clean"][OF])] == []


def test_damage_ends_with_1_and_the_others_are_cleaned(directory: Path) -> None:
    log = directory / "events-0" / f"{100:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    result = run("clean", directory, *OLD)
    assert result.exit_code == 1
    assert str(log) in result.stderr
    assert "the other partitions were cleaned" in result.stderr
    assert values(directory / "orders-0") == []


def test_partition_that_is_none_is_refused(directory: Path) -> None:
    result = run("clean", directory, "--partitions", "events")
    assert result.exit_code == 2
    assert "--partitions 'events' is not topic:partition" in result.stderr
