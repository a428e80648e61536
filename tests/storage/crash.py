"""Storage that stops: after so many calls nothing happens any more, and what was not synced may be gone.

for crash in crashes(prepare, run, tmp_path):     # prepare(folder), run(storage, folder)
    check(crash.folder)                           # the folder as it is found after the crash

What a crash leaves is one of these:

- kept: the process died; all that it has written is there.
- torn: the same, and of the last write only half is there.
- lost: the power went; what was not synced is gone, names by the sync of their folder, contents by that of their file.
- zeros: the same, but files have the sizes that they had, with zeros where bytes were not synced.
- pages: the power went; of each file some pages that were not synced are there and others are not, in any order, and it
  has the old size, the new one, or where it grew one between. Names were changed in order, up to some change since the
  last sync of any folder, as a file system with a journal does it.
"""

from __future__ import annotations

import os
import random
import shutil
import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from sparklog.errors import StorageError
from sparklog.storage.base import HeldLock, WritableFile
from tests.storage.wrapping import WrappedFile, WrappedStorage

Loss = Literal["kept", "torn", "lost", "zeros", "pages"]
LOSSES: Final[tuple[Loss, ...]] = ("kept", "torn", "lost", "zeros")
EVERY_LOSS: Final[tuple[Loss, ...]] = (*LOSSES, "pages")
PAGE_BYTES: Final = 64
"""So small that the small files of tests have several."""

Names = dict[Path, dict[str, int]]


class Stopped(BaseException):
    """The process is dead."""


