"""Where compiled kernels are kept: the folders, and who may have put something there.

The folder's name stands for the sources of all kernels, since steps and constants of other files are compiled into
each, and for Python's version; the files' names for all else: see `sparklog.record.kernels.cache`.

What is loaded is run. So a folder is used only where nobody else can have put anything: where it is the user's own or
root's, and nobody else may write to it. Whoever may write to its parent can put another folder in its place at any
time. So each time it is opened, what was opened is checked, links are not followed, and files are found by its
descriptor. Where there is no such folder that can be written to, compiled code is kept for the process alone.

When a folder is made, those beside it that no process has used for a month are removed: they are of other versions. A
process that uses one all the same compiles for itself what it does not find.

Nothing here needs numba, so that who only asks whether kernels are there need not import it.
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
"""The environment variable that names another folder for compiled code, such as one that an image brings along."""

_UNUSED_SECONDS_MAX: Final = 30 * 86_400
_FOLDER_NAME: Final = re.compile("kernels-[0-9a-f]{16}")


def _candidates() -> Iterator[tuple[Path, int]]:
    """Yield the folders in which compiled code may be kept, best first, each with the mode that it is made with.

    A folder that was named may be for others to read. A home that is another user's, as with ``sudo``, is left alone.
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
    """Return why what a file or folder holds must not be run; None if it may."""
    if found.st_uid not in (os.getuid(), 0):
        return "it belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may write to it"
    return None


@contextmanager
def opened(folder: str | Path, within: int | None = None) -> Iterator[int]:
    """Open a folder that compiled code may be in, for a ``with`` block, and return its descriptor.

    Parameters
    ----------
    within : int, optional
        The descriptor of the folder that it is in.

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
    """Open a file by the descriptor of the folder that it is in, and no link, and wait for nobody."""
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder)
    return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "rb")


def _make(folder: Path, mode: int) -> str | None:
    """Make a folder where there is none, and return why it cannot be used; None if it can."""
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
    """Name the sources of the kernels and the Python that compiled code is of."""
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
    """Find the folders that compiled code is loaded from, best first, up to the first that it can be kept in.

    Returns
    -------
    (folders, refusal)
        Only the last folder is written to, and where nothing can be, none. ``refusal`` says why a folder that was named
        is none of them; None if it is one, or none was named.
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
                # Of a folder that was named, others may read what they cannot note the use of.
                if is_new and not (is_named and len(refusals) == 1):
                    _remove_unused(folder, used - _UNUSED_SECONDS_MAX)
                break
    first = next(iter(refusals))
    is_refused = is_named and refusals[first]
    return folders, f"{FOLDER_VARIABLE}={first} is not used: {refusals[first]}" if is_refused else None


def _note_use(folder: Path) -> float:
    """Let the time of a folder's last change say when it was used last, and return that, as the disk tells it."""
    with suppress(OSError), opened(folder) as descriptor:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime
    return 0.0


def _remove_unused(beside: Path, used_before: float) -> None:
    """Remove the user's own folders of kernels that were last used before a time; links are not followed."""
    with suppress(OSError), opened(beside) as descriptor:
        for name in filter(_FOLDER_NAME.fullmatch, sorted(os.listdir(descriptor))):  # noqa: PTH208 - of a descriptor
            with suppress(OSError), opened(name, descriptor) as folder:
                found = os.fstat(folder)
                if found.st_uid == os.getuid() and found.st_mtime < used_before:
                    for file in os.listdir(folder):  # noqa: PTH208
                        os.unlink(file, dir_fd=folder)
                    os.rmdir(name, dir_fd=descriptor)


def is_kept(folders: list[Path], kernel: str) -> bool:
    """Return whether a kernel, such as ``sparklog.record.kernels.v2.decode_records``, is compiled, for any processor."""
    name = re.compile(re.escape(kernel) + "-[0-9a-f]{16}")
    return any(name.fullmatch(file.name) for folder in folders for file in folder.glob(f"{kernel}-*"))
