"""Tries on a shared folder, before the first write, all that a writer of logs needs of a file system.

Locks that keep other machines out, renames in one step, writes in place, and syncs are certain on a disk. On a shared
folder (NFS, SMB, FUSE and others) they depend on its server and its mount options, and some mounts answer that they
have done what they have not. So each is tried once for a process and a mount, in the folder that is to be written to.
Mounts of buckets are refused by name: they keep nobody out, and rename by copying.

Source: Linux, proc(5), /proc/pid/mountinfo.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sparklog.errors import StorageError
from sparklog.storage.process import ProcessState

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = re.compile(
    r"nfs4?|cifs|smb3?|smbfs|9p|afs|ceph|lustre|glusterfs|gfs2?|ocfs2|beegfs\w*|gpfs|virtiofs|vboxsf|prl_fs|fuse(\..+)?"
)
_BUCKETS: Final = re.compile(
    r"fuse\.(s3fs|s3ql|gcsfuse|goofys|geesefs|rclone|blobfuse2?|mountpoint-s3|mount-s3|ossfs|cosfs|obsfs)"
    r"|(s3fs|gcsfuse|goofys|mountpoint-s3)"
)
# A mount of a bucket often has only "fuse" as its type, and the program's name as its source.
_BUCKET_SOURCES: Final = re.compile(r"(s3fs|gcsfuse|goofys|mountpoint-s3|mount-s3|blobfuse2?|geesefs|rclone)(#|$|:)")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_TRIAL: Final = ".sparklog-trial-"
_LOCKED: Final = 3
_LOCK_ELSEWHERE: Final = f"""
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit({_LOCKED})
"""
_ELSEWHERE_SECONDS_MAX: Final = 60


class Mount(NamedTuple):
    """A mounted file system: where it is, its type, such as "nfs4", and its source."""

    point: str
    kind: str
    source: str


_fit: dict[int, bool] = {}
_process: Final = ProcessState(threading.Lock, _fit)


def refuse_unfit(folder: str, mounts: Callable[[], Iterable[Mount]] | None = None) -> None:
    """Raise `StorageError` unless the file system of a folder, which is there, can be written to as logs need it.

    Parameters
    ----------
    folder : str
        A log directory.
    mounts : callable, optional
        Returns the mounted file systems; by default, all of this machine.
    """
    try:
        device = os.stat(folder).st_dev  # noqa: PTH116 - a commit asks it each time
    except OSError:
        # The writer's own call has the better error.
        return
    with _process.lock:
        if _fit.get(device):
            return
    mount = mount_of(os.path.realpath(folder), (mounts or mounted)())
    if mount is not None:
        if _BUCKETS.fullmatch(mount.kind) or _BUCKET_SOURCES.match(mount.source):
            raise StorageError(
                f"{folder} is in a bucket that {mount.source or mount.kind} mounts at {mount.point}: it keeps no other "
                f"writer out, and renames by copying. Write to a disk, and copy the directory"
            )
        if _SHARED.fullmatch(mount.kind):
            _try(folder, mount)
    with _process.lock:
        _fit[device] = True


def mounted() -> list[Mount]:
    """Return the mounted file systems of this machine, the later ones over the earlier; empty if it does not say."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [each for line in lines if (each := _parsed(line)) is not None]


def _parsed(line: str) -> Mount | None:
    before, dash, after = line.partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    if not dash or len(fields) < 5 or len(rest) < 2:
        return None
    return Mount(_plain(fields[4]), rest[0], _plain(rest[1]))


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the file system that an absolute path without links is in; None if none of them has it."""
    found = None
    for each in mounts:
        point = each.point.rstrip("/")
        is_in = path == point or path.startswith(f"{point}/")
        if is_in and (found is None or len(point) >= len(found.point.rstrip("/"))):
            found = each
    return found


def _try(folder: str, mount: Mount) -> None:
    """Try everything in a folder; raise `StorageError` for the first that fails."""
    path = f"{folder}/{_TRIAL}{uuid.uuid4().hex}"
    for what, attempt in (
        ("lock a file against other processes", _try_lock),
        ("rename a file over another one in one step", _try_rename),
        ("change bytes in a file, and cut it", _try_changes),
        ("sync files and folders", _try_sync),
    ):
        try:
            is_done, reason = attempt(path), "it says that it has, and has not"
        except OSError as error:
            is_done, reason = False, error.strerror or str(error)
        finally:
            for name in (path, f"{path}-2"):
                with suppress(OSError):
                    os.unlink(name)  # noqa: PTH108 - as the calls beside it
        if not is_done:
            raise StorageError(
                f"{folder} is on a shared file system ({mount.kind}, mounted at {mount.point}) that does not {what}: "
                f"{reason}. Logs cannot be written there safely: change how it is mounted, or write to a disk"
            )


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(path: str) -> bool:
    descriptor = _opened(path)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = subprocess.run(
            [sys.executable, "-c", _LOCK_ELSEWHERE, path], timeout=_ELSEWHERE_SECONDS_MAX, check=False
        )
        return done.returncode == _LOCKED
    except subprocess.TimeoutExpired:
        return False
    finally:
        os.close(descriptor)


def _try_rename(path: str) -> bool:
    for name, data in ((path, b"old"), (f"{path}-2", b"new")):
        Path(name).write_bytes(data)
    os.rename(f"{path}-2", path)  # noqa: PTH104 - as the calls beside it
    return Path(path).read_bytes() == b"new" and not os.path.lexists(f"{path}-2")


def _try_changes(path: str) -> bool:
    descriptor = _opened(path)
    try:
        os.pwrite(descriptor, b"012345", 0)
        os.pwrite(descriptor, b"x", 2)
        os.ftruncate(descriptor, 4)
    finally:
        os.close(descriptor)
    return Path(path).read_bytes() == b"01x3"


def _try_sync(path: str) -> bool:
    for name, flags in ((path, os.O_RDWR | os.O_CREAT), (path.rpartition("/")[0], os.O_RDONLY)):
        descriptor = os.open(name, flags | os.O_CLOEXEC, 0o600)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return True
