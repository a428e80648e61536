"""A mirror follows whatever happens to its source, and is one of the source's states wherever it is killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import SeglogError
from tests.jobs.mirror.sources import (
    CHANGES,
    append,
    assert_equal,
    batches_in,
    change_topics,
    compact,
    expire,
    grow,
    make_source,
    mirror_into,
)
from tests.storage.crash import CrashingStorage, crashes

Change = Callable[[Path], None]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_mirror_is_equal_after_every_change_of_its_source(tmp_path: Path, change: Change) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    mirror_into(source, target)
    assert_equal(source, target)
    change(source)
    mirror_into(source, target)
    assert_equal(source, target)
    grow(source) if change is not change_topics else None
    mirror_into(source, target)
    assert_equal(source, target)
    assert [each for each in sparklog.verify(target) if each.severity.value == "error"] == []


def test_second_run_copies_only_what_is_new(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    first = mirror_into(source, target)
    whole = sum(path.stat().st_size for path in (source / "events-0").glob("*.log"))
    assert first.copied_bytes == first.behind_bytes == whole
    assert first.behind_offsets == 24
    assert mirror_into(source, target).copied_bytes == 0
    grow(source)
    second = mirror_into(source, target)
    assert second.copied_bytes == sum(path.stat().st_size for path in (source / "events-0").glob("*.log")) - whole
    assert second.behind_offsets == 18


def test_source_that_was_moved_to_another_disk_is_not_copied_again(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    mirror_into(source, target)
    shutil.copytree(source, tmp_path / "moved")
    shutil.rmtree(source)
    (tmp_path / "moved").rename(source)
    assert mirror_into(source, target).copied_bytes == 0
    assert_equal(source, target)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_mirror_that_is_killed_anywhere_is_a_state_of_its_source_and_goes_on(tmp_path: Path, change: Change) -> None:
    source = tmp_path / "source"
    make_source(source)
    old = batches_in(source / "events-0")

    def prepare(folder: Path) -> None:
        mirror_into(source, folder / "mirror")
        change(source)

    def run(storage: CrashingStorage, folder: Path) -> None:
        mirror_into(source, folder / "mirror", storage)

    new: list[bytes] = []
    for crash in crashes(prepare, run, tmp_path):
        new = new or batches_in(source / "events-0")
        found = batches_in(crash.folder / "mirror" / "events-0")
        if change is compact:
            assert set(found) <= {*old, *new}, crash
        else:
            # Retention raises the log start offset last: until then, the log is longer than it was at any time.
            whole = [*old, *(each for each in new if each not in old)] if change is expire else new
            assert _is_part(found, old) or _is_part(found, whole), crash
        mirror_into(source, crash.folder / "mirror")
        assert_equal(source, crash.folder / "mirror")


def _is_part(found: list[bytes], whole: list[bytes]) -> bool:
    """Return whether batches follow each other in a log: retention removes some before, and later ones come after."""
    starts = [row for row, each in enumerate(whole) if found and each == found[0]]
    return not found or any(whole[row : row + len(found)] == found for row in starts)


def test_first_run_that_is_killed_anywhere_is_a_prefix_and_goes_on(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make_source(source)
    whole = batches_in(source / "events-0")

    def run(storage: CrashingStorage, folder: Path) -> None:
        mirror_into(source, folder / "mirror", storage)

    for crash in crashes(lambda _: None, run, tmp_path):
        found = batches_in(crash.folder / "mirror" / "events-0")
        assert found == whole[: len(found)], crash
        mirror_into(source, crash.folder / "mirror")
        assert_equal(source, crash.folder / "mirror")


def test_damaged_batch_is_named_and_not_copied_and_other_logs_are_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    mirror_into(source, target)
    kept = batches_in(target / "events-0")
    grow(source)
    damaged = sorted((source / "events-0").glob("*.log"))[-2]
    data = bytearray(damaged.read_bytes())
    data[-3] ^= 1
    damaged.write_bytes(data)
    append(source, 5, "other-3")
    summary = mirror_into(source, target)
    (error,) = summary.errors
    assert isinstance(error, SeglogError)
    assert str(damaged) in str(error)
    found = batches_in(target / "events-0")
    assert found[: len(kept)] == kept
    assert len(found) > len(kept)
    assert batches_in(target / "other-3") == batches_in(source / "other-3") != []


def test_damaged_end_of_the_source_does_not_cut_the_mirror(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    mirror_into(source, target)
    kept = batches_in(target / "events-0")
    last = max(path for path in (source / "events-0").glob("*.log") if path.stat().st_size)
    last.write_bytes(last.read_bytes()[:-109] + bytes(109))
    (error,) = mirror_into(source, target).errors
    assert "which it keeps" in str(error)
    assert batches_in(target / "events-0") == kept
