"""How kernels are compiled: once a machine, when they are first called, and where what was compiled is kept."""
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
"""Its settings, which are made when they are first asked for."""


def _cache_folder() -> str:
    """Choose where compiled code is kept: a folder of its own for each state of the sources that it comes from.

    numba looks only at the file that a kernel is in, but steps and constants of others are compiled into it. Where the
    package's folder is read-only, it is one of the user's own under the temporary directory, whose content no one else
    can have put there, since it is code that is run.
    """
    here = Path(__file__).parent
    sources = [here / "headers.py", here / "legacy.py", here / "v2.py", *sorted(here.glob("kernels*.py"))]
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
    """numba's cache on disk, for code that is ready to run.

    numba's own first sets up all that it knows of types and of calls in Python, in several times the time that it
    takes to load our kernels, which need none of it. What compiles sets it up itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return self._load_overload(sig, target_context)


_compiling: Final = threading.Lock()


def kernel(signature: Any) -> Any:
    """Compile a kernel for the signatures that it is called with, once a machine, when it is first called.

    Kernels make no arrays, so they need no counts of references to them, which cost more than the work itself.
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
    # The setting is numba's own, and of the whole process: it is ours only while a kernel finds its place.
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