@dataclass
class Disk:
    """What would survive a power cut: contents by inode, and names by folder."""

    root: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    names: Names = field(default_factory=dict)
    history: list[Names] = field(default_factory=list)
    """The names in all folders after the last sync of one, and after each change since."""
    held: list[int] = field(default_factory=list)
    """Files whose names are gone: while they are open, no other file gets their inodes."""

    def __post_init__(self) -> None:
        weakref.finalize(self, _close_all, self.held)
        for folder in [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]:
            self.sync_folder(folder)
            for path in folder.iterdir():
                if path.is_file():
                    self.sync(path)

    def sync(self, path: Path) -> None:
        self.contents[path.stat().st_ino] = path.read_bytes()

    def sync_folder(self, folder: Path) -> None:
        self.names[folder] = _names_in(folder)
        self.history.clear()
        self.note()

    def hold(self, path: Path) -> None:
        """Keep the inode of a file whose name goes."""
        if path.is_file():
            self.held.append(os.open(path, os.O_RDONLY))

    def let_go(self) -> None:
        """Close the files that are held, as is done in any case when nobody has this disk any more."""
        _close_all(self.held)

    def note(self) -> None:
        """Note the names that there are, after a change of some."""
        folders = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        self.history.append({folder: _names_in(folder) for folder in folders})

    def lose_pages(self, rng: random.Random) -> None:
        """Make the folder what is there when the power is back, on a disk that writes pages in any order."""
        written = {path.stat().st_ino: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        found = rng.choice(self.history)
        shutil.rmtree(self.root)
        for folder in sorted(found):
            folder.mkdir(parents=True, exist_ok=True)
            # In one order, whatever order the file system lists names in: else a seed does not say what is lost.
            for name, inode in sorted(found[folder].items()):
                if folder / name not in found:
                    synced = self.contents.get(inode, b"")
                    (folder / name).write_bytes(_some_pages(rng, synced, written.get(inode, synced)))

    def lose(self, *, keep_sizes: bool) -> None:
        """Make the folder what is there when the power is back."""
        sizes = {path.stat().st_ino: path.stat().st_size for path in self.root.rglob("*") if path.is_file()}
        survivors = list(self._survivors(self.root))
        shutil.rmtree(self.root)
        for path, inode in survivors:
            if inode is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            content = self.contents.get(inode, b"")
            if keep_sizes and inode in sizes:
                content = content[: sizes[inode]].ljust(sizes[inode], b"\0")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _survivors(self, folder: Path) -> Iterator[tuple[Path, int | None]]:
        yield folder, None
        for name, inode in self.names.get(folder, {}).items():
            if folder / name in self.names:
                yield from self._survivors(folder / name)
            elif not (folder / name).is_dir():
                yield folder / name, inode


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _names_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def _some_pages(rng: random.Random, synced: bytes, written: bytes) -> bytes:
    """Return a file of which some pages are as they were written, and the others as they were synced."""
    sizes = [len(synced), len(written)]
    if len(written) > len(synced):
        sizes.append(rng.randint(*sizes))
    size = rng.choice(sizes)
    old, new = synced[:size].ljust(size, b"\0"), written[:size].ljust(size, b"\0")
    pages = range(0, size, PAGE_BYTES)
    return b"".join(rng.choice((old, new))[start : start + PAGE_BYTES] for start in pages)


class CrashingStorage(WrappedStorage):
    """A storage over folders of this machine that stops at its n-th change."""

    def __init__(self, root: Path, stop_at: int | None = None, *, is_torn: bool = False) -> None:
        super().__init__()
        self.disk = Disk(root)
        self.calls: list[str] = []
        self.is_torn = is_torn
        self._stop_at = stop_at

    def step(self, name: str, path: str) -> None:
        """Count a call; do not return from the one at which to stop, nor from any after it."""
        if self._stop_at is not None and len(self.calls) >= self._stop_at:
            raise Stopped
        # The folder that the root is in is synced where the root is new.
        self.calls.append(f"{name} {os.path.relpath(path, self.disk.root)}")
        if len(self.calls) == self._stop_at:
            raise Stopped

    def open_for_append(self, path: str) -> CrashingFile:
        if not Path(path).exists():
            self.step("make", path)
            file = CrashingFile(self.inner.open_for_append(path), self)
            # The inode may have been another file's.
            self.disk.contents.pop(Path(path).stat().st_ino, None)
            self.disk.note()
            return file
        return CrashingFile(self.inner.open_for_append(path), self)

    def create(self, path: str, like: str = "") -> CrashingFile:
        self.step("make", path)
        file = CrashingFile(self.inner.create(path, like), self)
        self.disk.contents.pop(Path(path).stat().st_ino, None)
        return file

    def rename(self, path: str, new_path: str) -> None:
        self.step("rename", path)
        self.disk.hold(Path(new_path))
        super().rename(path, new_path)
        self.disk.note()

    def remove(self, path: str) -> None:
        self.step("remove", path)
        self.disk.hold(Path(path))
        super().remove(path)
        self.disk.note()

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self.step("set_modified", path)
        super().set_modified_ns(path, modified_ns)

    def make_folder(self, path: str) -> None:
        self.step("make_folder", path)
        super().make_folder(path)
        self.disk.note()

    def remove_folder(self, path: str) -> None:
        self.step("remove_folder", path)
        super().remove_folder(path)
        self.disk.note()

    def sync_folder(self, path: str) -> None:
        self.step("sync_folder", path)
        super().sync_folder(path)
        if Path(path).is_relative_to(self.disk.root):
            self.disk.sync_folder(Path(path))

    def sync_files(self, paths: Collection[str]) -> None:
        # One after the other, so that a count of calls says which were made.
        for path in paths:
            with self.open_for_append(path) as file:
                file.sync()

    def sync_folders(self, paths: Collection[str]) -> None:
        for path in paths:
            self.sync_folder(path)

    def lock(self, path: str, timeout_seconds: float, *, is_shared: bool = False, queue: str | None = None) -> HeldLock:
        self.step("lock", path)
        return super().lock(path, timeout_seconds, is_shared=is_shared, queue=queue)


class CrashingFile(WrappedFile):
    """An open file of a `CrashingStorage`."""

    def __init__(self, file: WritableFile, storage: CrashingStorage) -> None:
        super().__init__(file)
        self._storage = storage

    def append(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._storage.step("append", self.path)
        except Stopped:
            if self._storage.is_torn:
                super().append(memoryview(data)[: len(data) // 2])
                self._storage.is_torn = False
            raise
        super().append(data)

    def append_from(self, path: str, position: int, length_bytes: int) -> None:
        try:
            self._storage.step("append_from", self.path)
        except Stopped:
            if self._storage.is_torn:
                super().append_from(path, position, length_bytes // 2)
                self._storage.is_torn = False
            raise
        super().append_from(path, position, length_bytes)

    def write_at(self, position: int, data: bytes) -> None:
        self._storage.step("write_at", self.path)
        super().write_at(position, data)

    def truncate(self, size_bytes: int) -> None:
        self._storage.step("truncate", self.path)
        super().truncate(size_bytes)

    def preallocate(self, size_bytes: int) -> None:
        self._storage.step("preallocate", self.path)
        super().preallocate(size_bytes)

    def sync(self) -> None:
        self._storage.step("sync", self.path)
        super().sync()
        self._storage.disk.sync(Path(self.path))


class FailingStorage(CrashingStorage):
    """Fails at its n-th change, and with ``is_full`` at each after it that takes room on the disk."""

    def __init__(self, root: Path, fail_at: int, *, is_full: bool) -> None:
        super().__init__(root)
        self._fail_at, self._is_full = fail_at, is_full

    def step(self, name: str, path: str) -> None:
        super().step(name, path)
        number, takes_room = len(self.calls), name in ("make", "append", "append_from", "sync")
        if number == self._fail_at or (self._is_full and number > self._fail_at and takes_room):
            raise StorageError(f"cannot write {path}: the disk is full; make room")

    @property
    def has_failed(self) -> bool:
        return len(self.calls) >= self._fail_at


@dataclass(frozen=True)
class Crash:
    """What a crash left, and where it was."""

    folder: Path
    call: str
    loss: Loss

    def __str__(self) -> str:
        return f"{self.loss} at {self.call}"


def crashes(
    prepare: Callable[[Path], None],
    run: Callable[[CrashingStorage, Path], None],
    tmp_path: Path,
    losses: tuple[Loss, ...] = LOSSES,
) -> Iterator[Crash]:
    """Run something until each of its changes in turn, and lose what each kind of crash loses; then once to its end."""
    original = tmp_path / "original"
    original.mkdir()
    prepare(original)
    for number, loss in enumerate(losses):
        stop_at = 1
        while True:
            folder = tmp_path / f"{loss}-{number}-{stop_at}"
            shutil.copytree(original, folder)
            storage = CrashingStorage(folder, stop_at, is_torn=loss == "torn")
            try:
                run(storage, folder)
            except Stopped:
                if loss in ("lost", "zeros"):
                    storage.disk.lose(keep_sizes=loss == "zeros")
                elif loss == "pages":
                    storage.disk.lose_pages(random.Random(f"{number} {stop_at}"))
                storage.disk.let_go()
                yield Crash(folder, storage.calls[-1], loss)
                shutil.rmtree(folder)
            else:
                storage.disk.let_go()
                yield Crash(folder, "the end", loss)
                break
            stop_at += 1
