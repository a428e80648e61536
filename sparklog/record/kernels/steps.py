"""How the steps of kernels are compiled: to a form that kernels are linked from, and no further.

A step is never called but by kernels, which it is linked into, and which are made fast as a whole. numba would first
make each step fast and turn it into machine code, which nothing runs, and that is a third of the time that compiling a
kernel takes.

The parts of numba that this rests on are not its public interface: see `sparklog.record.kernels.compile`.
"""
# Of numba's compiler, which has no types.
# mypy: allow-subclassing-any

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _NowhereToRun:
    """What stands for the engine of a step, which has no machine code whose environment could be set."""

    @staticmethod
    def set_env(env_name: str, env: Any) -> None:
        """Do nothing."""


class StepLibrary(JITCodeLibrary):
    """The code of a step and of the steps that it uses, linked and not made fast."""

    @property
    def codegen(self) -> type[_NowhereToRun]:
        """What numba tells of a function that can be called."""
        return _NowhereToRun

    def finalize(self) -> None:
        """Link the steps that this one uses into it."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002
        """Return numba's word for a function that is not there."""
        self._ensure_finalized()
        return 0


class StepCompiler(Compiler):
    """Compiles a function as numba does, into a `StepLibrary`."""

    def __init__(self, typingctx: Any, targetctx: Any, library: None, *others: Any) -> None:  # noqa: ARG002
        super().__init__(typingctx, targetctx, StepLibrary(targetctx.codegen(), "step"), *others)


class ApartLibrary(StepLibrary):
    """The code of a step that stays a function of its own in the kernels that it is linked into."""

    def finalize(self) -> None:
        """Forbid that the step is taken into its callers, and link the steps that it uses into it."""
        for function in self._final_module.functions:
            if not function.is_declaration:
                function.add_function_attribute("noinline")
        super().finalize()


class ApartCompiler(Compiler):
    """Compiles a function as numba does, into an `ApartLibrary`."""

    def __init__(self, typingctx: Any, targetctx: Any, library: None, *others: Any) -> None:  # noqa: ARG002
        super().__init__(typingctx, targetctx, ApartLibrary(targetctx.codegen(), "step"), *others)
