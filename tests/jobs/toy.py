"""A job that moves nothing: its tasks sleep, fail and die as they are told."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparklog.errors import CorruptBatchError, StorageError
from sparklog.jobs.run.job import Amount, PartlyDoneError, Report

MEETING = threading.Barrier(2)


@dataclass(frozen=True)
class ToyTask:
    name: str
    follows: int | None = None
    does: str = "well"
    size_bytes: int = 10


@dataclass(frozen=True)
class ToyJob:
    """Writes what is committed into a file, a line a commit."""

    path: Path
    tasks: Sequence[ToyTask]
    commits_as_it_goes: bool = True
    threads_bytes_max: int = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self.path.open("a") as file:
                file.write("let go\n")

    def plan(self) -> Sequence[ToyTask]:
        return self.tasks

    def run(self, task: ToyTask, report: Report) -> str:
        report(Amount(task.size_bytes, 1))
        if task.does == "sleep":
            time.sleep(60)
        if task.does in ("wait", "full"):
            # Those before it are done meanwhile, also where each has to wait for a worker to start.
            time.sleep(1.0 if task.does == "wait" else 4.0)
        if task.does == "meet":
            # Comes back only if the other one is at work in the same process.
            MEETING.wait(30)
        if task.does == "damaged":
            raise CorruptBatchError("a flipped bit", path=f"/logs/{task.name}", position=7, offset=3)
        if task.does == "partly":
            error = CorruptBatchError("a flipped bit", path=f"/logs/{task.name}", position=7, offset=3)
            error.add_note(f"in a part of {task.name}")
            raise PartlyDoneError(f"{task.name}-in-part", [error])
        if task.does == "full":
            raise StorageError("the disk is full")
        if task.does == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if task.does == "wrong":
            raise KeyError(lambda: None)
        return task.name

    def commit(self, results: Sequence[str]) -> None:
        with self.path.open("a") as file:
            file.write(" ".join(results) + "\n")
