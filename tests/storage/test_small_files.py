"""Small files that options name, and small files for programs that take paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.storage.small_files import read_files, scratch_folder


def is_text(name: str) -> bool:
    return name.endswith(".txt")


def test_folder_is_read_by_names_and_a_file_whatever_its_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", ".hidden.txt", "c.bin"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "folder.txt").mkdir()
    assert read_files(str(tmp_path), "schema", is_text) == {"a.txt": b"a.txt", "b.txt": b"b.txt"}
    assert read_files(tmp_path / "c.bin", "schema", is_text) == {"c.bin": b"c.bin"}


def test_what_is_not_there_is_said_by_the_argument(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match=r"^\[SEGLOG_PATH_NOT_FOUND\] schema is .*/none, and no file is there"):
        read_files(tmp_path / "none", "schema", is_text)
    with pytest.raises(InvalidOptionError, match="where no file has a name that is read, and there is none"):
        read_files(tmp_path, "schema", is_text)
    (tmp_path / "x.bin").touch()
    with pytest.raises(InvalidOptionError, match=r"where no file has a name that is read, such as 'x\.bin'"):
        read_files(tmp_path, "schema", is_text)


def test_scratch_folder_goes_away_with_its_files() -> None:
    with scratch_folder({"a.txt": b"1"}) as folder:
        assert read_files(folder, "scratch", is_text) == {"a.txt": b"1"}
    assert not Path(folder).exists()
