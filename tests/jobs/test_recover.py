"""What `recover` does with what loads and copies have staged: dead ones are swept, and living ones left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.topic.recover import RecoverOptions, recover_directory
from sparklog.write.recovery_actions import Action
from tests.jobs.loads import leftovers, load_job, run, strings, values, write_parquet
from tests.places import directory_at
from tests.storage.crash import CrashingStorage, Stopped
from tests.topic.staged import NOW_MS


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    write_parquet(tmp_path / "in.parquet", strings(["1", "2", "3"], partition=[0, 1, 0]))
    return [tmp_path / "in.parquet"]


def recover(directory: Path, *, age_ms: int = 1 << 40, dry_run: bool = False) -> list[str]:
    """Return what was removed, by the names of the files, with what was said."""
    options = RecoverOptions(LogConfig(), age_ms, dry_run=dry_run)
    found = list(recover_directory(directory_at(directory), [], options, NOW_MS))
    assert all(isinstance(each, Action) for each in found)
    return sorted(f"{Path(each.path).name}: {each.what}" for each in found if isinstance(each, Action))


@contextmanager
def dead_load(inputs: list[Path], logs: Path) -> Iterator[None]:
    """Leave what a load leaves that dies when it has staged its rows."""
    job = load_job(inputs, logs)
    held = job.held()
    held.__enter__()
    job.run(job.plan()[0], lambda _: None)
    there = {name: (logs / name).read_bytes() for name in leftovers(logs)}
    assert len(there) == 4
    held.__exit__(None, None, None)
    for name, content in there.items():
        (logs / name).write_bytes(content)
    yield


def test_what_a_dead_load_has_staged_is_removed_and_said(tmp_path: Path, inputs: list[Path]) -> None:
    logs = tmp_path / "logs"
    with dead_load(inputs, logs):
        before = leftovers(logs)
    said = [f"{name}: removed, staged by a load or a copy that died" for name in before]
    assert recover(logs, dry_run=True) == said
    assert leftovers(logs) == before
    assert recover(logs) == [each for each in said if "running" not in each]
    assert leftovers(logs) == []
    assert recover(logs) == []
    assert run(load_job(inputs, logs)).records == 3


@pytest.mark.parametrize("age_ms", [0, 1 << 40])
def test_a_load_that_lives_keeps_what_it_has_staged(tmp_path: Path, inputs: list[Path], age_ms: int) -> None:
    job = load_job(inputs, tmp_path / "logs")
    with job.held():
        result = job.run(job.plan()[0], lambda _: None)
        before = leftovers(tmp_path / "logs")
        assert recover(tmp_path / "logs", age_ms=age_ms, dry_run=True) == []
        assert recover(tmp_path / "logs", age_ms=age_ms) == []
        assert leftovers(tmp_path / "logs") == before
        job.commit([result])
    assert values(tmp_path / "logs" / "events-0") == [b"1", b"3"]


def test_what_was_decided_is_finished_and_the_rest_removed(tmp_path: Path, inputs: list[Path]) -> None:
    """Wherever a load dies: its rows are all there or none, and nothing of it is left."""
    number, finished = 0, set()
    while True:
        number += 1
        logs = tmp_path / str(number)
        logs.mkdir()
        try:
            run(load_job(inputs, logs, CrashingStorage(logs, number)))
            break
        except Stopped:
            was_decided = (logs / files.JOURNAL).exists()
            would = recover(logs, dry_run=True)
            assert was_decided == any(each.startswith(f"{files.JOURNAL}:") for each in would)
            recover(logs)
            assert leftovers(logs) == [], number
            finished.add(was_decided)
    assert finished == {True, False}
