"""Files of this machine."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError, StorageError
from sparklog.storage.local import LocalFile, LocalStorage, to_storage_error
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.storage.process import files_max
from sparklog.storage.registry import locate
from tests.limits import with_open_files


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


@pytest.mark.parametrize(
    "path", ["file://localhost/logs", "FILE:/logs", "file:////logs", "//logs", "/logs/./", "/x/../logs"]
)
def test_path_has_one_spelling(path: str) -> None:
    assert locate(path).path == "/logs"


def test_url_keeps_what_only_looks_like_the_end_of_its_path() -> None:
    assert locate("file:///logs/a?b#c").path == "/logs/a?b#c"


@pytest.mark.parametrize("path", ["file://host/logs", "file://[x", "file://logs"])
def test_host_is_not_taken_for_this_machine(path: str) -> None:
    with pytest.raises(InvalidOptionError, match="reportPath is a URL of the host"):
        locate(path, "reportPath")


@pytest.mark.parametrize(
    "path", ["", "  ", "file:", "file://", "a\0", "file:%00", "\udfff", "file:///%ff", b"/logs", None]
)
def test_path_that_no_file_can_have_is_refused_by_the_name_of_what_gave_it(path: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"\] reportPath "):
        locate(path, "reportPath")


def test_relative_path_where_the_working_directory_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(PathNotFoundError, match="logs"):
        locate("logs")


def test_dots_behind_a_link_are_those_of_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    assert locate(f"{tmp_path}/link/../c").path == f"{tmp_path}/a/c"
    assert locate(f"{tmp_path}/link/c").path == f"{tmp_path}/link/c"


def test_folder_has_one_identity_by_whatever_path(tmp_path: Path) -> None:
    storage = LocalStorage()
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert storage.identity(str(tmp_path / "a")) == storage.identity(f"{tmp_path}/link/") is not None
    assert storage.identity(str(tmp_path / "nowhere")) is None
    with pytest.raises(StorageError, match="loop"):
        storage.identity(str(tmp_path / "loop"))
    assert [storage.is_link(f"{tmp_path}/{name}") for name in ("a", "link", "nowhere")] == [False, True, False]
    assert storage.real(f"{tmp_path}/link/../b") == f"{tmp_path}/b"


def test_names_are_listed_with_what_leads_to_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "f").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert LocalStorage().names(str(tmp_path)) == [("a", True), ("f", False), ("link", True), ("loop", False)]
    with pytest.raises(StorageError, match="not a folder"):
        LocalStorage().names(str(tmp_path / "f"))


def test_unknown_scheme_is_named() -> None:
    with pytest.raises(InvalidOptionError, match="'oss:'"):
        locate("oss://bucket/logs")


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


def open_too_many(folder: Path) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert files_max() == limit
    storage, path = LocalWritableStorage(), str(folder / "f")
    storage.create(path).close()
    for opened in (storage.open, storage.open_for_append):
        with ExitStack() as kept, pytest.raises(StorageError, match=rf"{limit} files open.*\(ulimit -n\)"):
            [kept.enter_context(opened(path)) for _ in range(limit)]


def test_error_of_too_many_open_files_names_the_limit(tmp_path: Path) -> None:
    with_open_files(50, open_too_many, tmp_path)
    error = to_storage_error(OSError(errno.ENFILE, os.strerror(errno.ENFILE)), "f")
    assert "cannot open f: this machine has as many files open as it may" in str(error)
