"""The producers of a log at its end: by a snapshot that is believed, and what followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.producer_state import PRODUCER_EXPIRATION_MS
from sparklog.log.transactions import last_stable_offset
from tests import build
from tests.build import ProducerEntry, producer_snapshot, producer_snapshot_name
from tests.log.logs import idempotent
from tests.places import folder_at


def test_state_at_the_end_is_that_of_the_last_sound_snapshot_and_what_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "t-0"
    build.write_partition(folder, [idempotent(0, 7), idempotent(10, 7, 10)])
    snapshot = folder / producer_snapshot_name(10)
    snapshot.write_bytes(producer_snapshot([ProducerEntry(9, 3, -1, -1, timestamp=1)]))
    (folder / producer_snapshot_name(21)).write_bytes(producer_snapshot([ProducerEntry(5)]))
    found = producers_at_end(read_layout(folder_at(folder))).entries
    assert found.keys() == {9, 7}
    assert [each.base_offset for each in found[7].batches] == [10]
    assert not caplog.records
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    found = producers_at_end(read_layout(folder_at(folder))).entries
    assert [each.base_offset for each in found[7].batches] == [0, 10]
    assert str(snapshot) in caplog.text


@pytest.mark.parametrize(
    "entry",
    [
        ProducerEntry(9, 0, 9, 9, 9, 1),
        ProducerEntry(7, 0, 4, 9, 9, 1),
        ProducerEntry(7, 0, 9, 15, 9, 1),
        ProducerEntry(9, 0, -1, -1, 0, 1, -1, 3),
        ProducerEntry(7, 0, -1, -1, 0, 1, -1, 0),
    ],
    ids=["another producer", "another sequence", "an offset to come", "another transaction", "no transaction"],
)
def test_snapshot_of_another_log_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: ProducerEntry
) -> None:
    """Its checksum is right: it would hold records back that are committed, or show some that are not."""
    folder = tmp_path / "t-0"
    build.write_partition(folder, [idempotent(0, 7), idempotent(10, 7, 10)])
    (folder / producer_snapshot_name(10)).write_bytes(producer_snapshot([entry]))
    layout = read_layout(folder_at(folder))
    assert [each.base_offset for each in producers_at_end(layout).entries[7].batches] == [0, 10]
    assert last_stable_offset(layout) == 20
    assert "is not of this log" in caplog.text


def test_snapshot_whose_last_batch_the_cleaner_removed_is_believed(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    build.write_partition(folder, [idempotent(0, 7), idempotent(20, 7, 10)])
    entries = [ProducerEntry(8, 0, 5, 15, 3, 1), ProducerEntry(7, 0, 9, 9, 9, 1)]
    (folder / producer_snapshot_name(20)).write_bytes(producer_snapshot(entries))
    assert producers_at_end(read_layout(folder_at(folder))).entries.keys() == {7, 8}


def test_snapshot_of_before_the_log_start_is_not_asked(tmp_path: Path) -> None:
    build.write_partition(tmp_path, [idempotent(30, 7)], base_offset=30)
    (tmp_path / producer_snapshot_name(29)).write_bytes(producer_snapshot([ProducerEntry(8)]))
    assert producers_at_end(read_layout(folder_at(tmp_path))).entries.keys() == {7}
    (tmp_path / producer_snapshot_name(30)).write_bytes(producer_snapshot([ProducerEntry(9)]))
    assert producers_at_end(read_layout(folder_at(tmp_path))).entries.keys() == {9, 7}


def test_who_wrote_after_the_snapshot_is_not_forgotten_however_old_the_records(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    build.write_partition(folder, [idempotent(0, 7), idempotent(10, 8)])
    (folder / producer_snapshot_name(10)).write_bytes(producer_snapshot([ProducerEntry(7, 0, 9, 9, 9, 1009)]))
    now_ms = 1009 + PRODUCER_EXPIRATION_MS
    assert producers_at_end(read_layout(folder_at(folder)), now_ms - 1).entries.keys() == {7, 8}
    assert producers_at_end(read_layout(folder_at(folder)), 2 * now_ms).entries.keys() == {8}
