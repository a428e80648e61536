"""Files of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError, StorageError
from sparklog.storage.base import locate
from sparklog.storage.local import LocalFile, LocalStorage


def test_read_is_short_only_where_the_file_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with LocalFile(str(tmp_path / "f")) as file:
        assert bytes(file.read(3, 4)) == b"3456"
        assert bytes(file.read(8, 100)) == b"89"
        assert bytes(file.read(10, 5)) == b""


def test_read_into_memory_is_short_only_where_the_file_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    room = memoryview(bytearray(4))
    with LocalFile(str(tmp_path / "f")) as file:
        assert (file.read_into(3, room), bytes(room)) == (4, b"3456")
        assert (file.read_into(8, room), bytes(room[:2])) == (2, b"89")
        assert file.read_into(10, room) == 0


def test_hole_at_the_end_is_told_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"data")
    os.truncate(path, 100 << 30)
    with LocalFile(str(path)) as file:
        assert file.size_bytes() == 100 << 30
        assert file.data_position(0) == 0
        assert file.data_position(1 << 20) in (None, 1 << 20)
        assert file.data_position(100 << 30) is None


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="nowhere"):
        LocalFile(str(tmp_path / "nowhere"))
    with pytest.raises(PathNotFoundError, match="nowhere"):
        LocalStorage().entries(str(tmp_path / "nowhere"))
    assert LocalStorage().read_small(str(tmp_path / "nowhere")) is None


def test_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="not a regular file"):
        LocalFile(str(tmp_path))


@pytest.mark.parametrize("call", ["entries", "open", "read_small"])
def test_no_permission_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The tests may run as root, whom no permission stops: the system's answer is put in its place."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for owner, name in ((os, "open"), (os, "scandir"), (Path, "read_bytes")):
        monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(StorageError, match=r"no permission to read .*run as the owner"):
        getattr(LocalStorage(), call)(str(tmp_path))


@pytest.mark.parametrize("path", ["file:/logs/a%20b", "file:///logs/a%20b", "/logs/a b"])
def test_url_of_this_machine_is_a_path(path: str) -> None:
    assert locate(path).path == "/logs/a b"


def test_unknown_scheme_is_named() -> None:
    with pytest.raises(InvalidOptionError, match="'s3:'"):
        locate("s3://bucket/logs")


def test_what_is_neither_file_nor_folder_is_listed_as_neither(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    entries = {entry.name: entry for entry in LocalStorage().entries(str(tmp_path))}
    assert {name for name, entry in entries.items() if entry.is_file} == {"file", "link"}
    assert {name for name, entry in entries.items() if entry.is_folder} == {"folder"}
    assert {"dangling", "loop", "pipe"} < entries.keys()


@pytest.mark.parametrize("call", ["open", "read_small"])
def test_pipe_is_not_waited_for(tmp_path: Path, call: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    if call == "open":
        with pytest.raises(PathNotFoundError, match="not a regular file"):
            LocalStorage().open(str(tmp_path / "pipe"))
    else:
        assert LocalStorage().read_small(str(tmp_path / "pipe")) is None
