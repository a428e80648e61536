"""Defines the interface of a job, and drives jobs.

    held()            driver   keeps other runs out; finishes what a dead run has decided, removes its leftovers
    plan()            driver   -> tasks, small frozen values
    run(task)         worker   -> a result, a small frozen value; the files that it makes are staged
    commit(results)   driver   makes visible what tasks have staged, and records it in the ledger, at once

Work that changes nothing has only a plan and tasks, each a generator of findings; see `found_by`.

A runner runs the tasks: `sparklog.jobs.run.local` in processes of this machine, `sparklog.spark.runner` on a cluster.
After a kill at any point a rerun continues from what was committed, and repeats nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from sparklog.errors import (
    CorruptLogError,
    DataLossError,
    OutputNameError,
    SeglogError,
    UnreadableLogError,
    ValueDecodeError,
)

COMMIT_INTERVAL_MS: Final = 10_000
OF_ONE_PARTITION: Final = (CorruptLogError, DataLossError, OutputNameError, UnreadableLogError, ValueDecodeError)
"""Errors that keep one partition from being moved, but not the others."""


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of work done: bytes read, and records."""

    size_bytes: int = 0
    records: int = 0


class Task(Protocol):
    """A part of the work of a job; its pickle is small."""

    @property
    def name(self) -> str:
        """The name of the task in progress and errors: partitions and offsets, or files."""

    @property
    def size_bytes(self) -> int:
        """The bytes that the task reads, about."""

    @property
    def follows(self) -> int | None:
        """The number in the plan of the task that must be committed before this one; None if there is none."""


class TaskPiece(Protocol):
    """A part of a task."""

    @property
    def name(self) -> str:
        """The partition, with the range of offsets if the piece is not all of it."""

    @property
    def log_bytes(self) -> int:
        """The bytes of log in the piece, about."""


PieceT = TypeVar("PieceT", bound=TaskPiece)


@dataclass(frozen=True)
class PiecesTask(Generic[PieceT]):
    """Pieces that together are about the size of a task; ``number`` is the task's number in the plan."""

    number: int
    pieces: tuple[PieceT, ...]
    follows: int | None = None

    @property
    def name(self) -> str:
        return task_name([piece.name for piece in self.pieces])

    @property
    def size_bytes(self) -> int:
        return sum(piece.log_bytes for piece in self.pieces)


def task_name(names: Sequence[str]) -> str:
    """Return the name of a task with several parts: the first part's, and how many more it has."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT")
FoundT = TypeVar("FoundT")
DoneT = TypeVar("DoneT", covariant=True)

Report = Callable[[Amount], None]
"""Reports how much more a task has done."""


class Work(Protocol[TaskT, DoneT]):
    """Work that a runner runs: a small frozen value, which is pickled and sent to the workers.

    Attributes
    ----------
    threads_bytes_max : int
        Below this size of all tasks a few threads are faster than many processes, which must start first; a few threads
        are always faster than a few processes. It is 0 if Python itself does the work, since threads cannot run Python
        in parallel.
    """

    @property
    def threads_bytes_max(self) -> int: ...

    def plan(self) -> Sequence[TaskT]:
        """Return the tasks; the target of a job is held."""

    def run(self, task: TaskT, report: Report) -> DoneT:
        """Do a task, in a worker. Staged files are not visible."""


class Job(Work[TaskT, ResultT], Protocol[TaskT, ResultT]):
    """Work that changes a target.

    Attributes
    ----------
    commits_as_it_goes : bool
        Whether finished tasks are committed while others run. Otherwise all are committed at once, or none.
    """

    @property
    def commits_as_it_goes(self) -> bool: ...

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs out of the target, and remove at the end whatever was not committed."""

    def commit(self, results: Sequence[ResultT]) -> None:
        """Make visible what tasks have staged, in the order of the plan: once, or often if `commits_as_it_goes`."""


@dataclass(frozen=True)
class Finished:
    """A task was done."""

    task: int
    result: Any


@dataclass(frozen=True)
class Failed:
    """A task, or a part of it, was not done.

    Attributes
    ----------
    others : tuple of Exception
        Further errors of the same task.
    result : object or None
        The result of the part that was done, which is committed like the result of a whole task.
    """

    task: int
    error: Exception
    others: tuple[Exception, ...] = ()
    result: Any = None


class PartlyDoneError(Exception):
    """Raised by a task of several partitions if some of them are damaged.

    Parameters
    ----------
    result : object
        The result for the partitions that were done.
    errors : sequence of Exception
        The errors of the others, at least one, each with a note that names the partition.
    """

    def __init__(self, result: Any, errors: Sequence[Exception]) -> None:
        super().__init__(result, errors)
        self.result, self.errors = result, tuple(errors)


class Tasks(Generic[TaskT]):
    """Iterates over the numbered tasks of a plan for a runner, and leaves out tasks that follow a failed one.

    Attributes
    ----------
    count : int
        The number of tasks, at most.
    size_bytes : int
        The bytes that they read, about.
    """

    def __init__(self, tasks: Sequence[TaskT]) -> None:
        self.count = len(tasks)
        self.size_bytes = sum(task.size_bytes for task in tasks)
        self._tasks, self._next = tasks, 0
        self._failed: set[int] = set()

    def __iter__(self) -> Iterator[tuple[int, TaskT]]:
        return self

    def __next__(self) -> tuple[int, TaskT]:
        while self._next < self.count:
            row, task = self._next, self._tasks[self._next]
            self._next += 1
            if task.follows not in self._failed:
                return row, task
            self._failed.add(row)
        raise StopIteration

    def fail(self, row: int) -> None:
        """Record that a task has failed."""
        self._failed.add(row)


