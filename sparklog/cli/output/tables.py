"""Prints tables that fit the terminal: columns are shortened, then left out, then folded between words.

If data goes to a pipe or a file, every column is printed whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sparklog.cli.output import render
from sparklog.cli.output.render import Row
from sparklog.cli.output.text import counted, printable

Style = Callable[[Row], str]
Heading = Callable[[Row], str]

_GAP: Final = "  "
_CELL_WIDTH_MAX: Final = 40
_LAST_WIDTH_MIN: Final = 24
_ROWS_ON_TERMINAL: Final = 20
_WORDS: Final = re.compile(r"\S+\s*|\s+")
_PIECES_OF_NAMES: Final = re.compile(r"[^./_-]*[./_-]+|[^./_-]+")


def no_style(_: Row) -> str:
    """Give a row no style of its own."""
    return ""


def no_heading(_: Row) -> str:
    """Put all rows under one empty heading."""
    return ""


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, how its text is made from a row, and how it fits a narrow terminal.

    Attributes
    ----------
    folded_width : int or None
        The width to which it may be folded; None if a cell takes one line. It is folded between words; a word longer
        than the column is wide, such as a name or a path, is folded at its dots, dashes and slashes.
    widths : tuple of int
        Widths to which the column may be cut, the widest first.
    cut_mark : str
        The text at the end of a cell that is cut.
    rank : int
        The order of leaving out: the column with the highest rank first; columns of rank 0 stay.
    """

    title: str
    text: Callable[[Row], str]
    align: Literal["left", "right"] = "left"
    folded_width: int | None = None
    widths: tuple[int, ...] = ()
    cut_mark: str = "…"
    rank: int = 0


@dataclass(frozen=True)
class _Fitted:
    """The shown columns, by number, and the width of each."""

    columns: Sequence[Column]
    widths: dict[int, int]

    def line(self, cells: Sequence[str]) -> str:
        padded = []
        for number, width in self.widths.items():
            column, cell = self.columns[number], cells[number]
            if column.widths and cell_len(cell) > width:
                cell = _cut(cell, width, column.cut_mark)
            padding = " " * max(width - cell_len(cell), 0)
            padded.append(padding + cell if column.align == "right" else cell + padding)
        return _GAP.join(padded).rstrip()

    def lines(self, cells: Sequence[str]) -> list[str]:
        """Return the lines of a row; some of its cells may take several."""
        folded = [
            _folded(cell, self.widths[number]) if column.folded_width and number in self.widths else [cell]
            for number, (cell, column) in enumerate(zip(cells, self.columns, strict=True))
        ]
        return [self.line(parts) for parts in zip_longest(*folded, fillvalue="")]

    @property
    def titles(self) -> str:
        return self.line([column.title for column in self.columns])

    @property
    def left_out(self) -> list[str]:
        return [column.title for number, column in enumerate(self.columns) if number not in self.widths]


def table(
    columns: Sequence[Column], rows: Sequence[Row], style: Style = no_style, heading: Heading = no_heading
) -> None:
    """Print a table of all rows at once.

    Parameters
    ----------
    columns : sequence of Column
    rows : sequence of dict
    style : callable
        Gives the style of a row's first cell.
    heading : callable
        Gives the heading of a row; it is printed above the rows whenever it changes.
    """
    cells = [_cells(columns, row) for row in rows]
    natural = [max(map(cell_len, [column.title, *texts])) for column, *texts in zip(columns, *cells, strict=True)]
    least = [min(width, column.folded_width or width) for column, width in zip(columns, natural, strict=True)]
    fitted = _fit(columns, natural, least)
    lines = [Text(fitted.titles, style="bold")]
    for above, group in groupby(zip(rows, cells, strict=True), lambda each: printable(heading(each[0]))):
        if above:
            # The titles follow the first heading.
            lines.insert(len(lines) if len(lines) > 1 else 0, Text("\n" * (len(lines) > 1) + above, style="bold cyan"))
        for row, texts in group:
            first, *more = map(Text, fitted.lines(texts))
            first.stylize(style(row), 0, len(texts[0]))
            lines += [first, *more]
    render.put_texts(*lines)
    if fitted.left_out:
        render.note(f"(a wider terminal or --json shows more: {', '.join(fitted.left_out)})")


