"""What a check of a table against its ledger finds, for each kind of damage."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from sparklog.errors import PathNotFoundError
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.ledger import Moved, MovedFile, encode_commit, read_ledger
from sparklog.storage.local import LocalStorage
from tests.jobs.tables import append, files, moved_to


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for partition in range(2):
        append(tmp_path / "logs" / f"a-{partition}", "one", "two", "three\n")
    moved_to(tmp_path / "table", source=tmp_path / "logs")
    return tmp_path / "table"


def first(table: Path) -> Path:
    return table / files(table)[0]


def flip_a_bit(table: Path) -> None:
    data = bytearray(first(table).read_bytes())
    data[10] ^= 1
    first(table).write_bytes(data)


def stage_again(table: Path) -> None:
    ledger = read_ledger(LocalStorage(), str(table / "_seglog" / "ledger.jsonl"))
    staged = next(iter(ledger.moved.values())).files[0].staged
    first(table).rename(table / "_seglog" / f"{staged}.staged")


def move_again(table: Path, start_offset: int, file: MovedFile | None = None) -> None:
    moved = Moved("a", 0, start_offset, start_offset + 1, file.rows if file else 0, 1, files=(file,) if file else ())
    with (table / "_seglog" / "ledger.jsonl").open("ab") as ledger:
        ledger.write(encode_commit(1, "export", "run", 0, [moved]))


def fewer_rows(table: Path) -> None:
    path = table / "other.parquet"
    pq.write_table(pq.ParquetFile(first(table)).read().slice(0, 2), path)
    data = path.read_bytes()
    move_again(table, 3, MovedFile("other.parquet", len(data), 3, crc32c(data), "x"))


def no_parquet(table: Path) -> None:
    (table / "other.parquet").write_bytes(b"text")
    move_again(table, 3, MovedFile("other.parquet", 4, 3, crc32c(b"text"), "x"))


def damage_ledger(table: Path) -> None:
    path = table / "_seglog" / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"rows":3', b'"rows":4', 1))


@pytest.mark.parametrize(
    ("damage", "kind", "reason"),
    [
        (lambda table: first(table).unlink(), "missing", "is not there"),
        (stage_again, "unfinished", "the next run gives it its name"),
        (lambda table: first(table).write_bytes(b"PAR1"), "size", "it has 4 bytes, and had"),
        (flip_a_bit, "checksum", "its CRC-32C is"),
        (fewer_rows, "rows", "it has 2 rows, and 3 were moved"),
        (no_parquet, "rows", "no file of the format parquet"),
        (lambda table: move_again(table, 2), "overlap", r"\[2, 3\) of a-0 were moved, and those up to 3"),
        (lambda table: move_again(table, 5), "gap", r"offsets \[3, 5\) of a-0 were not moved"),
        (lambda table: (table / "topic=a" / "x.csv").touch(), "unknown", "no commit names it"),
        (lambda table: (table / "_seglog" / "x.staged").touch(), "staged", "the next one removes it"),
        (damage_ledger, "ledger", "the lines before line 4 are not those of commit 0"),
    ],
)
def test_damage_is_found(table: Path, damage: Callable[[Path], object], kind: str, reason: str) -> None:
    damage(table)
    (found,) = verify_ledger(table)
    assert found.kind == kind
    assert re.search(reason, found.reason)
    assert found.path.startswith(str(table))
    assert found.is_damage == (kind not in ("gap", "staged", "unfinished"))


def test_a_sound_table_has_no_findings_in_any_format(tmp_path: Path) -> None:
    append(tmp_path / "logs" / "a-0", "one", "two\n", 'three, and "four"')
    for name in ("parquet", "arrow"):
        moved_to(tmp_path / name, source=tmp_path / "logs", format=name)
        assert list(verify_ledger(tmp_path / name)) == []


def test_without_reading_files_only_names_and_sizes_are_compared(table: Path) -> None:
    flip_a_bit(table)
    assert list(verify_ledger(table, reads_files=False)) == []


def test_a_folder_that_no_job_moved_to_is_told(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="no ledger at"):
        list(verify_ledger(tmp_path))
