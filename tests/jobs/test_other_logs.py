"""An export goes on in the log that was moved, and never in another of the same name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import DataLossError
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.export.job import ExportJob
from sparklog.jobs.ledger import Moved, commits, encode_commit
from sparklog.storage.local import LocalStorage
from sparklog.topic.cutting import truncate_to
from tests.jobs.lakes import Delta, Iceberg
from tests.jobs.tables import append, files, moved_to, rows

NOW_MS = 1_700_000_000_000


@dataclass
class Files:
    folder: Path

    def given(self) -> dict[str, Any]:
        return {}

    def rows(self) -> list[dict[str, Any]]:
        return rows(self.folder)


Table = Files | Delta | Iceberg


@pytest.fixture(params=[Files, Delta, Iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made: Table = request.param(tmp_path / "table")
    return made


def export_to(table: Table, source: Path, **given: Any) -> int:
    return moved_to(table.folder, source=source, **table.given(), **given).rows


def values(table: Table) -> list[bytes]:
    return sorted(row["value"] for row in table.rows())


def append_at(folder: Path, now_ms: int, *written: str) -> None:
    with sparklog.PartitionLog.open(folder) as log:
        log.append(pa.table({"value": list(written)}), now_ms=now_ms)


def made_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    append_at(folder, NOW_MS, "x", "y", "z", "z")


def made_anew_with_the_same_batches(folder: Path) -> None:
    shutil.rmtree(folder)
    append_at(folder, NOW_MS, "1", "2", "3")
    append_at(folder, NOW_MS, "4")


def cut_and_written_on(folder: Path) -> None:
    truncate_to(folder, 0)
    append_at(folder, NOW_MS + 5, "x", "y", "z", "z")


def cut_and_written_on_at_the_same_time(folder: Path) -> None:
    truncate_to(folder, 0)
    append_at(folder, NOW_MS, "x", "y", "z")
    append_at(folder, NOW_MS, "z")


def cut_and_written_on_with_earlier_times(folder: Path) -> None:
    truncate_to(folder, 0)
    append_at(folder, NOW_MS - 5, "longer x", "longer y", "longer z")
    append_at(folder, NOW_MS, "z")


@pytest.mark.parametrize(
    "change",
    [
        made_anew,
        made_anew_with_the_same_batches,
        cut_and_written_on,
        cut_and_written_on_at_the_same_time,
        cut_and_written_on_with_earlier_times,
    ],
)
def test_log_that_is_another_now_is_refused(tmp_path: Path, table: Table, change: Callable[[Path], None]) -> None:
    logs = tmp_path / "logs"
    append_at(logs / "a-0", NOW_MS, "1", "2", "3")
    append_at(logs / "b-0", NOW_MS, "b1")
    assert export_to(table, logs) == 4
    change(logs / "a-0")
    append_at(logs / "b-0", NOW_MS, "b2")
    with pytest.raises(DataLossError, match=r"a-0.*(made again|cut and written on).*another target.*offset 3.*--adopt"):
        export_to(table, logs)
    assert values(table) == [b"1", b"2", b"3", b"b1", b"b2"]
    with pytest.raises(DataLossError, match="a-0"):
        export_to(table, logs)
    # Whoever means it goes on behind what was moved, and has to say so once.
    assert export_to(table, logs, adopt=True) == 1
    append_at(logs / "a-0", NOW_MS, "5")
    assert export_to(table, logs) == 1


def test_second_directory_is_refused_unless_it_is_a_copy_of_the_first(tmp_path: Path, table: Table) -> None:
    append_at(tmp_path / "one" / "a-0", NOW_MS, "1", "2")
    append_at(tmp_path / "two" / "a-0", NOW_MS, "1", "2", "3")
    assert export_to(table, tmp_path / "one") == 2
    with pytest.raises(DataLossError, match="is another log of that name"):
        export_to(table, tmp_path / "two")
    shutil.copytree(tmp_path / "one", tmp_path / "restored")
    assert export_to(table, tmp_path / "restored") == 0
    append_at(tmp_path / "restored" / "a-0", NOW_MS - 9, "3")
    append_at(tmp_path / "one" / "a-0", NOW_MS, "4", "4")
    assert export_to(table, tmp_path / "one") == 2
    append_at(tmp_path / "restored" / "a-0", NOW_MS, "5")
    append_at(tmp_path / "restored" / "a-0", NOW_MS, "6")
    with pytest.raises(DataLossError, match="the batch before offset 4"):
        export_to(table, tmp_path / "restored")
    assert values(table) == [b"1", b"2", b"4", b"4"]


def test_what_cleaning_leaves_of_a_log_is_the_same_log(tmp_path: Path, table: Table) -> None:
    logs = tmp_path / "logs"
    append(logs / "a-0", "1", "2")
    assert export_to(table, logs) == 2
    sparklog.clean(logs, recompress="zstd", processes=1)
    append(logs / "a-0", "3")
    assert export_to(table, logs) == 1
    assert values(table) == [b"1", b"2", b"3"]


def test_log_that_is_replaced_between_plan_and_task_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, plan = tmp_path / "logs", ExportJob.plan
    append_at(logs / "a-0", NOW_MS, "1", "2", "3")

    def replaced(job: ExportJob) -> Any:
        planned = plan(job)
        made_anew(logs / "a-0")
        return planned

    monkeypatch.setattr(ExportJob, "plan", replaced)
    with pytest.raises(DataLossError, match=r"was to be moved, and its log has another log id now"):
        moved_to(tmp_path / "table", source=logs)
    assert files(tmp_path / "table") == []


def test_ledger_of_an_earlier_version_is_read_and_gains_the_identity(tmp_path: Path) -> None:
    logs, ledger = tmp_path / "logs", tmp_path / "table" / "_seglog" / "ledger.jsonl"
    append(logs / "a-0", "1", "2")
    moved_to(tmp_path / "table", source=logs)
    (commit,) = commits(LocalStorage(), str(ledger))
    plain = [
        Moved(*each.topic_partition, 0, 2, 2, 10, files=each.files) if isinstance(each, Moved) else each
        for each in commit.entries
    ]
    ledger.write_bytes(encode_commit(0, "export", commit.run, 0, plain))
    assert b"log_id" not in ledger.read_bytes()
    append(logs / "a-0", "3")
    assert moved_to(tmp_path / "table", source=logs).rows == 1
    shutil.rmtree(logs)
    append(logs / "a-0", "1", "2", "3", "4")
    with pytest.raises(DataLossError, match="is another log of that name"):
        moved_to(tmp_path / "table", source=logs)
    assert list(verify_ledger(tmp_path / "table")) == []
