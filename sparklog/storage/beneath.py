"""Opens files and folders beneath a folder without following links: others may have made the names in it.

The path of the folder itself, the root, comes from the user and may have links; without a root the whole path does.
From the root on, each name is opened by the descriptor of its folder, so that a name exchanged meanwhile cannot lead
elsewhere.

New files in another user's folder are given to that user if possible: root works in a broker's directories.
System errors stay `OSError`; `ForeignNameError` says that a path leads out, or what is in its way.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sparklog.errors import ForeignNameError

_OF_FOLDERS: Final = os.O_DIRECTORY | os.O_CLOEXEC
_TO_LIST: Final = os.O_RDONLY | _OF_FOLDERS
# For passing through: a folder that may not be listed may still be traversed.
_TO_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | _OF_FOLDERS
_MODE: Final = 0o644
# The bits of its parent folder's mode that a new file or folder takes over in another user's folder.
_MODES_OF_FILES: Final = 0o664
_MODES_OF_FOLDERS: Final = 0o2775
_KINDS: Final = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str:
    """Return the kind of file that a mode means, such as "a FIFO"."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a special file")


def names_beneath(root: str, path: str) -> list[str]:
    """Return the names from a root to a path beneath it; none for the root itself."""
    if path == root:
        return []
    before = root if root.endswith("/") else f"{root}/"
    names = path[len(before) :].split("/")
    if not path.startswith(before) or not {"", ".", ".."}.isdisjoint(names) or "\0" in path:
        raise ForeignNameError(
            f"{path!r} leads out of {root}, and nothing is changed there. The file that names it is damaged or forged"
        )
    return names


@contextmanager
def within(root: str, path: str) -> Iterator[tuple[str, int | None]]:
    """Open the folder of a path, and return the arguments of system calls: a name, and its ``dir_fd``."""
    *folders, name = (names_beneath(root, path) if root else []) or [path]
    if not folders:
        # The folder is the root, or the whole path is the user's: only the last name can be someone else's link.
        yield path, None
        return
    descriptor = _opened(root, folders, _TO_PASS)
    try:
        yield name, descriptor
    finally:
        os.close(descriptor)


def look(root: str, path: str) -> os.stat_result:
    """Return the status of a name; beneath a root, of a link itself."""
    with within(root, path) as (name, folder):
        return os.stat(name, dir_fd=folder, follow_symlinks=not root)


def open_file(root: str, path: str, flags: int, *, takes_devices: bool = False) -> int:
    """Open a regular file without blocking; beneath a root, without following links."""
    no_link = os.O_NOFOLLOW if root else 0
    try:
        with within(root, path) as (name, folder):
            # Without O_NONBLOCK, opening a pipe waits for a process at its other end.
            descriptor = os.open(name, flags | no_link | os.O_CLOEXEC | os.O_NONBLOCK, _MODE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENXIO) or (root and error.errno == errno.ELOOP):
            raise not_a_file(path, look(root, path)) from error
        raise
    found = os.fstat(descriptor)
    if not (stat.S_ISREG(found.st_mode) or (takes_devices and stat.S_ISCHR(found.st_mode))):
        os.close(descriptor)
        raise not_a_file(path, found)
    return descriptor


def open_or_make_file(root: str, path: str) -> int:
    """Open a file to write to it, making it if it does not exist; without a root a device is accepted as well."""
    if not root:
        return open_file(root, path, os.O_RDWR | os.O_CREAT, takes_devices=True)
    try:
        return open_file(root, path, os.O_RDWR)
    except FileNotFoundError:
        try:
            return _new_file(root, path)
        except FileExistsError:
            # Made by another writer in between.
            return open_file(root, path, os.O_RDWR)


def make_file(root: str, path: str, like: str) -> int:
    """Make a new file, replacing any file or link of that name.

    Parameters
    ----------
    like : str
        The path of the file whose owner and mode it gets if possible; if there is none, or empty, they are
        the folder's.
    """
    with suppress(FileNotFoundError):
        remove(root, path)
    return _new_file(root, path, like)


