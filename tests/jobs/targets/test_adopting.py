"""Files that the ledger of their folder does not know: it is gone, or older than they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.jobs.check.ledger import verify_ledger
from tests.jobs.tables import append, files, moved_to, rows


def export(tmp_path: Path, **given: Any) -> int:
    return moved_to(tmp_path / "table", source=tmp_path / "logs", **given).rows


def values(tmp_path: Path) -> list[bytes]:
    return [row["value"] for row in rows(tmp_path / "table")]


@pytest.fixture
def moved_twice(tmp_path: Path) -> Path:
    """Move three records, and two more; return a copy of the ledger that knows of the first three."""
    append(tmp_path / "logs" / "a-0", "1", "2", "3")
    append(tmp_path / "logs" / "b-0", "b")
    export(tmp_path)
    shutil.copytree(tmp_path / "table" / "_seglog", tmp_path / "older")
    append(tmp_path / "logs" / "a-0", "4", "5")
    export(tmp_path)
    return tmp_path / "older"


@pytest.mark.parametrize("is_gone", [True, False])
def test_records_of_files_that_the_ledger_does_not_know_are_not_moved_again(
    tmp_path: Path, moved_twice: Path, is_gone: bool
) -> None:
    shutil.rmtree(tmp_path / "table" / "_seglog")
    if not is_gone:
        shutil.copytree(moved_twice, tmp_path / "table" / "_seglog")
    append(tmp_path / "logs" / "a-0", "6")
    before = files(tmp_path / "table")
    said = r"a-0-.*holds offsets up to \d of a-0.*is moved up to \d: it is gone, or older.*\(--adopt\)"
    for given in ({}, {"dry_run": True}):
        with pytest.raises(InvalidOptionError, match=said):
            export(tmp_path, **given)
    assert files(tmp_path / "table") == before
    planned = moved_to(tmp_path / "table", source=tmp_path / "logs", adopt=True, dry_run=True).planned
    assert [(piece.range.start_offset, piece.range.end_offset) for task in planned for piece in task.pieces] == [(5, 6)]
    assert export(tmp_path, adopt=True) == 1
    assert export(tmp_path) == 0
    assert values(tmp_path) == [b"1", b"2", b"3", b"4", b"5", b"6", b"b"]
    assert list(verify_ledger(tmp_path / "table")) == []


def test_adopted_files_are_in_the_ledger_though_nothing_is_new(tmp_path: Path, moved_twice: Path) -> None:
    shutil.rmtree(tmp_path / "table" / "_seglog")
    assert export(tmp_path, adopt=True) == 0
    assert export(tmp_path) == 0
    assert list(verify_ledger(tmp_path / "table")) == []


def test_files_with_the_same_offsets_are_not_adopted(tmp_path: Path, moved_twice: Path) -> None:
    shutil.rmtree(tmp_path / "table" / "_seglog")
    (first, *_) = files(tmp_path / "table")
    whole = tmp_path / "table" / first
    shutil.copy(whole, whole.with_name(f"a-0-{1:020}-{4:020}.parquet"))
    with pytest.raises(InvalidOptionError, match="offsets from 1 on of a-0, and those up to 3 are in other files"):
        export(tmp_path, adopt=True)


def test_dead_letters_are_adopted_with_the_rows_of_their_range(tmp_path: Path) -> None:
    append(tmp_path / "logs" / "a-0", '{"n": 1}', "no json")
    given: dict[str, Any] = {"value_format": "json", "value_options": {"schema": "n bigint"}}
    given |= {"on_decode_error": "dead_letter"}
    export(tmp_path, **given)
    shutil.rmtree(tmp_path / "table" / "_seglog")
    with pytest.raises(InvalidOptionError, match="--adopt"):
        export(tmp_path, **given)
    assert export(tmp_path, adopt=True, **given) == 0
    assert list(verify_ledger(tmp_path / "table")) == []


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ({"isolation_level": "read_uncommitted"}, {}, "isolation_level"),
        ({"key_format": "base64"}, {"key_format": "hex"}, "key_format"),
        ({"value_format": "base64"}, {"value_format": "hex"}, "value_format"),
    ],
)
@pytest.mark.parametrize("format_", ["parquet", "csv", "jsonl"])
def test_table_keeps_its_isolation_level_and_its_encodings(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], name: str, format_: str
) -> None:
    append(tmp_path / "logs" / "a-0", "1")
    export(tmp_path, format=format_, **before)
    append(tmp_path / "logs" / "a-0", "2")
    with pytest.raises(InvalidOptionError, match=f"has {name} .*: a table has one shape"):
        export(tmp_path, format=format_, **after)
    assert export(tmp_path, format=format_, **before) == 1
