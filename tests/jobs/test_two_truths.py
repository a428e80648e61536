"""Logs, tables and ledgers that are made anew, cut, and restored from older copies in any order: no run is behind the
later truth without a word.

Whatever was done before: a run that raises nothing leaves each row of the log in the table once, and no other. Records
have times in no order, and lengths that tell nothing, so that what is proven is not proven by luck.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import sparklog
from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.topic.cutting import truncate_to
from tests.jobs.lakes import Delta
from tests.jobs.tables import moved_to, rows

pytestmark = pytest.mark.filterwarnings("ignore")
TIMES = st.integers(1_000, 1_003)
SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=4)
SHARES = st.sampled_from([0.0, 0.5, 1.0])
NAMES = st.sampled_from(["one", "one", "one", "two"])
PLACES = st.sampled_from(["one", "two", "table", "table/_seglog", "copied", "copied/t-0"])


class TwoTruths(RuleBasedStateMachine):
    """Two directories of one topic, a table and a log directory that they are moved to, and copies of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="two-truths-"))
        self.table, self.copied, self.kept = self.root / "table", self.root / "copied", self.root / "kept"
        self.written = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def log(self, name: str) -> Path:
        return self.root / name / "t-0"

    def values(self, log: Path) -> list[bytes]:
        if not log.exists():
            return []
        with sparklog.open_log(log) as reader:
            found: list[bytes] = reader.read(columns=["value"]).column("value").to_pylist()
            return found

    def in_table(self) -> list[bytes]:
        return [row["value"] for row in rows(self.table)] if self.table.exists() else []

    @initialize(sizes=SIZES, now_ms=TIMES)
    def begin(self, sizes: list[int], now_ms: int) -> None:
        self.append("one", sizes, now_ms)

    @rule(
        name=NAMES,
        kind=st.sampled_from(["append", "make anew", "cut", "copy"]),
        share=SHARES,
        sizes=SIZES,
        now_ms=TIMES,
    )
    def change(self, name: str, kind: str, share: float, sizes: list[int], now_ms: int) -> None:
        log, other = self.log(name), self.log("two" if name == "one" else "one")
        if kind == "make anew":
            shutil.rmtree(log, ignore_errors=True)
        elif kind == "cut" and log.exists():
            truncate_to(log, round(len(self.values(log)) * share))
        elif kind == "copy" and other.exists():
            self.replace(other, log)
        self.append(name, sizes, now_ms)

    def append(self, name: str, sizes: list[int], now_ms: int) -> None:
        with sparklog.PartitionLog.open(self.log(name)) as log:
            for size in sizes:
                self.written += size
                values = [f"{self.written - number:06}" for number in range(size)]
                log.append(pa.table({"value": values}), now_ms=now_ms)

    @rule(of=PLACES, is_kept=st.booleans())
    def keep_or_restore(self, of: str, is_kept: bool) -> None:
        place, kept = self.root / of, self.kept / of.replace("/", ".")
        if is_kept and place.exists():
            self.replace(place, kept)
        elif kept.exists() and place.parent.exists():
            self.replace(kept, place)

    @rule(of=st.sampled_from(["table", "table/_seglog", "copied", "copied/t-0"]))
    def lose(self, of: str) -> None:
        shutil.rmtree(self.root / of, ignore_errors=True)

    @staticmethod
    def replace(source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)

    def given(self) -> dict[str, Any]:
        return {}

    @rule(name=NAMES)
    def export(self, name: str) -> None:
        if self.log(name).exists():
            before = Counter(self.in_table())
            try:
                moved_to(self.table, source=self.root / name, **self.given())
            except (DataLossError, InvalidOptionError):
                assert Counter(self.in_table()) == before
            else:
                assert Counter(self.in_table()) == Counter(self.values(self.log(name)))

    @rule(name=NAMES)
    def export_again(self, name: str) -> None:
        self.export(name)

    @rule(name=NAMES)
    def copy(self, name: str) -> None:
        if self.log(name).exists():
            before = self.values(self.copied / "t-0")
            try:
                sparklog.copy(self.root / name, self.copied, processes=1)
            except DataLossError:
                assert self.values(self.copied / "t-0") == before
            else:
                after = Counter(self.values(self.copied / "t-0"))
                # Sources of a copy are merged: another log comes behind what is there.
                assert not Counter(self.values(self.log(name))) - after

    @rule(name=NAMES)
    def copy_again(self, name: str) -> None:
        self.copy(name)


class TwoTruthsOfDelta(TwoTruths):
    """The same of a Delta table, which others write to and restore as well."""

    def given(self) -> dict[str, Any]:
        return {"format": "delta", "partition_by": []}

    def in_table(self) -> list[bytes]:
        if not DeltaTable.is_deltatable(str(self.table)):
            return []
        return [row["value"] for row in Delta(self.table).rows() if row["topic"]]

    @rule(back=st.integers(0, 3))
    def restore_version(self, back: int) -> None:
        if DeltaTable.is_deltatable(str(self.table)):
            table = DeltaTable(str(self.table))
            if 0 <= table.version() - back < table.version():
                table.restore(table.version() - back)


@pytest.mark.parametrize(("machine", "examples"), [(TwoTruths, 25), (TwoTruthsOfDelta, 6)])
def test_no_run_is_behind_the_later_truth_without_a_word(machine: type[TwoTruths], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
