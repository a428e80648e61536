"""Opens what lies beneath a folder, and follows no link there: others may have made the names that are found in it.

The path of the folder itself is the user's, and may have links. From the folder on, each name of a path is opened by
the descriptor of the folder that it is in, so that a name which is exchanged meanwhile leads nowhere else.
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
# Only to go on from: a folder that may not be listed may be gone through.
_TO_PASS: Final = _OF_FOLDERS | getattr(os, "O_PATH", os.O_RDONLY)
_MODE: Final = 0o644
# What a file or folder may have of the mode of the folder that it is made in.
_MODES_OF_FILES: Final = 0o664
_MODES_OF_FOLDERS: Final = 0o2775
_SPECIAL_KINDS: Final = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str:
    """Say what a file of a mode is, such as "a FIFO"."""
    return next((kind for is_kind, kind in _SPECIAL_KINDS if is_kind(mode)), "a special file")


@contextmanager
def within(root: str, path: str) -> Iterator[tuple[str, int | None]]:
    """Open the folder that a path is in, for a ``with`` block.

    Parameters
    ----------
    root : str
        The folder beneath which no link is followed; empty where the whole path is the user's.
    path : str
        Absolute.

    Returns
    -------
    (name, descriptor)
        For calls of the system that take a ``dir_fd``: the last name of the path, and the folder's descriptor; without
        a root the path itself, and None.

    Raises
    ------
    ForeignNameError
        The path is not beneath the root, or a folder on the way there is none.
    """
    if not root:
        yield path, None
        return
    *folders, name = names_beneath(root, path) or [""]
    if not name:
        raise ForeignNameError(f"{path} is a folder that is written in, and is not changed itself")
    descriptor = _opened(root, folders, _TO_PASS)
    try:
        yield name, descriptor
    finally:
        os.close(descriptor)


def names_beneath(root: str, path: str) -> list[str]:
    """Return the names that lead from a folder to a path beneath it; none for the folder itself.

    Raises
    ------
    ForeignNameError
        The path leads out of the folder.
    """
    if path == root:
        return []
    before = root if root.endswith("/") else f"{root}/"
    names = path[len(before) :].split("/")
    if not path.startswith(before) or not {"", ".", ".."}.isdisjoint(names) or "\0" in path:
        raise ForeignNameError(
            f"{path!r} leads out of {root}, and nothing is changed there. Who named it is damaged or forged"
        )
    return names


def open_file(root: str, path: str, flags: int) -> int:
    """Open a regular file, and wait for nobody; `OSError` as of the system.

    Raises
    ------
    ForeignNameError
        Something else than a regular file has the name; beneath a root, also a link to one.
    """
    no_link = os.O_NOFOLLOW if root else 0
    try:
        with within(root, path) as (name, folder):
            # Without O_NONBLOCK, to open a pipe is to wait for somebody at its other end.
            descriptor = os.open(name, flags | no_link | os.O_CLOEXEC | os.O_NONBLOCK, _MODE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENXIO) or (root and error.errno == errno.ELOOP):
            raise not_a_file(path, look(root, path)) from error
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise not_a_file(path, found)
    return descriptor


def open_or_make_file(root: str, path: str) -> int:
    """Open a regular file to write to it, and make it where it is not there; errors as of `open_file`."""
    if not root:
        return open_file(root, path, os.O_RDWR | os.O_CREAT)
    try:
        return open_file(root, path, os.O_RDWR)
    except FileNotFoundError:
        try:
            return _new_file(root, path, "")
        except FileExistsError:
            # Made by another writer in between.
            return open_file(root, path, os.O_RDWR)


def make_file(root: str, path: str, like: str) -> int:
    """Make a file that is new, in the place of a file or a link that has the name; errors as of `open_file`.

    Parameters
    ----------
    like : str
        The path of the file whose owner and mode it gets, where that can be; where there is none, or empty, they are
        those of the folder.
    """
    try:
        with within(root, path) as (name, folder):
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError as error:
        raise not_a_file(path, look(root, path)) from error
    return _new_file(root, path, like)


def _new_file(root: str, path: str, like: str) -> int:
    with within(root, path) as (name, folder):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE, dir_fd=folder)
        model = _file_at(root, like) if like else None
        with suppress(OSError):
            if model is not None:
                _give(descriptor, model, model.st_mode & 0o777)
            elif folder is not None:
                _give_as(descriptor, folder, _MODES_OF_FILES)
    return descriptor


def _file_at(root: str, path: str) -> os.stat_result | None:
    """Return what is known of a regular file; None where there is none."""
    with suppress(OSError, ForeignNameError):
        found = look(root, path)
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def _give_as(descriptor: int, folder: int, modes: int) -> None:
    """Let what was made in a folder of another user be that user's, as what that user makes there is."""
    found = os.fstat(folder)
    is_shared = found.st_gid != os.getegid() and found.st_mode & stat.S_IWGRP
    if (found.st_uid != os.geteuid() or is_shared) and not found.st_mode & stat.S_ISVTX:
        _give(descriptor, found, found.st_mode & modes)


