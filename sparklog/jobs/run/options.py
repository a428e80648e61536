"""Declares the arguments that every job takes, once for callers of Python, the terminal and the workers.

`with_options` adds declared options to the signature and the docstring of a function, and
`sparklog.cli.commands.declared` makes options of the terminal from the same declarations. A job carries its
`JobOptions`, so that a task has them wherever it runs. An option of all jobs is a line of `JobArguments` and a field of
`JobOptions`; an option of all jobs that read logs belongs into `sparklog.topic.selection`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, TypedDict, TypeVar, cast

from sparklog.jobs.run.job import Watch
from sparklog.log.properties import Option, option, options_of
from sparklog.storage.given_options import with_storage_options
from sparklog.topic.selection import SelectionArguments

_P = ParamSpec("_P")
_R = TypeVar("_R")

TASK_BYTES: Final = 1 << 28
_WIDTH: Final = 116
_RETURNS: Final = "\n\nReturns\n"


class JobArguments(TypedDict, total=False):
    """The options of `JobOptions`, as a caller of Python passes them."""

    spark: Any
    processes: int | None
    lock_timeout_seconds: float
    dry_run: bool
    watch: Watch | None
    storage_options: Mapping[str, Any] | None


class LogJobArguments(JobArguments, total=False):
    """The options of `LogJobOptions`, as a caller of Python passes them."""

    task_bytes: int


class MoveArguments(SelectionArguments, LogJobArguments, total=False):
    """The options of jobs that move ranges of logs."""


@dataclass(frozen=True)
class JobOptions:
    """The options of every job. They are pickled without ``spark`` and ``watch``, which are for the driver.

    Options of storages are not pickled either: the places of the job have them.
    """

    spark: Any = option(  # noqa: RUF009 - a field, like the others
        "spark",
        None,
        kind=object,
        takes="SparkSession",
        doc="Run the tasks on the cluster of this session, also over Spark Connect, instead of in processes of this "
        "machine. Its workers must reach all paths too.",
    )
    processes: int | None = option(
        "processes",
        None,
        kind=int,
        at_least=1,
        doc="The number of processes; by default one for each core, or threads of this process if they are faster.",
    )
    lock_timeout_seconds: float = option(
        "lock_timeout_seconds",
        600.0,
        doc="The time to wait for other jobs and writers on the target. A running broker is an error at once.",
    )
    dry_run: bool = option(
        "dry_run",
        False,
        doc="Change nothing, and return what would be done. This waits for no other job, and may run beside a broker.",
    )
    watch: Watch | None = option(  # noqa: RUF009 - a field, like the others
        "watch", None, kind=object, takes="Watch", doc="Receives the progress of the job."
    )
    storage_options: Mapping[str, Any] | None = option(
        "storage_options",
        None,
        kind=dict,
        takes="mapping of str to str",
        doc="The options of all paths that are URLs of storages with such options; see `sparklog.place`.",
    )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"spark": None, "watch": None, "storage_options": None}


@dataclass(frozen=True)
class LogJobOptions(JobOptions):
    """The options of a job on logs."""

    task_bytes: int = option(
        "task_bytes", TASK_BYTES, at_least=1, doc="The largest size of a task, in bytes of log, about."
    )


def with_options(*declaring: type) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Replace ``**shared`` in the signature of a function by declared options, and add them to its docstring."""
    options = {name: each for one in declaring for name, each in options_of(one).items()}

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        own = inspect.signature(function)
        named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shared = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=o.default) for n, o in options.items()]
        whole = own.replace(parameters=[*named, *shared])

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            # Undeclared keywords are refused, as by any function.
            whole.bind(*args, **kwargs)
            with with_storage_options(cast("Mapping[str, Any] | None", kwargs.get("storage_options"))):
                return function(*args, **kwargs)

        call.__signature__ = whole  # type: ignore[attr-defined]
        before, heading, after = inspect.cleandoc(function.__doc__ or "").partition(_RETURNS)
        call.__doc__ = "\n".join([before, *map(_entry, options, options.values())]) + heading + after
        return call

    return decorate


def _entry(name: str, declared: Option) -> str:
    """Return the lines for an option in the section "Parameters" of a docstring."""
    choices = ", ".join(f'"{each}"' for each in declared.choices)
    kind = f"{{{choices}}}" if choices else declared.takes or declared.kind.__name__
    doc = textwrap.fill(declared.doc, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f"{name} : {kind}{', optional' if declared.default is None else ''}\n{doc}"
