"""Prints for a person or a program; this is the only module that prints.

Data goes to stdout, as lines of JSON or as a table; errors, warnings and progress go to stderr. Colours and truncation
are for terminals only: output to a pipe or a file is plain and whole.
"""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from sparklog.cli.output.text import printable, terminal_safe
from sparklog.errors import InvalidOptionError
from sparklog.storage.process import discard_output

Row = Mapping[str, Any]

_PLAIN_WIDTH: Final = 100_000
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def put_rows(rows: Iterable[Row]) -> None:
    """Print one JSON object per row.

    Bytes that are UTF-8 are text under their own name; others are base64 under the name with the suffix ``_base64``.
    """
    for row in rows:
        put_whole(json.dumps(_jsonable(row), ensure_ascii=False, separators=(",", ":")) + "\n")


def put_whole(data: str | memoryview, *, is_raw: bool = False) -> None:
    """Write text or bytes unchanged, except that a terminal gets control characters of non-raw data as JSON escapes."""
    if sys.stdout.isatty() and not is_raw:
        data = terminal_safe(data if isinstance(data, str) else bytes(data).decode())
    if isinstance(data, str):
        sys.stdout.write(data)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    if sys.stdout.isatty():
        sys.stdout.flush()


def put_lines(lines: Iterable[str]) -> None:
    """Write lines; a terminal gets them cut at its edge."""
    console = _stdout()
    for line in lines:
        if console.is_terminal and cell_len(line) > console.width:
            line = set_cell_size(line, console.width - 1) + "…"
        sys.stdout.write(line + "\n")


def put_texts(*lines: Text, folds: bool = False) -> None:
    """Print lines with their styles; with ``folds``, long lines are broken between words."""
    console = _stdout()
    for line in lines:
        console.print(line, soft_wrap=not folds)


def flushed() -> bool:
    """Flush the output, and return whether its reader is still there."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        # Nobody reads the rest of the output. Python would try to write it when it exits, and complain.
        for stream in (sys.stdout, sys.stderr):
            discard_output(stream)
        return False
    return True


def is_terminal() -> bool:
    """Return whether data goes to a terminal."""
    return _stdout().is_terminal


def width() -> int:
    """Return the width of a line of output."""
    return _stdout().width


def say(message: str = "") -> None:
    """Print a line that belongs to the data."""
    _stdout().print(Text(printable(message)))


def note(message: str) -> None:
    """Print a line about the data; on a terminal it is broken between words."""
    put_texts(Text(printable(message), style="dim"), folds=True)


def complain(kind: Literal["error", "warning", "note"], message: str, picture: str = "") -> None:
    """Print one line on stderr that begins with its kind, and below it the lines of a picture, if there is one."""
    stderr().print(Text.assemble((f"{kind}: ", _STYLES[kind]), printable(message)), soft_wrap=True)
    for line in picture.splitlines():
        stderr().print(Text(printable(line)), soft_wrap=True)


def confirmed(question: str) -> bool:
    """Ask on stderr, and return whether the answer is yes; raise `InvalidOptionError` if nobody answers."""
    stderr().print(Text(printable(f"{question} [y/N] ")), end="", soft_wrap=True)
    answer = sys.stdin.readline()
    if not answer:
        raise InvalidOptionError("nobody is there to be asked, and nothing was changed: --yes does not ask")
    return answer.strip().lower() in ("y", "yes")


def severity_style(severity: str) -> str:
    return _STYLES.get(severity, "")


class LogHandler(logging.Handler):
    """Prints each warning of the library once."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message in self._printed:
            return
        self._printed.add(message)
        complain("warning" if record.levelno < logging.ERROR else "error", message)


def _jsonable(row: Row) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                written[name] = value.decode()
            except UnicodeDecodeError:
                written[f"{name}_base64"] = base64.b64encode(value).decode()
        elif isinstance(value, list):
            written[name] = [_jsonable(each) if isinstance(each, dict) else each for each in value]
        else:
            written[name] = value
    return written


class _Console(Console):
    """A console that raises an error once its output is closed; the console of rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stderr() -> Console:
    """Return the console for errors and progress."""
    return _Console(stderr=True, highlight=False)


def _stdout() -> Console:
    console = _Console(highlight=False)
    return console if console.is_terminal else _Console(highlight=False, width=_PLAIN_WIDTH)
