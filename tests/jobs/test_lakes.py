"""Delta Lake and Iceberg tables: every row once, also after crashes and beside other writers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError as DeltaCommitFailedError
from deltalake.exceptions import DeltaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
)
from pyiceberg.table import Transaction

from sparklog.errors import CommitError, DataLossError, InvalidOptionError, StorageError, ValueDecodeError
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.export.job import ExportJob
from sparklog.jobs.files.formats import ParquetFormat
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.source import LogSource
from sparklog.storage.local_writing import LocalWritableStorage
from tests.jobs.lakes import Delta, Iceberg, Lake
from tests.jobs.tables import append, files, moved_to, read
from tests.jobs.targets.test_outputs import write_times
from tests.storage.crash import CrashingStorage, Stopped

pytestmark = pytest.mark.filterwarnings("ignore")
FOLDERS = ["topic", "partition"]


@pytest.fixture(params=[Delta, Iceberg])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    write_logs(tmp_path)
    made: Lake = request.param(tmp_path / "table")
    return made


def write_logs(path: Path) -> None:
    append(path / "logs" / "a-0", "1", "2")
    append(path / "logs" / "_b-1", "3")


def export_to(lake: Lake, **given: Any) -> Any:
    return moved_to(lake.folder, source=lake.folder.parent / "logs", **{**lake.given(), **given})


def of_lake(lake: Lake) -> list[tuple[Any, ...]]:
    """Return the rows of a table that are records, as they are compared."""
    return sorted((row["topic"], row["partition"], row["offset"], row["value"]) for row in lake.rows() if row["topic"])


def of_logs(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted(
        (row["topic"], row["partition"], row["offset"], row["value"]) for row in read(lake.folder.parent / "logs")
    )


def tables_files(lake: Lake) -> set[str]:
    return {Path(name).name for name in files(lake.folder) if name.endswith(".parquet")}


@pytest.mark.parametrize("by", [FOLDERS, ["topic", "date"], ["date", "hour"], []])
def test_rows_are_moved_once_and_the_table_says_how_far(lake: Lake, by: list[str]) -> None:
    assert export_to(lake, partition_by=by).rows == 3
    assert export_to(lake, partition_by=by).rows == 0
    append(lake.folder.parent / "logs" / "a-0", "4")
    append(lake.folder.parent / "logs" / "c-0", "5")
    assert export_to(lake, partition_by=by).rows == 2
    assert of_lake(lake) == of_logs(lake)
    assert tables_files(lake) == lake.known()
    assert [path.name for path in (lake.folder / "_seglog").iterdir()] == ["lock"]


def test_iceberg_tables_have_no_encoding_that_its_reader_in_spark_has_only_since_lately(tmp_path: Path) -> None:
    write_logs(tmp_path)
    export_to(Iceberg(tmp_path / "table"))
    groups = [pq.read_metadata(path).row_group(0) for path in (tmp_path / "table").rglob("*.parquet")]
    found = {each for group in groups for at in range(group.num_columns) for each in group.column(at).encodings}
    assert found <= {"PLAIN", "RLE", "RLE_DICTIONARY"}
    assert len(groups) == 2


def test_columns_have_the_values_of_the_records(lake: Lake) -> None:
    export_to(lake)
    first = min(lake.rows(), key=lambda row: (row["topic"] != "a", row["offset"]))
    (expected,) = (row for row in read(lake.folder.parent / "logs") if (row["topic"], row["offset"]) == ("a", 0))
    # Who has no headers has null, or, as pyiceberg reads it, none.
    assert {**first, "headers": first["headers"] or None} == {**expected, "headers": expected["headers"] or None}


def test_another_writer_is_not_disturbed_and_offsets_stay_known(lake: Lake) -> None:
    export_to(lake, partition_by=[])
    for number in range(3):
        lake.append([b"other %d" % number])
    append(lake.folder.parent / "logs" / "a-0", "4")
    assert export_to(lake, partition_by=[]).rows == 1
    assert of_lake(lake) == of_logs(lake)
    assert len(lake.rows()) == 7


def test_a_topic_that_was_made_anew_is_refused(lake: Lake) -> None:
    logs = lake.folder.parent / "logs"
    metadata = logs / "a-0" / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: C{'A' * 21}\n")
    export_to(lake)
    append(logs / "a-0", "4")
    metadata.write_text(f"version: 0\ntopic_id: B{'A' * 21}\n")
    with pytest.raises(DataLossError, match="it was deleted and made again"):
        export_to(lake)


def test_a_table_of_other_columns_is_refused(lake: Lake) -> None:
    export_to(lake, columns=["topic", "partition", "offset", "value"])
    with pytest.raises(InvalidOptionError, match=r"has other columns: value \(binary there, string here\)"):
        export_to(lake, columns=["topic", "partition", "offset", "value"], value_format="string")
    with pytest.raises(InvalidOptionError, match=r"has other columns: .*value \(binary there, none here\)"):
        export_to(lake, columns=["topic", "partition", "offset"])
    with pytest.raises(InvalidOptionError, match=r"is partitioned by topic, partition, and this job by topic"):
        export_to(lake, columns=["topic", "partition", "offset", "value"], partition_by=["topic"])


def test_a_crash_at_any_call_leaves_what_a_rerun_completes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    root = lake.folder.parent
    for stop_at in range(1, 200):
        try:
            run(lake, CrashingStorage(root, stop_at))
            assert stop_at > 20
            return
        except Stopped:
            found = of_lake(lake) if stop_at > 10 and (lake.folder / "_delta_log").exists() else []
            assert len(set(found)) == len(found)
        run(lake, LocalWritableStorage())
        assert of_lake(lake) == of_logs(lake), stop_at
        assert tables_files(lake) == lake.known(), stop_at
        assert [path.name for path in (lake.folder / "_seglog").iterdir()] == ["lock"]
        shutil.rmtree(lake.folder)
        (root / "catalog.db").unlink(missing_ok=True)


def run(lake: Lake, storage: Any) -> None:
    source = LogSource((str(lake.folder.parent / "logs"),))
    job = ExportJob(source, lake.target(storage), ParquetFormat(), run_id="run", workers=2)
    run_job(job, LocalRunner(1), commit_interval_ms=0)


def test_a_commit_that_the_table_refuses_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    export_to(lake, topics="_b")
    before = tables_files(lake)

    def refuse(*given: Any, **more: Any) -> None:
        raise (DeltaCommitFailedError if isinstance(lake, Delta) else CommitFailedException)("somebody was faster")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", refuse)
        patched.setattr(Transaction, "commit_transaction", refuse)
        with pytest.raises(CommitError, match="does not take a commit, and nothing is moved: somebody was faster"):
            export_to(lake)
    assert tables_files(lake) == before
    assert export_to(lake).rows == 2
    assert of_lake(lake) == of_logs(lake)


def test_a_writer_that_commits_between_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Iceberg(tmp_path / "table")
    append(tmp_path / "logs" / "a-0", "1", "2")
    export_to(lake, partition_by=[])
    append(tmp_path / "logs" / "a-0", "3")
    add_files, left = Transaction.add_files, [b"x", b"y"]

    def add_after_others(transaction: Transaction, *given: Any, **more: Any) -> None:
        if left:
            lake.append([left.pop()])
        add_files(transaction, *given, **more)

    monkeypatch.setattr(Transaction, "add_files", add_after_others)
    export_to(lake, partition_by=[])
    assert of_lake(lake) == of_logs(lake)
    assert sorted(row["value"] for row in lake.rows()) == [b"1", b"2", b"3", b"x", b"y"]


def test_a_run_elsewhere_that_moved_the_same_is_not_doubled(lake: Lake) -> None:
    export_to(lake)
    append(lake.folder.parent / "logs" / "a-0", "4")
    target = lake.target(LocalWritableStorage())
    source = LogSource((str(lake.folder.parent / "logs"),))
    job = ExportJob(source, target, ParquetFormat(), run_id="run", workers=1)
    with job.held():
        (task,) = job.plan()
        first, second = job.run(task, lambda _: None), job.run(task, lambda _: None)
        target.commit(first, job.table(), "run", 0)
        with pytest.raises(CommitError, match=r"offsets up to 3 of a-0 were moved by another run meanwhile"):
            target.commit(second, job.table(), "run", 0)
    assert of_lake(lake) == of_logs(lake)


def test_a_run_elsewhere_that_commits_between_is_not_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Iceberg(tmp_path / "table")
    append(tmp_path / "logs" / "a-0", "1", "2")
    target = lake.target(LocalWritableStorage())
    job = ExportJob(LogSource((str(tmp_path / "logs"),)), target, ParquetFormat(), run_id="run", workers=1)
    add_files = Transaction.add_files
    left: list[Any] = []

    def add_after_the_other(transaction: Transaction, *given: Any, **more: Any) -> None:
        if left:
            target.commit(left.pop(), job.table(), "other", 0)
        add_files(transaction, *given, **more)

    monkeypatch.setattr(Transaction, "add_files", add_after_the_other)
    with job.held():
        (task,) = job.plan()
        first, second = job.run(task, lambda _: None), job.run(task, lambda _: None)
        left.append(first)
        with pytest.raises(CommitError, match=r"offsets up to 2 of a-0 were moved by another run meanwhile"):
            target.commit(second, job.table(), "run", 0)
    assert of_lake(lake) == of_logs(lake)


def test_offsets_of_iceberg_are_known_when_snapshots_have_expired(tmp_path: Path) -> None:
    lake = Iceberg(tmp_path / "table")
    append(tmp_path / "logs" / "a-0", "1", "2")
    export_to(lake, partition_by=[])
    lake.append([b"x"])
    with lake.opened() as catalog:
        table = catalog.load_table("db.rows")
        (mark,) = json.loads(table.properties["sparklog.offsets"]).values()
        assert mark | {"from": 0, "to": 2, "rows": 2, "topic_id": None, "leader_epoch": 0} == mark
        assert mark.keys() >= {"log_id", "end_batch"}
        newest = table.current_snapshot()
        assert newest is not None
        for snapshot in table.snapshots():
            if snapshot.snapshot_id != newest.snapshot_id:
                table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert export_to(lake, partition_by=[]).rows == 0


def fail_to_commit(patched: pytest.MonkeyPatch, error: Exception, *, is_taken: bool = False) -> None:
    """Let both kinds of tables fail with an error as they commit, or when they have."""

    def failing(commit: Any) -> Any:
        def fail(*given: Any, **more: Any) -> None:
            if is_taken:
                commit(*given, **more)
            raise error

        return fail

    patched.setattr(DeltaTable, "create_write_transaction", failing(DeltaTable.create_write_transaction))
    patched.setattr(Transaction, "commit_transaction", failing(Transaction.commit_transaction))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PermissionError(13, "Permission denied"), StorageError, "may not be written to, and nothing is moved"),
        (OSError(28, "No space left"), CommitError, "does not take a commit, and nothing is moved: .*No space left"),
        (DeltaError("the table is of a later protocol"), CommitError, "and nothing is moved: the table is of a later"),
    ],
)
def test_errors_of_a_commit_say_what_to_do_and_a_rerun_moves_each_row_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], said: str
) -> None:
    refused_and_moved_by_the_next(lake, monkeypatch, error, kind, said)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ForbiddenError("not yours"), StorageError, "may not be written to, and nothing is moved: not yours"),
        (NoSuchTableError("dropped"), CommitError, "is gone from its catalog, and nothing is moved: dropped"),
        (CommitStateUnknownException("504"), CommitError, "may still take a commit whose answer was lost: 504"),
    ],
)
def test_errors_of_a_catalog_say_what_to_do_and_a_rerun_moves_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], said: str
) -> None:
    write_logs(tmp_path)
    lake = Iceberg(tmp_path / "table")
    refused_and_moved_by_the_next(lake, monkeypatch, error, kind, said)


def refused_and_moved_by_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], said: str
) -> None:
    with monkeypatch.context() as patched:
        fail_to_commit(patched, error)
        with pytest.raises(kind, match=said):
            export_to(lake)
    assert of_lake(lake) == []
    assert export_to(lake).rows == 3
    assert of_lake(lake) == of_logs(lake)
    assert tables_files(lake) == lake.known()


def test_an_error_behind_a_commit_that_was_taken_is_none(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        fail_to_commit(patched, CommitStateUnknownException("a checkpoint failed"), is_taken=True)
        assert export_to(lake).rows == 3
    assert export_to(lake).rows == 0
    assert of_lake(lake) == of_logs(lake)


def test_a_catalog_that_does_not_answer_any_more_leaves_the_files_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Iceberg(tmp_path / "table")
    append(tmp_path / "logs" / "b-0", "1", "2")
    export_to(lake)
    append(tmp_path / "logs" / "a-0", "1", "2")
    commit = Transaction.commit_transaction

    def refuse(*given: Any) -> None:
        raise OSError("it does not answer")

    with monkeypatch.context() as patched:

        def lose(transaction: Transaction) -> None:
            commit(transaction)
            patched.setattr(SqlCatalog, "load_table", refuse)
            raise OSError("the connection was lost")

        patched.setattr(Transaction, "commit_transaction", lose)
        with pytest.raises(
            CommitError, match=r"not known whether the table db\.rows has taken a commit: the connection"
        ):
            export_to(lake)
    assert export_to(lake).rows == 0
    assert of_lake(lake) == of_logs(lake)


@pytest.mark.parametrize("catalog", [{"type": "nosuch"}, {"type": "sql", "uri": "sqlite:////nowhere/at/all.db"}])
def test_a_catalog_that_cannot_be_opened_is_told(tmp_path: Path, catalog: dict[str, str]) -> None:
    append(tmp_path / "logs" / "a-0", "1")
    with pytest.raises(InvalidOptionError, match=r"the catalog of db\.rows cannot be opened"):
        moved_to(tmp_path / "out", source=tmp_path / "logs", format="iceberg", table="db.rows", catalog=catalog)


def test_records_without_a_date_have_null_there(tmp_path: Path) -> None:
    write_times(tmp_path / "logs" / "a-0", -1, 1_700_000_000_000)
    lake = Delta(tmp_path / "table")
    export_to(lake, partition_by=["date", "hour"])
    assert [
        (row["value"], str(row["date"]), row["hour"]) for row in sorted(lake.rows(), key=lambda row: row["offset"])
    ] == [
        (b"-1", "None", None),
        (b"1700000000000", "2023-11-14", 22),
    ]


def test_what_does_not_decode_lies_beside_the_table(lake: Lake) -> None:
    append(lake.folder.parent / "logs" / "a-0", '{"id": 1}')
    given = {"value_format": "json", "value_options": {"schema": "id bigint"}, "on_decode_error": "dead_letter"}
    summary = export_to(lake, **given)
    assert sum(file.rows for moved in summary.moved for file in moved.dead_letters) == 3
    assert [row["value"] for row in lake.rows()] == [{"id": 1}]
    assert len(list((lake.folder / "_dead_letter").iterdir())) == 2
    assert export_to(lake, **given).rows == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "iceberg"}, "needs a catalog and the name of the table"),
        ({"format": "iceberg", "table": "rows", "catalog": {"type": "sql"}}, "has no namespace"),
        ({"format": "delta", "table": "a.b"}, "which only the format iceberg has"),
        ({"format": "delat"}, "delta"),
    ],
)
def test_wrong_arguments_are_told(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        moved_to(tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def others_write(lake: Delta, commits: int) -> None:
    for number in range(commits):
        lake.append([b"other %d" % number])


def test_log_of_delta_is_known_behind_any_number_of_commits_of_others(tmp_path: Path) -> None:
    lake, logs = Delta(tmp_path / "table"), tmp_path / "logs"
    metadata = logs / "a-0" / "partition.metadata"
    append(logs / "a-0", "1", "2")
    append(logs / "b-0", "1", "2")
    metadata.write_text(f"version: 0\ntopic_id: C{'A' * 21}\n")
    assert moved_to(lake.folder, source=logs, format="delta", partition_by=[]).rows == 4
    others_write(lake, 101)
    metadata.write_text(f"version: 0\ntopic_id: B{'A' * 21}\n")
    for name in ("a-0", "b-0"):
        append(logs / name, "3")
    shutil.rmtree(logs / "b-0")
    append(logs / "b-0", "1", "2", "3")
    with pytest.raises(DataLossError, match="it was deleted and made again") as raised:
        moved_to(lake.folder, source=logs, format="delta", partition_by=[])
    assert ["is another log of that name" in str(each) for each in raised.value.others] == [True]


def test_restored_table_of_delta_says_that_its_marks_outlived_their_rows(tmp_path: Path) -> None:
    lake, logs = Delta(tmp_path / "table"), tmp_path / "logs"
    given: dict[str, Any] = {"source": logs, "format": "delta", "partition_by": []}
    append(logs / "a-0", "1")
    append(logs / "b-0", "1")
    moved_to(lake.folder, **given)
    version = DeltaTable(str(lake.folder)).version()
    append(logs / "a-0", "2")
    moved_to(lake.folder, **given)
    others_write(lake, 1)
    DeltaTable(str(lake.folder)).restore(version)
    others_write(lake, 1)
    assert len(lake.rows()) == 3
    for name in ("a-0", "b-0"):
        append(logs / name, "3")
    with pytest.raises(DataLossError, match=r"offsets up to 2 of a-0 count as moved.*outlived their rows") as raised:
        moved_to(lake.folder, **given)
    assert raised.value.others == ()
    # What was moved before that version is there, and goes on.
    assert len(lake.rows()) == 4
    found = [each.reason for each in verify_ledger(lake.folder) if each.kind == "ledger"]
    assert found == ["offsets up to 2 of a-0 count as moved, and the table was restored to a version before them"]
    assert moved_to(lake.folder, adopt=True, **given).rows == 1
    append(logs / "a-0", "4")
    assert moved_to(lake.folder, **given).rows == 1


def test_table_of_delta_that_was_restored_and_then_put_back_goes_on(tmp_path: Path) -> None:
    lake, logs = Delta(tmp_path / "table"), tmp_path / "logs"
    given: dict[str, Any] = {"source": logs, "format": "delta", "partition_by": []}
    versions = []
    for number in range(2):
        append(logs / "a-0", f"{number}")
        moved_to(lake.folder, **given)
        versions.append(DeltaTable(str(lake.folder)).version())
    for version in versions:
        DeltaTable(str(lake.folder)).restore(version)
    append(logs / "a-0", "2")
    assert moved_to(lake.folder, **given).rows == 1
    assert of_lake(lake) == of_logs(lake)


def test_rows_that_a_rollback_of_iceberg_took_away_are_moved_again(tmp_path: Path) -> None:
    lake, logs = Iceberg(tmp_path / "table"), tmp_path / "logs"
    append(logs / "a-0", "1")
    assert export_to(lake, partition_by=[], end_offsets={("a", 0): 0}).rows == 0
    lake.append([b"other"])
    assert export_to(lake, partition_by=[]).rows == 1
    with lake.opened() as catalog:
        table = catalog.load_table("db.rows")
        first = table.snapshots()[0].snapshot_id
        with table.manage_snapshots() as snapshots:
            snapshots.rollback_to_snapshot(first)
    assert len(lake.rows()) == 1
    assert export_to(lake, partition_by=[]).rows == 1
    assert len(lake.rows()) == 2


@pytest.mark.parametrize("name", ["a#b", "a%20b"])
def test_path_that_libraries_take_for_another_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    append(tmp_path / "logs" / "a-0", "1")
    for kind in (Delta, Iceberg):
        lake: Lake = kind(tmp_path / name / "table")
        with pytest.raises(InvalidOptionError, match="take for parts of an address: move to a folder of another name"):
            moved_to(lake.folder, source=tmp_path / "logs", **lake.given())
    assert not (tmp_path / name).exists()


def test_a_table_keeps_its_isolation_level_and_its_encodings(lake: Lake) -> None:
    export_to(lake, value_format="base64")
    for given, name in (
        ({"value_format": "hex"}, "value_format"),
        ({"value_format": "base64", "isolation_level": "read_uncommitted"}, "isolation_level"),
        ({"value_format": "base64", "where": "offset >= 0"}, "where"),
    ):
        with pytest.raises(InvalidOptionError, match=f"has {name} .*: a table has one shape"):
            export_to(lake, **given)
    append(lake.folder.parent / "logs" / "a-0", "4")
    assert export_to(lake, value_format="base64").rows == 1


LAST_MS = {"Delta": 9_223_372_036_854_775, "Iceberg": 253_402_300_799_999}


def times_of(paths: list[Path]) -> list[int | None]:
    """Return the times in files as the numbers that they are there."""
    columns = [pq.ParquetFile(path).read().column("timestamp") for path in paths]
    return [None if each.value is None else each.value for column in columns for each in column]


@pytest.mark.parametrize("way", ["null", "dead_letter"])
def test_times_that_microseconds_do_not_reach_keep_their_partition_out_alone_or_are_set_aside(
    lake: Lake, way: str
) -> None:
    logs, last_ms = lake.folder.parent / "logs", LAST_MS[type(lake).__name__]
    write_times(logs / "far-0", 0, last_ms, last_ms + 1, (1 << 63) - 1)
    message = r"the timestamp of offset 2 of far-0 does not fit: (294247|10000)-01-\S+ \S+Z is a time that the table"
    with pytest.raises(ValueDecodeError, match=message):
        export_to(lake)
    append(logs / "a-0", "4")
    assert [path.name for path in lake.folder.rglob("far-0-*.parquet")] == []
    assert sorted(path.name[:4] for path in lake.folder.rglob("*.parquet")) == ["%5Fb", "a-0-"]
    assert export_to(lake, on_decode_error=way).rows == 5
    files_of_far = sorted(lake.folder.rglob("far-0-*.parquet"))
    is_aside = [path.parent.name == "_dead_letter" for path in files_of_far]
    table, aside = ([p for p, a in zip(files_of_far, is_aside, strict=True) if a is wanted] for wanted in (False, True))
    assert times_of(table) == [0, last_ms * 1000, *([None, None] if way == "null" else [])]
    assert times_of(aside) == ([last_ms + 1, (1 << 63) - 1] if way == "dead_letter" else [])
    for path in aside:
        letters = pq.ParquetFile(path).read(["offset", "field", "value"]).to_pylist()
        assert [tuple(row.values()) for row in letters] == [
            (2, "timestamp", str(last_ms + 1).encode()),
            (3, "timestamp", str((1 << 63) - 1).encode()),
        ]
    assert export_to(lake, on_decode_error=way).rows == 0
