"""`verify` and `describe` as Python users call them: many partitions at a time, and the same whoever works."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.inspect.verify_segment import Severity
from tests.build import Record, v2_batch, write_partition
from tests.jobs.verifying import findings_in


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Make forty logs, of which every third is damaged and most end in the midst of a batch."""
    for number in range(40):
        folder = tmp_path / f"events-{number}"
        folder.mkdir()
        batch = v2_batch([Record(row, 0, b"k", b"v" * number) for row in range(number + 1)], base_offset=0)
        damaged = batch[:-1] + bytes([batch[-1] ^ 1]) if number % 3 == 0 else batch
        (folder / f"{0:020d}.log").write_bytes(damaged + batch[: number % 5])
    return tmp_path


def test_processes_describe_and_verify_as_one_does(logs: Path) -> None:
    alone, together = (list(sparklog.verify(logs, processes=count)) for count in (1, 2))
    assert alone == together == findings_in(logs)
    assert sum(each.code == "corrupt-batch" for each in alone) == 14
    for full, ratio in ((False, False), (False, True)):
        described, by_two = (list(sparklog.describe(logs, full=full, ratio=ratio, processes=count)) for count in (1, 2))
        assert described == by_two
        assert [each.path for each in described] == [str(logs / f"events-{number}") for number in range(40)]


def test_partition_that_cannot_be_listed_is_a_finding_among_others(logs: Path) -> None:
    for path in (logs / "events-7").iterdir():
        path.unlink()
    (logs / "events-7" / f"{0:020d}.log").mkdir()
    found = list(sparklog.verify(logs, processes=2))
    assert {Path(each.path).parts[-2] for each in found if each.code == "corrupt-batch"} >= {"events-6", "events-9"}
    assert any("events-7" in each.path and each.severity is not Severity.NOTE for each in found)


def test_keys_that_are_there_are_found_by_processes_as_by_one(tmp_path: Path) -> None:
    for number in range(4):
        write_partition(tmp_path / f"events-{number}", [v2_batch([Record(0, 0, b"key %d" % number, b"v")])])
    for processes in (1, 2):
        found = list(sparklog.verify(tmp_path, absent=["key 1", "key 3"], processes=processes))
        present = [Path(each.path).parent.name for each in found if each.code == "present"]
        assert present == ["events-1", "events-3"]


def test_arguments_are_checked_before_anything_is_asked_for(logs: Path) -> None:
    with pytest.raises(InvalidOptionError, match="processes is 0"):
        sparklog.verify(logs, processes=0)
    with pytest.raises(PathNotFoundError):
        sparklog.describe(logs / "none")
