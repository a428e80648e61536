"""A full disk at every call: the log stays readable, and what the error says of the write is true.

Every error of a write says exactly one of three things (`CLAIMS`): nothing of it is visible, all of it is, or all of it
will be. Who does what it says has each row once.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import SeglogError
from sparklog.log.config import LogConfig
from sparklog.topic.write.commit import commit
from sparklog.write.partition import LogWriter
from tests.places import moved
from tests.storage.full_disk import FullDisk
from tests.topic.staged import NOW_MS, findings, rows, stage, write

Claim = Literal["nothing", "all", "will"]

CLAIMS: Final[dict[Claim, re.Pattern[str]]] = {
    "nothing": re.compile(r"[Nn]othing of this (write|append) is visible|[Nn]othing was written"),
    "all": re.compile(r"[Aa]ll of this (write|append) is visible"),
    "will": re.compile(r"all of it will be visible"),
}
HOLDS: Final = ("open", "append", "flush", "close")
"""The steps at which what is said is true; the others are in the long run only (`make fuzz`)."""

CONFIG = LogConfig.from_properties(
    {
        "compression.type": "uncompressed",
        "batch.size": "300",
        "segment.index.bytes": "48",
        "index.interval.bytes": "100",
    }
)
FLUSHED = replace(CONFIG, flush_messages=1)


def claims_of(error: BaseException) -> list[Claim]:
    return [claim for claim, words in CLAIMS.items() if words.search(str(error))]


def read(folder: Path) -> list[str]:
    """Read a log whose offsets are dense; none where it is not there yet."""
    if not folder.is_dir():
        return []
    with sparklog.open_log(str(folder)) as log:
        table = log.read(columns=["offset", "value"])
        assert table["offset"].to_pylist() == list(range(log.start_offset, log.end_offset))
    return [value.decode() for value in table["value"].to_pylist()]


@dataclass
class Writer:
    """Appends as a careful user does: it holds each error against the log, and repeats what it is told to repeat."""

    folder: Path
    storage: FullDisk
    config: LogConfig
    steps: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    log: LogWriter | None = None

    def does(self, step: str, values: Sequence[str], action: Callable[[], None]) -> None:
        """Do something that is to make values visible; `values` are those that are not known to be there yet."""
        self.steps.add(step)
        try:
            action()
        except SeglogError as error:
            self._hear(step, list(values), error)
        else:
            self.expected += [value for value in values if step == "append"]

    def _hear(self, step: str, values: list[str], error: SeglogError) -> None:
        where = f"{step}, at {self.storage.refused!r}: {error}"
        claims = claims_of(error)
        if len(claims) != 1:
            self.wrong.append(f"{where}: says {claims or 'nothing of what is visible'}")
        self.storage.make_room()
        found = read(self.folder)
        before, after = self.expected, [*self.expected, *(values if step == "append" else ())]
        if claims == ["nothing"]:
            after = before if step == "append" else before[: len(before) - len(values)]
        if claims == ["will"]:
            LogWriter.open(self.folder, self.config).close()
            found = read(self.folder)
        if claims and found != after:
            self.wrong.append(f"{where}: there are {len(found)} rows and not {len(after)}")
        self.expected = found
        if claims == ["nothing"] and found == after:
            self._repeat(values)

    def _repeat(self, values: list[str]) -> None:
        """Do as one is told: repeat the write, on the same log where it can go on."""
        if not values:
            return
        if self.log is None:
            self.log = LogWriter.open(self.folder, self.config)
        try:
            self.log.append(pa.table({"value": values}))
        except SeglogError:
            with contextlib.suppress(SeglogError):
                self.log.close()
            self.log = LogWriter.open(self.folder, self.config)
            self.log.append(pa.table({"value": values}))
        self.expected += values


def write_all(folder: Path, storage: FullDisk, config: LogConfig) -> Writer:
    """Open, append, roll, flush, close: each a step, an error at each held against the log."""
    writer = Writer(folder, storage, config)
    writer.expected = read(folder)
    session: list[str] = []

    def open_() -> None:
        writer.log = LogWriter.open(folder, config, storage=storage)

    writer.does("open", (), open_)
    if writer.log is None:
        open_()
    for number, count in enumerate((1, 2, 30, 1)):
        values = [f"{number}/{row} ".ljust(60, "x") for row in range(count)]
        log = writer.log
        assert log is not None
        writer.does("append", values, lambda log=log, values=values: _append(log, values))  # type: ignore[misc]
        session += values
        if number == 1:
            writer.does("flush", session, writer.log.flush)  # type: ignore[union-attr]
    last = writer.log
    assert last is not None
    writer.does("close", session, last.close)
    return writer


def _append(log: LogWriter, values: list[str]) -> None:
    log.append(pa.table({"value": values}))


def every_call(tmp_path: Path, config: LogConfig, *, stays_full: bool, step: int = 1) -> list[str]:
    """Run with the disk full at every so many-th call; what was wrong, and at which step of the writer."""
    wrong: list[str] = []
    for full_at in range(1, 10_000, step):
        directory = tmp_path / str(full_at)
        folder = directory / "events-0"
        with LogWriter.open(folder, config) as log:
            log.append(pa.table({"value": ["before"]}))
        storage = FullDisk(directory, full_at, stays_full=stays_full)
        writer = write_all(folder, storage, config)
        wrong += [f"{full_at}: {each}" for each in writer.wrong]
        LogWriter.open(folder, config).close()
        found = read(folder)
        if found != writer.expected or len(set(found)) != len(found):
            wrong.append(f"{full_at}: at last there are {len(found)} rows and not {len(writer.expected)}")
        wrong += [f"{full_at}: at last {each}" for each in findings(directory)]
        shutil.rmtree(directory)
        if len(storage.calls) < full_at:
            return wrong
    raise AssertionError("there is no end of it")


def at_steps(wrong: Sequence[str], steps: Sequence[str]) -> list[str]:
    return [each for each in wrong if any(f": {step}, at" in each for step in steps)]


@pytest.mark.parametrize("stays_full", [False, True])
def test_full_disk_is_told_truly(tmp_path: Path, stays_full: bool) -> None:
    assert at_steps(every_call(tmp_path, CONFIG, stays_full=stays_full, step=5), HOLDS) == []


@pytest.mark.fuzz
@pytest.mark.parametrize("stays_full", [False, True])
@pytest.mark.parametrize(
    "config", [CONFIG, FLUSHED, replace(CONFIG, preallocate=True)], ids=["", "flush", "preallocate"]
)
def test_full_disk_is_told_truly_at_every_step(tmp_path: Path, config: LogConfig, stays_full: bool) -> None:
    assert every_call(tmp_path, config, stays_full=stays_full) == []


OLD = [rows(["old 0", "old 1"], partition=[0, 1])]
NEW = [
    rows([f"new {n} ".ljust(50, "x") for n in range(30)], partition=[n % 2 for n in range(30)]),
    rows(["last"], partition=[1]),
]
NEW_VALUES = [*(f"new {n} ".ljust(50, "x") for n in range(30)), "last"]


def commit_at_every_call(tmp_path: Path, *, stays_full: bool) -> list[str]:
    """Commit with the disk full at each call in turn; then do as the error says."""
    wrong: list[str] = []
    for full_at in range(1, 10_000):
        directory = tmp_path / str(full_at)
        directory.mkdir()
        write(directory, OLD)
        (directory / ".kafka_cleanshutdown").write_text("{}")
        job, staged = stage(directory, NEW)
        storage = FullDisk(directory, full_at, stays_full=stays_full)
        claims: list[Claim] = ["all"]
        said = ""
        try:
            commit(moved(job, storage), staged, NOW_MS)
        except SeglogError as error:
            claims, said = claims_of(error), f"{full_at}: commit, at {storage.refused!r}: {error}"
        storage.make_room()
        seen = sorted(_values(directory))
        old, both = sorted(["old 0", "old 1"]), sorted(["old 0", "old 1", *NEW_VALUES])
        if len(claims) != 1:
            wrong.append(f"{said}: says {claims or 'nothing of what is visible'}")
        elif seen != (both if claims == ["all"] else old):
            wrong.append(f"{said}: {len(seen)} rows are visible")
        if claims == ["nothing"]:
            write(directory, NEW)
        elif claims == ["will"]:
            commit(*stage(directory, []), NOW_MS)
        if claims and sorted(_values(directory)) != both:
            wrong.append(f"{said}: at last {len(_values(directory))} rows are visible")
        shutil.rmtree(directory)
        if len(storage.calls) < full_at:
            return wrong
    raise AssertionError("there is no end of it")


def _values(directory: Path) -> list[str]:
    return [value for number in range(2) for value in read(directory / f"events-{number}")]


COMMIT_HOLDS: Final = True
"""Whether what a commit says of a full disk is true at every call; until then it is in the long run only."""


@pytest.mark.parametrize(
    "stays_full", [pytest.param(each, marks=[] if COMMIT_HOLDS else [pytest.mark.fuzz]) for each in (False, True)]
)
def test_commit_on_a_full_disk_is_told_truly(tmp_path: Path, stays_full: bool) -> None:
    assert commit_at_every_call(tmp_path, stays_full=stays_full) == []
