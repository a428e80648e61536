"""SIGKILL to a process that appends: what was acknowledged is there, and of what was not at most some whole batches."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

import sparklog
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.write.partition import LogWriter
from tests.fuzz.appender import APPENDS, ATOMIC_RECORDS, CONFIG, records
from tests.places import folder_at

KILLS = 200
KILLS_SHORT = 12
LINES_MAX = 12
SECONDS_MAX = 0.03
KEPT_MAX = 1500
ROOT = Path(__file__).parents[2]


@dataclass
class Told:
    """What a child said before it died."""

    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)
    tried: list[int] = field(default_factory=list)
    is_done: bool = False

    @property
    def unanswered(self) -> int | None:
        """The append that had begun and was not acknowledged."""
        return next((append for append in self.tried if append not in self.acknowledged), None)


class Appender:
    """The process of `tests.fuzz.appender`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.appender"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def run(self, folder: Path, seed: int, *, kill_when: tuple[int, float] | None, **order: Any) -> Told:
        """Let a child append, and kill it some seconds after so many lines of it, or leave it to kill itself."""
        stdin, stdout = self._pipes()
        stdin.write(
            json.dumps({"folder": str(folder), "seed": seed, "stop_at": None, "is_torn": False, **order}) + "\n"
        )
        stdin.flush()
        pid, told = int(stdout.readline().split()[1]), Told()
        for number in itertools.count():
            if kill_when is not None and number == kill_when[0]:
                time.sleep(kill_when[1])
                os.kill(pid, signal.SIGKILL)
            line = stdout.readline()
            assert line, "the process that forks has died"
            if line == "end\n":
                break
            word, *numbers = line.split()
            if word == "try":
                told.tried.append(int(numbers[0]))
            elif word == "ack":
                told.acknowledged[int(numbers[0])] = int(numbers[1]), int(numbers[2])
        told.is_done = kill_when is None and len(told.acknowledged) >= APPENDS and told.unanswered is None
        return told

    def close(self) -> None:
        stdin, stdout = self._pipes()
        stdin.close()
        self._process.wait(timeout=30)
        stdout.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


@pytest.fixture(scope="module")
def appender() -> Iterator[Appender]:
    made = Appender()
    yield made
    made.close()


def values(folder: Path) -> list[bytes]:
    """Read a log whose offsets are dense."""
    if not folder.is_dir():
        return []
    with sparklog.open_log(str(folder)) as log:
        table = log.read(columns=["offset", "value"])
        assert table["offset"].to_pylist() == list(range(log.start_offset, log.end_offset))
    found: list[bytes] = table["value"].to_pylist()
    return found


def check(folder: Path, before: list[bytes], seed: int, told: Told, where: str) -> list[bytes]:
    """Hold what is in the log against what was said; what is in it once it was opened again."""
    found = values(folder)
    expected = list(before)
    for append, (first, last) in sorted(told.acknowledged.items()):
        assert first == len(expected), where
        expected += records(seed, append)
        assert last == len(expected) - 1, where
    assert found[: len(expected)] == expected, f"{where}: what was acknowledged is not there"
    rest = found[len(expected) :]
    if told.unanswered is None:
        assert not rest, where
    else:
        rows = records(seed, told.unanswered)
        assert rest == rows[: len(rest)], f"{where}: what nobody wrote is there"
        assert len(rows) > ATOMIC_RECORDS or rest in ([], rows), f"{where}: a part of a batch is there"
    with LogWriter.open(folder, CONFIG) as log:
        assert log.end_offset == len(found), where
    assert values(folder) == found, where
    return found


def findings(folder: Path) -> list[str]:
    events = verify_partition(folder_at(folder))
    return [str(each) for each in events if isinstance(each, Finding) and each.severity != Severity.NOTE]


def kill_at_random_times(appender: Appender, folder: Path, kills: int) -> None:
    rng, kept = random.Random(kills), list[bytes]()
    answered = 0
    for seed in range(kills):
        told = appender.run(folder, seed, kill_when=(rng.randrange(LINES_MAX), rng.uniform(0.0, SECONDS_MAX)))
        kept = check(folder, kept, seed, told, f"kill {seed}")
        answered += len(told.acknowledged)
        if len(kept) > KEPT_MAX:
            assert findings(folder) == []
            shutil.rmtree(folder)
            kept = []
    assert answered > kills // 2
    # Nothing is there where the last ones died before they had made it.
    assert not folder.exists() or findings(folder) == []


def test_some_kills_at_random_times(appender: Appender, tmp_path: Path) -> None:
    kill_at_random_times(appender, tmp_path / "events-0", KILLS_SHORT)


@pytest.mark.fuzz
def test_many_kills_at_random_times(appender: Appender, tmp_path: Path) -> None:
    kill_at_random_times(appender, tmp_path / "events-0", KILLS)


def kill_at_calls(appender: Appender, tmp_path: Path, step: int) -> None:
    """Kill at every so many-th call, before it and in the midst of it."""
    for is_torn in (False, True):
        for stop_at in range(1, 10_000, step):
            folder = tmp_path / f"{is_torn}-{stop_at}" / "events-0"
            folder.parent.mkdir()
            told = appender.run(folder, 3, kill_when=None, stop_at=stop_at, is_torn=is_torn)
            check(folder, [], 3, told, f"{'torn' if is_torn else 'killed'} at call {stop_at}")
            assert findings(folder) == [], stop_at
            shutil.rmtree(folder.parent)
            if told.is_done:
                break


def test_kills_at_some_storage_calls(appender: Appender, tmp_path: Path) -> None:
    kill_at_calls(appender, tmp_path, 15)


@pytest.mark.fuzz
def test_kills_at_every_storage_call(appender: Appender, tmp_path: Path) -> None:
    kill_at_calls(appender, tmp_path, 1)