class Runner(Protocol):
    """Runs the tasks of a job, for example in processes or on a cluster.

    Attributes
    ----------
    workers : int
        The number of tasks that run at a time, about.
    """

    @property
    def workers(self) -> int: ...

    def __call__(
        self, job: Work[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None]
    ) -> Generator[Finished | Failed]:
        """Yield the outcome of each task as it ends. Tasks begin in their order. Closing the generator ends the work.

        Parameters
        ----------
        tasks : Tasks
            The next task may be taken only when there is room to run it: some may be left out by then.
        report : callable
            Called in this process with the name of a task and how much more it has done.
        """


class Watch(Protocol):
    """Receives the progress of a job, in the process that drives it."""

    def planned(self, tasks: int, size_bytes: int) -> None:
        """Receive the number of tasks of the job, and about how many bytes they read."""

    def advanced(self, name: str, more: Amount) -> None:
        """Receive how much more a task has done."""


class Unwatched:
    """A `Watch` that ignores all progress."""

    def planned(self, tasks: int, size_bytes: int) -> None:
        pass

    def advanced(self, name: str, more: Amount) -> None:
        pass


def run_job(
    job: Job[TaskT, ResultT],
    runner: Runner,
    watch: Watch | None = None,
    commit_interval_ms: int = COMMIT_INTERVAL_MS,
) -> list[ResultT]:
    """Run a job to its end.

    Parameters
    ----------
    commit_interval_ms : int
        The time that finished tasks wait for their commit, if the job commits as it goes.

    Returns
    -------
    list
        The results of the plan's tasks, in its order; all of them are committed.

    Raises
    ------
    Exception
        The error of a task, with a note that names the task; further errors are in its ``others``, a tuple, and in
        notes. Damage in one partition does not keep others from being moved: every task is tried, and if the job
        commits as it goes, all that can be committed is committed. Any other error ends the job at once.
    """
    watch = watch or Unwatched()
    with job.held():
        tasks = job.plan()
        watch.planned(len(tasks), sum(task.size_bytes for task in tasks))
        progress, left = _Progress(job, tasks), Tasks(tasks)
        committed_at = time.monotonic()
        with closing(runner(job, left, lambda row, more: watch.advanced(tasks[row].name, more))) as events:
            for event in events:
                if isinstance(event, Failed):
                    progress.fail(event)
                    left.fail(event.task)
                    if not (job.commits_as_it_goes and _is_of_some_partitions(event)):
                        break
                else:
                    progress.finish(event)
                if job.commits_as_it_goes and time.monotonic() - committed_at >= commit_interval_ms / 1000:
                    progress.commit()
                    committed_at = time.monotonic()
        if job.commits_as_it_goes or not progress.errors:
            progress.commit(is_last=True)
        progress.raise_first()
        return progress.results()


def found_by(work: Work[TaskT, Iterator[FoundT]], runner: Runner, watch: Watch | None = None) -> Generator[FoundT]:
    """Run work that changes nothing, and yield what its tasks find; each task is a generator.

    Yields
    ------
    object
        The findings, in the order of the plan. Those of a task in this thread come at once, those of a worker when its
        task is done and its turn has come.

    Raises
    ------
    Exception
        The error of a task, in its turn, with a note that names the task.
    """
    watch, tasks = watch or Unwatched(), work.plan()
    watch.planned(len(tasks), sum(task.size_bytes for task in tasks))
    ended: dict[int, Finished | Failed] = {}
    turn = 0
    with closing(runner(work, Tasks(tasks), lambda row, more: watch.advanced(tasks[row].name, more))) as events:
        for event in events:
            ended[event.task] = event
            while turn in ended:
                task, turn = ended.pop(turn), turn + 1
                try:
                    if isinstance(task, Failed):
                        raise task.error
                    yield from task.result
                except Exception as error:
                    error.add_note(f"in {tasks[task.task].name}")
                    raise


def _is_of_some_partitions(failed: Failed) -> bool:
    return all(isinstance(error, OF_ONE_PARTITION) for error in (failed.error, *failed.others))


class _Progress(Generic[TaskT, ResultT]):
    """The results and errors of the tasks of a job so far."""

    def __init__(self, job: Job[TaskT, ResultT], tasks: Sequence[TaskT]) -> None:
        self._job, self._tasks = job, tasks
        self._waiting: dict[int, ResultT] = {}
        self._committed: dict[int, ResultT] = {}
        self.errors: dict[int, tuple[Exception, ...]] = {}

    def finish(self, event: Finished) -> None:
        self._waiting[event.task] = event.result

    def fail(self, event: Failed) -> None:
        if event.result is None:
            event.error.add_note(f"in {self._tasks[event.task].name}")
        else:
            self._waiting[event.task] = event.result
        self.errors[event.task] = (event.error, *event.others)

    def commit(self, *, is_last: bool = False) -> None:
        """Commit waiting results whose preceding task is committed; the last time even if there are none."""
        ready: dict[int, ResultT] = {}
        for row in sorted(self._waiting):
            before = self._tasks[row].follows
            if before is None or (before not in self.errors and (before in self._committed or before in ready)):
                ready[row] = self._waiting[row]
        if ready or (is_last and not self._job.commits_as_it_goes):
            self._job.commit(list(ready.values()))
        self._committed.update(ready)
        for row in ready:
            del self._waiting[row]

    def raise_first(self) -> None:
        """Raise the error of the first failed task in the plan, with the errors of the others."""
        if not self.errors:
            return
        first, *others = (error for row in sorted(self.errors) for error in self.errors[row])
        for other in others:
            first.add_note(f"and {other}, {other.__notes__[-1]}")
        if isinstance(first, SeglogError):
            first.others = tuple(others)
        raise first

    def results(self) -> list[ResultT]:
        return [self._committed[row] for row in sorted(self._committed)]
