"""Work that does the same to each of some pieces, and commits nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from sparklog.jobs.run.job import PiecesTask, PieceT, Report
from sparklog.jobs.run.options import TASK_BYTES
from sparklog.jobs.run.shares import task_slices

_THREADS_BYTES_MAX: Final = 1 << 33
_FoundT = TypeVar("_FoundT")


@dataclass(frozen=True)
class PiecesWork(Generic[PieceT, _FoundT]):
    """Work on pieces whose tasks wait for files, so that threads need not wait for each other.

    Attributes
    ----------
    act : callable
        Works on one piece in a worker, and returns what the task yields for it.
    """

    pieces: tuple[PieceT, ...]
    act: Callable[[PieceT, Report], _FoundT]
    workers: int
    task_bytes: int = TASK_BYTES

    threads_bytes_max: ClassVar[int] = _THREADS_BYTES_MAX

    def plan(self) -> list[PiecesTask[PieceT]]:
        slices = task_slices([each.log_bytes for each in self.pieces], self.task_bytes, self.workers)
        return [PiecesTask(number, self.pieces[rows]) for number, rows in enumerate(slices)]

    def run(self, task: PiecesTask[PieceT], report: Report) -> Iterator[_FoundT]:
        for piece in task.pieces:
            yield self.act(piece, report)
