"""A read's kernels are compiled by a process ahead of it: all that it needs, and once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.record.kernels import ahead as compile_ahead
from sparklog.record.kernels.folders import find_folders

LOG = Path(__file__).parents[3] / "examples/data/shop-events-0"
READ = f"import sparklog\nwith sparklog.open_log({str(LOG)!r}) as log: print(log.read().num_rows)"


@pytest.fixture(autouse=True)
def kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have kernels kept in a folder of the test's own, in a process that has not begun to compile ahead."""
    monkeypatch.setenv("SPARKLOG_CACHE_DIR", str(tmp_path / "kept"))
    compile_ahead.compile_for_reading.cache_clear()
    (folder,) = find_folders()[0]
    yield folder
    compile_ahead.compile_for_reading.cache_clear()


def keep(folder: Path, kernel: str) -> None:
    (folder / f"sparklog.record.kernels.{kernel}-0123456789abcdef").write_bytes(b"code")


def test_read_behind_the_process_compiles_nothing() -> None:
    process = compile_ahead.compile_for_reading()
    assert process is not None
    assert compile_ahead.compile_for_reading() is process, "once in a process"
    assert process.wait(300) == 0
    read = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert (read.stdout, read.stderr) == ("632\n", "")


def test_read_whose_process_was_killed_compiles_for_itself(kept_in: Path) -> None:
    for kernel in compile_ahead.READING[1:]:
        keep(kept_in, kernel)
    process = compile_ahead.compile_for_reading()
    assert process is not None
    process.kill()
    process.wait()
    assert [file for file in kept_in.glob("*decode_records*") if file.stat().st_size] == []
    read = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert (read.stdout, read.stderr) == ("632\n", "sparklog: compiling kernels, once for this machine\n")


def test_no_process_is_started_where_all_is_kept(kept_in: Path) -> None:
    for kernel in compile_ahead.READING:
        keep(kept_in, kernel)
    assert compile_ahead.compile_for_reading() is None


def test_one_process_compiles_ahead_at_a_time(kept_in: Path) -> None:
    with (kept_in / "ahead.turn").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert compile_ahead.compile_for_reading() is None


def test_process_that_cannot_be_started_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert compile_ahead.compile_for_reading() is None


def test_no_process_is_started_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert compile_ahead.compile_for_reading() is None


def test_link_in_the_place_of_the_lock_is_not_written_through(kept_in: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"of others")
    (kept_in / "ahead.turn").symlink_to(tmp_path / "outside")
    assert compile_ahead.compile_for_reading() is None
    assert (tmp_path / "outside").read_bytes() == b"of others"
