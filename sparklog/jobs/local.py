"""Runs the tasks of a job in processes of this machine.

Workers are started as programs of their own, and not forked, so that no thread and no lock of the caller is copied into
them; and a script that calls a job needs no ``if __name__ == "__main__"``, since they do not import it. A worker ends
with the process that started it, however that ends: their connection is closed then.
"""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from sparklog.errors import SeglogError
from sparklog.jobs.job import Amount, Failed, Finished, Job, Tasks, attempt
from sparklog.storage.process import end_process, usable_cores

_REPORTED_EVERY_SECONDS: Final = 0.1
_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from sparklog.jobs.local import work; work({descriptor})"


@dataclass(frozen=True)
class LocalRunner:
    """Runs tasks side by side; with one process, in this one.

    Attributes
    ----------
    processes : int
        How many work at a time. By default one for each core that this process may use.
    """

    processes: int = 0

    def __call__(
        self, job: Job[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None]
    ) -> Generator[Finished | Failed]:
        processes = min(self.processes or usable_cores(), tasks.count)
        if processes > 1:
            yield from _side_by_side(job, tasks, report, processes)
            return
        for row, task in tasks:
            yield attempt(job, row, task, partial(report, row))


class _Worker:
    """A process that does one task after the other."""

    def __init__(self, job: bytes) -> None:
        self.connection, theirs = Pipe()
        program = _PROGRAM.format(path=sys.path, descriptor=theirs.fileno())
        # In a process group of its own: who interrupts the caller at a terminal does not interrupt the worker, which
        # the caller ends when it has put things in order.
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
        )
        theirs.close()
        self._job: bytes | None = job
        self.task: int | None = None

    def begin(self, row: int, task: Any) -> None:
        self.task = row
        # If it has ended, whoever waits for what it says is told so.
        with suppress(OSError):
            if self._job is not None:
                self.connection.send_bytes(self._job)
                self._job = None
            self.connection.send((row, task))

    def end(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def killed(self) -> SeglogError:
        status = self._process.wait()
        return SeglogError(
            f"a process that worked on it ended before its time (status {status}), perhaps since memory ran out: "
            f"repeat the job with fewer processes"
        )


def _side_by_side(
    job: Job[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None], processes: int
) -> Generator[Finished | Failed]:
    pickled = pickle.dumps(job)
    workers: dict[Connection, _Worker] = {}
    try:
        for first in islice(tasks, processes):
            worker = _Worker(pickled)
            workers[worker.connection] = worker
            worker.begin(*first)
        while workers:
            for connection in wait(list(workers)):
                worker = workers[connection]  # type: ignore[index]
                try:
                    said = worker.connection.recv()
                except (EOFError, OSError):
                    del workers[worker.connection]
                    if worker.task is not None:
                        yield Failed(worker.task, worker.killed())
                    worker.end()
                    continue
                if isinstance(said, Amount):
                    report(worker.task or 0, said)
                    continue
                worker.task = None
                # Whoever takes this may say that others are not to be done any more.
                yield said
                another = next(tasks, None)
                if another is None:
                    del workers[worker.connection]
                    worker.end()
                else:
                    worker.begin(*another)
    finally:
        for worker in workers.values():
            worker.end()


def work(descriptor: int) -> None:
    """Do the tasks that come over a connection, until it is closed; the whole of a worker."""
    connection = Connection(descriptor)
    tasks: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    try:
        job = pickle.loads(connection.recv_bytes())
    except EOFError:
        return
    except Exception as error:
        job = _Unreadable(error)
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    while True:
        row, task = tasks.get()
        reporter = _Reporter(connection)
        done = attempt(job, row, task, reporter)
        reporter.flush()
        _send(connection, done)


@dataclass(frozen=True)
class _Unreadable:
    """Stands for a job that this process cannot read: a class of the caller's own is not there, for one."""

    error: Exception

    def run(self, task: Any, report: Callable[[Amount], None]) -> Any:  # noqa: ARG002
        raise SeglogError(f"a worker cannot read the job: {self.error!r}")


def _receive(connection: Connection, tasks: queue.SimpleQueue[tuple[int, Any]]) -> None:
    """Take what comes, and end this process, whatever it does, when the connection is closed."""
    try:
        while True:
            tasks.put(connection.recv())
    except (EOFError, OSError):
        end_process(0)


def _send(connection: Connection, said: Finished | Failed) -> None:
    try:
        data = pickle.dumps(said)
        pickle.loads(data)
    except Exception:
        error = said.error if isinstance(said, Failed) else SeglogError(f"the result does not pickle: {said!r}")
        data = pickle.dumps(Failed(said.task, SeglogError("\n".join([repr(error), *getattr(error, "__notes__", ())]))))
    connection.send_bytes(data)


class _Reporter:
    """Says how much was done, but not too often."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._said_at = connection, time.monotonic()
        self._size_bytes = self._records = 0

    def __call__(self, more: Amount) -> None:
        self._size_bytes += more.size_bytes
        self._records += more.records
        if time.monotonic() - self._said_at >= _REPORTED_EVERY_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._connection.send(Amount(self._size_bytes, self._records))
        self._said_at, self._size_bytes, self._records = time.monotonic(), 0, 0
