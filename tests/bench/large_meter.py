"""Measures rows of `tests.bench.large`, each in a process of its own, within limits of time.

A work is a function ``(meter, place, size)``: it makes what it needs, and measures steps in ``with meter(...)``. A step
that is measured several times counts with its least time. The work runs once at a tiny size before it is measured, so
that kernels are compiled and modules are imported.

Processor time is that of the process and of the children that it has waited for. Counting the storage's calls is part
of it, about a microsecond a call. Calls are left out where other processes have done a part of the work.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.growth import counted_work

ROOT: Final = Path(__file__).parents[2]
USUAL_FILES: Final = 1024
"""The number of files that a process may have open on most machines, unless it is raised."""
_TINY: Final = 4
_LOOK_SECONDS: Final = 0.2
_WALL_SECONDS_A_PROCESSOR_SECOND: Final = 10
_OUT_OF_TIME: Final = (signal.SIGPROF, signal.SIGALRM)
Work = Callable[["Meter", Path, int], None]


@dataclass
class Step:
    """A measured step of a work.

    Attributes
    ----------
    figure : float or None
        Processor seconds, or another figure in ``unit``; None while the step runs.
    count : int
        How many pieces of work the step did, and ``of`` is the name of a piece.
    calls : int or None
        Calls of the storage; None if they are not known.
    note : str
        The outcome, if it is not the expected one.
    """

    name: str
    count: int = 1
    of: str = "call"
    figure: float | None = None
    unit: str = "s"
    calls: int | None = None
    peak_bytes: int | None = None
    note: str = ""


class Meter:
    """Measures steps, and writes each to a file when it begins and when it ends.

    Parameters
    ----------
    results : Path
        The file.
    row_seconds : float, optional
        The processor seconds after which a step ends the process; by default there is no limit.

    Attributes
    ----------
    others : callable
        Returns the processor seconds of other processes that work for this one.
    """

    def __init__(self, results: Path, row_seconds: float = 0) -> None:
        self._results, self._row_seconds = results, row_seconds
        self.others: Callable[[], float] = _seconds_of_children

    @contextmanager
    def __call__(self, name: str, count: int = 1, of: str = "call", *, has_wall: bool = False) -> Iterator[Step]:
        """Measure the block, which does ``count`` pieces of work; with ``has_wall`` also the time that passes."""
        step = Step(name, count, of)
        self._write(step)
        _forget_peak()
        with _limited(self._row_seconds), counted_work() as work:
            others, own, started = self.others(), time.process_time(), time.perf_counter()
            try:
                yield step
            except Exception as error:
                step.note = f"fails: {type(error).__name__}"
                raise
            finally:
                own, wall, by_others = time.process_time() - own, time.perf_counter() - started, self.others() - others
                step.figure = own + by_others
                step.calls = None if by_others > 0 else work.calls
                step.peak_bytes = _peak_bytes(with_children=by_others > 0)
                self._write(step)
        if has_wall:
            self.note_figure(f"{name}, wall", wall, "s", count, of)

    def note_figure(self, name: str, figure: float, unit: str, count: int = 1, of: str = "call") -> None:
        """Add a row that is measured in another way."""
        self._write(Step(name, count, of, figure, unit))

    def _write(self, step: Step) -> None:
        with self._results.open("a") as file:
            file.write(json.dumps(asdict(step)) + "\n")


def check(found: object, expected: object) -> None:
    """Fail if a measured step has not done its work."""
    if found != expected:
        raise ValueError(f"found {found}, and expected {expected}")


@contextmanager
def file_limit(files: int) -> Iterator[None]:
    """Let this process have some open files at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Let signals end this process after some processor time, and after more time by the clock; 0 is no limit."""
    has_ended = threading.Event()

    def watch(last: float) -> None:
        # A timer of the system would make the clock of the process as coarse as its ticks.
        while not has_ended.wait(_LOOK_SECONDS):
            if time.process_time() > last:
                os.kill(os.getpid(), signal.SIGPROF)

    if seconds:
        threading.Thread(target=watch, args=(time.process_time() + seconds,), daemon=True).start()
        signal.setitimer(signal.ITIMER_REAL, seconds * _WALL_SECONDS_A_PROCESSOR_SECOND)
    try:
        yield
    finally:
        has_ended.set()
        signal.setitimer(signal.ITIMER_REAL, 0)


def measured(work: Work, scratch: Path, size: int, row_seconds: float) -> tuple[dict[str, Step], str]:
    """Run a work in a process of its own.

    Returns
    -------
    dict of str to Step
        The steps by name, in order.
    str
        The last line of the error that ended the work; empty if none did.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        results, errors = Path(folder) / "steps.jsonl", Path(folder) / "errors.txt"
        results.touch()
        command = [work.__module__, work.__name__, str(scratch), str(size), str(results), str(row_seconds)]
        with errors.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, *command], cwd=ROOT, stdout=said, stderr=said, start_new_session=True
            )
            try:
                status = process.wait()
            finally:
                # A process that was ended by its limit leaves its own children.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        found = _least([Step(**json.loads(line)) for line in results.read_text().splitlines()])
        is_late = -status in _OUT_OF_TIME
        for step in found.values():
            if step.figure is None:
                step.note = f"> {row_seconds:g} s" if is_late else "fails"
        text = errors.read_text(errors="replace").strip()
    return found, "" if status == 0 or is_late else (text.splitlines() or [f"exit status {status}"])[-1]


def _least(steps: list[Step]) -> dict[str, Step]:
    """Return the steps by name, the one with the least figure of each; the last one also if it has not ended."""
    found: dict[str, Step] = {}
    for step in [each for each in steps if each.figure is not None or each is steps[-1]]:
        known = found.get(step.name)
        if known is None or step.figure is None or known.figure is None or step.figure < known.figure:
            found[step.name] = step
    return found


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _forget_peak() -> None:
    """Let the peak memory of this process begin anew."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes(*, with_children: bool) -> int:
    """Return the peak memory of this process, or of the largest one of it and its children."""
    # The peak of getrusage begins with that of the process that has started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    own = int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
    return 1024 * max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if with_children else 0)


def main(module: str, name: str, scratch: str, size: str, results: str, row_seconds: str) -> None:
    """Run a work at a tiny size, and then as it is measured."""
    work: Any = getattr(importlib.import_module(module), name)
    with ExitStack() as stack:
        tiny = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        work(Meter(tiny / "steps.jsonl"), tiny, min(int(size), _TINY))
    work(Meter(Path(results), float(row_seconds)), Path(scratch), int(size))


if __name__ == "__main__":
    main(*sys.argv[1:])
