"""The storage that stops: that it loses what it says, and what an atomic write survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.write.atomic import write_atomically
from tests.places import directory_at
from tests.storage.crash import CrashingStorage, Stopped, crashes


def test_stopped_storage_does_nothing_more(tmp_path: Path) -> None:
    storage = CrashingStorage(tmp_path, stop_at=2)
    with pytest.raises(Stopped), storage.open_for_append(str(tmp_path / "f")) as file:
        file.append(b"x")
    for change in (storage.make_folder, storage.remove, storage.sync_folder):
        with pytest.raises(Stopped):
            change(str(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == b""
    assert storage.calls == ["make f", "append f"]


@pytest.mark.parametrize(("keep_sizes", "left"), [(False, b"synced"), (True, b"synced\0\0\0\0")])
def test_bytes_that_were_not_synced_are_lost(tmp_path: Path, keep_sizes: bool, left: bytes) -> None:
    (tmp_path / "f").write_bytes(b"syn")
    storage = CrashingStorage(tmp_path)
    with storage.open_for_append(str(tmp_path / "f")) as file:
        file.append(b"ced")
        file.sync()
        file.append(b"lost")
    storage.disk.lose(keep_sizes=keep_sizes)
    assert (tmp_path / "f").read_bytes() == left


def test_name_that_was_not_synced_is_lost_with_its_file(tmp_path: Path) -> None:
    storage = CrashingStorage(tmp_path)
    for name in ("named", "nameless"):
        with storage.open_for_append(str(tmp_path / name)) as file:
            file.append(b"x")
            file.sync()
        if name == "named":
            storage.sync_folder(str(tmp_path))
    storage.make_folder(str(tmp_path / "folder"))
    storage.disk.lose(keep_sizes=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"named": b"x"}


def test_rename_and_removal_that_were_not_synced_are_undone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    storage = CrashingStorage(tmp_path)
    storage.rename(str(tmp_path / "a"), str(tmp_path / "c"))
    storage.remove(str(tmp_path / "b"))
    storage.disk.lose(keep_sizes=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "b": b"b"}


def test_atomic_write_leaves_the_old_or_the_new_content(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        (folder / "checkpoint").write_bytes(b"the old content")

    def run(storage: CrashingStorage, folder: Path) -> None:
        write_atomically(directory_at(folder, storage), "checkpoint", b"new")

    seen = set()
    for crash in crashes(prepare, run, tmp_path):
        content = (crash.folder / "checkpoint").read_bytes()
        assert content == b"new" if crash.call == "the end" else content in (b"the old content", b"new"), str(crash)
        seen.add(content)
    assert seen == {b"the old content", b"new"}
