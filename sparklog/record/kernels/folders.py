"""Finds the folders for compiled kernels, and checks that nobody else can have written to them.

The folder's name is derived from the sources of all kernels, since steps and constants of other files are compiled into
each, and from Python's version; the files' names from all else: see `sparklog.record.kernels.cache`.

Loaded code is run. So a folder is used only if nobody else can have put anything into it: it must belong to the user or
to root, and nobody else may write to it. A user who may write to its parent can replace the folder at any time. So the
opened folder is checked each time, links are not followed, and files are found by its descriptor. If no such folder is
writable, compiled code is kept for the process alone.

When a folder is made, the folders beside it that no process has used for a month are removed: they belong to other
versions. A process that still uses one compiles the missing kernels again.

Nothing here needs numba, so that checking whether kernels are compiled does not import it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

FOLDER_VARIABLE: Final = "SPARKLOG_CACHE_DIR"
"""The environment variable with another folder for compiled code, such as one in a container image."""

_UNUSED_SECONDS_MAX: Final = 30 * 86_400
_FOLDER_NAME: Final = re.compile("kernels-[0-9a-f]{16}")


def _candidates() -> Iterator[tuple[Path, int]]:
    """Yield the folders in which compiled code may be kept, best first, each with the mode to make it with.

    Others may read a folder that the variable names. Another user's home, as with ``sudo``, is left alone.
    """
    if named := os.environ.get(FOLDER_VARIABLE):
        yield Path(named).expanduser().resolve(), 0o755
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = _own_home()
    if cache.is_absolute():
        yield cache / "sparklog", 0o700
    elif home is not None:
        yield home / ".cache" / "sparklog", 0o700
    yield Path(tempfile.gettempdir()) / f"sparklog-{os.getuid()}", 0o700


def _own_home() -> Path | None:
    try:
        home = Path.home()
        return home if home.is_absolute() and home.stat().st_uid == os.getuid() else None
    except (OSError, RuntimeError):
        return None


def distrust(found: os.stat_result) -> str | None:
    """Return why code from a file or folder must not be run; None if it may."""
    if found.st_uid not in (os.getuid(), 0):
        return "it belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may write to it"
    return None


@contextmanager
def opened(folder: str | Path, within: int | None = None) -> Iterator[int]:
    """Open a folder that may contain compiled code, for a ``with`` block, and return its descriptor.

    Parameters
    ----------
    within : int, optional
        The descriptor of its parent.

    Raises
    ------
    OSError
        It cannot be opened, or others can have put something there.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        refusal = distrust(os.fstat(descriptor))
        if refusal is not None:
            raise PermissionError(errno.EPERM, refusal)
        yield descriptor
    finally:
        os.close(descriptor)


def file_within(folder: int, name: str, flags: int = os.O_WRONLY | os.O_CREAT) -> BinaryIO:
    """Open a file by the descriptor of its folder, without following links or blocking."""
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder)
    return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "rb")


def _make(folder: Path, mode: int) -> str | None:
    """Make a folder if it is missing, and return why it cannot be used; None if it can."""
    try:
        for each in (*reversed(folder.parents), folder):
            if not each.exists():
                with suppress(FileExistsError):
                    each.mkdir(mode=mode)
        with opened(folder):
            return None
    except NotADirectoryError:
        return "it is not a folder"
    except OSError as error:
        return error.strerror


def _kept_for() -> str:
    """Return the name of the folder for the current sources of the kernels and Python's version."""
    here = Path(__file__).parent
    formats = [here.parent / "format" / f"{name}.py" for name in ("headers", "legacy", "streams", "v2")]
    sources = [*formats, *sorted(here.glob("*.py"))]
    digest = hashlib.blake2b(sys.version.encode(), digest_size=8)
    for path in sources:
        digest.update(path.read_bytes())
    return f"kernels-{digest.hexdigest()}"


def can_be_written(folder: Path) -> bool:
    """Return whether compiled code can be kept in a folder."""
    return os.access(folder, os.W_OK)


def find_folders() -> tuple[list[Path], str | None]:
    """Find the folders to load compiled code from, best first, up to the first writable one.

    Returns
    -------
    (folders, refusal)
        Only the last folder is written to, if it is writable. ``refusal`` is the reason why the folder of the
        environment variable is not used; None if it is used, or not set.
    """
    name = _kept_for()
    folders = []
    refusals = {}
    is_named = bool(os.environ.get(FOLDER_VARIABLE))
    for folder, mode in _candidates():
        is_new = not (folder / name).exists()
        refusals[folder] = _make(folder, mode) or _make(folder / name, mode)
        if refusals[folder] is None:
            folders.append(folder / name)
            if can_be_written(folder / name):
                used = _note_use(folder / name)
                # In a named folder, others may read kernels without being able to note their use.
                if is_new and not (is_named and len(refusals) == 1):
                    _remove_unused(folder, used - _UNUSED_SECONDS_MAX)
                break
    first = next(iter(refusals))
    is_refused = is_named and refusals[first]
    return folders, f"{FOLDER_VARIABLE}={first} is not used: {refusals[first]}" if is_refused else None


def _note_use(folder: Path) -> float:
    """Set a folder's modification time to now, as the time of its last use, and return it as the disk reports it."""
    with suppress(OSError), opened(folder) as descriptor:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime
    return 0.0


def _remove_unused(beside: Path, used_before: float) -> None:
    """Remove the user's own folders of kernels last used before a time; links are not followed."""
    with suppress(OSError), opened(beside) as descriptor:
        for name in filter(_FOLDER_NAME.fullmatch, sorted(os.listdir(descriptor))):  # noqa: PTH208 - of a descriptor
            with suppress(OSError), opened(name, descriptor) as folder:
                found = os.fstat(folder)
                if found.st_uid == os.getuid() and found.st_mtime < used_before:
                    for file in os.listdir(folder):  # noqa: PTH208
                        os.unlink(file, dir_fd=folder)
                    os.rmdir(name, dir_fd=descriptor)


def is_kept(folders: list[Path], kernel: str) -> bool:
    """Return whether a kernel, such as ``sparklog.record.kernels.v2.decode_records``, is saved, for any processor."""
    name = re.compile(re.escape(kernel) + "-[0-9a-f]{16}")
    return any(name.fullmatch(file.name) for folder in folders for file in folder.glob(f"{kernel}-*"))
