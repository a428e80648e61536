"""Changing files of this machine."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import pytest

from sparklog.errors import LockedError, PathNotFoundError, StorageError
from sparklog.storage.local_writing import LocalWritableFile, LocalWritableStorage
from sparklog.write.small_files import write_atomically
from tests.limits import descriptors_beneath
from tests.places import directory_at

STORAGE = LocalWritableStorage()
HOLD_LOCK = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_appended_bytes_follow_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12")
    with STORAGE.open_for_append(str(path)) as file:
        file.append(b"34")
        file.append(memoryview(b"56"))
        file.write_at(0, b"x")
        file.sync()
        assert file.size_bytes() == 6
        file.truncate(5)
        file.append(b"7")
    assert path.read_bytes() == b"x23457"


def test_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for text in (b"first", b"2"):
        write_atomically(directory_at(tmp_path), path.name, text)
        assert path.read_bytes() == text
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]


def test_removing_and_making_twice_is_once(tmp_path: Path) -> None:
    for _ in range(2):
        STORAGE.make_folder(str(tmp_path / "events-0"))
        STORAGE.remove(str(tmp_path / "nothing"))
    STORAGE.sync_folder(str(tmp_path))
    assert (tmp_path / "events-0").is_dir()


def test_lock_of_a_running_broker_is_waited_for_and_then_refused(tmp_path: Path) -> None:
    """Kafka takes the same lock, by fcntl: another process stands for it."""
    lock = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LockedError, match=r"\.lock is locked by another process: a broker"):
            STORAGE.lock(str(lock), timeout_seconds=0.2)
        holder.kill()
    STORAGE.lock(str(lock), timeout_seconds=5).close()


def test_lock_is_shared_by_those_of_a_process_who_ask_for_that(tmp_path: Path) -> None:
    lock = str(tmp_path / ".lock")
    with (
        STORAGE.lock(lock, 1, is_shared=True),
        STORAGE.lock(lock, 1, is_shared=True),
        pytest.raises(LockedError, match="another writer of this process"),
    ):
        STORAGE.lock(lock, timeout_seconds=0.1)
    with STORAGE.lock(lock, 1), pytest.raises(LockedError):
        STORAGE.lock(lock, timeout_seconds=0.1, is_shared=True)


def test_lock_goes_to_who_waits_and_not_to_who_comes_later(tmp_path: Path) -> None:
    lock, queue = str(tmp_path / ".lock"), str(tmp_path / "queue")
    taken, let_go = threading.Event(), threading.Event()

    def wait() -> None:
        with STORAGE.lock(lock, 30, queue=queue):
            taken.set()
            let_go.wait(30)

    held = STORAGE.lock(lock, 0, is_shared=True, queue=queue)
    assert not Path(queue).exists()
    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 30
    is_waited_for = False
    while not is_waited_for and time.monotonic() < deadline:
        try:
            STORAGE.lock(queue, 0).close()
        except LockedError:
            is_waited_for = True
    # Who shares what this process has needs no turn.
    STORAGE.lock(lock, 0, is_shared=True, queue=queue).close()
    held.close()
    with pytest.raises(LockedError):
        STORAGE.lock(lock, 0, is_shared=True, queue=queue)
    assert taken.wait(30)
    let_go.set()
    thread.join(30)
    STORAGE.lock(lock, 0, is_shared=True, queue=queue).close()


def test_lock_is_let_go_of_by_its_last_holder_only(tmp_path: Path) -> None:
    lock = str(tmp_path / ".lock")
    first, second = (STORAGE.lock(lock, 1, is_shared=True) for _ in range(2))
    first.close()
    first.close()
    asked = [sys.executable, "-c", f"import fcntl; fcntl.lockf(open({lock!r}, 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"]
    assert subprocess.run(asked, check=False, capture_output=True).returncode == 1
    second.close()
    assert subprocess.run(asked, check=False, capture_output=True).returncode == 0


ASK: Final = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def is_locked(lock: Path) -> bool:
    """Ask in another process."""
    return subprocess.run([sys.executable, "-c", ASK, str(lock)], check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize("spelling", ["../{0}/.lock", "./.lock", "/.lock", "link/.lock", "hard"])
def test_lock_is_known_by_its_file_and_not_by_its_path(tmp_path: Path, spelling: str) -> None:
    """A second descriptor, when it is closed, takes the lock from the whole process."""
    lock = tmp_path / ".lock"
    lock.touch()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "hard").hardlink_to(lock)
    other = f"{tmp_path}/{spelling.format(tmp_path.name)}"
    with STORAGE.lock(str(lock), 1):
        for is_shared in (False, True):
            with pytest.raises(LockedError, match="another writer of this process"):
                STORAGE.lock(other, 0, is_shared=is_shared)
        assert is_locked(lock)
    with STORAGE.lock(str(lock), 1, is_shared=True):
        STORAGE.lock(other, 0, is_shared=True).close()
        with pytest.raises(LockedError):
            STORAGE.lock(other, 0)
        assert is_locked(lock)
    assert not is_locked(lock)


def test_lock_whose_path_leads_to_a_locked_file_only_when_it_is_opened_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / ".lock"
    with STORAGE.lock(str(lock), 1):
        monkeypatch.setattr("sparklog.storage.lock._held_here", lambda *_: None)
        with pytest.raises(LockedError):
            STORAGE.lock(str(lock), 0)
        monkeypatch.undo()
        assert is_locked(lock)
    assert not is_locked(lock)


@pytest.mark.skipif(sys.platform != "linux", reason="POSIX has no lock that survives this")
def test_lock_survives_that_its_file_is_read_by_the_same_process(tmp_path: Path) -> None:
    """As by a copy of the directory."""
    lock = tmp_path / ".lock"
    with STORAGE.lock(str(lock), 1):
        shutil.copytree(tmp_path, tmp_path / "copy")
        assert is_locked(lock)
    assert not is_locked(lock)


def test_lock_is_posix_where_the_file_system_has_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "no such lock")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    lock = tmp_path / ".lock"
    with STORAGE.lock(str(lock), 1):
        assert is_locked(lock)
        with pytest.raises(LockedError):
            STORAGE.lock(f"{tmp_path}/./.lock", 0)
        assert is_locked(lock)
    assert not is_locked(lock)


def test_folder_is_claimed_once_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with STORAGE.claim(str(tmp_path / "a"), "mine"):
        assert STORAGE.claimed_as(f"{tmp_path}/link/.") == "mine"
        assert STORAGE.claimed_as(str(tmp_path)) is None
        with pytest.raises(LockedError, match="yours is the folder mine, which is open in this process already"):
            STORAGE.claim(str(tmp_path / "link"), "yours")
    assert STORAGE.claimed_as(str(tmp_path / "a")) is None
    with pytest.raises(PathNotFoundError):
        STORAGE.claim(str(tmp_path / "nowhere"), "mine")


def test_claim_has_no_descriptor_and_keeps_out_a_moved_folder_and_a_new_one_at_its_path(tmp_path: Path) -> None:
    claimed, moved = tmp_path / "a", tmp_path / "b"
    claimed.mkdir()
    with STORAGE.claim(str(claimed), "mine"):
        assert descriptors_beneath(tmp_path) == 0
        claimed.rename(moved)
        claimed.mkdir()
        assert [STORAGE.claimed_as(str(path)) for path in (claimed, moved)] == ["mine", "mine"]
    assert [STORAGE.claimed_as(str(path)) for path in (claimed, moved)] == [None, None]


def test_part_of_another_file_is_appended(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"0123456789")
    with STORAGE.open_for_append(str(tmp_path / "f")) as file:
        file.append(b"a")
        file.append_from(str(tmp_path / "source"), 2, 3)
        assert file.size_bytes() == 4
        with pytest.raises(StorageError, match=r"source ends 2 bytes early"):
            file.append_from(str(tmp_path / "source"), 8, 4)
    assert (tmp_path / "f").read_bytes() == b"a23489"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the quota is used up"),
        (errno.EROFS, "read-only"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EACCES, "no permission to write"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_write_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str) -> None:
    with STORAGE.open_for_append(str(tmp_path / "f")) as file:

        def refuse(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "pwrite", refuse)
        with pytest.raises(StorageError, match=message):
            file.append(b"x")


def test_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    """/dev/full is a disk that is always full."""
    with LocalWritableFile(str(tmp_path / "f")) as file:
        with Path("/dev/full").open("wb", buffering=0) as full:
            os.dup2(full.fileno(), file._descriptor)
        with pytest.raises(StorageError, match="the disk is full"):
            file.append(b"x")
