"""Storage that stops: after so many calls nothing happens any more, and what was not synced may be gone.

for crash in crashes(prepare, run, tmp_path):     # prepare(folder), run(storage, folder)
    check(crash.folder)                           # the folder as it is found after the crash

The operation runs once, and before each of its calls what a crash would leave there is noted. A call that leaves what
another one left is passed over: there would be nothing new to check.

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
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
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

SET_ON_PURPOSE_SECONDS: Final = 600
"""A time of change that is so long ago, or so far ahead, is no chance; a later one is that of the run itself."""

Names = dict[Path, dict[str, int]]


@dataclass(frozen=True)
class Content:
    """A file: its bytes up to the last that is not zero, its size, and its time of change where somebody has set it."""

    data: bytes
    size_bytes: int
    modified_ns: int | None = None

    @classmethod
    def of(cls, data: bytes, modified_ns: int | None = None) -> Content:
        is_chance = modified_ns is None or abs(time.time_ns() - modified_ns) < SET_ON_PURPOSE_SECONDS * 10**9
        return cls(data.rstrip(b"\0"), len(data), None if is_chance else modified_ns)

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(self.data)
            file.truncate(self.size_bytes)
        if self.modified_ns is not None:
            os.utime(path, ns=(self.modified_ns, self.modified_ns))


Tree = Mapping[Path, Content | None]
"""The files in a folder, and the folders, which are None; a folder stands before what is in it."""


def tree_of(root: Path) -> Tree:
    """Return what is in a folder."""
    found: dict[Path, Content | None] = {}
    for path in sorted(root.rglob("*")):
        is_file = path.is_file()
        found[path.relative_to(root)] = Content.of(path.read_bytes(), path.stat().st_mtime_ns) if is_file else None
    return found


def replace_tree(root: Path, tree: Tree) -> None:
    """Make a folder have this, and nothing else."""
    if root.exists():
        shutil.rmtree(root)
    root.mkdir()
    for path, content in tree.items():
        if content is None:
            (root / path).mkdir()
        else:
            content.write(root / path)


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

    def move(self, folder: Path, new_folder: Path) -> None:
        """Note that a folder has another name: the names in it are on the disk under whichever name survives."""
        if folder in self.names:
            self.names[new_folder] = self.names[folder]

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

    def lose(self, loss: Loss, rng: random.Random | None = None) -> None:
        """Make the folder what is there after a crash."""
        replace_tree(self.root, self.after(loss, rng or random.Random(0)))

    def after(self, loss: Loss, rng: random.Random) -> Tree:
        """Return what is there after a crash; where the power went, once it is back."""
        if loss in ("kept", "torn"):
            return tree_of(self.root)
        if loss == "pages":
            return self._with_some_pages(rng)
        sizes = {path.stat().st_ino: path.stat().st_size for path in self.root.rglob("*") if path.is_file()}
        found: dict[Path, Content | None] = {}
        for path, inode in self._survivors(self.root):
            if inode is None:
                found[path.relative_to(self.root)] = None
                continue
            content = self.contents.get(inode, b"")
            if loss == "zeros" and inode in sizes:
                content = content[: sizes[inode]].ljust(sizes[inode], b"\0")
            found[path.relative_to(self.root)] = Content.of(content)
        return found

    def _with_some_pages(self, rng: random.Random) -> Tree:
        """Return what is there on a disk that writes pages in any order."""
        written = {path.stat().st_ino: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        names = rng.choice(self.history)
        found: dict[Path, Content | None] = {}
        for folder in sorted(names):
            if folder != self.root:
                found[folder.relative_to(self.root)] = None
            # In one order, whatever order the file system lists names in: else a seed does not say what is lost.
            for name, inode in sorted(names[folder].items()):
                if folder / name not in names:
                    synced = self.contents.get(inode, b"")
                    content = _some_pages(rng, synced, written.get(inode, synced))
                    found[(folder / name).relative_to(self.root)] = Content.of(content)
        return found

    def _survivors(self, folder: Path) -> Iterator[tuple[Path, int | None]]:
        if folder != self.root:
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
    """A storage over folders of this machine that stops at its n-th change.

    Attributes
    ----------
    reached : object
        What the operation says of how far it is; `Crash.reached` has it as it was at the crash.
    """

    def __init__(self, root: Path, stop_at: int | None = None) -> None:
        super().__init__()
        self.disk = Disk(root)
        self.calls: list[str] = []
        self.reached: object = None
        self._stop_at = stop_at

    def step(self, name: str, path: str) -> None:
        """Count a call; do not return from the one at which to stop, nor from any after it."""
        if self._stop_at is not None and len(self.calls) >= self._stop_at:
            raise Stopped
        # The folder that the root is in is synced where the root is new.
        self.calls.append(f"{name} {os.path.relpath(path, self.disk.root)}")
        if len(self.calls) == self._stop_at:
            raise Stopped

    def tear(self) -> None:
        """Half of what a call writes is there, and the call goes on."""

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
        self.disk.move(Path(path), Path(new_path))
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
        self._storage.step("append", self.path)
        written, half = memoryview(data), len(data) // 2
        super().append(written[:half])
        self._storage.tear()
        super().append(written[half:])

    def append_from(self, path: str, position: int, length_bytes: int) -> None:
        self._storage.step("append_from", self.path)
        half = length_bytes // 2
        super().append_from(path, position, half)
        self._storage.tear()
        super().append_from(path, position + half, length_bytes - half)

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
    reached: object = None
    """The storage's, as it was at the crash."""

    def __str__(self) -> str:
        return f"{self.loss} at {self.call}"


