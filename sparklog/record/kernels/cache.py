"""Keeps compiled kernels on disk: once for each user and machine, for all environments, processes and executors.

A file holds one kernel, compiled for one signature: a digest of the rest, and a pickle from which numba loads it. The
folder's name is derived from the sources and Python's version: see `sparklog.record.kernels.folders`. The file's name
is derived from the kernel, its signature, the processor's name and features, and the versions and settings of numba,
LLVM and numpy.

One process compiles a kernel while others wait for its file. A file is written under another name and renamed, so it is
never incomplete; if it is damaged, the kernel is compiled again.
"""
# The base class is of numba's interface for caches, which has no types.
# mypy: allow-subclassing-any

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import secrets
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

from sparklog.record.kernels.folders import distrust, file_within, opened

NUMBA: Any = config
"""The settings of numba, which makes them at the first access."""

_DIGEST_BYTES: Final = 16
_WAIT_SECONDS_MAX: Final = 120
_POLL_SECONDS: Final = 0.05
_VERSIONS: Final = (numba.__version__, llvmlite.__version__, np.__version__)


class KernelCache(NullCache):
    """The compiled code of one kernel on disk. Numba looks there before it compiles, and saves the result there.

    Parameters
    ----------
    name : str
        The kernel's name.
    folders : list of Path
        The folders to search, best first.
    before_compiling : callable
        Called before a kernel is compiled, but not if it is loaded.

    Notes
    -----
    Loading skips numba's usual set-up of types and of calls into Python, which takes several times as long as loading
    our kernels; these need none of it. If a kernel has to be compiled, the compiler makes the set-up itself.
    """

    def __init__(self, name: str, folders: list[Path], before_compiling: Callable[[], None]) -> None:
        self._name = name
        self._folders = folders
        self._before_compiling = before_compiling
        self._turn = ExitStack()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel; if it is missing, the caller compiles it, and other processes wait until it is saved."""
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
        """Save a compiled kernel, if there is a writable folder."""
        payload = dumps(data._reduce())
        content = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest() + payload
        file = self._file(sig, data.codegen)
        with self._turn.pop_all():
            if self._folders:
                _write(self._folders[-1], file, content)

    def release(self) -> None:
        """Let other processes compile; for use after compiling has failed."""
        self._turn.close()

    def _file(self, sig: Any, codegen: Any) -> str:
        meaning = repr((str(sig), codegen.magic_tuple(), _VERSIONS, NUMBA.BOUNDSCHECK, NUMBA.OPT))
        return f"{self._name}-{hashlib.blake2b(meaning.encode(), digest_size=8).hexdigest()}"

    def _loaded(self, file: str, target_context: Any) -> Any:
        for folder in self._folders:
            content = _trusted_content(folder, file)
            payload = content[_DIGEST_BYTES:]
            if content[:_DIGEST_BYTES] == hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest():
                return CompileResult._rebuild(target_context, *pickle.loads(payload))
        return None


def _trusted_content(folder: Path, name: str) -> bytes:
    """Read a file; return no bytes if it cannot be read, or others can have written to it."""
    try:
        with opened(folder) as within, file_within(within, name, os.O_RDONLY) as file:
            return b"" if distrust(os.fstat(file.fileno())) else file.read()
    except OSError:
        return b""


def _write(folder: Path, name: str, content: bytes) -> None:
    """Write a file under another name and rename it; failing to write is no error."""
    beside = f"{name}.{secrets.token_hex(8)}"
    with suppress(OSError), opened(folder) as within:
        try:
            with file_within(within, beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(content)
            os.rename(beside, name, src_dir_fd=within, dst_dir_fd=within)
        except OSError:
            os.unlink(beside, dir_fd=within)


@contextmanager
def _turn(folders: list[Path], file: str) -> Iterator[None]:
    """Wait until no other process compiles a kernel, and lock the others out.

    The lock ends with its process. Without locks, or if one is held for too long, two processes may compile the same
    kernel.
    """
    with ExitStack() as stack:
        with suppress(OSError, IndexError):
            with opened(folders[-1]) as within:
                held = stack.enter_context(file_within(within, f"{file}.turn"))
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
