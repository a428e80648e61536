"""Runs the command line in this process, by commands that are made once: making them takes more than running them."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from click.testing import CliRunner, Result

from sparklog.cli.commands.main import app

# Of a class of click, or of the copy of click that some versions of typer have.
COMMANDS: Final[Any] = typer.main.get_command(app)


def run(*arguments: Any, answer: str | bytes = "") -> Result:
    """Run a command, with an answer to what it asks; return what it prints, and how it ends."""
    return CliRunner().invoke(COMMANDS, [str(argument) for argument in arguments], input=answer)


def lines(*arguments: str | Path) -> list[dict[str, Any]]:
    """Run a command with ``--json``, and return its rows."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


class Terminal(io.TextIOWrapper):
    """What is written to it is kept; it says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(columns: int, *arguments: str) -> str:
    """Run the command on a terminal, and return what it shows."""
    written = io.BytesIO()
    terminal = Terminal(written, "utf-8", errors="backslashreplace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stdout", terminal)
        with pytest.raises(SystemExit):
            COMMANDS(arguments, prog_name="sparklog")
    terminal.flush()
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue().decode()).replace("\r", "")
