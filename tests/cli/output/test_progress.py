"""Progress: shown on a terminal once something takes long, and nowhere else."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from sparklog.cli.output import progress as progress_module
from sparklog.cli.output import render
from sparklog.cli.output.progress import progress

DEADLINE_SECONDS = 30


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Have stderr be a terminal, and return what it shows."""
    written = io.StringIO()
    monkeypatch.setattr(render, "stderr", lambda: Console(file=written, force_terminal=True, width=80))
    return written.getvalue


def test_bar_is_shown_after_a_while_also_where_nothing_advances(
    shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_SHOWN_AFTER_SECONDS", 0.0)
    with progress(100, "offsets") as advance:
        advance("events-0", 25)
        until = time.monotonic() + DEADLINE_SECONDS
        while "25/100" not in shown() and time.monotonic() < until:
            time.sleep(0.01)
    assert "events-0" in shown()
    assert "25/100" in shown()
    assert "offsets" in shown()


def test_what_is_done_at_once_shows_no_bar(shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_SHOWN_AFTER_SECONDS", float(DEADLINE_SECONDS))
    with progress(100) as advance:
        advance("events-0", 100)
    assert "events-0" not in shown()


@pytest.mark.parametrize("total", [None, 10])
def test_bar_that_is_hidden_is_not_shown(
    total: int | None, shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_SHOWN_AFTER_SECONDS", 0.0)
    with progress(total, is_hidden=True) as advance:
        advance("events-0", 1)
    assert shown() == ""


def test_name_of_what_is_done_is_no_markup_and_moves_no_cursor(
    shown: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_SHOWN_AFTER_SECONDS", 0.0)
    with progress(100, "offsets") as advance:
        advance("[/red]\x1b]0;x", 25)
        until = time.monotonic() + DEADLINE_SECONDS
        while "25/100" not in shown() and time.monotonic() < until:
            time.sleep(0.01)
    assert "[/red]\\x1b]0;x" in shown()
