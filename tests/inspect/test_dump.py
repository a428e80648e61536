"""Rows of what is in a log: here, what the tests of the command line do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.inspect.dump import DumpRange, batch_rows, file_rows, log_of_file, log_of_folder, record_rows
from tests.build import control_batch, write_partition
from tests.log.logs import batches
from tests.places import folder_at

EVERYTHING = DumpRange()


def test_file_of_batches_is_read_by_whatever_name(tmp_path: Path) -> None:
    folder = tmp_path / "events-3"
    write_partition(folder, batches(3))
    (copied,) = folder.glob("*.log")
    copied = copied.rename(folder / "copied.log")
    dumped = log_of_file(str(copied))
    assert (dumped.topic, dumped.partition, dumped.name) == ("events", 3, "events-3")
    assert dumped.max_timestamp() is None
    rows = list(record_rows(dumped, EVERYTHING))
    assert [row["offset"] for row in rows] == list(range(30))
    assert {row["file"] for row in rows} == {"copied.log"}


@pytest.mark.parametrize(("kind", "epoch"), [("abort", 9), ("commit", 0)])
def test_marker_says_its_kind_and_the_epoch_of_its_coordinator(tmp_path: Path, kind: str, epoch: int) -> None:
    marker = control_batch(kind, 0, producer_id=7, producer_epoch=1, coordinator_epoch=epoch)
    write_partition(tmp_path / "events-0", [marker])
    (row,) = batch_rows(log_of_folder(folder_at(tmp_path / "events-0")), EVERYTHING)
    assert (row["control_type"], row["coordinator_epoch"]) == (kind.upper(), epoch)


def test_end_of_a_range_is_exclusive_for_batches_and_records(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", batches(5))
    dumped = log_of_folder(folder_at(tmp_path / "events-0"))
    assert [row["offset"] for row in record_rows(dumped, DumpRange(19, 21))] == [19, 20]
    assert [row["base_offset"] for row in batch_rows(dumped, DumpRange(19, 20))] == [10]
    assert not dumped.reaches(DumpRange(51))
    assert dumped.reaches(DumpRange(50))


def test_log_is_no_file_of_entries(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", batches(1))
    (log,) = (tmp_path / "events-0").glob("*.log")
    assert file_rows(str(log)) is None
