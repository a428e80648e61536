"""The mutation harness: damages sound logs, reads or opens them, and holds what comes of it to the rules.

    python -m tests.fuzz.run --cases 1000000 --questions 1  # read, by the rules of `tests.fuzz.rules`
    python -m tests.fuzz.run --writing --cases 100000       # open to write, by those of `tests.fuzz.opening`
    python -m tests.fuzz.run --categories 'flip/*' 'cut/v2'
    python -m tests.fuzz.run --replay build/fuzz/3f2a.json  # one that was found and saved

A case is its seed and its number: the same two make the same damage. What is found is made smaller, edit by edit,
counted by its kind, and a few of each kind are saved. The cases run in processes of their own, which are watched: a
case that is not done in `HANG_SECONDS` is a hang, and one that takes `MEMORY_BYTES` more than any before it a finding.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Final

from tests.fuzz.cases import EVERYTHING, QUESTIONS_MAX, Case, Finding, Workbench, drawn

HANG_SECONDS: Final = 60.0
START_SECONDS: Final = 300.0
MEMORY_BYTES: Final = 256 << 20
DATA_BYTES_MAX: Final = 8 << 30
SAVED: Final = Path("build/fuzz")
SAVED_A_KIND_MAX: Final = 3
_MEMORY_FILES: Final = Path("/dev/shm")


@dataclass
class Tally:
    """What came of many cases."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    smallest: dict[str, Finding] = field(default_factory=dict)
    saved: dict[str, list[Path]] = field(default_factory=dict)

    def note(self, finding: Finding, folder: Path | None) -> None:
        self.kinds[finding.kind] += 1
        known = self.smallest.get(finding.kind)
        if known is None or _size(finding) < _size(known):
            self.smallest[finding.kind] = finding
        if folder is not None and len(paths := self.saved.setdefault(finding.kind, [])) < SAVED_A_KIND_MAX:
            paths.append(finding.save(folder))

    def add(self, other: Tally) -> None:
        self.cases += other.cases
        self.outcomes += other.outcomes
        self.kinds += other.kinds
        self.smallest = {**other.smallest, **self.smallest}
        for kind, paths in other.saved.items():
            self.saved.setdefault(kind, []).extend(paths)

    def lines(self) -> Iterable[str]:
        yield f"{self.cases:,} cases; what came of their questions:"
        for outcome, count in self.outcomes.most_common():
            yield f"{count:12,}  {outcome}"
        yield f"{self.kinds.total():,} findings of {len(self.kinds):,} kinds"
        for kind, count in self.kinds.most_common():
            yield f"{count:12,}  {kind}"
            yield from (f"{'':14}{path}" for path in self.saved.get(kind, ())[:SAVED_A_KIND_MAX])


def _size(finding: Finding) -> tuple[int, int]:
    edits = finding.case.mutation.edits
    return len(edits), sum(len(edit.data or b"") for edit in edits)


def run(
    bench: Workbench,
    seed: int,
    numbers: Iterable[int],
    categories: tuple[str, ...] = EVERYTHING,
    *,
    writing: bool = False,
    questions: int = QUESTIONS_MAX,
    saved: Path | None = None,
    at: Synchronized[int] | None = None,
) -> Tally:
    """Run cases; `at`, if there is one, always says which."""
    tally = Tally()
    peak_bytes = _peak_bytes()
    for number in numbers:
        if at is not None:
            at.value = number
        case = drawn(seed, number, categories, writing=writing, questions=questions)
        tally.cases += 1
        verdicts = bench.verdicts(case)
        tally.outcomes.update(verdict.outcome for verdict in verdicts)
        found = bench.findings(case) if any(verdict.finding for verdict in verdicts) else []
        peak_before, peak_bytes = peak_bytes, _peak_bytes()
        # Whatever is loaded or compiled once is no fault of the case: it is run again.
        if peak_bytes > peak_before + MEMORY_BYTES and _bytes_of(lambda case=case: bench.verdicts(case)) > MEMORY_BYTES:  # type: ignore[misc]
            found.append(("too much memory", case))
        for what, smaller in found:
            tally.note(Finding(what, smaller, seed, number), saved)
    return tally


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _bytes_of(action: Callable[[], object]) -> int:
    """Return how much more memory than before an action takes at its peak; 0 where the system does not say."""
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is taken now
        before = _kib(status.read_text(), "VmRSS")
        action()
        return (_kib(status.read_text(), "VmHWM") - before) << 10
    except OSError:
        return 0


def _kib(status: str, name: str) -> int:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:"))


# Processes that are watched


@dataclass(frozen=True)
class Share:
    """What one process does: every n-th number, from one on."""

    seed: int
    start: int
    stop: int
    step: int
    categories: tuple[str, ...]
    writing: bool
    questions: int
    saved: Path


