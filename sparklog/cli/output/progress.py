"""Shows a command's progress on a terminal, once it has taken longer than a second."""

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
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from sparklog.cli.output import render
from sparklog.cli.output.text import printable
from sparklog.jobs.run.job import Amount, Watch

_SHOWN_AFTER_SECONDS: Final = 1.0

Advance = Callable[[str, int], None]


@contextmanager
def progress(
    total: int | None, unit: Literal["bytes", "partitions", "offsets", "kernels"] = "bytes", *, is_hidden: bool = False
) -> Iterator[Advance]:
    """Show a bar on stderr, if that is a terminal.

    Parameters
    ----------
    total : int or None
        The amount of work in units; None if unknown.
    is_hidden : bool
        Whether to show nothing, because the command's output already goes to the terminal.

    Yields
    ------
    callable
        Advances the bar by a number of units, and shows the name of the current item.
    """
    bar = _bar(*_amounts(total, unit), is_hidden=is_hidden)
    task = bar.add_task("", total=total)
    with _shown(bar):
        yield lambda name, more: bar.update(task, advance=more, description=printable(name))


@contextmanager
def job_progress(verb: str, *, has_records: bool = True) -> Iterator[Watch]:
    """Show a job's progress on stderr: bytes, their rate, and the time that is left.

    Parameters
    ----------
    verb : str
        The name of the work, such as "exporting".
    has_records : bool
        Whether to count records, too.
    """
    records = [TextColumn("{task.fields[records]:,} records")] if has_records else []
    bar = _bar(*_amounts(0, "bytes"), *records)
    task = bar.add_task(verb, total=None, records=0)
    with _shown(bar):
        yield _JobBar(bar, task)


class _JobBar:
    """Moves a bar as a job proceeds."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task, self._records = bar, task, 0

    def planned(self, tasks: int, size_bytes: int) -> None:  # noqa: ARG002
        self._bar.update(self._task, total=size_bytes)

    def advanced(self, name: str, more: Amount) -> None:  # noqa: ARG002
        self._records += more.records
        self._bar.update(self._task, advance=more.size_bytes, records=self._records)


def _bar(*amounts: ProgressColumn, is_hidden: bool = False) -> Progress:
    console = render.stderr()
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *amounts,
        console=console,
        transient=True,
        disable=is_hidden or not console.is_terminal,
    )


@contextmanager
def _shown(bar: Progress) -> Iterator[None]:
    timer = Timer(_SHOWN_AFTER_SECONDS, bar.start)
    if not bar.disable:
        timer.start()
    try:
        yield
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
