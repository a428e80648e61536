"""A copy that dies or fails anywhere: all of it is there or nothing, and a rerun adds what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import NOTHING_VISIBLE, WILL_BE_VISIBLE, SeglogError
from sparklog.jobs.copy.job import CopyJob
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.log.config import LogConfig
from tests.build import control_batch, write_partition
from tests.jobs.copies import copy, copy_job, moved, records, refuse_wrong_state, source
from tests.log.logs import batch
from tests.storage.crash import CrashingStorage, Loss, crashes
from tests.storage.full_disk import FullDisk
from tests.topic.staged import findings

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=100)


def write_source(directory: Path) -> None:
    """Two partitions, of which one has transactions, and gaps as the cleaner leaves them."""
    of_producer = {"producer_id": 7, "producer_epoch": 1, "transactional": True}
    write_partition(
        directory / "events-0",
        [
            batch(3),
            batch(20, 5, base_sequence=0, **of_producer),
            control_batch("abort", 30, 7, 1),
            batch(31, 5, base_sequence=5, **of_producer),
            control_batch("commit", 40, 7, 1),
            batch(50, 30),
            batch(90, 2, base_sequence=10, **of_producer),
        ],
        base_offset=3,
    )
    write_partition(directory / "events-1", [batch(n * 10) for n in range(3)])


@pytest.mark.parametrize("keeps_offsets", [True, False], ids=["kept", "counted on"])
def test_copy_that_stops_anywhere_is_seen_whole_or_not_at_all(tmp_path: Path, keeps_offsets: bool) -> None:
    logs = tmp_path / "logs"
    write_source(logs)
    wanted = {name: records(logs / name) for name in ("events-0", "events-1")}

    def prepare(folder: Path) -> None:
        pass

    def run(storage: CrashingStorage, folder: Path) -> None:
        of_job = {"keeps_offsets": keeps_offsets, "syncs_tasks": False, "config": CONFIG}
        run_job(copy_job(folder, source(logs), storage=storage, **of_job), LocalRunner(1))

    outcomes = set()
    (tmp_path / "crashes").mkdir()
    losses: tuple[Loss, ...] = ("torn", "lost") if keeps_offsets else ("kept", "zeros")
    for crash in crashes(prepare, run, tmp_path / "crashes", losses):
        seen = {path.name: records(path) for path in sorted(crash.folder.glob("events-*")) if any(path.iterdir())}
        seen = {name: found for name, found in seen.items() if found}
        assert seen in ({}, wanted), str(crash)
        copy(crash.folder, source(logs), keeps_offsets=keeps_offsets, config=CONFIG)
        assert {name: records(crash.folder / name) for name in wanted} == wanted, str(crash)
        assert [(each.start_offset, each.end_offset) for each in moved(crash.folder)] == [(3, 92), (0, 30)], str(crash)
        assert list(crash.folder.rglob("*.staged")) == [], str(crash)
        for name in wanted:
            refuse_wrong_state(crash.folder / name)
        assert findings(crash.folder) == [], str(crash)
        outcomes.add(bool(seen))
    assert outcomes == {True, False}


def outcome_of(job: CopyJob) -> tuple[str, str]:
    """Run a copy; return what its error says, and what that says of what is visible."""
    try:
        run_job(job, LocalRunner(1))
    except SeglogError as error:
        return str(error), error.outcome
    return "nothing was wrong", ""


@pytest.mark.parametrize("stays_full", [True, False])
def test_full_disk_at_any_change_is_told_truly_and_leaves_nothing(tmp_path: Path, stays_full: bool) -> None:
    logs = tmp_path / "logs"
    write_source(logs)
    wanted = {name: records(logs / name) for name in ("events-0", "events-1")}
    full_at, said = 0, ""
    while not said.startswith("nothing"):
        full_at += 1
        target = tmp_path / str(full_at)
        target.mkdir()
        disk = FullDisk(target, full_at, stays_full=stays_full)
        said, outcome = outcome_of(copy_job(target, source(logs), storage=disk, config=CONFIG))
        visible = {path.name: records(path) for path in target.glob("events-*")}
        assert outcome in ("", NOTHING_VISIBLE, WILL_BE_VISIBLE), said
        assert outcome != NOTHING_VISIBLE or not any(visible.values()), said
        assert outcome or visible == wanted, said
        disk.make_room()
        copy(target, source(logs), config=CONFIG)
        assert {name: records(target / name) for name in wanted} == wanted, said
        assert list(target.rglob("*.staged")) == [], said
    assert full_at > 20
