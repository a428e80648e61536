"""Runs the tasks of a job on this machine, in threads of this process or in several processes.

Threads start at once, but wait for each other's Python code. A process takes a second of processor time to start, so
only as many are started as the work is worth. Jobs that spend little time in Python use threads if there are few
cores, or too little work for processes. Processes are started as programs of their own, and not forked, so that no
thread and no lock of the caller is copied into them; and a script that calls a job needs no
``if __name__ == "__main__"``, since they do not import it. A worker process ends with the process that started it,
however that ends, and a thread with the job, because their connection is closed then.
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
from inspect import isgeneratorfunction
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.jobs.run.job import Amount, Failed, Finished, Runner, Tasks, Work
from sparklog.jobs.run.worker import pickled, run_task, unpickled_job
from sparklog.storage.process import end_process, usable_cores

_REPORTED_EVERY_SECONDS: Final = 0.1
_BYTES_WORTH_A_START: Final = 1 << 26
_THREADS_MAX: Final = 4
"""More threads would wait for the interpreter."""
_ENDS_WITHIN_SECONDS: Final = 5.0
_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from sparklog.jobs.run.local import work; work({descriptor})"


@dataclass(frozen=True)
class LocalRunner:
    """Runs tasks in parallel on this machine; with one process, in the caller's.

    Attributes
    ----------
    processes : int
        The number of processes, this one included. By default one for each core that this process may use, if there is
        enough work for each, or threads of this process if they are faster.
    """

    processes: int = 0

    @property
    def workers(self) -> int:
        return self.processes or usable_cores()

    def __call__(
        self, job: Work[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None]
    ) -> Generator[Finished | Failed]:
        threads, processes = self._shared(job, tasks)
        if threads + processes > 1:
            yield from _side_by_side(job, tasks, report, threads, processes)
            return
        for row, task in tasks:
            if isgeneratorfunction(job.run):
                # The result is a generator, which the caller runs.
                yield Finished(row, job.run(task, partial(report, row)))
            else:
                yield run_task(job, row, task, partial(report, row))

    def _shared(self, job: Work[Any, Any], tasks: Tasks[Any]) -> tuple[int, int]:
        """Return how many threads of this process and how many other processes share the work."""
        workers = min(self.workers, tasks.count)
        are_few = workers <= _THREADS_MAX and job.threads_bytes_max > 0
        if not self.processes and (are_few or tasks.size_bytes < job.threads_bytes_max):
            return min(workers, _THREADS_MAX), 0
        if not self.processes:
            workers = min(workers, 1 + tasks.size_bytes // _BYTES_WORTH_A_START)
        return 1, workers - 1


def runner_of(processes: int | None, cluster: Runner | None) -> Runner:
    """Return the runner of a job: ``cluster``, or if it is None, this number of processes on this machine."""
    if processes is None:
        return cluster or LocalRunner()
    if cluster is not None:
        raise InvalidOptionError("processes is for this machine, and spark for a cluster: give one of them")
    if processes < 1:
        raise InvalidOptionError(f"processes is {processes}, and must be at least 1")
    return LocalRunner(processes)


class _Worker:
    """Does one task after the other, and reports over a connection."""

    def __init__(self) -> None:
        self.connection, self._theirs = Pipe()
        self.task: int | None = None

    def begin(self, row: int, task: Any) -> None:
        self.task = row
        # If the worker has ended, reading from its connection reports that.
        with suppress(OSError):
            self.connection.send((row, task))

    def end(self) -> None:
        """End the worker, even in the middle of a task."""
        raise NotImplementedError

    def ended(self) -> SeglogError:
        """Return the error of the task of a worker that has ended by itself."""
        raise NotImplementedError


class _Thread(_Worker):
    """A worker in this process."""

    def __init__(self, job: Work[Any, Any]) -> None:
        super().__init__()
        # A daemon, so that a task which is no longer waited for does not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._work, args=(job,), daemon=True)
        self._thread.start()

    def _work(self, job: Work[Any, Any]) -> None:
        # A closed connection also ends a running task, at its next report of progress.
        with self._theirs, suppress(EOFError, OSError):
            while True:
                row, task = self._theirs.recv()
                _do(job, row, task, self._theirs)

    def end(self) -> None:
        self.connection.close()
        self._thread.join(_ENDS_WITHIN_SECONDS)

    def ended(self) -> SeglogError:
        return SeglogError("the thread that worked on it ended too early")


class _Process(_Worker):
    """A worker in a process of its own."""

    def __init__(self, job: bytes) -> None:
        super().__init__()
        theirs = self._theirs
        program = _PROGRAM.format(path=sys.path, descriptor=theirs.fileno())
        # In a process group of its own, so that Ctrl-C at a terminal interrupts the caller and not the worker; the
        # caller ends the worker after cleaning up.
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
        )
        theirs.close()
        with suppress(OSError):
            self.connection.send_bytes(job)

    def end(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def ended(self) -> SeglogError:
        status = self._process.wait()
        return SeglogError(
            f"a process that worked on it ended before its time (status {status}), perhaps since memory ran out: "
            f"repeat the job with fewer processes"
        )


def _side_by_side(
    job: Work[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None], threads: int, processes: int
) -> Generator[Finished | Failed]:
    sent = pickle.dumps(job)
    workers: dict[Connection, _Worker] = {}
    try:
        for first in islice(tasks, processes + threads):
            worker: _Worker = _Process(sent) if len(workers) < processes else _Thread(job)
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
                        yield Failed(worker.task, worker.ended())
                    worker.end()
                    continue
                if isinstance(said, Amount):
                    report(worker.task or 0, said)
                    continue
                worker.task = None
                # Its consumer may decide here that other tasks must not be done any more.
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
    """Do the tasks that come over a connection, until it is closed. This is the main function of a worker."""
    connection = Connection(descriptor)
    tasks: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    try:
        job = unpickled_job(connection.recv_bytes())
    except EOFError:
        return
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    while True:
        row, task = tasks.get()
        _do(job, row, task, connection)


def _do(job: Work[Any, Any], row: int, task: Any, connection: Connection) -> None:
    """Do a task, and send its progress and its outcome over a connection."""
    reporter = _Reporter(connection)
    done = run_task(job, row, task, reporter)
    reporter.flush()
    connection.send_bytes(pickled(done))


def _receive(connection: Connection, tasks: queue.SimpleQueue[tuple[int, Any]]) -> None:
    """Receive tasks; when the connection is closed, end this process, even in the middle of a task."""
    try:
        while True:
            tasks.put(connection.recv())
    except (EOFError, OSError):
        end_process(0)


class _Reporter:
    """Reports how much was done, but not too often."""

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
