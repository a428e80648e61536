"""Rows of what is in a log: here, what the tests of the command line do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.inspect import dump_range
from sparklog.inspect.dump import (
    RowDict,
    batch_rows,
    file_rows,
    log_of_file,
    log_of_folder,
    record_batches,
    record_rows,
)
from sparklog.inspect.dump_range import DumpedLog, DumpRange
from tests.build import Record, control_batch, v2_batch, write_partition
from tests.log.logs import batches
from tests.places import folder_at, location_of

EVERYTHING = DumpRange()


def records(log: DumpedLog, wanted: DumpRange) -> list[RowDict]:
    found = record_batches(log, *log.record_span(wanted), wanted.isolation_level)
    return [row for batch in found for row in record_rows(log, wanted.matching(batch))]


def rows_of_batches(log: DumpedLog, wanted: DumpRange) -> list[RowDict]:
    return list(batch_rows(log, *log.batch_span(wanted)))


def test_file_of_batches_is_read_by_whatever_name(tmp_path: Path) -> None:
    folder = tmp_path / "events-3"
    write_partition(folder, batches(3))
    (copied,) = folder.glob("*.log")
    copied = copied.rename(folder / "copied.log")
    dumped = log_of_file(location_of(copied))
    assert (dumped.topic, dumped.partition, dumped.name) == ("events", 3, "events-3")
    assert dumped.max_timestamp() is None
    rows = records(dumped, EVERYTHING)
    assert [row["offset"] for row in rows] == list(range(30))
    assert {row["file"] for row in rows} == {"copied.log"}


@pytest.mark.parametrize(("kind", "epoch"), [("abort", 9), ("commit", 0)])
def test_marker_says_its_kind_and_the_epoch_of_its_coordinator(tmp_path: Path, kind: str, epoch: int) -> None:
    marker = control_batch(kind, 0, producer_id=7, producer_epoch=1, coordinator_epoch=epoch)
    write_partition(tmp_path / "events-0", [marker])
    (row,) = rows_of_batches(log_of_folder(folder_at(tmp_path / "events-0")), EVERYTHING)
    assert (row["control_type"], row["coordinator_epoch"]) == (kind.upper(), epoch)


def test_end_of_a_range_is_exclusive_for_batches_and_records(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", batches(5))
    dumped = log_of_folder(folder_at(tmp_path / "events-0"))
    assert [row["offset"] for row in records(dumped, DumpRange(19, 21))] == [19, 20]
    assert [row["base_offset"] for row in rows_of_batches(dumped, DumpRange(19, 20))] == [10]
    assert not dumped.reaches(DumpRange(51))
    assert dumped.reaches(DumpRange(50))


def test_log_is_no_file_of_entries(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", batches(1))
    (log,) = (tmp_path / "events-0").glob("*.log")
    assert file_rows(location_of(log)) is None


@pytest.mark.parametrize("count", [0, 1, 3, 9, 10, 11, 50, 999])
def test_last_records_are_those_before_the_end(tmp_path: Path, count: int) -> None:
    write_partition(tmp_path / "events-0", batches(5))
    dumped = log_of_folder(folder_at(tmp_path / "events-0"))
    assert [row["offset"] for row in records(dumped, DumpRange(last=count))] == list(range(max(50 - count, 0), 50))
    found = [row["offset"] for row in records(dumped, DumpRange(last=count, end_offset=25))]
    assert found == list(range(max(25 - count, 0), 25))


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_last_batches_are_those_before_the_end(tmp_path: Path, count: int) -> None:
    write_partition(tmp_path / "events-0", batches(5))
    dumped = log_of_folder(folder_at(tmp_path / "events-0"))
    bases = [0, 10, 20, 30, 40]
    assert [row["base_offset"] for row in rows_of_batches(dumped, DumpRange(last=count))] == bases[-count:]
    found = [row["base_offset"] for row in rows_of_batches(dumped, DumpRange(last=count, end_offset=25))]
    assert found == bases[:3][-count:]


def test_last_records_are_found_far_from_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_range, "_OFFSETS_LOOKED_AT_FIRST", 2)
    rare = [Record(n % 4, n, b"rare" if n in (1, 7) else b"usual", b"v") for n in range(40)]
    write_partition(tmp_path / "events-0", [v2_batch(rare[n : n + 4], base_offset=n) for n in range(0, 40, 4)])
    dumped = log_of_folder(folder_at(tmp_path / "events-0"))
    assert [row["offset"] for row in records(dumped, DumpRange(last=1, key=b"rare"))] == [7]
    assert [row["offset"] for row in records(dumped, DumpRange(last=2, key=b"rare"))] == [1, 7]
    assert [row["offset"] for row in records(dumped, DumpRange(last=9, key=b"rare"))] == [1, 7]