def remove(root: str, path: str) -> None:
    """Remove a name that is no folder; a link is not followed."""
    try:
        with within(root, path) as (name, folder):
            os.unlink(name, dir_fd=folder)
    except IsADirectoryError as error:
        raise not_a_file(path, look(root, path)) from error


def rename(root: str, path: str, new_path: str) -> None:
    """Rename a file or a folder, replacing any file of the new name; beneath a root, refuse to move a link."""
    try:
        with within(root, path) as (name, folder), within(root, new_path) as (new_name, new_folder):
            if root and stat.S_ISLNK((found := os.lstat(name, dir_fd=folder)).st_mode):
                raise not_a_file(path, found)
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)
    except IsADirectoryError as error:
        raise not_a_file(new_path, look(root, new_path)) from error


def open_folder(root: str, path: str) -> int:
    """Open a folder, to list or to sync it."""
    return _opened(root or path, names_beneath(root or path, path), _TO_LIST)


def make_folders(root: str, path: str) -> None:
    """Make a folder and its parents, unless they exist."""
    below = root or path
    names = names_beneath(below, path)
    Path(below).mkdir(parents=True, exist_ok=True)
    for name in names:
        below = f"{below}/{name}"
        with suppress(FileExistsError), within(root, below) as (last, folder):
            os.mkdir(last, dir_fd=folder)
            made = os.open(last, _TO_LIST | os.O_NOFOLLOW, dir_fd=folder)
            _give_as(made, root, folder, _MODES_OF_FOLDERS)
            os.close(made)
    os.close(open_folder(root, path))


def _opened(root: str, names: Sequence[str], flags: int) -> int:
    """Open a folder beneath a root, from folder to folder."""
    if not names:
        return os.open(root, flags)
    above, path = None, root
    for left, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
        path = f"{path}/{name}"
        # Links in the root are followed, since O_NOFOLLOW concerns the last name of a path only.
        wanted = path if above is None else name
        try:
            opened = os.open(wanted, (_TO_PASS if left else flags) | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise _in_the_way(path, os.lstat(wanted, dir_fd=above), "a folder") from error
            raise
        finally:
            if above is not None:
                os.close(above)
        above = opened
    return opened


def _new_file(root: str, path: str, like: str = "") -> int:
    with within(root, path) as (name, folder):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE, dir_fd=folder)
        model = None
        with suppress(OSError, ForeignNameError):
            model = look(root, like) if like else None
        if model is not None and stat.S_ISREG(model.st_mode):
            _give(descriptor, model, model.st_mode & 0o777)
        elif root:
            _give_as(descriptor, root, folder, _MODES_OF_FILES)
    return descriptor


def _give_as(descriptor: int, root: str, folder: int | None, modes: int) -> None:
    """Give a new file in another user's folder to that user, with the mode that the user's own files get there."""
    found = os.lstat(f"{root}/.") if folder is None else os.fstat(folder)
    is_shared = found.st_gid != os.getegid() and found.st_mode & stat.S_IWGRP
    if (found.st_uid != os.geteuid() or is_shared) and not found.st_mode & stat.S_ISVTX:
        _give(descriptor, found, found.st_mode & modes)


def _give(descriptor: int, owner: os.stat_result, mode: int) -> None:
    """Give a file an owner and a mode; without the permission, leave it as it is."""
    found = os.fstat(descriptor)
    with suppress(OSError):
        if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        if stat.S_IMODE(found.st_mode) != mode:
            os.fchmod(descriptor, mode)


def not_a_file(path: str, found: os.stat_result) -> ForeignNameError:
    """Return the error for a name that should be a file's and is something else's."""
    return _in_the_way(path, found, "a regular file")


def _in_the_way(path: str, found: os.stat_result, wanted: str) -> ForeignNameError:
    why = (
        "no link is followed in a folder that is written to. Remove it" if stat.S_ISLNK(found.st_mode) else "remove it"
    )
    return ForeignNameError(
        f"{path} is {kind_of(found.st_mode)}, not {wanted}: {why}, or put in its place what belongs there"
    )
