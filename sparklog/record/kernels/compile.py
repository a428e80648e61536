"""Compiles kernels: each when it is first called, and once for each user and machine.

Some of the code uses parts of numba that are not public: a dispatcher's ``_cache``, the parts of a compiled function
that `sparklog.record.kernels.cache` keeps, the option ``_nrt``, the phases of compiling that
`sparklog.record.kernels.steps` leaves out and, in `sparklog.record.kernels.scan`, the features of the host's processor.
With them a process loads its kernels in tenths of a second and compiles them in few seconds, and numba may change them
in any version. So the version of numba is capped in ``pyproject.toml``, and ``tests/record/kernels/test_compile.py``
shows whether a newer one still has them.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from numba import njit

from sparklog.record.kernels.cache import KernelCache
from sparklog.record.kernels.folders import can_be_written, find_folders
from sparklog.record.kernels.steps import ApartCompiler, StepCompiler

_compiling: Final = threading.Lock()
KERNELS: Final[dict[str, Callable[[], None]]] = {}
"""The functions that compile or load each kernel of the imported modules, by name, as its first call does."""


def kernel(signature: Any) -> Any:
    """Decorate a function as a kernel, which is compiled for its signatures when it is first called, once on a machine.

    Kernels make no arrays, so numba need not count references to arrays, which would take longer than the work itself.
    """
    signatures = signature if isinstance(signature, list) else [signature]

    def deferred(function: Any) -> Any:
        compiled: list[Any] = []

        def load() -> None:
            with _compiling:
                if not compiled:
                    compiled.append(_compiled(function, signatures))

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            if not compiled:
                load()
            return compiled[0](*arguments)

        KERNELS[function.__name__] = load
        return call

    return deferred


def _compiled(function: Any, signatures: list[Any]) -> Any:
    options: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
    dispatcher: Any = njit(**options)(function)
    folders, _ = _found_folders()
    cache = dispatcher._cache = KernelCache(f"{function.__module__}.{function.__name__}", folders, _announce)
    try:
        with _uncollected():
            for each in signatures:
                dispatcher.compile(each)
    finally:
        cache.release()
    dispatcher.disable_compile()
    return dispatcher


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage in a ``with`` block: numba makes a million objects that live while it compiles a kernel."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_found_folders: Final = functools.cache(find_folders)


def kernels_folder() -> str | None:
    """Return the folder that compiled kernels are saved in; None if they cannot be saved."""
    folders, _ = _found_folders()
    return str(folders[-1]) if folders and can_be_written(folders[-1]) else None


@functools.cache
def _announce() -> None:
    """Print to stderr, once in a process, that kernels are being compiled: it takes seconds without other output."""
    _, refusal = _found_folders()
    if sys.stderr is not None:
        sys.stderr.write("sparklog: compiling kernels, once for this machine\n")
        sys.stderr.write(f"sparklog: {refusal}\n" if refusal else "")
        sys.stderr.flush()


_STEP: Final[dict[str, Any]] = {
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
    "pipeline_class": StepCompiler,
}
# By default, numba would inline a step into a caller that is itself inlined.
step = njit(**_STEP, forceinline=False)
"""Decorates steps of kernels, which are compiled as part of the kernels that use them, and saved with these."""

apart = njit(**{**_STEP, "pipeline_class": ApartCompiler, "forceinline": False})
"""Decorates steps that few records need: inlined into the loops, they would take registers from the frequent ones."""

inlined = njit(**_STEP, forceinline=True)
"""Decorates steps inside the loops, where a call takes longer than the step itself."""