def _work(share: Share, at: Synchronized[int], results: Any) -> None:
    # A case that wants more than any machine has is an error, and not the end of the machine.
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with tempfile.TemporaryDirectory(dir=_MEMORY_FILES if _MEMORY_FILES.is_dir() else None) as folder:
        numbers = range(share.start, share.stop, share.step)
        results.put(
            run(
                Workbench(Path(folder)), share.seed, numbers, share.categories,
                writing=share.writing, questions=share.questions, saved=share.saved, at=at,
            )
        )  # fmt: skip


@dataclass
class Worker:
    """A process that runs a share in pieces, and what is known of it."""

    share: Share
    piece: int
    work: Callable[[Share, Any, Any], None] = _work
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.next = self.share.start
        self._begin()

    def _begin(self) -> None:
        stop = min(self.next + self.piece * self.share.step, self.share.stop)
        self.part = Share(**{**vars(self.share), "start": self.next, "stop": stop})
        self.at: Synchronized[int] = self.context.Value("q", -1)
        self.results = self.context.Queue()
        self.process = self.context.Process(target=self.work, args=(self.part, self.at, self.results), daemon=True)
        self.process.start()
        self._seen, self._since = -2, time.monotonic()

    @property
    def done(self) -> int:
        """How many cases were begun."""
        return (max(self.next, self.at.value) - self.share.start) // self.share.step

    def poll(self) -> bool:
        """Look after the process; False when all of the share is done."""
        if not self.results.empty() or not self.process.is_alive():
            self._finish()
        elif self.at.value != self._seen:
            self._seen, self._since = self.at.value, time.monotonic()
        elif time.monotonic() - self._since > (START_SECONDS if self.at.value < 0 else HANG_SECONDS):
            self._stop("a hang")
        return self.next < self.share.stop

    def _finish(self) -> None:
        try:
            self.tally.add(self.results.get(timeout=5.0))
        except Exception:  # the process died without a word
            self._stop(f"the process died with {self.process.exitcode}")
            return
        self.process.join()
        self.next = self.part.stop
        if self.next < self.share.stop:
            self._begin()

    def _stop(self, what: str) -> None:
        """Note the case at which the process stands, and go on behind it."""
        self.process.kill()
        self.process.join()
        number = max(self.at.value, self.part.start)
        share = self.share
        case = drawn(share.seed, number, share.categories, writing=share.writing, questions=share.questions)
        self.tally.cases += (number - self.part.start) // self.share.step + 1
        self.tally.note(Finding(what, case, self.share.seed, number), self.share.saved)
        self.next = number + self.share.step
        if self.next < self.share.stop:
            self._begin()


def run_watched(options: argparse.Namespace) -> Tally:
    """Run all cases in as many processes as are wanted."""
    workers = [
        Worker(
            Share(
                options.seed, options.start + row, options.start + options.cases, options.workers,
                tuple(options.categories), options.writing, options.questions, options.saved,
            ),
            options.piece,
        )
        for row in range(options.workers)
    ]  # fmt: skip
    began = told = time.monotonic()
    running = list(workers)
    while running:
        time.sleep(0.2)
        running = [worker for worker in running if worker.poll()]
        if time.monotonic() - told > 60.0:
            told = time.monotonic()
            done = sum(worker.done for worker in workers)
            print(f"{done:,} cases, {done / (told - began):.0f} a second", flush=True)
    total = Tally()
    for worker in workers:
        total.add(worker.tally)
    print(f"{total.cases / max(time.monotonic() - began, 1e-9):.0f} cases a second")
    return total


def replay(path: Path) -> int:
    """Run a saved case again, and say what comes of it."""
    case = Case.from_json(json.loads(path.read_text()))
    print(f"{case.log.name}: {case.mutation.kind}")
    for edit in case.mutation.edits:
        data = "the file goes" if edit.data is None else f"{edit.length} bytes become {edit.data.hex() or 'nothing'}"
        print(f"  {edit.file} at {edit.position}: {data}")
    with tempfile.TemporaryDirectory() as folder:
        verdicts = Workbench(Path(folder)).verdicts(case)
    for query, verdict in zip(case.queries or ("open to write",), verdicts, strict=True):
        print(f"  {query}: {verdict.finding or verdict.outcome}")
    return int(any(verdict.finding for verdict in verdicts))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the number of the first case")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--piece", type=int, default=20_000, help="cases that a process runs before it is begun anew")
    parser.add_argument("--categories", nargs="+", default=list(EVERYTHING))
    parser.add_argument("--writing", action="store_true", help="open to write instead of reading")
    parser.add_argument(
        "--questions", type=int, choices=range(1, QUESTIONS_MAX + 1), default=QUESTIONS_MAX, help="asked of each log"
    )
    parser.add_argument("--saved", type=Path, default=SAVED, help="where cases that are found are saved")
    parser.add_argument("--replay", type=Path, help="run one saved case")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return replay(options.replay)
    tally = run_watched(options)
    for line in tally.lines():
        print(line)
    return int(bool(tally.kinds))


if __name__ == "__main__":
    sys.exit(main())
