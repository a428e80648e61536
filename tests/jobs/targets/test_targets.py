"""Where an export may go, and what becomes of a target that somebody has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import CorruptCheckpointError, InvalidOptionError, LockedError, SeglogError, StorageError
from sparklog.jobs.targets.targets import TableFolder
from sparklog.storage.local_writing import LocalWritableStorage
from tests.jobs.tables import append, files, moved_to, rows
from tests.storage.full_disk import FullDisk


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    append(tmp_path / "logs" / "a-0", "a", "b")
    return tmp_path / "logs"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("logs", r"is in .*/logs, whose logs are read: a folder of others in a log directory stops a broker"),
        ("logs/out", r"is in .*/logs, whose logs are read"),
        ("link/out", r"is in .*/logs, whose logs are read"),
        ("", r"the logs of .*/logs are in the target"),
        ("file", "is a file, and must be a folder"),
        ("broker", "is a log directory, where a folder of others stops a broker"),
        ("broker/out", "is in a log directory"),
        ("brokerless", "is a log directory"),
    ],
)
def test_a_target_where_no_table_can_be_is_refused_before_anything_is_made(
    tmp_path: Path, logs: Path, target: str, message: str
) -> None:
    (tmp_path / "link").symlink_to(logs)
    (tmp_path / "file").touch()
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "meta.properties").touch()
    (tmp_path / "brokerless" / "b-0").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidOptionError, match=message):
        moved_to(tmp_path / target, source=logs)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_target_behind_a_link_is_one_target(tmp_path: Path, logs: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    moved_to(tmp_path / "link", source=logs)
    assert moved_to(tmp_path / "disk", source=logs).rows == 0
    assert [row["value"] for row in rows(tmp_path / "disk")] == [b"a", b"b"]
    held = TableFolder(LocalWritableStorage(), str(tmp_path / "disk"), lock_timeout_seconds=0.1).held()
    with held, pytest.raises(LockedError, match="another job moves to"):
        moved_to(tmp_path / "link", source=logs, lock_timeout_seconds=0.1)


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    target = TableFolder(FullDisk(tmp_path / "disk", 1, stays_full=True), str(tmp_path / "disk" / "out"))
    with pytest.raises(StorageError, match="the disk is full; make room"), target.held():
        pass
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "arrow"}, r"has format 'parquet', and now it is 'arrow': a table has one shape"),
        ({"columns": ["value"]}, r"has columns 'key binary, value binary, .*', and now it is 'value binary'"),
        ({"partition_by": []}, r"has columns|has partition_by 'topic, partition', and now it is 'nothing'"),
        ({"partition_by": ["topic", "partition", "date"]}, r"has partition_by 'topic, partition', and now"),
    ],
)
def test_a_table_keeps_its_shape(tmp_path: Path, logs: Path, given: dict[str, Any], message: str) -> None:
    moved_to(tmp_path / "out", source=logs)
    append(logs / "a-0", "c")
    with pytest.raises(InvalidOptionError, match=message):
        moved_to(tmp_path / "out", source=logs, **given)
    assert moved_to(tmp_path / "out", source=logs).rows == 1


def test_what_a_user_removes_is_not_moved_again(tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "out"
    moved_to(out, source=logs)
    shutil.rmtree(out / "topic=a")
    append(logs / "a-0", "c")
    assert moved_to(out, source=logs).rows == 1
    assert [row["value"] for row in rows(out)] == [b"c"]


def test_a_ledger_of_a_later_version_is_left_as_it_is(tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "out"
    moved_to(out, source=logs)
    ledger = out / "_seglog" / "ledger.jsonl"
    data = ledger.read_bytes().replace(b'"version":1', b'"version":2') + b"what we do not know"
    ledger.write_bytes(data)
    staged = out / "_seglog" / "x.staged"
    staged.touch()
    with pytest.raises(CorruptCheckpointError, match="version 2 of ledgers, and this sparklog knows 1"):
        moved_to(out, source=logs)
    assert ledger.read_bytes() == data
    assert staged.exists()


def test_the_ledger_says_what_was_moved_and_how(tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "out"
    moved_to(out, source=logs, columns="value")
    settings, moved, commit = (json.loads(line) for line in (out / "_seglog" / "ledger.jsonl").read_text().splitlines())
    assert settings["settings"] == {
        "format": "parquet",
        "columns": "value binary",
        "partition_by": "topic, partition",
        "where": "",
        "isolation_level": "read_committed",
        "key_format": "raw",
        "value_format": "raw",
    }
    (file,) = moved.pop("files")
    assert (moved["topic"], moved["partition"], moved["from"], moved["to"], moved["rows"]) == ("a", 0, 0, 2, 2)
    assert file["path"] in files(out)
    assert file["bytes"] == (out / file["path"]).stat().st_size
    assert (commit["number"], commit["lines"]) == (0, 2)


def test_a_staged_file_that_is_gone_is_told_and_nothing_is_moved(tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "out"

    class Sweeper:
        def planned(self, tasks: int, size_bytes: int) -> None:
            pass

        def advanced(self, name: str, more: Any) -> None:  # noqa: ARG002
            for path in (out / "_seglog").glob("*.staged"):
                path.unlink()

    with pytest.raises(SeglogError, match=r"no such file|gone"):
        moved_to(out, source=logs, watch=Sweeper())
    assert files(out) == []
    assert moved_to(out, source=logs).rows == 2
