"""Every work of `tests.bench.large` runs at a tiny size; limits and failures are told in the place of a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import large
from tests.bench.large_meter import Meter, Work, measured

_WORKS = [work for name, table in large.TABLES.items() if name != "spark" for work in table.works]
_SIZE = 5
"""More than that at which a work runs before it is measured."""


@pytest.mark.parametrize("work", _WORKS, ids=lambda work: work.__name__)
def test_work_does_all_of_its_steps(work: Work, tmp_path: Path) -> None:
    results = tmp_path / "steps.jsonl"
    work(Meter(results), tmp_path, 4)
    steps = [json.loads(line) for line in results.read_text().splitlines()]
    ended = [each["name"] for each in steps if each["figure"] is not None]
    assert set(ended) == {each["name"] for each in steps}
    assert [each for each in steps if each["note"] or each["count"] < 1] == []


def spend(meter: Meter, place: Path, size: int) -> None:
    with meter("short"):
        pass
    with meter("long"):
        while size == _SIZE:
            pass


def fail(meter: Meter, place: Path, size: int) -> None:
    with meter("failing"):
        if size == _SIZE:
            raise ValueError("no luck")


def test_row_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    steps, error = measured(spend, tmp_path, _SIZE, 0.3)
    assert [(step.name, step.figure is None, step.note) for step in steps.values()] == [
        ("short", False, ""),
        ("long", True, "> 0.3 s"),
    ]
    assert error == ""


def test_row_that_fails_is_told_with_its_error(tmp_path: Path) -> None:
    steps, error = measured(fail, tmp_path, _SIZE, 60)
    assert [step.note for step in steps.values()] == ["fails: ValueError"]
    assert error == "ValueError: no luck"


def test_table_has_the_costs_of_one_piece_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    large.main(["--only", "groups", "--sizes", "1,2"])
    printed = capsys.readouterr().out
    (row,) = [line for line in printed.splitlines() if "commits of one partition" in line]
    name, first, last, times, of, *calls = [cell.strip() for cell in row.strip("│ \n").split("│")]
    assert (name, of) == ("20 commits of one partition", "commit")
    cost = float(last.removesuffix(" s")) / float(first.removesuffix(" s"))
    assert float(times) == pytest.approx(cost, rel=0.05)
    assert all(float(each.replace(",", "")) > 0 for each in calls)
