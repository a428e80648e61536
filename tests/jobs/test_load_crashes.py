"""Loads that stop, or find no room: the next load of the same files leaves each of their rows once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.errors import ALL_VISIBLE, NOTHING_VISIBLE, WILL_BE_VISIBLE, SeglogError
from sparklog.log import files
from tests.jobs.loads import leftovers, load_job, run, strings, values, write_parquet
from tests.storage.crash import CrashingStorage, crashes
from tests.storage.full_disk import FullDisk
from tests.topic.staged import findings

ROWS = [f"{n}" for n in range(30)]


def make_inputs(folder: Path) -> list[Path]:
    folder.mkdir()
    for number in range(3):
        rows = ROWS[number * 10 : number * 10 + 10]
        write_parquet(folder / f"{number}.parquet", strings(rows, partition=[int(row) % 2 for row in rows]))
    return sorted(folder.iterdir())


def make_folders(folder: Path) -> list[Path]:
    """Write the rows into two folders, by their partitions, so that tasks know their offsets beforehand."""
    for partition in range(2):
        (folder / f"partition={partition}").mkdir(parents=True)
        write_parquet(folder / f"partition={partition}" / "0.parquet", strings(ROWS[partition:10:2]))
        rows = ROWS[10 + partition :: 2]
        write_parquet(folder / f"partition={partition}" / "1.parquet", strings(rows), row_group_size=4)
    return sorted(folder.glob("*/*"), key=lambda path: path.name)


def seen(directory: Path) -> list[str]:
    """Return what readers see, sorted by number; the order in each partition is checked."""
    found: list[str] = []
    for partition in range(2):
        folder = directory / f"events-{partition}"
        if folder.is_dir():
            of_partition = [int(each or b"") for each in values(folder)]
            assert of_partition == sorted(of_partition)
            found += map(str, of_partition)
    return sorted(found, key=int)


@pytest.mark.parametrize(("make", "files_before"), [(make_inputs, 1), (make_folders, 2)])
def test_a_load_that_stops_anywhere_is_seen_whole_or_not_at_all_and_its_rerun_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], list[Path]], files_before: int
) -> None:
    """Every call, and every loss; the rerun also removes what the dead one has staged."""
    monkeypatch.setattr("sparklog.jobs.load.plan._TASK_BYTES_MIN", 1)
    monkeypatch.setattr("sparklog.jobs.load.plan._FOOTERS_FILE_BYTES_MIN", 0)
    inputs = make(tmp_path / "in")

    def prepare(folder: Path) -> None:
        assert run(load_job(inputs[:files_before], folder)).records == 10
        (folder / files.CLEAN_SHUTDOWN).write_text("{}")

    def load(storage: CrashingStorage, folder: Path) -> None:
        run(load_job(inputs, folder, storage, syncs_tasks=False))

    outcomes = set()
    for crash in crashes(prepare, load, tmp_path):
        before = seen(crash.folder)
        assert before in (ROWS[:10], ROWS), str(crash)
        was_decided = (crash.folder / files.JOURNAL).exists()
        again = run(load_job(inputs, crash.folder))
        assert seen(crash.folder) == ROWS, str(crash)
        assert again.records == (0 if was_decided or before == ROWS else 20), str(crash)
        assert leftovers(crash.folder) == [], str(crash)
        assert findings(crash.folder) == [], str(crash)
        outcomes.add((before == ROWS, was_decided))
    assert outcomes >= {(False, False), (False, True), (True, False)}


def test_a_disk_that_is_full_anywhere_is_said_and_the_rerun_repeats_nothing(tmp_path: Path) -> None:
    inputs = make_inputs(tmp_path / "in")
    outcomes, number = set(), 0
    while True:
        number += 1
        folder = tmp_path / f"{number}"
        folder.mkdir()
        disk = FullDisk(folder, number, stays_full=number % 2 == 0)
        try:
            run(load_job(inputs, folder, disk))
        except SeglogError as error:
            outcomes.add(error.outcome or NOTHING_VISIBLE)
            is_there = error.outcome == WILL_BE_VISIBLE
        else:
            if disk.refused == "nothing":
                break
            is_there = True
        disk.make_room()
        assert run(load_job(inputs, folder)).records == (0 if is_there else 30), disk.refused
        assert seen(folder) == ROWS, disk.refused
        assert leftovers(folder) == [], disk.refused
        shutil.rmtree(folder)
    assert outcomes == {NOTHING_VISIBLE, WILL_BE_VISIBLE}
    assert ALL_VISIBLE not in outcomes


def test_a_load_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    job = load_job(make_inputs(tmp_path / "in"), tmp_path / "logs")

    def stop() -> None:
        with job.held():
            job.run(job.plan()[0], lambda _: None)
            assert leftovers(tmp_path / "logs") != []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert leftovers(tmp_path / "logs") == []
    assert [path for path in (tmp_path / "logs").iterdir() if path.is_dir()] == []


def test_what_a_task_of_a_dead_load_stages_late_is_never_there(tmp_path: Path) -> None:
    inputs = make_inputs(tmp_path / "in")
    dead = load_job(inputs, tmp_path / "logs")
    with dead.held():
        tasks = dead.plan()
        shutil.copytree(tmp_path / "logs", tmp_path / "killed")
    # What a driver that is killed then leaves.
    shutil.rmtree(tmp_path / "logs")
    shutil.move(tmp_path / "killed", tmp_path / "logs")
    run(load_job(inputs, tmp_path / "logs"))
    with pytest.raises(SeglogError, match="has ended"):
        dead.run(tasks[0], lambda _: None)
    assert leftovers(tmp_path / "logs") == []
    assert seen(tmp_path / "logs") == ROWS
