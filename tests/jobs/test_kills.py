"""SIGKILL to an export or its workers, while its source grows: every row is moved exactly once."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sparklog.jobs.ledger_check import verify_ledger
from tests.jobs.tables import append, moved_to, read, rows

ROOT = Path(__file__).parents[2]
KILLS, KILLS_SHORT = 100, 5
PARTITIONS = 6
SECONDS_MAX = 3.0


@pytest.mark.parametrize("kills", [KILLS_SHORT, pytest.param(KILLS, marks=pytest.mark.fuzz)])
def test_no_row_is_lost_or_doubled_by_a_kill(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    killed = 0
    while killed < kills:
        folder = tmp_path / "job"
        by = rng.choice(["topic partition", "date", ""])
        for round_number in range(10):
            grow(folder / "logs", rng)
            killed += kill_one(folder, by, rng)
            before = [row["value"] for row in rows(folder / "out")] if (folder / "out").is_dir() else []
            assert len(set(before)) == len(before)
            if round_number % 3 == 2 or killed >= kills:
                check(folder, by)
        shutil.rmtree(folder)


def grow(logs: Path, rng: random.Random) -> None:
    for partition in rng.sample(range(PARTITIONS), 3):
        for _ in range(rng.randrange(1, 4)):
            append(logs / f"a-{partition}", *(f"{rng.getrandbits(96):x}" * 10 for _ in range(rng.randrange(1, 150))))


def kill_one(folder: Path, by: str, rng: random.Random) -> bool:
    """Begin an export, and kill it or one of its workers later, while the logs grow; whether it was killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.exporter", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write(f"{by}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun\n"
        kill_at = time.monotonic() + rng.random() * SECONDS_MAX
        grow(folder / "logs", rng)
        time.sleep(max(kill_at - time.monotonic(), 0))
        workers = psutil.Process(process.pid).children()
        victim = rng.choice(workers) if workers and rng.random() < 0.4 else process
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
        process.stdin.close()
        process.wait()
        psutil.wait_procs(workers, timeout=60)
        return process.returncode != 0


def check(folder: Path, by: str) -> None:
    """A rerun completes what died, and finds nothing wrong."""
    moved_to(folder / "out", source=folder / "logs", partition_by=by.split())
    moved = sorted(row["value"] for row in rows(folder / "out"))
    assert moved == sorted(row["value"] for row in read(folder / "logs"))
    assert list(verify_ledger(folder / "out")) == []
