"""Raises an error if the Python of Spark's workers has no sparklog: it names that Python, and the variable to set.

Workers run what ``PYSPARK_PYTHON`` names, else the ``python3`` of their path, whatever Python the driver runs. Without
sparklog there, Spark does not know the format or a task cannot load its reader, and reports that in a hundred lines.

Such a worker can run no function of ours, since a pickled function of a package is only its name. So the worker gets an
expression, for Python's own `eval`.
"""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from sparklog.errors import WorkerPythonError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("sparklog")

# The package, and those of its dependencies that show whether it was installed or only happens to be in the path.
_NEEDED: Final = ("sparklog", "numpy", "numba", "pyarrow")
_ANSWER: Final = f"""(lambda sys, find, dumps: dumps([sys.executable, sys.version.split()[0],
    [name for name in {_NEEDED} if find(name) is None]]))(
    __import__("sys"), __import__("importlib.util").util.find_spec, __import__("json").dumps)"""

# The expression that a worker unpickles: it looks up nothing of the package before it knows that the package exists.
# The traceback would have only Spark's own frames; Spark leaves it out if this variable is set.
_LOAD: Final = """(__import__("pickle").loads(pickled)() if __import__("importlib.util").util.find_spec("sparklog") else
    __import__("os").environ.update(SPARK_HIDE_TRACEBACK="1") or (_ for _ in ()).throw(ImportError(
    f"the Python that this worker of Spark runs, {__import__('sys').executable}, has no sparklog: install it there, "
    "or set PYSPARK_PYTHON to a Python that has it, before the session is made")))"""

# Spark's errors for a worker whose Python cannot run at all. The reason in such an error begins with one of these.
_UNUSABLE: Final = ("[PYTHON_VERSION_MISMATCH]", "Cannot run program", "No module named 'pyspark'")

_SECONDS_MAX: Final = 60

_asked: Final[WeakSet[SparkSession]] = WeakSet()


class LoadedByWorkers:
    """Base of the objects that Spark's tasks get: a worker without sparklog says so, instead of failing to unpickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (_LOAD, {"pickled": pickle.dumps(partial(_restored, type(self), vars(self)))})


def _restored(kind: type, state: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    vars(made).update(state)
    return made


def check_workers(spark: SparkSession) -> None:
    """Check, once per session, that the Python of Spark's workers has sparklog.

    If workers are processes of this machine, their Python is run directly, which takes 50 ms. Otherwise, or if it seems
    to lack something that the session may give to its workers, a task of one row checks. Spark starts its workers for
    that task, so the first query need not.

    Raises
    ------
    WorkerPythonError
        That Python has no sparklog, or Spark cannot run it.
    """
    if spark in _asked:
        return
    if not _has_all_here(spark):
        _ask_by_task(spark)
    _asked.add(spark)


def _ask_by_task(spark: SparkSession) -> None:
    try:
        executable, version, missing = json.loads(_answer(spark))
    except Exception as error:
        reason = _reason(str(error))
        if not reason:
            _log.warning("Spark's workers could not be asked whether their Python has sparklog: %s", error)
            return
        raise WorkerPythonError(
            f"Spark's workers cannot run their Python, {_named_python(spark)}: {reason}; {_REMEDY}"
        ) from None
    if missing:
        raise WorkerPythonError(
            f"the Python that Spark's workers run, {executable} ({version}), has no {', '.join(missing)}; {_REMEDY}"
        )


_REMEDY: Final = (
    f"set PYSPARK_PYTHON={sys.executable}, which has it, before the session is made, or install sparklog into theirs"
)


def _reason(text: str) -> str:
    """Return why Spark cannot run its workers' Python; an empty text if the error is about something else."""
    for line in text.splitlines():
        for sign in _UNUSABLE:
            if sign in line:
                return line[line.index(sign) :].rstrip(".")
    return ""


def _has_all_here(spark: SparkSession) -> bool:
    """Return whether the session's workers all run on this machine and have everything, by starting their Python."""
    context = getattr(spark, "sparkContext", None)
    if context is None or not context.master.startswith("local"):
        return False
    command = [context.pythonExec, "-c", f"print({_ANSWER})"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS_MAX)
        _, version, missing = json.loads(ran.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return not missing and version.split(".")[:2] == [str(part) for part in sys.version_info[:2]]


def _answer(spark: SparkSession) -> str:
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        # This starts much less of Spark than a query.
        (answer,) = context.parallelize([_ANSWER], 1).map(eval).collect()
    else:
        from pyspark.sql.functions import lit, udf

        ((answer,),) = (
            spark.range(1, numPartitions=1).select(udf(eval, "string", useArrow=False)(lit(_ANSWER))).collect()
        )
    return str(answer)


def _named_python(spark: SparkSession) -> str:
    return str(getattr(getattr(spark, "sparkContext", None), "pythonExec", "python3"))
