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

from numba import njit, types

from sparklog.record.kernels.cache import KernelCache
from sparklog.record.kernels.folders import can_be_written, find_folders
from sparklog.record.kernels.steps import ApartCompiler, StepCompiler

_compiling: Final = threading.Lock()
KERNELS: Final[dict[str, Callable[[], None]]] = {}
"""The functions that compile or load each kernel of the imported modules, by name, as its first call does."""


def kernel(*signatures: Any) -> Any:
    """Decorate a function as a kernel, which is compiled when it is first called, once on a machine.

    The last parameters may be None by default. The kernel is compiled separately for each number of arguments that has
    signatures, at the first such call; its name ends with the given parameters that have a default.

    Kernels make no arrays, so numba need not count references to arrays, which would take longer than the work itself.
    """
    by_count: dict[int, list[Any]] = {}
    for each in signatures:
        by_count.setdefault(len(each.args), []).append(each)

    def deferred(function: Any) -> Any:
        compiled: dict[int, Any] = {}

        def load(count: int) -> None:
            with _compiling:
                if count not in compiled:
                    compiled[count] = _compiled(function, by_count[count])

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            if len(arguments) not in compiled:
                load(len(arguments))
            return compiled[len(arguments)](*arguments)

        for count in by_count:
            KERNELS[_name(function, count)] = functools.partial(load, count)
        return call

    return deferred


def _name(function: Any, count: int) -> str:
    code = function.__code__
    needed = code.co_argcount - len(function.__defaults__ or ())
    return ".".join((function.__name__, *code.co_varnames[needed:count]))


def _compiled(function: Any, signatures: list[Any]) -> Any:
    options: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
    dispatcher: Any = njit(**options)(function)
    folders, _ = _found_folders()
    count = len(signatures[0].args)
    cache = dispatcher._cache = KernelCache(f"{function.__module__}.{_name(function, count)}", folders, _announce)
    left_out = [types.Omitted(None)] * (function.__code__.co_argcount - count)
    try:
        with _uncollected():
            for each in signatures:
                dispatcher.compile(each.return_type(*each.args, *left_out))
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
