"""Damages by which readers and writers were once misled, one of each kind: they no longer do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fuzz.cases import Case, Workbench

FOUND: Final = [json.loads(line) for line in Path(__file__).with_name("found.jsonl").read_text().splitlines()]

FOUND_HOLDS: Final = True
"""Whether all of them are fixed; until then they are in the long run only (``pytest tests/fuzz -m fuzz``)."""


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{number} {row['what']}", marks=[] if FOUND_HOLDS else [pytest.mark.fuzz])
        for number, row in enumerate(FOUND)
    ],
)
def test_damage_misleads_nobody_any_more(tmp_path: Path, row: dict[str, Any]) -> None:
    assert [verdict.finding for verdict in Workbench(tmp_path).verdicts(Case.from_json(row))] == [None]