def _give(descriptor: int, owner: os.stat_result, mode: int) -> None:
    found = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    if stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(descriptor, mode)


def look(root: str, path: str) -> os.stat_result:
    """Return what is known of a name, beneath a root also of a link; `OSError` as of the system."""
    with within(root, path) as (name, folder):
        return os.stat(name, dir_fd=folder, follow_symlinks=not root)


def open_folder(root: str, path: str) -> int:
    """Open a folder, to list or to sync it; errors as of `within` and of the system."""
    if not root:
        return os.open(path, os.O_RDONLY | _OF_FOLDERS)
    return _opened(root, names_beneath(root, path), os.O_RDONLY | _OF_FOLDERS)


def make_folders(root: str, path: str) -> None:
    """Make a folder beneath a root, and those that it is in; nothing where it is there."""
    names = names_beneath(root, path)
    Path(root).mkdir(parents=True, exist_ok=True)
    for length in range(1, len(names) + 1):
        folder = _opened(root, names[: length - 1], _TO_PASS)
        try:
            os.mkdir(names[length - 1], dir_fd=folder)
            made = os.open(names[length - 1], os.O_RDONLY | _OF_FOLDERS | os.O_NOFOLLOW, dir_fd=folder)
            with suppress(OSError):
                _give_as(made, folder, _MODES_OF_FOLDERS)
            os.close(made)
        except FileExistsError:
            pass
        finally:
            os.close(folder)
    os.close(_opened(root, names, _TO_PASS))


def _opened(root: str, names: Sequence[str], flags: int) -> int:
    """Open a folder beneath another one, from folder to folder."""
    descriptor = os.open(root, (_TO_PASS if names else flags))
    for number, name in enumerate(names, 1):
        try:
            below = os.open(name, (_TO_PASS if number < len(names) else flags) | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                raise not_a_folder("/".join((root, *names[:number])), found) from error
            raise
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def refuse_link(path: str, found: os.stat_result) -> None:
    """Raise `ForeignNameError` if a name is that of a link, which would be put in the place of a file or folder."""
    if stat.S_ISLNK(found.st_mode):
        raise not_a_file(path, found)


def not_a_file(path: str, found: os.stat_result) -> ForeignNameError:
    """Return the error of a name that a file was to have, and something else has."""
    return _in_the_way(path, found, "a regular file")


def not_a_folder(path: str, found: os.stat_result) -> ForeignNameError:
    """Return the error of a name that a folder was to have, and something else has."""
    return _in_the_way(path, found, "a folder")


def _in_the_way(path: str, found: os.stat_result, wanted: str) -> ForeignNameError:
    way_out = (
        "no link is followed in a folder that is written to. Remove it" if stat.S_ISLNK(found.st_mode) else "remove it"
    )
    return ForeignNameError(
        f"{path} is {kind_of(found.st_mode)}, not {wanted}: {way_out}, or put in its place what belongs there"
    )
