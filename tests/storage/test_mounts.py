"""Shared folders: all that writing needs is tried once, and the error says which of it fails."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import StorageError
from sparklog.storage import mounts
from sparklog.storage.mounts import Mount, mount_of, mounted, refuse_unfit


@pytest.fixture(autouse=True)
def first_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_fit", {})


def shared(folder: Path, kind: str = "nfs4", source: str = "server:/logs") -> Callable[[], list[Mount]]:
    return lambda: [Mount("/", "ext4", "/dev/vda1"), Mount(str(folder), kind, source)]


def test_mounts_of_this_machine_have_its_root_and_names_are_unescaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any(each.point == "/" for each in mounted())
    lines = "36 35 98:0 / /mnt/a\\040b rw,noatime master:1 - nfs4 server:/x\\011y rw\nbroken\n36 35 - x\n"
    (tmp_path / "mountinfo").write_text(lines)
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "mountinfo")
    assert mounted() == [Mount("/mnt/a b", "nfs4", "server:/x\ty")]
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "none")
    assert mounted() == []


def test_folder_is_in_the_innermost_mount_and_the_last_one_over_it() -> None:
    table = [Mount("/", "ext4", "a"), Mount("/mnt", "xfs", "b"), Mount("/mnt", "nfs", "c")]
    table += [Mount("/mnt/x", "cifs", "d")]
    for path, source in (("/mnt/y/z", "c"), ("/mnt/x", "d"), ("/mnt/x/1", "d"), ("/mntx", "a"), ("/", "a")):
        found = mount_of(path, table)
        assert found is not None
        assert found.source == source
    assert mount_of("/x", []) is None


def test_shared_folder_that_does_everything_is_tried_once_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    real = mounts._try

    def counting(folder: str, mount: Mount) -> None:
        tried.append(folder)
        real(folder, mount)

    monkeypatch.setattr(mounts, "_try", counting)
    for _ in range(3):
        refuse_unfit(str(tmp_path), shared(tmp_path))
    assert tried == [str(tmp_path)]
    assert not list(tmp_path.iterdir())


def test_disk_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_try", lambda *_: pytest.fail("a disk is tried"))
    refuse_unfit(str(tmp_path))
    refuse_unfit(str(tmp_path / "none"))


def fails(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOLCK, "No locks available")


def does_nothing(*_: Any, **__: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("owner", "name", "double", "words"),
    [
        (fcntl, "lockf", fails, "does not lock a file against other processes: No locks available"),
        (
            fcntl,
            "lockf",
            does_nothing,
            "does not lock a file against other processes: it says that it has, and has not",
        ),
        (os, "rename", fails, "does not rename a file over another one in one step: No locks"),
        (os, "rename", does_nothing, "does not rename a file over another one in one step: it says"),
        (os, "ftruncate", fails, "does not change bytes in a file, and cut it"),
        (os, "pwrite", does_nothing, "does not change bytes in a file, and cut it: it says"),
        (os, "fsync", fails, "does not sync files and folders"),
    ],
)
def test_shared_folder_that_lacks_something_is_refused_and_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, double: Any, words: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, double)
        with pytest.raises(StorageError) as caught:
            refuse_unfit(str(tmp_path), shared(tmp_path))
    assert f"{tmp_path} is on a shared file system (nfs4, mounted at {tmp_path}) that {words}" in str(caught.value)
    assert not list(tmp_path.iterdir())
    refuse_unfit(str(tmp_path), shared(tmp_path))


@pytest.mark.parametrize(
    ("kind", "source"),
    [("fuse.s3fs", "s3fs"), ("fuse.gcsfuse", "bucket"), ("fuse", "mountpoint-s3"), ("fuse.rclone", "remote:bucket")],
)
def test_mounted_bucket_is_refused_by_name(tmp_path: Path, kind: str, source: str) -> None:
    with pytest.raises(StorageError, match=rf"is in a bucket that {source} mounts at .*: it keeps no other writer out"):
        refuse_unfit(str(tmp_path), shared(tmp_path, kind, source))


def test_writer_of_a_log_asks_before_it_changes_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_text(f"1 1 0:1 / {tmp_path} rw - fuse.gcsfuse bucket rw\n")
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "mountinfo")
    folder = tmp_path / "logs" / "events-0"
    with pytest.raises(StorageError, match="is in a bucket"), sparklog.PartitionLog.open(folder) as log:
        log.append(pa.table({"value": [b"x"]}))
    assert not list(folder.parent.rglob("*.log"))
