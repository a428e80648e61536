"""Prints for a person or a program; this is the only module that prints.

Data goes to stdout, as lines of JSON or as a table; errors, warnings and progress go to stderr. Colours and truncation
are for terminals only: output to a pipe or a file is plain and whole.
"""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any, Final, Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from sparklog.storage.process import discard_output

Row = Mapping[str, Any]
Style = Callable[[Row], str]

_PLAIN_WIDTH: Final = 100_000
_ROWS_MEASURED: Final = 200
_CELL_WIDTH_MAX: Final = 40
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def no_style(_: Row) -> str:
    """Let a row look like any other."""
    return ""


def no_heading(_: Row) -> str:
    """Let all rows belong together."""
    return ""


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, how its text is made from a row, and whether a narrow terminal may fold it."""

    title: str
    text: Callable[[Row], str]
    align: Literal["left", "right"] = "left"
    folds: bool = False


def json_lines(rows: Iterable[Row]) -> None:
    """Print a JSON object a row.

    Bytes that are UTF-8 are text under their own name; others are base64 under the name with ``_base64`` behind it.
    """
    for row in rows:
        sys.stdout.write(json.dumps(_jsonable(row), ensure_ascii=False, separators=(",", ":")) + "\n")
        if sys.stdout.isatty():
            sys.stdout.flush()


def flushed() -> bool:
    """Flush the output, and tell whether somebody still reads it."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        # The rest of the output has nowhere to go. Python would try to write it when it ends, and complain.
        for stream in (sys.stdout, sys.stderr):
            discard_output(stream)
        return False
    return True


def is_terminal() -> bool:
    """Tell whether data goes to a terminal."""
    return _stdout().is_terminal


def table(
    columns: Sequence[Column], rows: Sequence[Row], style: Style = no_style, heading: Callable[[Row], str] = no_heading
) -> None:
    """Print a table of all rows at once; where a terminal is too narrow, the columns that may be folded are.

    Parameters
    ----------
    columns : sequence of Column
    rows : sequence of dict
    style : callable
        Gives the style of a row's first cell.
    heading : callable
        Gives the heading of a row, which is printed above the rows whenever it changes.
    """
    console = _stdout()
    cells = [[column.text(row) for column in columns] for row in rows]
    widths = [max(map(cell_len, [column.title, *texts])) for column, *texts in zip(columns, *cells, strict=True)]
    groups = [list(group) for _, group in groupby(zip(rows, cells, strict=True), key=lambda each: heading(each[0]))]
    for number, group in enumerate(groups or [[]]):
        grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=number == 0)
        for column, width in zip(columns, widths, strict=True):
            least = None if column.folds else width
            grid.add_column(column.title, justify=column.align, overflow="fold", min_width=least)
        if number == 0 and groups and heading(rows[0]):
            console.print(Text(heading(rows[0]), style="bold cyan"))
        elif number and heading(group[0][0]):
            console.print(Text("\n" + heading(group[0][0]), style="bold cyan"))
        for row, texts in group:
            grid.add_row(Text(texts[0], style=style(row)), *(Text(text) for text in texts[1:]))
        console.print(grid)


def stream(columns: Sequence[Column], rows: Iterator[Row], heading: Callable[[Row], str]) -> None:
    """Print a table row by row; the first rows decide how wide the columns are.

    Parameters
    ----------
    columns : sequence of Column
        The last one takes the rest of the line; on a terminal it is cut there.
    rows : iterator of dict
    heading : callable
        Gives the heading of a row, which is printed above the rows whenever it changes.
    """
    first: list[tuple[Row, list[str]]] = []
    lines = ((row, [column.text(row) for column in columns]) for row in rows)
    try:
        first.extend(islice(lines, _ROWS_MEASURED))
    finally:
        # Where the damage of a log ends the rows, those before it are printed all the same.
        widths = [
            max([len(column.title), *(min(cell_len(cells[n]), _CELL_WIDTH_MAX) for _, cells in first)])
            for n, column in enumerate(columns)
        ]
        above = _put_lines(first, columns, widths, heading, None)
    _put_lines(lines, columns, widths, heading, above)


def _put_lines(
    lines: Iterable[tuple[Row, list[str]]],
    columns: Sequence[Column],
    widths: Sequence[int],
    heading: Callable[[Row], str],
    above: str | None,
) -> str | None:
    """Print lines of a stream, and return the heading of the last one."""
    console = _stdout()
    for row, cells in lines:
        if above != (above := heading(row)):
            if above:
                console.print(Text(above, style="bold cyan"), soft_wrap=True)
            console.print(Text(_line([column.title for column in columns], columns, widths), style="bold"))
        _put(console, _line(cells, columns, widths))
    return above


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        padding = " " * max(width - cell_len(cell), 0)
        padded.append(padding + cell if column.align == "right" else cell + padding)
    return "  ".join(padded).rstrip()


def _put(console: Console, line: str) -> None:
    if console.is_terminal and cell_len(line) > console.width:
        line = set_cell_size(line, console.width - 1) + "…"
    sys.stdout.write(line + "\n")


def say(message: str = "") -> None:
    """Print a line that belongs to the data."""
    _stdout().print(Text(message))


def complain(kind: Literal["error", "warning", "note"], message: str) -> None:
    """Print one line on stderr, its kind first."""
    console = _stderr()
    console.print(Text.assemble((f"{kind}: ", _STYLES[kind]), printable(message)), soft_wrap=True)


def severity_style(severity: str) -> str:
    return _STYLES.get(severity, "")


@contextmanager
def progress(
    total: int, unit: Literal["bytes", "partitions", "kernels"] = "bytes"
) -> Iterator[Callable[[str, int], None]]:
    """Show a progress bar on a terminal; gives the function that advances it by a number of units, under a name."""
    console = _stderr()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *(
            [DownloadColumn(binary_units=True), TransferSpeedColumn()]
            if unit == "bytes"
            else [MofNCompleteColumn(), TextColumn(unit)]
        ),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total)

        def advance(name: str, more: int) -> None:
            bar.update(task, advance=more, description=name)

        yield advance


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


def time_text(timestamp: int | None) -> str:
    """Write ms since the epoch as ISO 8601, UTC; as the number where such a date would be past the year 9999."""
    if timestamp is None or timestamp < 0:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except OverflowError:
        return str(timestamp)


def bytes_text(count: int) -> str:
    """Write a number of bytes with a unit."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def data_text(data: bytes | None) -> str:
    """Write a key or a value: text where it is UTF-8, else hexadecimal; ``null``, and ``""`` for an empty one."""
    if data is None:
        return "null"
    if not data:
        return '""'
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def printable(text: str) -> str:
    """Write control characters, which could move a terminal's cursor or worse, as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


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
    """A console that raises where nobody reads its output any more; the console of rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _stdout() -> Console:
    console = _Console(highlight=False)
    return console if console.is_terminal else _Console(highlight=False, width=_PLAIN_WIDTH)


def _stderr() -> Console:
    return _Console(stderr=True, highlight=False)
