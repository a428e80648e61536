"""Files that are cut, grown and replaced between any two calls of a reader: never is a part left out in silence.

Who refreshes a snapshot with ``cp`` does all of it: files are cut to nothing and written anew, in place. A broker and
rsync put another file in the place of one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import CorruptBatchError, DataLossError
from sparklog.log.layout import read_layout
from sparklog.log.reader import LogReader, open_log
from sparklog.storage.local import LocalFile
from tests.build import write_partition
from tests.log.logs import batch, batches
from tests.places import folder_at

WRITTEN = batches(12)
BATCH_BYTES = len(WRITTEN[0])
ALL = list(range(120))
Change = Callable[[Path], None]


def write(folder: Path) -> list[Path]:
    """Write three segments, of which the last may be written to."""
    folder.mkdir(exist_ok=True)
    write_partition(folder, WRITTEN, segment_bytes=4 * len(WRITTEN[-1]), index_interval_bytes=200)
    first, second, last = sorted(folder.glob("*.log"))
    return [first, second, last]


def cut_to(size_bytes: int) -> Change:
    return lambda path: os.truncate(path, size_bytes)


def replaced(path: Path) -> None:
    other = path.with_suffix(".tmp")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(batch(120)[:100])


def written_anew(steps: int) -> Change:
    """Cut a file to nothing, and write it again, a part at each call that follows."""

    def change(path: Path) -> None:
        data = WHOLE[path.name]
        done = STEPS.setdefault(path.name, 0)
        path.write_bytes(data[: len(data) * done // steps]) if done <= steps else None
        STEPS[path.name] = done + 1

    return change


WHOLE: dict[str, bytes] = {}
STEPS: dict[str, int] = {}
CHANGES: dict[str, tuple[Change, bool]] = {
    "cut to nothing": (cut_to(0), False),
    "cut between batches": (cut_to(2 * BATCH_BYTES), False),
    "cut in a batch": (cut_to(2 * BATCH_BYTES + 70), False),
    "cut in its last batch": (cut_to(3 * BATCH_BYTES + 70), False),
    "grown": (grown, False),
    "replaced": (replaced, False),
    "written anew in 2 steps": (written_anew(2), True),
    "written anew in 9 steps": (written_anew(9), True),
}


class Meddling:
    """Changes a file before the n-th call of a reader; a change of several steps goes on at each call after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.at, self.goes_on = 0, -1, False
        self.change: Change | None = None
        self.paths: list[Path] = []
        for name in ("size_bytes", "read", "read_into"):
            monkeypatch.setattr(LocalFile, name, self._counted(getattr(LocalFile, name)))

    def _counted(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: LocalFile, *arguments: Any) -> Any:
            if self.change is not None and (self.calls == self.at or (self.goes_on and self.calls > self.at)):
                for path in self.paths:
                    self.change(path)
            self.calls += 1
            return plain(file, *arguments)

        return call


@pytest.fixture
def meddling(monkeypatch: pytest.MonkeyPatch) -> Meddling:
    return Meddling(monkeypatch)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("kind", CHANGES)
def test_no_part_of_a_log_is_left_out_in_silence(tmp_path: Path, meddling: Meddling, kind: str, which: int) -> None:
    change, goes_on = CHANGES[kind]
    outcomes = set()
    calls, at = 1, 0
    while at < calls:
        paths = write(tmp_path / "t-0")
        WHOLE.update({path.name: path.read_bytes() for path in paths})
        STEPS.clear()
        layout = read_layout(folder_at(tmp_path / "t-0"))
        meddling.paths, meddling.change, meddling.goes_on = [paths[which]], change, goes_on
        meddling.calls, meddling.at = 0, at
        seen: list[int] = []
        try:
            for piece in LogReader(layout).batches(columns=["offset"]):
                seen += piece["offset"].to_pylist()
            assert seen == ALL, f"{kind} at call {at}: a part is left out in silence"
            outcomes.add("whole")
        except (DataLossError, CorruptBatchError) as error:
            outcomes.add(type(error).__name__)
        assert seen == ALL[: len(seen)], f"{kind} at call {at}"
        meddling.change = None
        calls, at = max(calls, meddling.calls) if at else meddling.calls, at + 1
        calls = min(calls, 60)
    if kind.startswith("cut") and which < 2:
        assert outcomes >= {"whole", "DataLossError"}
    if kind in ("replaced", "grown") and which == 2:
        assert outcomes == {"whole"}


def test_segment_cut_while_it_is_read_is_passed_over_where_loss_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_partition(tmp_path / "t-0", batches(30_000), segment_bytes=20_000 * BATCH_BYTES)
    first, second = sorted((tmp_path / "t-0").glob("*.log"))
    with open_log(tmp_path / "t-0") as log:
        pieces = log.batches(columns=["offset"], fail_on_data_loss=False)
        seen = next(pieces)["offset"].to_pylist()
        os.truncate(first, BATCH_BYTES)
        seen += [n for piece in pieces for n in piece["offset"].to_pylist()]
    begun = int(second.stem)
    before = [n for n in seen if n < begun]
    assert before == list(range(len(before)))
    assert len(before) < begun
    assert [n for n in seen if n >= begun] == list(range(begun, 300_000))
    assert f"{first} had" in caplog.text
    assert "was cut while it was read" in caplog.text
