"""SIGKILL to a compaction at any moment: no key loses its last value, and the next cleaning finishes it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cleaner.logs import findings, names
from tests.cleaner.test_compaction import CONFIG, Making, rows, run, write

KILLS = 8
CONFIG_OF_GROUPS = replace(CONFIG, segment_bytes=3_000)


def compacting(folder: Path) -> int:
    """Compact a log in a process of its own, which has all code loaded; its id."""
    child = os.fork()
    if not child:
        try:
            run(folder, config=CONFIG_OF_GROUPS)
        finally:
            os._exit(0)
    return child


@pytest.mark.filterwarnings("ignore")
def test_kill_at_any_moment_costs_no_key_its_last_value(tmp_path: Path) -> None:
    made = tmp_path / "made" / "events-0"
    write(made, Making(11).make(150), segment_bytes=1_000)
    before = rows(made)
    whole = tmp_path / "whole" / "events-0"
    seconds = []
    for _ in range(2):
        shutil.rmtree(whole.parent, ignore_errors=True)
        shutil.copytree(made, whole)
        began = time.monotonic()
        os.waitpid(compacting(whole), 0)
        seconds.append(time.monotonic() - began)
    expected, outcomes = rows(whole), []
    for turn in range(KILLS):
        folder = tmp_path / f"{turn}" / "events-0"
        shutil.copytree(made, folder)
        child = compacting(folder)
        time.sleep(min(seconds) * turn / KILLS)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seen = rows(folder)
        outcomes.append(len(seen))
        assert [row for row in before if row in set(seen)] == seen
        assert set(seen) >= set(expected)
        run(folder, config=CONFIG_OF_GROUPS)
        assert rows(folder) == expected
        assert findings(folder) == []
        assert not [name for name in names(folder) if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert len(set(outcomes)) > 1
