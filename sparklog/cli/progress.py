"""Shows on a terminal how far a command has come, once it takes longer than a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final, Literal

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from sparklog.cli import render

_SHOWN_AFTER_SECONDS: Final = 1.0

Advance = Callable[[str, int], None]


@contextmanager
def progress(
    total: int | None, unit: Literal["bytes", "partitions", "offsets", "kernels"] = "bytes", *, is_hidden: bool = False
) -> Iterator[Advance]:
    """Show a bar on stderr, where that is a terminal.

    Parameters
    ----------
    total : int or None
        How much there is to do; None where nobody knows.
    is_hidden : bool
        Whether nothing is shown, since the terminal shows what the command prints.

    Yields
    ------
    callable
        Advances the bar by a number of units, under the name of what is done now.
    """
    console = render.stderr()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *_amounts(total, unit),
        console=console,
        transient=True,
        disable=is_hidden or not console.is_terminal,
    )
    task = bar.add_task("", total=total)
    timer = Timer(_SHOWN_AFTER_SECONDS, bar.start)
    if not bar.disable:
        timer.start()
    try:
        yield lambda name, more: bar.update(task, advance=more, description=name)
    finally:
        timer.cancel()
        if not bar.disable:
            timer.join()
            bar.stop()


def _amounts(total: int | None, unit: str) -> list[ProgressColumn]:
    if total is None:
        return [TimeElapsedColumn()]
    if unit == "bytes":
        return [DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn()]
    return [MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn()]
