"""Compiles the steps of kernels only to a form that can be linked into kernels.

Only kernels call a step. It is linked into them, and they are optimised as a whole. numba would first optimise each
step and turn it into machine code, which nothing runs, and which takes a third of the time of compiling a kernel.

This depends on parts of numba that are not public: see `sparklog.record.kernels.compile`.
"""
# The base classes are of numba's compiler, which has no types.
# mypy: allow-subclassing-any

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _NowhereToRun:
    """A substitute for the engine of a step, which has no machine code whose environment could be set."""

    @staticmethod
    def set_env(env_name: str, env: Any) -> None:
        """Do nothing."""


class StepLibrary(JITCodeLibrary):
    """The code of a step and of the steps that it uses, linked but not optimised."""

    @property
    def codegen(self) -> type[_NowhereToRun]:
        """The object to which numba gives the environment of a callable function."""
        return _NowhereToRun

    def finalize(self) -> None:
        """Link the steps that this one uses into it."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002
        """Return 0, numba's address of a missing function."""
        self._ensure_finalized()
        return 0


class StepCompiler(Compiler):
    """Compiles a function as numba does, into a `StepLibrary`."""

    def __init__(self, typingctx: Any, targetctx: Any, library: None, *others: Any) -> None:  # noqa: ARG002
        super().__init__(typingctx, targetctx, StepLibrary(targetctx.codegen(), "step"), *others)


class ApartLibrary(StepLibrary):
    """The code of a step that stays a separate function in the kernels that it is linked into."""

    def finalize(self) -> None:
        """Forbid inlining the step, and link the steps that it uses into it."""
        for function in self._final_module.functions:
            if not function.is_declaration:
                function.add_function_attribute("noinline")
        super().finalize()


class ApartCompiler(Compiler):
    """Compiles a function as numba does, into an `ApartLibrary`."""

    def __init__(self, typingctx: Any, targetctx: Any, library: None, *others: Any) -> None:  # noqa: ARG002
        super().__init__(typingctx, targetctx, ApartLibrary(targetctx.codegen(), "step"), *others)
