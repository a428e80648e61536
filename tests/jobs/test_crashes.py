"""Wherever an export dies, or its disk is full, a rerun has every row exactly once, and ledger and files agree."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.export.job import ExportJob
from sparklog.jobs.files.formats import ParquetFormat
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.source import LogSource
from sparklog.jobs.targets.targets import TableFolder
from sparklog.storage.base import WritableStorage
from tests.jobs.tables import append, read, rows
from tests.storage.crash import LOSSES, Content, Crash, CrashingStorage, Loss, crashes, tree_of
from tests.storage.full_disk import FullDisk

BEYOND_DEFAULT = pytest.mark.fuzz


def prepare(folder: Path) -> None:
    for partition in range(3):
        append(folder / "logs" / f"a-{partition}", *(f"value {partition}.{number}" for number in range(3)))


def prepare_with_more(folder: Path) -> None:
    """A table that has some rows, and logs that have more."""
    prepare(folder)
    run(CrashingStorage(folder), folder)
    for partition in (0, 3):
        append(folder / "logs" / f"a-{partition}", f"value {partition}.later")


def run(storage: WritableStorage, folder: Path) -> None:
    """Export, a commit for each task, and a task for each partition or two."""
    target = TableFolder(storage, str(folder / "out"))
    job = ExportJob(LogSource((str(folder / "logs"),)), target, ParquetFormat(), run_id="run", workers=2)
    run_job(job, LocalRunner(1), commit_interval_ms=0)


def check(folder: Path, where: object) -> None:
    """A rerun has every row exactly once, and ledger and files agree; so has one after it."""
    for _ in range(2):
        run(CrashingStorage(folder), folder)
        assert sorted(row["value"] for row in rows(folder / "out")) == sorted(
            row["value"] for row in read(folder / "logs")
        ), where
        assert list(verify_ledger(folder / "out")) == [], where
        assert sorted(path.name for path in (folder / "out" / "_seglog").iterdir()) == ["ledger.jsonl", "lock"], where


@pytest.mark.parametrize(
    ("begin", "losses", "least"),
    [
        pytest.param(prepare, ("lost",), 10, id="the first export, lost"),
        pytest.param(prepare_with_more, LOSSES, 40, id="a later export"),
        pytest.param(prepare, LOSSES, 40, marks=BEYOND_DEFAULT, id="the first export"),
    ],
)
def test_a_crash_at_any_call_leaves_what_a_rerun_completes(
    tmp_path: Path, begin: Callable[[Path], None], losses: tuple[Loss, ...], least: int
) -> None:
    calls = [each.call for each in checked(crashes(begin, run, tmp_path, losses))]
    assert len(calls) > least
    assert calls[-1] == "the end"


def checked(all_crashes: Iterator[Crash]) -> Iterator[Crash]:
    for crash in all_crashes:
        before = visible_values(crash.folder)
        assert len(set(before)) == len(before), crash
        check(crash.folder, crash)
        yield crash


def visible_values(folder: Path) -> list[str]:
    return [row["value"] for row in rows(folder / "out")] if (folder / "out").is_dir() else []


@pytest.mark.parametrize(("every_first", "every"), [(17, 17), pytest.param(1, 7, marks=BEYOND_DEFAULT)])
@pytest.mark.parametrize("loss", ["kept", "lost"])
def test_a_rerun_may_crash_as_well(tmp_path: Path, loss: Loss, every_first: int, every: int) -> None:
    """Of the calls of a rerun every so many-th, begun at another one after each first crash: all pairs take hours."""
    (tmp_path / "first").mkdir()
    for number, first in enumerate(crashes(prepare, run, tmp_path / "first", ("kept",))):
        if number % every_first:
            continue

        def put(folder: Path, found: Path = first.folder) -> None:
            shutil.copytree(found, folder, dirs_exist_ok=True)

        again = tmp_path / f"again-{number}"
        again.mkdir()
        for crash in islice(crashes(put, run, again, (loss,)), number % every, None, every):
            check(crash.folder, (first, crash))


@pytest.mark.parametrize("begin", [pytest.param(prepare, marks=BEYOND_DEFAULT), prepare_with_more])
def test_a_disk_that_is_full_at_any_write_is_told_and_nothing_is_lost_or_doubled(
    tmp_path: Path, begin: Callable[[Path], None]
) -> None:
    begin(tmp_path / "original")
    seen = set[frozenset[tuple[Path, Content | None]]]()
    for stays_full in (True, False):
        for full_at in range(1, 1000):
            folder = tmp_path / f"disk-{stays_full}-{full_at}"
            shutil.copytree(tmp_path / "original", folder)
            storage = FullDisk(folder, full_at, stays_full=stays_full)
            with suppress(StorageError):
                run(storage, folder)
            if len(storage.calls) < full_at:
                assert full_at > 40
                break
            left = frozenset(tree_of(folder).items())
            if left not in seen:
                seen.add(left)
                visible = visible_values(folder)
                assert len(set(visible)) == len(visible), storage.refused
                check(folder, storage.refused)
            shutil.rmtree(folder)
    assert len(seen) > 10
