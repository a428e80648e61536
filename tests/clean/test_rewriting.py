"""Sealed segments become new ones, all of a group at once or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparklog.log.config import LogConfig
from tests.clean.logs import ALL, CONFIG, KeepingSome, clean, every_third, findings, logs, names, values, write
from tests.storage.crash import CrashingStorage, crashes

# Two groups, of three and two segments of two batches; of the last source of the first one nothing is kept.
CONFIG_OF_TWO = replace(CONFIG, segment_bytes=1_600)


def test_segments_are_grouped_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    before = logs(folder)
    found = clean(folder)
    assert values(folder) == ALL
    assert len(before) > len(logs(folder)) == 1 + len(found)
    assert [each.is_changed for each in found] == [True] * len(found)
    assert findings(folder) == []


def test_segment_that_stays_as_it_is_is_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    inodes = {path.name: path.stat().st_ino for path in folder.glob("*.log")}
    found = clean(folder, config=LogConfig(segment_bytes=600))
    assert {path.name: path.stat().st_ino for path in folder.glob("*.log")} == inodes
    assert not any(each.is_changed for each in found)


def test_crash_at_any_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Of each group by itself; readers see it before recovery as after it."""

    def prepare(folder: Path) -> None:
        write(folder / "events-0")

    def run(storage: CrashingStorage, folder: Path) -> None:
        clean(folder / "events-0", KeepingSome(every_third), CONFIG_OF_TWO, storage)

    outcomes = []
    for crash in crashes(prepare, run, tmp_path):
        folder = crash.folder / "events-0"
        seen = values(folder)
        outcomes.append(seen)
        clean(folder, config=LogConfig(segment_bytes=600))
        assert values(folder) == seen, str(crash)
        assert findings(folder) == [], str(crash)
        assert not [name for name in names(folder) if name.endswith((".cleaned", ".swap", ".deleted"))], str(crash)
    expected = [values_after(groups) for groups in range(3)]
    assert all(seen in expected for seen in outcomes)
    assert [outcomes.count(each) > 0 for each in expected] == [True] * 3


def values_after(groups: int) -> list[bytes]:
    """Return what is there once so many groups were cleaned."""
    cleaned_to = (0, 60, 100)[groups]
    return [b"value of %d" % n for n in range(120) if n >= cleaned_to or every_third(n // 10 * 10)]
