"""Runs every task twice at the same time, as Spark may do; one attempt counts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sparklog.jobs.run.job import Amount, Failed, Finished, Tasks, Work
from sparklog.jobs.run.worker import run_task


class TwiceRunner:
    """Takes the result of the first attempt."""

    workers = 1

    def __call__(
        self, job: Work[Any, Any], tasks: Tasks[Any], report: Callable[[int, Amount], None]
    ) -> Generator[Finished | Failed]:
        with ThreadPoolExecutor(2) as threads:
            for row, task in tasks:
                attempts = [threads.submit(run_task, job, row, task, lambda more: report(0, more)) for _ in range(2)]
                counts, _ = (attempt.result() for attempt in attempts)
                yield counts
