"""Runs the tasks of a job on Spark's cluster, also over Spark Connect: tasks go to the workers as rows, and their
results come back as rows.

A few queries run at a time, each with a wave of tasks, so that no core waits for the slowest task of a wave. A query
is a range of numbers, each in a Spark partition of its own; the function of its `mapInArrow` finds the tasks by these
numbers. Spark may attempt a task twice: the attempt whose row it takes counts, and the files that the other one staged
are abandoned.
"""

from __future__ import annotations

import pickle
import re
import secrets
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparklog.errors import SeglogError
from sparklog.jobs.run.job import Amount, Failed, Finished, Tasks, Work
from sparklog.jobs.run.worker import pickled, run_task, unpickled_job
from sparklog.spark.worker.process import LoadedByWorkers, check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WAVES_MAX: Final = 8
_CANCELLED_EVERY_SECONDS: Final = 0.2
_ENDED: Final = pa.schema([("ended", pa.binary()), ("size_bytes", pa.int64()), ("records", pa.int64())])
_LOST_TASK: Final = re.compile(r"Task (\d+) in stage \S+ failed (\d+) times?, most recent failure: (.*)")
"""The message of Spark's scheduler, in every version and also over Connect."""

_Wave = list[tuple[int, Any]]
_Ended = list[tuple[Finished | Failed, Amount]]


@dataclass(frozen=True)
class SparkRunner:
    """Runs tasks on the cluster of a Spark session."""

    session: SparkSession

    @cached_property
    def workers(self) -> int:
        """The number of tasks that the cluster runs at a time: a query's default number of partitions."""
        context = getattr(self.session, "sparkContext", None)
        if context is not None:
            return int(context.defaultParallelism)
        from pyspark.sql.functions import max as highest
        from pyspark.sql.functions import spark_partition_id

        of_each = self.session.range(1 << 20).select(spark_partition_id().alias("partition"))
        ((last,),) = of_each.agg(highest("partition")).collect()
        return int(last) + 1

    def __call__(
        self, job: Work[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None]
    ) -> Generator[Finished | Failed]:
        check_workers(self.session)
        # One wave less than the maximum already keeps all cores busy.
        waves_max = min(self.workers + 1, _WAVES_MAX)
        wave_tasks = -(-self.workers // (waves_max - 1))
        queries = _Queries(self.session, job)
        running: dict[Future[_Ended], _Wave] = {}
        with ThreadPoolExecutor(waves_max) as threads:
            try:
                while True:
                    while len(running) < waves_max and (wave := list(islice(tasks, wave_tasks))):
                        running[threads.submit(queries.of(wave))] = wave
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        for ended, amount in _ended(future, running.pop(future)):
                            report(ended.task, amount)
                            yield ended
            finally:
                queries.cancel(list(running))


class _Queries:
    """The queries of one run of a job, which are cancelled together."""

    def __init__(self, session: SparkSession, job: Work[Any, Any]) -> None:
        self._session, self._job = session, pickle.dumps(job)
        self._tag, self._is_cancelled = f"sparklog-{secrets.token_hex(8)}", Event()
        context = getattr(session, "sparkContext", None)
        # Without Connect a session interrupts by tag only queries of the same thread; the context interrupts all.
        self._begin = session.addTag if context is None else context.addJobTag
        self._interrupt = session.interruptTag if context is None else context.cancelJobsWithTag

    def of(self, wave: _Wave) -> Callable[[], _Ended]:
        """Make the query of a wave, in the thread that has the session; another thread runs it."""
        from pyspark import inheritable_thread_target

        run = _Run(self._job, [pickle.dumps(each) for each in wave])
        numbers = self._session.range(0, len(wave), 1, len(wave))
        with warnings.catch_warnings():
            # The warning is about pandas, which Spark looks for here and which this does not need.
            warnings.simplefilter("ignore", FutureWarning)
            query = numbers.mapInArrow(run, "ended binary, size_bytes long, records long")
        # The scheduler's pool, for one, is a property of the thread. Each query gets its own copy of these properties,
        # because Spark also stores there which query the thread runs.
        collect: Callable[[], _Ended] = inheritable_thread_target(self._session)(partial(self._collect, query))
        return collect

    def _collect(self, query: DataFrame) -> _Ended:
        # A thread may run many queries, and each begins with the tags of the driver's thread.
        self._begin(self._tag)
        if self._is_cancelled.is_set():
            return []
        return [(pickle.loads(row[0]), Amount(row[1], row[2])) for row in query.collect()]

    def cancel(self, running: Sequence[Future[_Ended]]) -> None:
        """Cancel all queries that run, also those that Spark is only about to begin."""
        self._is_cancelled.set()
        while not all(future.cancel() or future.done() for future in running):
            self._interrupt(self._tag)
            wait(running, _CANCELLED_EVERY_SECONDS)


class _Run(LoadedByWorkers):
    """Runs tasks in a worker; a function for `mapInArrow`."""

    def __init__(self, job: bytes, tasks: list[bytes]) -> None:
        self._job, self._tasks = job, tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = unpickled_job(self._job)
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            amounts: list[Amount] = []
            row, task = pickle.loads(self._tasks[number])
            ended = run_task(job, row, task, amounts.append)
            amount = (sum(each.size_bytes for each in amounts), sum(each.records for each in amounts))
            yield pa.RecordBatch.from_arrays([[pickled(ended)], [amount[0]], [amount[1]]], schema=_ENDED)


def _ended(future: Future[_Ended], wave: _Wave) -> _Ended:
    """Return the results of a query's tasks; if Spark could not run it, one failed task, which ends the job."""
    try:
        return future.result()
    except Exception as error:
        text = str(error)
        lost = _LOST_TASK.search(text)
        row, _ = wave[int(lost[1]) if lost else 0]
        what = f"lost it {lost[2]} times: {lost[3]}" if lost else f"could not run it: {text.splitlines()[0]}"
        return [(Failed(row, SeglogError(f"Spark {what}")), Amount())]
