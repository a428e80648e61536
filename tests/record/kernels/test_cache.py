"""Where compiled code is kept, and from where it is never loaded."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

import pytest

from sparklog.record.kernels import cache as kernels_cache
from sparklog.record.kernels import folders as kernels_folders
from sparklog.record.kernels.folders import find_folders


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    for name in ("XDG_CACHE_HOME", "SPARKLOG_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return home


def first() -> Path:
    folders, _ = find_folders()
    return folders[0].parent


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_folder_is_the_user_s_own_in_the_cache_of_its_home(home: Path) -> None:
    assert first() == home / ".cache" / "sparklog"
    folders, refusal = find_folders()
    assert refusal is None
    assert [mode(folder) for folder in folders] == [mode(folder.parent) for folder in folders] == [0o700]
    assert folders[0].name.startswith("kernels-")


def test_folder_is_in_the_cache_that_the_desktop_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert first() == tmp_path / "cache" / "sparklog"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert first() == tmp_path / "home" / ".cache" / "sparklog"


def test_home_that_is_not_there_or_is_a_file_or_unknown_leaves_the_temporary_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp" / f"sparklog-{os.getuid()}"
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    assert first() == temporary
    monkeypatch.setenv("HOME", str(home))
    (home / ".cache").write_text("a file")
    assert first() == temporary
    monkeypatch.setattr(Path, "home", _unknown)
    assert first() == temporary


def _unknown() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_home_of_another_user_gets_no_folder_of_ours(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: home.stat().st_uid + 1)
    assert [folder for folder in find_folders()[0] if home in folder.parents] == []
    assert list(home.iterdir()) == []


def test_folder_that_others_may_write_to_or_own_is_not_loaded_from(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp" / f"sparklog-{os.getuid()}"
    (home / ".cache" / "sparklog").mkdir(parents=True)
    (home / ".cache" / "sparklog").chmod(0o770)
    assert first() == temporary
    (home / ".cache" / "sparklog").chmod(0o755)
    assert first() == home / ".cache" / "sparklog"
    (home / ".cache" / "sparklog").rename(home / "elsewhere")
    (home / ".cache" / "sparklog").symlink_to(home / "elsewhere")
    assert first() == temporary


def test_named_folder_comes_first_and_may_be_read_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKLOG_CACHE_DIR", str(tmp_path / "image"))
    umask = os.umask(0)
    try:
        assert first() == tmp_path / "image"
    finally:
        os.umask(umask)
    assert mode(tmp_path / "image") == 0o755


def test_named_folder_that_is_not_used_is_said_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("SPARKLOG_CACHE_DIR", str(tmp_path / "shared"))
    folders, refusal = find_folders()
    assert refusal == f"SPARKLOG_CACHE_DIR={tmp_path / 'shared'} is not used: other users may write to it"
    assert [folder.parent for folder in folders] == [tmp_path / "home" / ".cache" / "sparklog"]


def test_folder_that_can_only_be_read_is_loaded_from_and_the_next_one_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKLOG_CACHE_DIR", str(tmp_path / "image"))
    monkeypatch.setattr(kernels_folders, "can_be_written", lambda folder: tmp_path / "image" not in folder.parents)
    folders, refusal = find_folders()
    assert [folder.parent for folder in folders] == [tmp_path / "image", tmp_path / "home" / ".cache" / "sparklog"]
    assert refusal is None


@pytest.mark.parametrize("permissions", [0o664, 0o646, 0o666])
def test_file_that_others_may_have_written_to_is_not_read(tmp_path: Path, permissions: int) -> None:
    file = tmp_path / "kernel"
    kernels_cache._write(tmp_path, "kernel", b"code")
    assert mode(file) == 0o644
    assert kernels_cache._trusted_content(tmp_path, "kernel") == b"code"
    file.chmod(permissions)
    assert kernels_cache._trusted_content(tmp_path, "kernel") == b""


def test_folders_above_are_made_for_the_user_alone(home: Path) -> None:
    umask = os.umask(0)
    try:
        find_folders()
    finally:
        os.umask(umask)
    assert [mode(each) for each in (home / ".cache", home / ".cache" / "sparklog")] == [0o700, 0o700]


@pytest.mark.parametrize("what", ["a link to the file", "a link to the folder", "a FIFO", "another folder", "a file"])
def test_folder_is_checked_each_time_and_nothing_is_loaded_or_written_by_way_of_a_link(
    tmp_path: Path, what: str
) -> None:
    """Who may write to the folder above can put something else in the place of one that was sound when it was found."""
    folder, aside, elsewhere = tmp_path / "kernels", tmp_path / "aside", tmp_path / "elsewhere"
    for each in (folder, elsewhere):
        each.mkdir(mode=0o755)
        kernels_cache._write(each, "kernel", b"code")
    (elsewhere / "kernel").chmod(0o644)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    if what in ("a link to the file", "a FIFO"):
        (folder / "kernel").unlink()
        if what == "a FIFO":
            os.mkfifo(folder / "kernel")
        else:
            (folder / "kernel").symlink_to(elsewhere / "kernel")
            (folder / "kernel.turn").symlink_to(elsewhere / "kernel.turn")
    else:
        folder.rename(aside)
        if what == "a link to the folder":
            folder.symlink_to(elsewhere)
        elif what == "a file":
            folder.touch()
        else:
            elsewhere.chmod(0o777)
            elsewhere.rename(folder)
            elsewhere = folder
    assert kernels_cache._trusted_content(folder, "kernel") == b""
    with kernels_cache._turn([folder], "kernel"):
        pass
    kernels_cache._write(folder, "kernel", b"of ours")
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_code_that_cannot_be_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    kernels_cache._write(tmp_path / "nowhere", "kernel", b"code")
    (tmp_path / "kernel").mkdir()
    kernels_cache._write(tmp_path, "kernel", b"code")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("kernel")] == ["kernel"]


def test_kernel_that_another_process_compiles_for_too_long_is_compiled_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kernels_cache, "_WAIT_SECONDS_MAX", -1)
    monkeypatch.setattr(fcntl, "lockf", lambda *_: _held(asked))
    with kernels_cache._turn([tmp_path], "kernel"):
        assert asked == [1]


def _held(asked: list[int]) -> None:
    asked.append(1)
    raise BlockingIOError


DAY_SECONDS = 86_400


def aged_folder(name: str, days: float) -> Path:
    """Make a folder of compiled code beside where ours is to be, last used some days ago."""
    folder = Path.home() / ".cache" / "sparklog" / name
    folder.mkdir(parents=True, mode=0o700)
    (folder / "some.kernel-0123456789abcdef").write_bytes(b"code")
    used = time.time() - days * DAY_SECONDS
    os.utime(folder, (used, used))
    folder.parent.chmod(0o700)
    return folder


def test_folders_of_other_versions_that_were_not_used_for_a_month_are_removed_when_one_is_made() -> None:
    unused, used = aged_folder("kernels-0000000000000001", 31), aged_folder("kernels-0000000000000002", 29)
    find_folders()
    assert not unused.exists()
    assert [path.read_bytes() for path in used.iterdir()] == [b"code"]
    unused = aged_folder("kernels-0000000000000001", 31)
    find_folders()
    assert unused.exists(), "the folder was there, and so nothing is removed"


def test_what_is_no_folder_of_kernels_is_not_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    foreign, aged = aged_folder("notes", 99), aged_folder("kernels-0000000000000003", 99)
    (aged / "folder").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    link = foreign.parent / "kernels-0000000000000004"
    link.symlink_to(elsewhere)
    holds_link = aged_folder("kernels-0000000000000005", 99)
    (holds_link / "link").symlink_to(elsewhere / "file")
    for each in (aged, elsewhere, holds_link):
        os.utime(each, (1, 1))
    os.utime(link, (1, 1), follow_symlinks=False)
    find_folders()
    assert foreign.exists()
    assert (aged / "folder").exists()
    assert link.is_symlink()
    assert not holds_link.exists()
    assert (elsewhere / "file").read_text() == "kept"


def test_folder_that_is_used_says_so_for_another_month() -> None:
    folders, _ = find_folders()
    os.utime(folders[0], (1, 1))
    find_folders()
    assert time.time() - folders[0].stat().st_mtime < DAY_SECONDS


def test_nothing_is_removed_from_a_folder_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKLOG_CACHE_DIR", str(tmp_path / "image"))
    unused = tmp_path / "image" / "kernels-0000000000000001"
    unused.mkdir(parents=True)
    os.utime(unused, (1, 1))
    find_folders()
    assert unused.exists()