class RecordingStorage(CrashingStorage):
    """Runs an operation to its end, and notes before each change what a crash there would leave."""

    def __init__(self, root: Path, losses: tuple[Loss, ...]) -> None:
        super().__init__(root)
        self.losses = losses
        self.left: list[list[tuple[Crash, Tree]]] = [[] for _ in losses]
        """What crashes leave, by the number of the loss."""

    def step(self, name: str, path: str) -> None:
        super().step(name, path)
        for number, loss in enumerate(self.losses):
            self._note(number, self.disk.after(loss, random.Random(f"{number} {len(self.calls)}")))

    def tear(self) -> None:
        for number, loss in enumerate(self.losses):
            if loss == "torn":
                # Instead of what there was before the call.
                self.left[number].pop()
                self._note(number, self.disk.after(loss, random.Random(0)))

    def _note(self, number: int, tree: Tree) -> None:
        crash = Crash(self.disk.root, self.calls[-1], self.losses[number], self.reached)
        self.left[number].append((crash, tree))


def crashes(
    prepare: Callable[[Path], None],
    run: Callable[[CrashingStorage, Path], None],
    tmp_path: Path,
    losses: tuple[Loss, ...] = LOSSES,
) -> Iterator[Crash]:
    """Yield what crashes at each change of an operation leave, each kind of loss in turn; then what its end leaves.

    What was yielded once is not yielded again: see above.
    """
    prepared, folder = tmp_path / "original", tmp_path / "crashed"
    prepared.mkdir()
    prepare(prepared)
    shutil.copytree(prepared, folder)
    storage = RecordingStorage(folder, losses)
    run(storage, folder)
    storage.disk.let_go()
    end = tree_of(folder)
    seen = set[tuple[object, frozenset[tuple[Path, Content | None]]]]()
    for crash, tree in chain.from_iterable(storage.left):
        key = (crash.reached, frozenset(tree.items()))
        if key not in seen:
            seen.add(key)
            replace_tree(folder, tree)
            yield crash
    replace_tree(folder, end)
    yield Crash(folder, "the end", losses[-1], storage.reached)
    shutil.rmtree(folder)
