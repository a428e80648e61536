"""What a check of a table of Delta Lake or Iceberg finds, for each kind of damage, and what is no damage."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.jobs.check.findings import LedgerFinding
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.targets.delta import DeltaTarget
from sparklog.jobs.targets.iceberg import IcebergTarget
from sparklog.jobs.targets.table_log import TableFile, TableLog
from tests.jobs.lakes import Delta, Iceberg, Lake
from tests.jobs.tables import append, files, moved_to

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=[Delta, Iceberg])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    made: Lake = request.param(tmp_path / "table")
    for number in range(2):
        append(tmp_path / "logs" / "a-0", f"one {number}", f"two {number}")
        append(tmp_path / "logs" / "_b-0", f"three {number}")
        moved_to(made.folder, source=tmp_path / "logs", **made.given())
    return made


def findings(lake: Lake, **given: Any) -> list[LedgerFinding]:
    of_catalog = {name: value for name, value in lake.given().items() if name != "format"}
    return list(verify_ledger(lake.folder, **of_catalog, **given))


def first(lake: Lake) -> Path:
    return min(lake.folder.rglob("a-0-*.parquet"))


def flip_a_bit(lake: Lake) -> None:
    data = bytearray(first(lake).read_bytes())
    data[10] ^= 1
    first(lake).write_bytes(data)


def name_another(lake: Lake) -> None:
    shutil.copy(first(lake), first(lake).with_name("a-0-00000000000000000009-00000000000000000011.parquet"))


@pytest.mark.parametrize(
    ("damage", "kind", "reason"),
    [
        (lambda lake: first(lake).unlink(), "missing", "is part of the table, and is not there"),
        (lambda lake: first(lake).write_bytes(b"PAR1"), "size", "it has 4 bytes, and had"),
        (flip_a_bit, "rows", "it cannot be read: .*CRC|it cannot be read"),
        (name_another, "unknown", "it is no part of the table"),
        (lambda lake: (lake.folder / "_seglog" / "x.staged").touch(), "staged", "the next one removes it"),
    ],
)
def test_damage_of_files_is_found(lake: Lake, damage: Callable[[Lake], object], kind: str, reason: str) -> None:
    assert findings(lake) == []
    damage(lake)
    (found,) = findings(lake)
    assert (found.kind, found.is_damage) == (kind, kind != "staged")
    assert re.search(reason, found.reason)


def move_end(log: TableLog) -> TableLog:
    return replace(log, ends={at: end - (at.topic == "a") for at, end in log.ends.items()})


def forget_a_file(log: TableLog) -> TableLog:
    return to_files(log, [file for file in log.files if "00000-00000000000000000002" not in file.path])


def to_files(log: TableLog, kept: list[TableFile]) -> TableLog:
    names = {file.path for file in kept}

    def without(moved: Any) -> Any:
        return replace(moved, files=tuple(file for file in moved.files if file.path in names))

    commits = [replace(commit, entries=tuple(map(without, commit.entries))) for commit in log.commits]
    return replace(log, files=tuple(kept), commits=tuple(commits))


def lose_a_commit(log: TableLog) -> TableLog:
    return replace(log, commits=(log.commits[0], replace_start(log.commits[1], 3)))


def repeat_offsets(log: TableLog) -> TableLog:
    return replace(log, commits=(log.commits[0], replace_start(log.commits[1], 1)))


def replace_start(commit: Any, start_offset: int) -> Any:
    entries = [replace(each, start_offset=start_offset) if each.topic == "a" else each for each in commit.entries]
    return replace(commit, entries=tuple(entries))


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (move_end, {"ledger", "overlap"}),
        (forget_a_file, {"rows", "unknown"}),
        (lambda log: replace(forget_a_file(log), is_append_only=False), {"rewritten"}),
        (lose_a_commit, {"gap"}),
        (repeat_offsets, {"overlap"}),
    ],
)
def test_what_the_log_of_a_table_says_is_held_against_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, change: Callable[[TableLog], TableLog], kinds: set[str]
) -> None:
    of_delta, of_iceberg = DeltaTarget.log, IcebergTarget.log
    monkeypatch.setattr(DeltaTarget, "log", lambda target: change(of_delta(target)))
    monkeypatch.setattr(IcebergTarget, "log", lambda target: change(of_iceberg(target)))
    assert {each.kind for each in findings(lake)} == kinds


def test_offsets_that_two_files_have_are_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name_another(lake)
    name = "a-0-00000000000000000001-00000000000000000002.parquet"
    for kind in (DeltaTarget, IcebergTarget):

        def more(target: Any, log: Any = kind.log) -> TableLog:
            found: TableLog = log(target)
            one = next(file for file in found.files if file.path.endswith(first(lake).name))
            return replace(found, files=(*found.files, replace(one, path=f"{Path(one.path).parent}/{name}")))

        monkeypatch.setattr(kind, "log", more)
    shutil.copy(first(lake), first(lake).with_name(name))
    assert "doubled" in {each.kind for each in findings(lake, reads_files=False)}


def test_rows_of_other_writers_are_no_finding(lake: Lake) -> None:
    lake.append([b"x", b"y"])
    assert findings(lake) == []


def test_files_that_others_have_put_together_are_whole_and_no_finding(tmp_path: Path) -> None:
    lake = Delta(tmp_path / "table")
    for number in range(2):
        append(tmp_path / "logs" / "a-0", f"{number}")
        moved_to(lake.folder, source=tmp_path / "logs", format="delta", partition_by=[])
    DeltaTable(str(lake.folder)).optimize.compact()
    assert len(files(lake.folder)) > 2
    assert findings(lake) == []
    # Somebody may have removed rows, and then it is not known whether those were ours.
    DeltaTable(str(lake.folder)).delete("offset = 0")
    (found,) = findings(lake)
    assert (found.kind, found.is_damage) == ("rewritten", False)


def test_a_folder_of_others_is_told(tmp_path: Path) -> None:
    append(tmp_path / "logs" / "a-0", "1")
    lake = Iceberg(tmp_path / "table")
    moved_to(lake.folder, source=tmp_path / "logs", **lake.given())
    with pytest.raises(InvalidOptionError, match="an Iceberg table: give its name and its catalog too"):
        list(verify_ledger(lake.folder))
    with pytest.raises(InvalidOptionError, match="give both"):
        list(verify_ledger(lake.folder, table="db.rows"))
    with pytest.raises(PathNotFoundError, match=r"no table db\.others"):
        list(verify_ledger(lake.folder, table="db.others", catalog=lake.catalog()))
    write_deltalake(tmp_path / "delta", pa.table({"value": [b"1"]}))
    with pytest.raises(PathNotFoundError, match="none of its commits says so"):
        list(verify_ledger(tmp_path / "delta"))
