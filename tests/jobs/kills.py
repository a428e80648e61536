"""SIGKILL to jobs, on local processes and on Spark: ``make test-kills``, or ``python -m tests.jobs.kills --kills 100``.

Each kind of job has a folder whose source grows before every run. A run is killed at a random moment of it: the moments
of so many kills are spread evenly over as long as a run takes. What is visible then holds no row twice. The next run
goes on, and in the end every row is there exactly once, the ledger says what the files hold, and nothing is left
staged. Of a cleaning that was killed readers see a part at most of what it removes, and never less than what an
undisturbed one leaves, which is what there is in the end.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Final, Literal

import psutil

import sparklog
from tests.jobs.cleanings import CLEANING
from tests.jobs.victims import MOVING, Victim
from tests.processes import kill_all, of_session

ROOT: Final = Path(__file__).parents[2]
OUTLIVED_SECONDS_MAX: Final = 120.0
_BEHIND_THE_END: Final = 1.1
"""Runs differ: so many times as long as one takes moments are spread over, so that its end is among them."""

Where = Literal["local", "spark"]


KINDS: Final = (*MOVING, *CLEANING)


class Child:
    """The process of `tests.jobs.killed`."""

    def __init__(self, where: Where) -> None:
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.jobs.killed", where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self._expect("ready")

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _expect(self, word: str) -> None:
        line = self._pipes[1].readline()
        if line != f"{word}\n":
            self.said.seek(0)
            raise AssertionError(f"the child says {line!r} and not {word}: {self.said.read()[-2000:]}")

    def begin(self, victim: Victim) -> None:
        """Give it a job, and return when that has begun."""
        stdin, _ = self._pipes
        stdin.write(json.dumps(victim.order()) + "\n")
        stdin.flush()
        self._expect("begun")

    def outcome(self) -> list[str] | None:
        """Wait for the end of the job; None where the process has died before it."""
        line = self._pipes[1].readline()
        return json.loads(line) if line else None

    def workers(self) -> list[psutil.Process]:
        return [each for each in of_session(self._process.pid) if each.pid != self._process.pid]

    def kill(self, *, alone: bool) -> None:
        """Kill it, and unless it is to be alone with all that it has begun."""
        if alone:
            self._process.kill()
        else:
            kill_all(self._process.pid)

    def refuse_survivors(self) -> None:
        """Return when all that it has begun is gone; raise where that does not end by itself."""
        before = time.monotonic()
        while of_session(self._process.pid):
            assert time.monotonic() - before < OUTLIVED_SECONDS_MAX, "a worker has outlived its job"
            time.sleep(0.02)

    def close(self) -> None:
        kill_all(self._process.pid)
        self._process.wait()
        for pipe in (*self._pipes, self.said):
            pipe.close()


@dataclass
class Tally:
    """What has become of the runs of one kind of job."""

    kills: int = 0
    saw_none: int = 0
    saw_all: int = 0
    was_done: int = 0


class Killer:
    """Kills one kind of job, in one place, as often as is asked."""

    def __init__(self, kind: type[Victim], where: Where, folder: Path, seed: int) -> None:
        self._rng, self._where = random.Random(f"{seed} {kind.name} {where}"), where
        self._victim, self._tally = kind(folder, self._rng), Tally()
        self._child: Child | None = None

    def run(self, kills: int) -> Tally:
        try:
            self._whole_run()
            # A run takes longest in a process that is new, which is what most of those that are killed run in.
            self._close()
            seconds = self._whole_run()
            self._close()
            for number in count():
                if self._tally.kills == kills:
                    break
                moment = (number % kills + self._rng.random()) / kills
                self._kill_one(moment * seconds * _BEHIND_THE_END)
        finally:
            self._close()
        return self._tally

    def _begun(self) -> Child:
        """Let the source grow, and begin a job."""
        self._child = self._child or Child(self._where)
        self._victim.grow()
        self._child.begin(self._victim)
        return self._child

    def _close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _whole_run(self) -> float:
        """Run the job to its end, and check everything; how many seconds it took."""
        child = self._begun()
        began = time.monotonic()
        outcome = child.outcome()
        assert outcome == ["done", ""], outcome
        seconds = time.monotonic() - began
        self._check()
        return seconds

    def _kill_one(self, after_seconds: float) -> None:
        """Kill a run, and complete it."""
        before = len(self._victim.visible())
        child = self._begun()
        time.sleep(after_seconds)
        workers = child.workers() if self._where == "local" else []
        is_worker = bool(workers) and self._rng.random() < 0.25
        if is_worker:
            with suppress(psutil.NoSuchProcess):
                self._rng.choice(workers).kill()
        else:
            child.kill(alone=self._rng.random() < 0.5)
        outcome = child.outcome()
        is_done = outcome is not None and outcome[0] == "done"
        assert outcome is None or is_done or "ended before its time" in outcome[1], outcome
        self._tally.was_done += is_done
        self._tally.kills += not is_done
        self._check_visible(before)
        if not is_worker:
            self._rerun_beside(child)
        self._rerun()
        self._check()

    def _rerun_beside(self, child: Child) -> None:
        """Run the job again, sometimes while workers of the dead run are still there."""
        if self._rng.random() < 0.5:
            self._rerun()
            self._check_rows()
        child.refuse_survivors()
        self._victim.recover()
        self._close()

    def _rerun(self) -> None:
        job, arguments, options = self._victim.order()
        getattr(sparklog, job)(*arguments, **options, processes=1)

    def _check_visible(self, before: int) -> None:
        sees_none, sees_all = self._victim.check_visible(before)
        self._tally.saw_none += sees_none
        self._tally.saw_all += sees_all

    def _check_rows(self) -> None:
        there, wanted = Counter(self._victim.visible()), Counter(self._victim.wanted())
        lost, more = (wanted - there).total(), (there - wanted).total()
        assert there == wanted, f"{self._victim.name}: {lost} rows are lost, {more} are too many"

    def _check(self) -> None:
        self._check_rows()
        differs = self._victim.differs()
        assert not differs, f"{self._victim.name}: {differs}"


def kill_all_kinds(
    folder: Path, kills: int, places: Sequence[Where], kinds: Sequence[type[Victim]] = KINDS, seed: int = 1
) -> Iterator[tuple[str, Where, Tally]]:
    """Kill each kind of job in each place; yield the kind, the place, and what has become of its runs."""
    for where in places:
        for kind in kinds:
            name = f"{kind.__name__}-{where}"
            yield kind.name, where, Killer(kind, where, folder / name, seed).run(kills)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="how many in all, shared by the kinds of jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--where", choices=["local", "spark"], help="only there")
    parser.add_argument("--kinds", nargs="*", choices=[kind.__name__ for kind in KINDS], help="only these")
    given = parser.parse_args()
    # pyiceberg says of every file which statistics it lacks.
    logging.disable(logging.WARNING)
    places: list[Where] = [given.where] if given.where else ["local", "spark"]
    kinds = [kind for kind in KINDS if not given.kinds or kind.__name__ in given.kinds]
    of_each = -(-given.kills // (len(kinds) * len(places)))
    with tempfile.TemporaryDirectory() as folder:
        for name, where, tally in kill_all_kinds(Path(folder), of_each, places, kinds, given.seed):
            print(
                f"{name}, {where}: {tally.kills} kills, and {tally.was_done} that came too late; of what a run does "
                f"{tally.saw_none} times nothing and {tally.saw_all} times all was visible; in the end there was what "
                f"an undisturbed run leaves, each row once, and nothing was left staged",
                flush=True,
            )


if __name__ == "__main__":
    main()
