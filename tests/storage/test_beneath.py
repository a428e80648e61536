"""Nothing is opened, made, renamed or removed beneath a folder by way of a link or of a path that leads out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from sparklog.errors import ForeignNameError, PathNotFoundError, StorageError
from sparklog.storage.base import WritableStorage
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.write.small_files import write_atomically
from tests.places import directory_at

OTHERS: Final = b"of others"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(OTHERS)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "a").mkdir(parents=True)
    (folder / "mine").write_bytes(b"mine")
    return folder


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(each): (each.lstat().st_mtime_ns, each.lstat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in folder.rglob("*")
    }


def _append(storage: WritableStorage, path: str) -> None:
    with storage.open_for_append(path) as file:
        file.append(b"x")


def _append_from(storage: WritableStorage, path: str) -> None:
    with storage.open_for_append(f"{storage.absolute(path).split('/root')[0]}/root/copied") as file:
        file.append_from(path, 0, 1)


Call = Callable[[WritableStorage, str], object]
OF_FILES: Final[dict[str, Call]] = {
    "open": lambda storage, path: storage.open(path).close(),
    "read_small": lambda storage, path: storage.read_small(path),
    "open_for_append": _append,
    "append_from": _append_from,
    "sync_files": lambda storage, path: storage.sync_files([path]),
    "lock": lambda storage, path: storage.lock(path, 0.0).close(),
}
OF_NAMES: Final[dict[str, Call]] = {
    "remove": lambda storage, path: storage.remove(path),
    "set_modified_ns": lambda storage, path: storage.set_modified_ns(path, 1),
    "rename": lambda storage, path: storage.rename(path, f"{path}.new"),
    "rename over": lambda storage, path: storage.rename(f"{path.split('/root')[0]}/root/mine", path),
}
OF_FOLDERS: Final[dict[str, Call]] = {
    "make_folder": lambda storage, path: storage.make_folder(path),
    "remove_folder": lambda storage, path: storage.remove_folder(path),
    "sync_folder": lambda storage, path: storage.sync_folder(path),
    "sync_folders": lambda storage, path: storage.sync_folders([path]),
    "claim": lambda storage, path: storage.claim(path, "mine").close(),
}
ALL: Final = OF_FILES | OF_NAMES | OF_FOLDERS


@pytest.mark.parametrize("call", ALL.values(), ids=ALL)
@pytest.mark.parametrize(
    "way", ["../outside/file", "a/../../outside/file", "link/file", "a/deep/empty", "//mine", "./mine"]
)
def test_no_path_leads_out_of_the_folder(tmp_path: Path, root: Path, outside: Path, call: Call, way: str) -> None:
    (root / "link").symlink_to(outside)
    (root / "a" / "deep").symlink_to(outside)
    before = state(outside)
    with pytest.raises(ForeignNameError):
        call(LocalWritableStorage().beneath(str(root)), f"{root}/{way}")
    with pytest.raises(ForeignNameError, match="leads out of"):
        call(LocalWritableStorage().beneath(str(root)), str(outside / "file"))
    assert state(outside) == before


@pytest.mark.parametrize("call", OF_FILES.values(), ids=OF_FILES)
@pytest.mark.parametrize("kind", ["link", "link to nothing", "fifo", "folder"])
def test_something_else_in_the_place_of_a_file_is_named(root: Path, outside: Path, call: Call, kind: str) -> None:
    path = root / "a" / "f"
    words = plant(path, kind, outside)
    before = state(outside)
    with pytest.raises(ForeignNameError, match=rf"a/f is {words}, not a regular file"):
        call(LocalWritableStorage().beneath(str(root)), str(path))
    assert state(outside) == before


def plant(path: Path, kind: str, outside: Path) -> str:
    """Put something in a place, and return what it is called."""
    if kind == "fifo":
        os.mkfifo(path)
        return "a FIFO"
    if kind == "folder":
        path.mkdir()
        return "a folder"
    path.symlink_to(outside / ("file" if kind == "link" else "new"))
    return "a symbolic link"


def test_links_themselves_are_removed_and_replaced_but_not_put_in_place(root: Path, outside: Path) -> None:
    storage = LocalWritableStorage().beneath(str(root))
    before = state(outside)
    link = root / "a" / "f"
    link.symlink_to(outside / "file")
    storage.set_modified_ns(str(link), 1)
    with pytest.raises(ForeignNameError, match="a/f is a symbolic link"):
        storage.rename(str(link), str(root / "g"))
    storage.rename(str(root / "mine"), str(link))
    assert not link.is_symlink()
    assert link.read_bytes() == b"mine"
    (root / "link").symlink_to(outside / "file")
    storage.remove(str(root / "link"))
    assert not (root / "link").is_symlink()
    for name in ("empty", "none"):
        (root / "folder").symlink_to(outside / name)
        for call in (storage.make_folder, storage.sync_folder):
            with pytest.raises(ForeignNameError, match="folder is a symbolic link, not a folder"):
                call(str(root / "folder"))
        storage.remove(str(root / "folder"))
    assert state(outside) == before


def test_folders_in_the_place_of_files_are_neither_removed_nor_replaced(root: Path) -> None:
    storage = LocalWritableStorage().beneath(str(root))
    with pytest.raises(ForeignNameError, match="/a is a folder, not a regular file"):
        storage.remove(str(root / "a"))
    with pytest.raises(ForeignNameError, match="/a is a folder, not a regular file"):
        storage.rename(str(root / "mine"), str(root / "a"))


@pytest.mark.parametrize("kind", ["link", "link to nothing", "fifo", "file"])
def test_new_file_takes_the_place_of_what_has_its_name_and_writes_nothing_into_it(
    root: Path, outside: Path, kind: str
) -> None:
    """As a file that is written beside its place, where somebody may have put something."""
    path = root / "a" / "f.tmp"
    if kind == "file":
        path.hardlink_to(outside / "file")
    else:
        plant(path, kind, outside)
    before = {name: data for name, (*_, data) in state(outside).items()}
    write_atomically(directory_at(root), "a/f", b"mine")
    assert (root / "a" / "f").read_bytes() == b"mine"
    assert {name: data for name, (*_, data) in state(outside).items()} == before


def test_new_file_is_not_opened_where_somebody_makes_one_in_between(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, whole = LocalWritableStorage().beneath(str(root)), os.open
    before = (outside / "file").read_bytes()

    def plant_first(path: str, *arguments: int, **named: int) -> int:
        if path == str(root / "new"):
            (root / "new").hardlink_to(outside / "file")
        return whole(path, *arguments, **named)

    monkeypatch.setattr(os, "open", plant_first)
    with pytest.raises(StorageError, match="File exists"):
        storage.create(str(root / "new"))
    assert (outside / "file").read_bytes() == before


def test_path_of_the_folder_itself_may_have_links(tmp_path: Path, root: Path) -> None:
    (tmp_path / "way").symlink_to(root)
    storage = LocalWritableStorage().beneath(str(tmp_path / "way"))
    storage.make_folder(str(tmp_path / "way" / "b" / "c"))
    _append(storage, str(tmp_path / "way" / "b" / "c" / "f"))
    storage.sync_folder(str(tmp_path / "way"))
    storage.rename(str(tmp_path / "way" / "b"), str(tmp_path / "way" / "d"))
    assert (root / "d" / "c" / "f").read_bytes() == b"x"
    with pytest.raises(PathNotFoundError):
        storage.sync_folder(str(tmp_path / "way" / "none"))


def test_folder_that_is_exchanged_for_a_link_on_the_way_leads_nowhere(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns the names may exchange one between any two calls of the system."""
    storage, whole = LocalWritableStorage().beneath(str(root)), os.open
    before = state(outside)
    (root / "a" / "file").write_bytes(b"")

    def exchange(path: str, *arguments: int, **named: int) -> int:
        descriptor = whole(path, *arguments, **named)
        if path == str(root / "a"):
            (root / "a").rename(root / "aside")
            (root / "a").symlink_to(outside)
        return descriptor

    monkeypatch.setattr(os, "open", exchange)
    _append(storage, str(root / "a" / "file"))
    assert (root / "aside" / "file").read_bytes() == b"x"
    assert state(outside) == before


def test_path_of_the_users_own_is_followed_and_waits_for_nobody(tmp_path: Path, outside: Path) -> None:
    storage = LocalWritableStorage()
    (tmp_path / "link").symlink_to(outside / "file")
    _append(storage, str(tmp_path / "link"))
    assert (outside / "file").read_bytes() == OTHERS + b"x"
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ForeignNameError, match="fifo is a FIFO, not a regular file"):
        _append(storage, str(tmp_path / "fifo"))
