"""SIGKILL to jobs, on local processes and on Spark: ``make test-kills``, or ``python -m tests.jobs.kills --kills 100``.

Each kind of job has a folder whose source grows before every run. A run is killed at a random moment of it: the moments
of so many kills are spread evenly over as long as a run takes. What is visible then holds no row twice. The next run
goes on, and in the end every row is there exactly once, the ledger says what the files hold, and nothing is left
staged.
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
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, Literal

import psutil

import sparklog
from sparklog.jobs.ledger import Loaded, Moved, commits
from sparklog.jobs.ledger_check import verify_ledger
from sparklog.log.files import JOBS_LEDGER
from sparklog.storage.local import LocalStorage
from tests.jobs.lakes import Delta, Iceberg, Lake
from tests.jobs.loads import strings, values, write_parquet
from tests.jobs.tables import append, read, rows
from tests.processes import kill_all, of_session
from tests.topic.staged import findings

ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 6
OUTLIVED_SECONDS_MAX: Final = 120.0
_BEHIND_THE_END: Final = 1.1
"""Runs differ: so many times as long as one takes moments are spread over, so that its end is among them."""

Where = Literal["local", "spark"]


class Victim(ABC):
    """A kind of job, and a folder of it whose source grows.

    Attributes
    ----------
    is_atomic : bool
        Whether all that a run moves becomes visible at once.
    """

    name: str
    is_atomic = False

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self._rng = folder, rng
        folder.mkdir()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def grow(self) -> None:
        """Let the source have more rows."""
        for partition in self._rng.sample(range(PARTITIONS), 3):
            for _ in range(self._rng.randrange(1, 4)):
                append(self.logs / f"a-{partition}", *self._new_rows(150))

    def _new_rows(self, most: int) -> list[str]:
        return [f"{self._rng.getrandbits(96):x}" * 10 for _ in range(self._rng.randrange(1, most))]

    @abstractmethod
    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the job, its arguments, and its options."""

    @abstractmethod
    def visible(self) -> list[Any]:
        """Return the rows that a reader of the target sees."""

    def wanted(self) -> list[Any]:
        """Return the rows that there are to be in the end."""
        return [row["value"] for row in read(self.logs)]

    @abstractmethod
    def differs(self) -> list[str]:
        """Say where the ledger and the files do not agree, and what is left staged; the job was run to its end."""


class Export(Victim):
    name = "export to Parquet"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._by = rng.choice([["topic", "partition"], ["date"], []])

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        options = {"partition_by": self._by, "commit_interval_ms": 0, "task_bytes": 1 << 13}
        return "export", [str(self.logs), str(self.out)], options

    def visible(self) -> list[Any]:
        return [row["value"] for row in rows(self.out)] if self.out.is_dir() else []

    def differs(self) -> list[str]:
        found = [str(finding) for finding in verify_ledger(self.out)]
        left = {path.name for path in (self.out / "_seglog").iterdir()} - {"ledger.jsonl", "lock"}
        return found + [f"{name} is left" for name in sorted(left)]


class LakeExport(Export):
    lake: Lake

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        job, arguments, options = super().order()
        return job, arguments, options | self.lake.given()

    def visible(self) -> list[Any]:
        return [row["value"] for row in self.lake.rows()] if self._is_there() else []

    def _is_there(self) -> bool:
        return (self.out / "_delta_log").is_dir()

    def differs(self) -> list[str]:
        of_table = {name: value for name, value in self.lake.given().items() if name != "format"}
        left = {path.name for path in (self.out / "_seglog").iterdir()} - {"lock"}
        return [str(finding) for finding in verify_ledger(self.out, **of_table)] + [f"{name} is left" for name in left]


class DeltaExport(LakeExport):
    name = "export to Delta Lake"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self.lake = Delta(self.out)


class IcebergExport(LakeExport):
    name = "export to Iceberg"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self.lake = self._iceberg = Iceberg(self.out)

    def _is_there(self) -> bool:
        if not (self.folder / "catalog.db").exists():
            return False
        with self._iceberg.opened() as catalog:
            return bool(catalog.namespace_exists("db") and catalog.table_exists("db.rows"))


class IntoLogs(Victim):
    """A job that writes logs, all of it at once."""

    is_atomic = True

    def differs(self) -> list[str]:
        found = findings(self.out)
        found += [f"{path.name} is left" for path in self.out.iterdir() if path.name.endswith((".staged", ".tmp"))]
        told, there = self._told(), len(self.visible())
        return found if told == there else [*found, f"the ledger says {told} rows, and there are {there}"]

    def _told(self) -> int:
        """Return how many rows the ledger says to be there."""
        entries = [each for commit in self._commits() for each in commit.entries]
        return sum(each.rows for each in entries if isinstance(each, Moved | Loaded))

    def _commits(self) -> Iterator[Any]:
        return commits(LocalStorage(), str(self.out / JOBS_LEDGER))

    def visible(self) -> list[Any]:
        # Of a new partition that is being made there may be an empty folder.
        found = sorted(self.out.glob("a-*"))
        return [value for folder in found if any(folder.iterdir()) for value in values(folder)]


class Load(IntoLogs):
    name = "load"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._wanted: list[bytes] = []
        (folder / "in").mkdir()

    def grow(self) -> None:
        for _ in range(self._rng.randrange(2, 5)):
            new = self._new_rows(400)
            name = f"{len(list((self.folder / 'in').iterdir())):06}"
            write_parquet(self.folder / "in" / f"{name}.parquet", strings(new))
            self._wanted += [each.encode() for each in new]

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "load", [str(self.folder / "in"), str(self.out)], {"topic": "a", "num_partitions": 3}

    def wanted(self) -> list[Any]:
        return self._wanted


class Copy(IntoLogs):
    name = "copy"

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "copy", [str(self.logs), str(self.out)], {"task_bytes": 1 << 13}

    def wanted(self) -> list[Any]:
        # Offsets too: each log is copied as it is.
        return [value for folder in sorted(self.logs.glob("a-*")) for value in values(folder)]

    def differs(self) -> list[str]:
        is_same = self.visible() == self.wanted()
        return super().differs() + ([] if is_same else ["records are in another order than in their source"])


KINDS: Final[tuple[type[Victim], ...]] = (Export, DeltaExport, IcebergExport, Load, Copy)


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
        self._close()

    def _rerun(self) -> None:
        job, arguments, options = self._victim.order()
        getattr(sparklog, job)(*arguments, **options, processes=1)

    def _check_visible(self, before: int) -> None:
        """Refuse rows that are there twice, and of what comes at once a part; ``before`` so many rows were there."""
        there = Counter(self._victim.visible())
        twice = sum(count > 1 for count in there.values())
        assert not twice, f"{self._victim.name}: {twice} rows are there twice after a kill"
        saw_none, saw_all = there.total() == before, there.total() == len(self._victim.wanted())
        assert saw_none or saw_all or not self._victim.is_atomic, f"{self._victim.name}: a part of a run is visible"
        self._tally.saw_none += saw_none
        self._tally.saw_all += saw_all

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
                f"{name}, {where}: {tally.kills} kills, and {tally.was_done} that came too late; of the new rows "
                f"{tally.saw_none} times none and {tally.saw_all} times all were visible; in the end each row was "
                f"there once, nothing was left staged, and ledger and files agreed",
                flush=True,
            )


if __name__ == "__main__":
    main()