def show_rows(columns: Sequence[Column], rows: Sequence[Row], *, as_json: bool) -> None:
    """Print rows as JSON, or as a table if there are any."""
    if as_json:
        render.put_rows(rows)
    elif rows:
        table(columns, rows)


def limited_table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    limit: int | None,
    *,
    noun: str,
    remedy: str = "--limit shows them",
    heading: Heading = no_heading,
) -> None:
    """Print a table of the first rows, if there are any, and below it how many are left out.

    Parameters
    ----------
    limit : int or None
        The largest number of rows; by default 20 on a terminal, and all for a pipe or a file.
    noun : str
        The noun for a row.
    remedy : str
        How to see the rows that are left out.
    """
    most = (_ROWS_ON_TERMINAL if render.is_terminal() else len(rows)) if limit is None else limit
    if rows[:most]:
        table(columns, rows[:most], heading=heading)
    if rows[most:]:
        render.note(f"({counted(len(rows) - most, f'more {noun}')}: {remedy})")


class StreamedTable:
    """A table printed piece by piece, for any number of rows; a row takes one line.

    Parameters
    ----------
    columns : sequence of Column
        The columns; on a terminal the last one takes the rest of the line, and is cut there.
    heading : callable
        Gives the heading of a row. Whenever it changes, it is printed above the rows, with the titles, and the rows
        passed then decide the widths of the columns.
    """

    def __init__(self, columns: Sequence[Column], heading: Heading) -> None:
        self._columns = columns
        self._heading = heading
        self._above: str | None = None
        self._fitted = _Fitted(columns, {})

    def put(self, rows: Iterable[Row]) -> None:
        """Print some rows."""
        for above, group in groupby(rows, lambda row: printable(self._heading(row))):
            cells = [_cells(self._columns, row) for row in group]
            if above != self._above:
                self._begin(above, cells)
            render.put_lines(map(self._fitted.line, cells))

    def _begin(self, above: str, cells: Sequence[Sequence[str]]) -> None:
        self._above = above
        natural = [
            max(len(column.title), *(min(cell_len(each[number]), _CELL_WIDTH_MAX) for each in cells))
            for number, column in enumerate(self._columns)
        ]
        least = [*natural[:-1], min(natural[-1], _LAST_WIDTH_MIN)]
        self._fitted = _fit(self._columns, natural, least)
        headings = [Text(above, style="bold cyan")] if above else []
        render.put_texts(*headings, Text(self._fitted.titles, style="bold"))


def _cells(columns: Sequence[Column], row: Row) -> list[str]:
    """Return the text of each cell of a row, with the control characters in it escaped."""
    return [printable(column.text(row)) for column in columns]


def _fit(columns: Sequence[Column], natural: Sequence[int], least: Sequence[int]) -> _Fitted:
    """Decide which columns a terminal shows, and how wide: shorten some, then leave some out, then fold others."""
    room = render.width()
    widths = dict(enumerate(least))
    steps: list[dict[int, int]] = [
        {number: column.widths[step] for number, column in enumerate(columns) if step < len(column.widths)}
        for step in range(max(len(column.widths) for column in columns))
    ]
    leaving = sorted((number for number, column in enumerate(columns) if column.rank), key=lambda n: -columns[n].rank)
    while _total(widths) > room and (steps or leaving):
        if steps:
            widths |= {number: min(width, widths[number]) for number, width in steps.pop(0).items()}
        else:
            del widths[leaving.pop(0)]
    for number in widths:
        if least[number] < natural[number]:
            widths[number] += max(0, min(natural[number] - widths[number], room - _total(widths)))
    return _Fitted(columns, widths)


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _folded(text: str, width: int) -> list[str]:
    """Fold a text between words; cut only a piece of a name that is longer than a line."""
    lines = [""]
    for word in _WORDS.findall(text):
        for piece in [word] if cell_len(word.rstrip()) <= width else _PIECES_OF_NAMES.findall(word):
            if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
            while cell_len(lines[-1].rstrip()) > width:
                whole, lines[-1] = lines[-1], set_cell_size(lines[-1], width)
                lines.append(whole[len(lines[-1]) :])
    return [line.rstrip() for line in lines]


def _cut(text: str, width: int, mark: str) -> str:
    return set_cell_size(text, max(width - cell_len(mark), 0)).rstrip() + mark
