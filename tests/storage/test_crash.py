"""The storage that stops: that it loses what it says, and what an atomic write survives."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from sparklog.write.small_files import write_atomically
from tests.places import directory_at
from tests.storage.crash import PAGE_BYTES, CrashingStorage, Loss, Stopped, crashes


def test_stopped_storage_does_nothing_more(tmp_path: Path) -> None:
    storage = CrashingStorage(tmp_path, stop_at=2)
    with pytest.raises(Stopped), storage.open_for_append(str(tmp_path / "f")) as file:
        file.append(b"x")
    for change in (storage.make_folder, storage.remove, storage.sync_folder):
        with pytest.raises(Stopped):
            change(str(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == b""
    assert storage.calls == ["make f", "append f"]


@pytest.mark.parametrize(("loss", "left"), [("lost", b"synced"), ("zeros", b"synced\0\0\0\0")])
def test_bytes_that_were_not_synced_are_lost(tmp_path: Path, loss: Loss, left: bytes) -> None:
    (tmp_path / "f").write_bytes(b"syn")
    storage = CrashingStorage(tmp_path)
    with storage.open_for_append(str(tmp_path / "f")) as file:
        file.append(b"ced")
        file.sync()
        file.append(b"lost")
    storage.disk.lose(loss)
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
    storage.disk.lose("lost")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"named": b"x"}


def test_rename_and_removal_that_were_not_synced_are_undone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    storage = CrashingStorage(tmp_path)
    storage.rename(str(tmp_path / "a"), str(tmp_path / "c"))
    storage.remove(str(tmp_path / "b"))
    storage.disk.lose("lost")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "b": b"b"}


def test_files_that_are_held_are_closed_with_their_disk(tmp_path: Path) -> None:
    """Thousands of disks are made by one process, and beyond 1,023 descriptors py4j does not hear Java any more."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        (tmp_path / "a").write_bytes(b"a")
        storage = CrashingStorage(tmp_path)
        storage.remove(str(tmp_path / "a"))
        assert len(storage.disk.held) == 1
        del storage
        gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


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


def test_pages_that_were_not_synced_are_lost_in_any_order(tmp_path: Path) -> None:
    written, seen = bytes(range(1, 5)) * PAGE_BYTES, set[bytes]()
    for seed in range(60):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "f").write_bytes(written[:10])
        storage = CrashingStorage(folder)
        with storage.open_for_append(str(folder / "f")) as file:
            file.append(written[10:])
        storage.disk.lose("pages", random.Random(seed))
        left = (folder / "f").read_bytes()
        assert left[:10] == written[:10]
        assert all(byte in (0, right) for byte, right in zip(left, written, strict=False))
        seen.add(left)
    assert {written, written[:10]} < seen
    assert any(b"\0" * PAGE_BYTES in left and left.endswith(written[-PAGE_BYTES:]) for left in seen)


def test_names_are_lost_in_order_and_a_rename_is_one_step(tmp_path: Path) -> None:
    seen = set[tuple[str, ...]]()
    for seed in range(60):
        folder = tmp_path / str(seed)
        (folder / "sub").mkdir(parents=True)
        (folder / "a").write_bytes(b"a")
        storage = CrashingStorage(folder)
        storage.rename(str(folder / "a"), str(folder / "sub" / "b"))
        storage.open_for_append(str(folder / "c")).close()
        storage.disk.lose("pages", random.Random(seed))
        seen.add(tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())))
    assert seen == {("a",), ("sub/b",), ("c", "sub/b")}


def test_crash_is_told_at_every_change_and_what_it_leaves_only_once(tmp_path: Path) -> None:
    """What the operation says of itself, and a time that it has set, are part of what is left."""

    def prepare(folder: Path) -> None:
        (folder / "old").write_bytes(b"old")

    def run(storage: CrashingStorage, folder: Path) -> None:
        with storage.open_for_append(str(folder / "f")) as file:
            file.append(b"abcd")
            file.sync()
            storage.reached = "synced"
            file.write_at(1, b"x")
        storage.sync_folder(str(folder))
        storage.set_modified_ns(str(folder / "f"), 2)
        storage.rename(str(folder / "f"), str(folder / "old"))

    found = []
    for crash in crashes(prepare, run, tmp_path, ("kept", "torn", "lost")):
        left = sorted((path.name, path.read_bytes(), path.stat().st_mtime_ns == 2) for path in crash.folder.iterdir())
        found.append((str(crash), crash.reached, left))
    old = ("old", b"old", False)
    assert found == [
        ("kept at make f", None, [old]),
        ("kept at append f", None, [("f", b"", False), old]),
        ("kept at sync f", None, [("f", b"abcd", False), old]),
        ("kept at write_at f", "synced", [("f", b"abcd", False), old]),
        ("kept at sync_folder .", "synced", [("f", b"axcd", False), old]),
        ("kept at rename f", "synced", [("f", b"axcd", True), old]),
        ("torn at append f", None, [("f", b"ab", False), old]),
        ("lost at write_at f", "synced", [old]),
        ("lost at the end", "synced", [("old", b"axcd", True)]),
    ]
