"""Counts the work that a call asks of the storage, to show that it does not grow with the rest of its directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from sparklog.storage.local import LocalFile, LocalStorage
from sparklog.storage.local_writing import LocalWritableFile, LocalWritableStorage

SIZES: Final = (100, 300, 900)
"""How many partitions a directory has, in turn."""
_CLASSES: Final = (LocalStorage, LocalWritableStorage, LocalFile, LocalWritableFile)
_MINUTE_NS: Final = 60_000_000_000
_WITHOUT_WORK: Final = {"close", "beneath", "absolute"}


@dataclass
class Work:
    """The work of a storage.

    Attributes
    ----------
    calls : int
        Calls of the storage and its files.
    names : int
        Names in the folders that were listed.
    read_bytes, written_bytes : int
        Bytes read from files, and written to them.
    """

    calls: int = 0
    names: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def count(self, name: str, arguments: Sequence[Any], result: Any) -> None:
        self.calls += 1
        if name in ("names", "entries"):
            self.names += len(result)
        elif name == "read":
            self.read_bytes += len(result)
        elif name == "read_into":
            self.read_bytes += result
        elif name in ("append", "write_at"):
            self.written_bytes += len(arguments[-1])


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count the work of this machine's storages while the block runs."""
    work = Work()
    with ExitStack() as patches:
        for each in _CLASSES:
            for name, plain in vars(each).items():
                if not name.startswith("_") and name not in _WITHOUT_WORK and callable(plain):
                    patches.enter_context(patch.object(each, name, _counted(plain, name, work)))
        yield work


def _counted(plain: Callable[..., Any], name: str, work: Work) -> Callable[..., Any]:
    @wraps(plain)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        result = plain(self, *arguments, **named)
        work.count(name, arguments, result)
        return result

    return call


def make_partitions(directory: Path, count: int, *, per_topic: int = 10) -> None:
    """Make empty logs in a log directory, and the checkpoints and properties that a directory of that size has."""
    at = [(f"topic-{row // per_topic:05d}", row % per_topic) for row in range(count)]
    for topic, partition in at:
        folder = directory / f"{topic}-{partition}"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").touch()
    for name in ("recovery-point-offset", "replication-offset", "log-start-offset", "cleaner-offset"):
        lines = "".join(f"{topic} {partition} 0\n" for topic, partition in at)
        (directory / f"{name}-checkpoint").write_text(f"0\n{count}\n{lines}")
    topics = sorted({topic for topic, _ in at})
    (directory / "topics.properties").write_text("".join(f"{topic}/retention.ms=86400000\n" for topic in topics))


def assert_grows_with_partitions(tmp_path: Path, act: Callable[[Path], object], *, most: float = 1.3) -> None:
    """Let a call work on directories of three sizes; fail if a partition asks more of the storage in a larger.

    Parameters
    ----------
    act : callable
        Works on all partitions of the log directory at a path, and changes nothing; called once before it is counted.
    most : float
        The most that the work for a partition may be, as a multiple of that in the smallest directory.
    """
    first = Work()
    for size in SIZES:
        directory = tmp_path / f"logs{size}"
        make_partitions(directory, size)
        settle(directory)
        act(directory)
        with counted_work() as work:
            act(directory)
        assert work.calls >= size, "the work is not done in this process"
        first = work if size == SIZES[0] else first
        for name, value in vars(work).items():
            assert value / size <= max(vars(first)[name] / SIZES[0], 1) * most, f"{name} of {size}: {first}, {work}"


def work_at_sizes(tmp_path: Path, act: Callable[[Path], object]) -> list[Work]:
    """Return the work of a call in directories of three sizes, ``logs<size>``, once their files are known."""
    found = []
    for size in SIZES:
        directory = tmp_path / f"logs{size}"
        make_partitions(directory, size)
        settle(directory)
        act(directory)
        settle(directory)
        with counted_work() as work:
            act(directory)
        found.append(work)
    return found


def assert_does_not_grow(tmp_path: Path, act: Callable[[Path], object], *, most: float = 1.3) -> None:
    """Let a call work in directories of three sizes; fail if it asks more of the storage in a larger one.

    Parameters
    ----------
    act : callable
        Works in the log directory at a path; it is called once before it is counted, so that files are known.
    most : float
        The most that the work may be, as a multiple of that in the smallest directory.
    """
    found = work_at_sizes(tmp_path, act)
    first = found[0]
    for size, work in zip(SIZES[1:], found[1:], strict=True):
        for name, value in vars(work).items():
            assert value <= max(vars(first)[name], 1) * most, f"{name} at {SIZES[0]} and {size}: {first}, {work}"


def settle(directory: Path) -> None:
    """Make all in a directory look as if nobody had changed it for a minute; files that look so keep their time."""
    for path in [*directory.rglob("*"), directory]:
        found = path.stat()
        if found.st_mtime_ns > time.time_ns() - _MINUTE_NS // 2:
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - _MINUTE_NS))
