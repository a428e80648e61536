"""Compiles kernels: each when it is first called, and once for a user and a machine.

Some of what is used of numba is not its public interface: a dispatcher's ``_cache``, the parts of a compiled function
that `sparklog.record.kernels.cache` keeps, the option ``_nrt``, what `sparklog.record.kernels.steps` leaves out of
compiling and, in `sparklog.record.kernels.scan`, the features of the host's processor. They are what makes a process
load its kernels in tenths of a second and compile them in few seconds, and numba may change them in any version. So the
version of numba is capped in ``pyproject.toml``, and ``tests/record/kernels/test_compile.py`` says whether a newer one
still has them.
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
"""What compiles or loads each kernel of the modules that are imported, as its first call does."""


def kernel(signature: Any) -> Any:
    """Compile a kernel for the signatures that it is called with, once a machine, when it is first called.

    Kernels make no arrays, so numba need not count references to arrays, which would cost more than the work itself.
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
    """Collect no garbage meanwhile: numba makes a million objects that live as long as it compiles one kernel."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_found_folders: Final = functools.cache(find_folders)


def kernels_folder() -> str | None:
    """Return the folder that compiled kernels are kept in; None if they cannot be kept."""
    folders, _ = _found_folders()
    return str(folders[-1]) if folders and can_be_written(folders[-1]) else None


@functools.cache
def _announce() -> None:
    """Say on stderr, once in a process, that kernels are compiled: it takes seconds in which nothing is seen."""
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
# Unless told otherwise, numba would force a step into its callers where one of those is itself forced into others.
step = njit(**_STEP, forceinline=False)
"""For the steps of kernels: compiled as part of the kernels that use them, and kept with those."""

apart = njit(**{**_STEP, "pipeline_class": ApartCompiler, "forceinline": False})
"""For the steps that few records need: taken into the loops, their code would cost the steps of the many registers."""

inlined = njit(**_STEP, forceinline=True)
"""For the steps inside the loops: a call that is left standing costs more than the step itself."""
