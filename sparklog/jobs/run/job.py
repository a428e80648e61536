"""The contract of a job, and its driver.

    held()            driver   keeps other runs out; finishes what a run that died has decided, removes what it left
    plan()            driver   -> tasks, small frozen values
    run(task)         worker   -> a result, another small frozen value; the files that it makes are staged
    commit(results)   driver   what tasks have staged becomes visible, and the ledger says so, at once

Work that changes nothing is a plan and its tasks alone, each a generator of what it finds; see `found_by`.

Where tasks run is a runner's matter: `sparklog.jobs.run.local` has processes of this machine, and
`sparklog.spark.runner` a cluster. Killed anywhere, a rerun goes on from what was committed and repeats nothing.
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
"""Errors that keep one partition from being moved, and not the others."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much was done: bytes of what is read, and records."""

    size_bytes: int = 0
    records: int = 0


class Task(Protocol):
    """A part of the work of a job; it pickles small."""

    @property
    def name(self) -> str:
        """What progress and errors call it: partitions and offsets, or files."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes it reads."""

    @property
    def follows(self) -> int | None:
        """The number in the plan of the task that is to be committed before this one, if there is one."""


class Piece(Protocol):
    """A part of a task."""

    @property
    def name(self) -> str:
        """The partition that it is of, with its offsets if it is not all of it."""

    @property
    def log_bytes(self) -> int:
        """About how many bytes of log it has."""


PieceT = TypeVar("PieceT", bound=Piece)


@dataclass(frozen=True)
class PiecesTask(Generic[PieceT]):
    """Some pieces of about a task's size in all; ``number`` is that of the task in the plan."""

    number: int
    pieces: tuple[PieceT, ...]
    follows: int | None = None

    @property
    def name(self) -> str:
        first, count = self.pieces[0].name, len(self.pieces)
        return first if count == 1 else f"{first} and {count - 1} more"

    @property
    def size_bytes(self) -> int:
        return sum(piece.log_bytes for piece in self.pieces)


TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT")
FoundT = TypeVar("FoundT")
DoneT = TypeVar("DoneT", covariant=True)

Report = Callable[[Amount], None]
"""Tells how much more a task has done."""


class Work(Protocol[TaskT, DoneT]):
    """What runners run: a small frozen value, which pickles and goes to the workers as it is.

    Attributes
    ----------
    threads_bytes_max : int
        Below so many bytes of tasks a few threads do better than many processes, which must start first; than a few
        processes they do better always. It is 0 where the work is done by Python itself, which threads cannot do at a
        time.
    """

    @property
    def threads_bytes_max(self) -> int: ...

    def plan(self) -> Sequence[TaskT]:
        """Say what is to be done; the target of a job is held."""

    def run(self, task: TaskT, report: Report) -> DoneT:
        """Do a task, in a worker. What it stages nobody sees."""


class Job(Work[TaskT, ResultT], Protocol[TaskT, ResultT]):
    """Work that changes a target.

    Attributes
    ----------
    commits_as_it_goes : bool
        Whether finished tasks are committed while others run. Else all are committed at once, or none.
    """

    @property
    def commits_as_it_goes(self) -> bool: ...

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs out of the target, and leave nothing but what was committed, however it ends."""

    def commit(self, results: Sequence[ResultT]) -> None:
        """Make visible what tasks have staged, in the order of the plan; `commits_as_it_goes` says how often."""


@dataclass(frozen=True)
class Finished:
    """A task was done."""

    task: int
    result: Any


@dataclass(frozen=True)
class Failed:
    """A task was not done, or a part of it was not.

    Attributes
    ----------
    others : tuple of Exception
        Further errors of the same task.
    result : object or None
        What was done of it all the same, which is committed as the result of a whole one is.
    """

    task: int
    error: Exception
    others: tuple[Exception, ...] = ()
    result: Any = None


class PartlyDoneError(Exception):
    """Raised by a task of several partitions some of which are damaged.

    Parameters
    ----------
    result : object
        What was done.
    errors : sequence of Exception
        Why the rest was not, with a note each that says of what it is; at least one.
    """

    def __init__(self, result: Any, errors: Sequence[Exception]) -> None:
        super().__init__(result, errors)
        self.result, self.errors = result, tuple(errors)


class Tasks(Generic[TaskT]):
    """The tasks of a plan, each with its number, to be taken by a runner: those are left out that follow a failed one.

    Attributes
    ----------
    count : int
        How many there are at most.
    size_bytes : int
        About how many bytes they read.
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
        """Say that a task has failed."""
        self._failed.add(row)


class Runner(Protocol):
    """Runs tasks somewhere.

    Attributes
    ----------
    workers : int
        How many tasks run at a time, about.
    """

    @property
    def workers(self) -> int: ...

    def __call__(
        self, job: Work[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None]
    ) -> Generator[Finished | Failed]:
        """Yield how each task ended, as they end. Tasks begin in their order. Closing the generator ends the work.

        Parameters
        ----------
        tasks : Tasks
            To be taken when there is room to run another one: some may not be given any more by then.
        report : callable
            Told in this process which task has done how much more.
        """


class Watch(Protocol):
    """Is told how a job goes on, in the process that drives it."""

    def planned(self, tasks: int, size_bytes: int) -> None:
        """The job has so many tasks, which read about so many bytes."""

    def advanced(self, name: str, more: Amount) -> None:
        """A task has done so much more."""


class Unwatched:
    """Does not look."""

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
        How long finished tasks wait to be committed, where the job commits as it goes.

    Returns
    -------
    list
        The results of the plan's tasks, in its order; all of them are committed.

    Raises
    ------
    Exception
        What a task raised, with a note that names the task; further errors are in its ``others``, a tuple, and in
        notes. Damage in one partition does not keep others from being moved: every task is tried, and where the job
        commits as it goes what can be committed is. Any other error ends the job at once.
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
    """Run work that changes nothing, each task of which is a generator, and yield what the tasks find.

    Yields
    ------
    object
        In the order of the plan. What a task in this thread finds comes at once, and what a worker finds when its task
        is done and its turn has come.

    Raises
    ------
    Exception
        What a task raised, in its turn, with a note that names the task.
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
    """What has become of the tasks of a job so far."""

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
        """Commit what waits, but what follows a task that is not committed; a last time also where that is nothing."""
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
        """Raise the error of the first task in the plan that has one, with those of the others."""
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
