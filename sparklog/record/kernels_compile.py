"""Compiles kernels, once on each machine and when they are first called, and keeps the compiled code on disk.

Some of what is used of numba is not its public interface: `FunctionCache._load_overload`, a dispatcher's ``_cache``,
the option ``_nrt`` and, in `sparklog.record.kernels`, the features of the host's processor. They are what makes a
process load its kernels in tenths of a second, and numba may change them in any version. So the version of numba is
capped in ``pyproject.toml``, and ``tests/record/test_kernels_compile.py`` says whether a newer one still has them.
"""
# Kernels are typed by the signatures that numba compiles them for.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators, no-check-untyped-defs

from __future__ import annotations

import functools
import hashlib
import os
import stat
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from numba import njit
from numba.core import config
from numba.core.caching import FunctionCache

NUMBA: Any = config
"""The settings of numba, which it makes when they are first asked for."""


def _cache_folder() -> str:
    """Choose the folder for compiled code: one for each state of the sources that it is compiled from.

    numba looks only at the file that a kernel is in, but steps and constants of other files are compiled into the
    kernel. Where the package's folder is read-only, the folder is one of the user's own under the temporary directory.
    Nobody else can have put anything there, which matters since the content is run.
    """
    here = Path(__file__).parent
    others = [here / f"{name}.py" for name in ("headers", "legacy", "streams", "v2")]
    sources = [*others, *sorted(here.glob("kernels*.py"))]
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in sources), digest_size=8).hexdigest()
    name = f"kernels-{digest}{'-checked' if NUMBA.BOUNDSCHECK else ''}"
    beside = here / "__pycache__" / name
    try:
        beside.mkdir(parents=True, exist_ok=True)
        if os.access(beside, os.W_OK):
            return str(beside)
    except OSError:
        pass
    own = Path(tempfile.gettempdir()) / f"sparklog-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = own.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return str(own / name)
    return tempfile.mkdtemp(prefix="sparklog-")


_CACHE_FOLDER: Final = _cache_folder()


class _Cache(FunctionCache):
    """numba's cache on disk, without the set-up that numba makes before it loads anything.

    That set-up, of types and of calls into Python, takes several times as long as loading our kernels, which need none
    of it. Where a kernel has to be compiled, the compiler makes the set-up itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return self._load_overload(sig, target_context)


_compiling: Final = threading.Lock()


def kernel(signature: Any) -> Any:
    """Compile a kernel for the signatures that it is called with, once a machine, when it is first called.

    Kernels make no arrays, so numba need not count references to arrays, which would cost more than the work itself.
    """
    signatures = signature if isinstance(signature, list) else [signature]

    def deferred(function: Any) -> Any:
        compiled: list[Any] = []

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            if not compiled:
                with _compiling:
                    if not compiled:
                        compiled.append(_compiled(function, signatures))
            return compiled[0](*arguments)

        return call

    return deferred


def _compiled(function: Any, signatures: list[Any]) -> Any:
    options: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
    dispatcher: Any = njit(**options)(function)
    # The setting is one for the whole process, so it is changed only while the cache of this kernel is made.
    before, NUMBA.CACHE_DIR = NUMBA.CACHE_DIR, _CACHE_FOLDER
    try:
        dispatcher._cache = _Cache(function)
    finally:
        NUMBA.CACHE_DIR = before
    for each in signatures:
        dispatcher.compile(each)
    dispatcher.disable_compile()
    return dispatcher


_STEP: Final[dict[str, Any]] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
step = njit(**_STEP)
"""For the steps of kernels: compiled as part of the kernels that use them, and kept with those."""

inlined = njit(**_STEP, forceinline=True)
"""For the steps inside the loops: a call that is left standing costs more than the step itself."""
