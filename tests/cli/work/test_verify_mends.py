"""The commands that findings name mend them: ``recover``, and the removal of a file before, after each damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.inspect.explanations import EXPLANATIONS
from tests.build import offset_checkpoint, producer_snapshot
from tests.golden import golden_set
from tests.terminal import run

LOG = "v2-none-0"


def first(folder: Path, suffix: str) -> Path:
    return min(folder.glob(f"*{suffix}"))


def wrong_entry(folder: Path) -> None:
    path = first(folder, ".index")
    path.write_bytes((3).to_bytes(4, "big") + (1).to_bytes(4, "big") + path.read_bytes()[8:])


def append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def high_watermark(folder: Path) -> None:
    path = folder.parent / "replication-offset-checkpoint"
    path.write_text(offset_checkpoint({("v2-none", 0): 1 << 40}))


def crash(folder: Path, data: bytes) -> None:
    """Leave the bytes behind the log that a crash leaves there."""
    (folder.parent / ".kafka_cleanshutdown").unlink()
    (folder.parent / "recovery-point-offset-checkpoint").unlink()
    append(max(folder.glob("*.log")), data)


MENDED: dict[str, Callable[[Path], object]] = {
    "checkpoint": high_watermark,
    "corrupt-file": lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n7\n"),
    "index-entry": wrong_entry,
    "index-missing": lambda folder: first(folder, ".index").unlink(),
    "index-order": lambda folder: append(first(folder, ".index"), bytes(7) + b"\1"),
    "index-padded": lambda folder: append(first(folder, ".index"), bytes(80)),
    "index-short": lambda folder: first(folder, ".timeindex").write_bytes(b""),
    "index-size": lambda folder: append(first(folder, ".timeindex"), b"x"),
    "leader-epoch": lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 5\n0 3\n"),
    "orphan": lambda folder: (folder / f"{7:020d}.timeindex").write_bytes(b""),
    "snapshot": lambda folder: max(folder.glob("*.snapshot")).rename(folder / f"{5:020d}.snapshot"),
    "snapshot-end": lambda folder: (folder / f"{1 << 40:020d}.snapshot").write_bytes(producer_snapshot([])),
    "torn-tail": lambda folder: crash(folder, first(folder, ".log").read_bytes()[:40]),
    "zero-tail": lambda folder: crash(folder, bytes(500)),
}


@pytest.mark.parametrize("code", MENDED)
def test_command_of_a_finding_mends_it(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.jobs.across.faults._PAUSE_S", 0.0)
    directory = shutil.copytree(golden_set("v2-codecs").log_dir, tmp_path / "logs")
    MENDED[code](directory / LOG)
    found = [each for each in sparklog.verify(directory, deep=True) if each.code == code]
    assert found
    *before, last = EXPLANATIONS[code].command.split(" && ")
    for each in found if before else ():
        Path(each.path).unlink()
    assert last == "sparklog recover DIR"
    assert run("recover", directory).exit_code == 0
    assert code not in {each.code for each in sparklog.verify(directory, deep=True)}
