"""A file or a folder that cannot be read keeps one partition from being moved, and is told; the others are moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import StorageError, UnreadableLogError
from sparklog.jobs.export.job import ExportJob, ExportTask
from tests.jobs.tables import append, read
from tests.terminal import run
from tests.unreadable import KINDS, Kind, make_unreadable

SAID = {"folder": "no permission to read", "file": "no permission to read", "disk": "Input/output error"}
OF_VERIFY = {"disk": "the disk cannot read the bytes from position"}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in ("a-0", "events-0", "z-0"):
        for value in range(5):
            append(tmp_path / "logs" / name, f"{name} {value}")
    return tmp_path / "logs"


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_moves_all_other_partitions_and_the_next_goes_on(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    with monkeypatch.context() as patch:
        make_unreadable(patch, logs / "events-0", kind)
        for _ in range(2):
            with pytest.raises(UnreadableLogError, match=SAID[kind]) as caught:
                sparklog.export(logs, tmp_path / "out", processes=1)
            assert "events-0" in caught.value.message
            assert caught.value.others == ()
            assert {row["topic"] for row in rows_of(tmp_path)} == {"a", "z"}
    assert sparklog.export(logs, tmp_path / "out", processes=1).rows == 5
    assert len(rows_of(tmp_path)) == 15


def rows_of(tmp_path: Path) -> list[dict[str, str]]:
    names = sorted(path.parents[1].name for path in (tmp_path / "out").rglob("*.parquet"))
    assert len(names) == len(set(names))
    return [{"topic": name.removeprefix("topic=")} for name in names for _ in range(5)]


def test_a_block_that_goes_bad_after_the_plan_is_that_partitions_too(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ExportJob.plan

    def planned(job: ExportJob) -> list[ExportTask]:
        tasks = plan(job)
        assert all(task.damage is None for task in tasks)
        make_unreadable(monkeypatch, logs / "events-0", "disk", 300)
        return tasks

    monkeypatch.setattr(ExportJob, "plan", planned)
    with pytest.raises(UnreadableLogError, match=SAID["disk"]) as caught:
        sparklog.export(logs, tmp_path / "out", processes=1)
    assert any("events-0" in note for note in caught.value.__notes__)
    assert {row["topic"] for row in rows_of(tmp_path)} == {"a", "z"}


def test_a_target_that_cannot_be_written_to_still_ends_the_job(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageError("no space left on device")

    monkeypatch.setattr("sparklog.jobs.targets.staged_file.StagedFile.write", full)
    with pytest.raises(StorageError, match="no space left") as caught:
        sparklog.export(logs, tmp_path / "out", processes=1)
    assert not isinstance(caught.value, UnreadableLogError)


def test_a_topic_that_is_deleted_after_the_plan_is_that_partitions_too(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ExportJob.plan

    def planned(job: ExportJob) -> list[ExportTask]:
        tasks = plan(job)
        shutil.rmtree(logs / "events-0")
        return tasks

    monkeypatch.setattr(ExportJob, "plan", planned)
    with pytest.raises(UnreadableLogError, match=r"no such .*events-0"):
        sparklog.export(logs, tmp_path / "out", processes=1)
    assert {row["topic"] for row in rows_of(tmp_path)} == {"a", "z"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_names_every_log_that_cannot_be_read_and_copies_all_or_nothing(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    with monkeypatch.context() as patch:
        make_unreadable(patch, logs / "events-0", kind)
        make_unreadable(patch, logs / "z-0", kind)
        with pytest.raises(UnreadableLogError, match=SAID[kind]) as caught:
            sparklog.copy(logs, tmp_path / "out", processes=1)
        assert "events-0" in caught.value.message
        assert ["z-0" in str(each) for each in caught.value.others] == [True]
        result = run("copy", logs, tmp_path / "out", "--processes", "1")
        assert result.exit_code == 1
        assert [name in result.stderr for name in ("a-0", "events-0", "z-0")] == [False, True, True]
        assert not (tmp_path / "out" / "a-0").exists()
        sparklog.copy(logs, tmp_path / "out", topics="a", processes=1)
    assert len(read(tmp_path / "out")) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_describe_and_verify_go_on_with_the_other_partitions(
    logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Kind
) -> None:
    (tmp_path / "keys").write_text("key\nk\n")
    make_unreadable(monkeypatch, logs / "events-0", kind)
    for paths in ([logs], [logs / "a", logs / "events", logs / "z"]):
        described = run("describe", *paths, "--full")
        assert described.exit_code == 1
        assert "events-0" in described.stderr
        assert SAID[kind] in described.stderr
        assert {line.split()[0] for line in described.stdout.splitlines()} >= {"a", "events", "z"}
        for absent in ((), ("--absent", tmp_path / "keys")):
            verified = run("verify", *paths, *absent)
            assert verified.exit_code == 1
            assert OF_VERIFY.get(kind, SAID[kind]) in verified.stdout.replace("\n", " ")
            assert "3 partitions checked" in verified.stdout
