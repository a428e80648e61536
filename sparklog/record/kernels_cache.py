"""Keeps compiled kernels on disk: once for a user and a machine, for all environments, processes and executors.

A file holds one kernel, compiled for one signature: a digest of the rest, and a pickle of what numba needs to load it.
The folder's name stands for all that the code depends on but the processor: the sources of all kernels, since steps
and constants of other files are compiled into each, and the versions of Python, numba and LLVM. The file's name stands
for the kernel, its signature, and the processor's name and features.

What is loaded is run. So a folder is used only where nobody else can have put anything: where it is the user's own or
root's, and nobody else may write to it. Where there is no such folder that can be written to, compiled code is kept
for the process alone.

One process compiles a kernel while others wait for its file. A file is written beside and renamed: it is there as a
whole or not at all, and one that is damaged is compiled again.

When a folder is made, those beside it that no process has used for a month are removed: they are of other versions. A
process that uses one all the same compiles for itself what it does not find.
"""
# Of numba's interface for caches, which has no types.
# mypy: allow-subclassing-any

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
import numpy as np
from numba.core import config
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

NUMBA: Any = config
"""The settings of numba, which it makes when they are first asked for."""

FOLDER_VARIABLE: Final = "SPARKLOG_CACHE_DIR"
"""The environment variable that names another folder for compiled code, such as one that an image brings along."""

_DIGEST_BYTES: Final = 16
_WAIT_SECONDS_MAX: Final = 120
_POLL_SECONDS: Final = 0.05
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


def _distrust(found: os.stat_result) -> str | None:
    """Say why what a file or folder holds must not be run; None where it may."""
    if found.st_uid not in (os.getuid(), 0):
        return "it belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may write to it"
    return None


def _make(folder: Path, mode: int) -> str | None:
    """Make a folder where there is none, and say why it cannot be used; None where it can."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(mode=mode)
        found = folder.lstat()
    except OSError as error:
        return error.strerror
    return _distrust(found) if stat.S_ISDIR(found.st_mode) else "it is not a folder"


def _kept_for() -> str:
    """Name what compiled code depends on but the processor."""
    here = Path(__file__).parent
    others = [here / f"{name}.py" for name in ("headers", "legacy", "streams", "v2")]
    sources = [*others, *sorted(here.glob("kernels*.py"))]
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    settings = (NUMBA.BOUNDSCHECK, NUMBA.OPT)
    digest = hashlib.blake2b(repr((versions, settings)).encode(), digest_size=8)
    for path in sources:
        digest.update(path.read_bytes())
    return f"kernels-{digest.hexdigest()}"


def can_be_written(folder: Path) -> bool:
    """Tell whether compiled code can be kept in a folder."""
    return os.access(folder, os.W_OK)


def find_folders() -> tuple[list[Path], str | None]:
    """Find the folders that compiled code is loaded from, best first, up to the first that it can be kept in.

    Returns
    -------
    (folders, refusal)
        Only the last folder is written to, and where nothing can be, none. ``refusal`` says why a folder that was named
        is none of them; None where it is one, or none was named.
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
    with suppress(OSError):
        os.utime(folder)
        return folder.stat().st_mtime
    return 0.0


def _remove_unused(beside: Path, used_before: float) -> None:
    """Remove the user's own folders of kernels that were last used before a time; links are not followed."""
    with suppress(OSError):
        for folder in sorted(beside.iterdir()):
            found = folder.lstat()
            is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if is_own and found.st_mtime < used_before and _FOLDER_NAME.fullmatch(folder.name):
                with suppress(OSError):
                    for file in folder.iterdir():
                        file.unlink()
                    folder.rmdir()


class KernelCache(NullCache):
    """The compiled code of one kernel on disk; what numba asks before it compiles, and tells when it has.

    Parameters
    ----------
    name : str
        The kernel's.
    folders : list of Path
        Where to look, best first.
    before_compiling : callable
        Called before a kernel is compiled; not where it is loaded.

    Notes
    -----
    Loading leaves out the set-up that numba makes before it loads anything, of types and of calls into Python. It takes
    several times as long as loading our kernels, which need none of it. Where a kernel has to be compiled, the compiler
    makes the set-up itself.
    """

    def __init__(self, name: str, folders: list[Path], before_compiling: Callable[[], None]) -> None:
        self._name = name
        self._folders = folders
        self._before_compiling = before_compiling
        self._turn = ExitStack()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel; where it is not there, the caller compiles it, and other processes wait until it is saved."""
        file = self._file(sig, target_context.codegen())
        loaded = self._loaded(file, target_context)
        if loaded is None:
            self._turn.enter_context(_turn(self._folders, file))
            loaded = self._loaded(file, target_context)
        if loaded is None:
            self._before_compiling()
        else:
            self._turn.close()
        return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel, where there is a folder that can be written to."""
        payload = dumps(data._reduce())
        content = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest() + payload
        file = self._file(sig, data.codegen)
        with self._turn.pop_all():
            if self._folders:
                _write(self._folders[-1] / file, content)

    def release(self) -> None:
        """Let other processes compile: for where compiling has failed."""
        self._turn.close()

    def _file(self, sig: Any, codegen: Any) -> str:
        meaning = repr((str(sig), codegen.magic_tuple()))
        return f"{self._name}-{hashlib.blake2b(meaning.encode(), digest_size=8).hexdigest()}"

    def _loaded(self, file: str, target_context: Any) -> Any:
        for folder in self._folders:
            content = _trusted_content(folder / file)
            payload = content[_DIGEST_BYTES:]
            if content[:_DIGEST_BYTES] == hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest():
                return CompileResult._rebuild(target_context, *pickle.loads(payload))
        return None


def _trusted_content(path: Path) -> bytes:
    """Read a file; nothing where it cannot be read, or others can have written to it."""
    try:
        with path.open("rb") as file:
            return b"" if _distrust(os.fstat(file.fileno())) else file.read()
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it; where it cannot be written, that is no error."""
    try:
        descriptor, beside = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except OSError:
        Path(beside).unlink(missing_ok=True)


@contextmanager
def _turn(folders: list[Path], file: str) -> Iterator[None]:
    """Wait until no other process compiles a kernel, and keep them from it.

    The lock ends with its process. Where there are no locks, or one is held for too long, two compile the same.
    """
    with ExitStack() as stack:
        with suppress(OSError, IndexError):
            held = stack.enter_context((folders[-1] / f"{file}.turn").open("wb"))
            _lock(held.fileno())
        yield


def _lock(descriptor: int) -> None:
    until = time.monotonic() + _WAIT_SECONDS_MAX
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > until:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return
