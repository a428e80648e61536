"""Cases: one damage to one log, made of a seed and a number, run, made smaller, saved and replayed."""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa

from sparklog.log import windows
from tests.fuzz.logs import SoundLog, catalog
from tests.fuzz.mutations import KINDS, Edit, Mutation, applied, mutated
from tests.fuzz.opening import judge_opening
from tests.fuzz.queries import Answer, Query, ask, listen, some_queries
from tests.fuzz.rules import judge
from tests.fuzz.verdict import Verdict

EVERYTHING: Final = ("*",)
_SMALL_WINDOW_BYTES: Final = 300
_WEIGHTS: Final = {"flip": 7, "cut": 2, "splice": 2}


@dataclass(frozen=True)
class Case:
    """One damage to one log, and what is asked then; nothing is, where the log is opened to be written to."""

    log: SoundLog
    mutation: Mutation
    queries: tuple[Query, ...] = ()
    window_bytes: int = windows.WINDOW_BYTES
    """How much of a segment is read at once: little, so that small logs have many windows, or all."""

    @property
    def category(self) -> str:
        """What is damaged, and how, such as ``flip/wrapped``."""
        return f"{self.mutation.kind}/{self.log.family}"

    def without(self, row: int) -> Case:
        """Return the case without one of its edits."""
        edits = self.mutation.edits
        return replace(self, mutation=Mutation(self.mutation.kind, edits[:row] + edits[row + 1 :]))

    def to_json(self) -> dict[str, Any]:
        return {
            "log": self.log.name,
            "kind": self.mutation.kind,
            "edits": [edit.to_json() for edit in self.mutation.edits],
            "queries": [asdict(query) for query in self.queries],
            "window_bytes": self.window_bytes,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Case:
        queries = (Query(**{**query, "columns": tuple(query["columns"])}) for query in row["queries"])
        edits = tuple(Edit.from_json(edit) for edit in row["edits"])
        window_bytes = row.get("window_bytes", windows.WINDOW_BYTES)
        return cls(catalog()[row["log"]], Mutation(row["kind"], edits), tuple(queries), window_bytes)


@dataclass(frozen=True)
class Finding:
    """A case that a rule does not allow, as small as it could be made."""

    what: str
    case: Case
    seed: int
    number: int

    @property
    def kind(self) -> str:
        """What is counted together."""
        return f"{self.what} [{self.case.category}: {', '.join(sorted(regions(self.case)))}]"

    def save(self, folder: Path) -> Path:
        """Write the case down; ``python -m tests.fuzz.run --replay`` runs it again."""
        row = {"what": self.what, "seed": self.seed, "number": self.number, **self.case.to_json()}
        text = json.dumps(row, indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
        path.write_text(text)
        return path


@functools.cache
def _choices(categories: tuple[str, ...]) -> list[tuple[str, tuple[SoundLog, ...], bool]]:
    """Return the kinds of damage and the logs that patterns of categories stand for, as often as they are drawn."""
    logs = catalog().values()
    families = sorted({log.family for log in logs})
    found = []
    for family in families:
        of_family = tuple(log for log in logs if log.family == family)
        for kind in KINDS:
            if any(fnmatch(f"{kind}/{family}", pattern) for pattern in categories):
                with_flip = any(fnmatch(f"flip/{family}", pattern) for pattern in categories)
                found += [(kind, of_family, with_flip)] * _WEIGHTS.get(kind, 1)
    return found


QUESTIONS_MAX: Final = 3


def drawn(
    seed: int,
    number: int,
    categories: tuple[str, ...] = EVERYTHING,
    *,
    writing: bool = False,
    questions: int = QUESTIONS_MAX,
) -> Case:
    """Make a case of its seed and number, of one of the categories, which are patterns such as ``flip/*``."""
    rng = random.Random(f"{seed} {number}")
    kind, logs, with_flip = rng.choice(_choices(categories))
    log = rng.choice(logs)
    mutation = mutated(rng, log, rng.choice(list(catalog().values())), kind, with_flip=with_flip)
    queries = () if writing else tuple(rng.sample(some_queries(rng, log), questions))
    return Case(log, mutation, queries, rng.choice((windows.WINDOW_BYTES, windows.WINDOW_BYTES, _SMALL_WINDOW_BYTES)))


class Workbench:
    """A folder in which logs are damaged and read; beside each lies the same log undamaged."""

    def __init__(self, folder: Path, asking: Callable[[str, Sequence[Query]], list[Answer]] = ask) -> None:
        self._folder = folder
        self._ask = asking
        self._sound: dict[tuple[str, Query], Answer] = {}
        self._written: dict[str, tuple[Path, Path]] = {}
        listen()

    def verdicts(self, case: Case) -> list[Verdict]:
        """Run a case: what came of each question, or of opening it to write."""
        with mock.patch.object(windows, "WINDOW_BYTES", case.window_bytes):
            return self._verdicts(case)

    def _verdicts(self, case: Case) -> list[Verdict]:
        files = applied(case.log.files, case.mutation.edits)
        if not case.queries:
            return [judge_opening(case.log, files, self._folder / "opened")]
        damaged, _ = self._folders(case.log)
        changed = {edit.file for edit in case.mutation.edits}
        _put(damaged, changed, files)
        try:
            answers = self._ask(str(damaged), case.queries)
            return [
                judge(
                    case.log, query, self._answer(case.log, query), answer, files,
                    lambda other: self._ask(str(damaged), [other])[0],
                )
                for query, answer in zip(case.queries, answers, strict=True)
            ]  # fmt: skip
        finally:
            _put(damaged, changed, case.log.files)

    def findings(self, case: Case) -> list[tuple[str, Case]]:
        """Run a case; what no rule allows, each with the smallest case that shows it."""
        found = []
        for row, verdict in enumerate(self.verdicts(case)):
            if verdict.finding is not None:
                alone = replace(case, queries=case.queries[row : row + 1])
                found.append(self._smaller(verdict.finding, alone))
        return found

    def _smaller(self, what: str, case: Case) -> tuple[str, Case]:
        row = 0
        while row < len(case.mutation.edits) and len(case.mutation.edits) > 1:
            less = case.without(row)
            (verdict,) = self.verdicts(less)
            if verdict.finding is None or verdict.finding.split(",")[0] != what.split(",")[0]:
                row += 1
            else:
                what, case = verdict.finding, less
        return what, case

    def _folders(self, log: SoundLog) -> tuple[Path, Path]:
        if log.name not in self._written:
            name = log.name.replace("/", " ")
            self._written[log.name] = (
                log.write(self._folder / "damaged" / name),
                log.write(self._folder / "sound" / name),
            )
        return self._written[log.name]

    def _answer(self, log: SoundLog, query: Query) -> Answer:
        if (log.name, query) not in self._sound:
            _, sound = self._folders(log)
            answer = ask(str(sound), [query])[0]
            if answer.error is not None:
                raise AssertionError(f"{log.name} is not sound, {query}") from answer.error
            # What is read has room to spare, and there are thousands of answers to keep.
            answer.table = None if answer.table is None else _compact(answer.table)
            self._sound[log.name, query] = answer
        return self._sound[log.name, query]


def _compact(table: pa.Table) -> pa.Table:
    """Copy a table into memory that is no larger than it."""
    with pa.BufferOutputStream() as stream:
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        return pa.ipc.open_stream(stream.getvalue()).read_all()


def _put(folder: Path, names: set[str], files: Mapping[str, bytes]) -> None:
    for name in names:
        if name in files:
            (folder / name).write_bytes(files[name])
        else:
            (folder / name).unlink(missing_ok=True)


_V2_FIELDS: Final = (
    (8, "base offset"), (12, "size"), (16, "leader epoch"), (17, "magic"), (21, "crc"), (23, "attributes"),
    (27, "last offset delta"), (35, "base timestamp"), (43, "max timestamp"), (51, "producer id"),
    (53, "producer epoch"), (57, "base sequence"), (61, "record count"),
)  # fmt: skip
_LEGACY_FIELDS: Final = ((8, "offset"), (12, "size"), (16, "crc"), (17, "magic"), (18, "attributes"))


def regions(case: Case) -> set[str]:
    """Name what the edits of a case change, so that cases of one cause are counted together."""
    return {_region(case.log, edit) for edit in case.mutation.edits}


def _region(log: SoundLog, edit: Edit) -> str:
    if edit.file not in log.segments:
        return edit.file.rpartition(".")[2]
    where = "last segment" if edit.file == log.segments[-1] else "sealed segment"
    for row, span in enumerate(log.spans):
        if span.file == edit.file and span.start <= edit.position < span.end and edit.length == len(edit.data or b""):
            what = "control" if span.is_control else "wrapper" if span.is_wrapper else f"magic {span.magic}"
            last = ", last" if row + 1 == len(log.spans) else ""
            fields = _V2_FIELDS if span.magic == 2 else _LEGACY_FIELDS
            name = next((name for end, name in fields if edit.position - span.start < end), "records")
            return f"{what} {name}{last}"
    return where
