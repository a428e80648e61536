"""Ledgers, lists of files and links that somebody has forged lead nowhere outside of the target."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import CorruptCheckpointError, ForeignNameError, SeglogError
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.ledger import Moved, MovedFile, encode_commit
from tests.jobs.lakes import Delta, Iceberg, Lake
from tests.jobs.tables import append, moved_to

pytestmark = pytest.mark.filterwarnings("ignore")
PATHS = ["../outside/victim", "/etc/hostname", "topic=a/../../outside/victim", "..", "a//b", "a\0b"]
NAME = f"a-0-{0:020}-{1:020}.parquet"


def outside(tmp_path: Path) -> dict[str, bytes]:
    """Return all that is not in the target."""
    found = (path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "table" not in path.parents)
    return {str(path): path.read_bytes() for path in found if "catalog" not in path.name}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    append(tmp_path / "logs" / "a-0", "1", "2")
    path = tmp_path / "outside" / "victim"
    path.parent.mkdir()
    path.write_bytes(b"not yours")
    return path


def forge(table: Path, **fields: Any) -> None:
    """Let the last commit of a ledger be one that names a file, and say that it is to be finished."""
    (table / "_seglog").mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {"path": NAME, "size_bytes": 9, "rows": 1, "crc32c": 0, "staged": "x"} | fields
    lines = encode_commit(0, "export", "run", 0, [Moved("a", 0, 0, 1, 1, 1, files=(MovedFile(**given),))])
    (table / "_seglog" / "ledger.jsonl").write_bytes(lines)
    (table / "_seglog" / "unfinished").touch()
    (table / "_seglog" / "x.staged").write_bytes(b"forged")


@pytest.mark.parametrize("path", PATHS)
def test_forged_path_of_a_ledger_leads_nowhere(tmp_path: Path, victim: Path, path: str) -> None:
    forge(tmp_path / "table", path=path)
    before = outside(tmp_path)
    with pytest.raises(ForeignNameError, match=r"leads out of .*, and nothing is changed there"):
        moved_to(tmp_path / "table", source=tmp_path / "logs")
    assert {each.kind for each in verify_ledger(tmp_path / "table")} == {"foreign", "staged"}
    assert outside(tmp_path) == before


@pytest.mark.parametrize("path", PATHS)
def test_forged_name_of_a_staged_file_is_nobodys(tmp_path: Path, victim: Path, path: str) -> None:
    victim.with_name("victim.staged").write_bytes(b"not yours")
    forge(tmp_path / "table", staged=path)
    before = outside(tmp_path)
    with suppress(SeglogError):
        moved_to(tmp_path / "table", source=tmp_path / "logs")
    assert {each.kind for each in verify_ledger(tmp_path / "table")} >= {"missing"}
    assert outside(tmp_path) == before


def link_folder(table: Path, victim: Path) -> None:
    (table / "topic=a").symlink_to(victim.parent)


def link_file(table: Path, victim: Path) -> None:
    (table / NAME).symlink_to(victim)


def link_staged(table: Path, victim: Path) -> None:
    (table / "_seglog" / "x.staged").unlink()
    (table / "_seglog" / "x.staged").symlink_to(victim)


def link_ledger(table: Path, victim: Path) -> None:
    path = table / "_seglog" / "ledger.jsonl"
    path.rename(victim)
    path.symlink_to(victim)


@pytest.mark.parametrize("plant", [link_folder, link_file, link_staged, link_ledger])
def test_links_in_a_target_are_not_followed(tmp_path: Path, victim: Path, plant: Callable[[Path, Path], None]) -> None:
    table = tmp_path / "table"
    forge(table, path=f"topic=a/{NAME}" if plant is link_folder else NAME)
    plant(table, victim)
    before = outside(tmp_path)
    with pytest.raises(SeglogError):
        moved_to(table, source=tmp_path / "logs")
    assert outside(tmp_path) == before


def test_link_in_the_place_of_a_file_is_a_finding_and_is_not_read(tmp_path: Path, victim: Path) -> None:
    table = tmp_path / "table"
    moved_to(table, source=tmp_path / "logs")
    (path,) = table.rglob("a-0-*.parquet")
    path.rename(tmp_path / "outside" / "moved")
    path.symlink_to(tmp_path / "outside" / "moved")
    (found,) = verify_ledger(table)
    assert (found.kind, found.is_damage) == ("foreign", True)
    folder = path.parent
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()
    folder.symlink_to(victim.parent)
    assert {each.kind for each in verify_ledger(table)} >= {"foreign"}
    append(tmp_path / "logs" / "a-0", "3")
    before = outside(tmp_path)
    with pytest.raises(ForeignNameError, match="is a symbolic link, not a folder"):
        moved_to(table, source=tmp_path / "logs")
    assert outside(tmp_path) == before


@pytest.mark.parametrize("kind", [Delta, Iceberg])
@pytest.mark.parametrize(
    "line",
    [
        ["a", 0, 1, "../outside/victim"],
        ["a", 0, 1, "_seglog/ledger.jsonl"],
        ["a", 0, 1 << 60, NAME],
        ["a", 0, 1],
        ["a", 0, 1, None],
        [[], {}, 1, NAME],
    ],
)
def test_forged_list_of_unfinished_files_removes_nothing(
    tmp_path: Path, victim: Path, kind: Callable[[Path], Lake], line: list[Any]
) -> None:
    table = tmp_path / "table"
    lake = kind(table)
    (victim.parent / NAME).write_bytes(b"not yours")
    (table / "_seglog").mkdir(parents=True)
    (table / NAME).write_bytes(b"of others")
    (table / "_seglog" / "unfinished").write_text(json.dumps(line) + "\n")
    before = outside(tmp_path)
    with pytest.raises(CorruptCheckpointError, match="not a list of the files of an export"):
        moved_to(table, source=tmp_path / "logs", **lake.given())
    assert outside(tmp_path) == before
    assert (table / NAME).read_bytes() == b"of others"


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_list_of_unfinished_files_leads_nowhere(tmp_path: Path, victim: Path, kind: Callable[[Path], Lake]) -> None:
    table = tmp_path / "table"
    (victim.parent / NAME).write_bytes(b"not yours")
    (table / "_seglog").mkdir(parents=True)
    (table / "linked").symlink_to(victim.parent)
    before = outside(tmp_path)
    for name in (f"../outside/{NAME}", f"linked/{NAME}", f"{tmp_path}/outside/{NAME}"):
        (table / "_seglog" / "unfinished").write_text(json.dumps(["a", 0, 1, name]) + "\n")
        with pytest.raises(ForeignNameError):
            moved_to(table, source=tmp_path / "logs", **kind(table).given())
    assert outside(tmp_path) == before
