"""The beginning of a log goes by its start offset, and the end by whole batches."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cleaner import truncation
from sparklog.cleaner.cuts import Cut, Extent
from sparklog.errors import InvalidOptionError, OffsetOutOfRangeError
from sparklog.log.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import AbortedTransaction, encode_aborted
from sparklog.storage.base import Storage
from sparklog.write.partition import LogWriter
from tests.build import Record, control_batch, v2_batch, write_partition
from tests.cleaner.logs import ALL, findings, logs, names, values, write
from tests.log.logs import batch
from tests.places import LOCAL, folder_at
from tests.storage.crash import CrashingStorage, crashes

AT = TopicPartition("events", 0)
AT_ONCE = LogConfig(file_delete_delay_ms=0)


def delete_records(folder: Path, **how: Any) -> Extent:
    return truncation.cut_start(folder_at(folder), **{"config": LogConfig(), "lock_timeout_seconds": 0, **how})


def truncate_to(folder: Path, offset: int, config: LogConfig = AT_ONCE, storage: Storage = LOCAL) -> Extent:
    return truncation.cut_end(folder_at(folder, storage), offset, config=config, lock_timeout_seconds=0)


def start_of(directory: Path) -> int:
    path = directory / "log-start-offset-checkpoint"
    return parse_offset_checkpoint(path.read_bytes(), str(path))[AT]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "events-0")
    return tmp_path / "events-0"


def test_records_before_an_offset_are_gone_and_whole_segments_with_them(folder: Path) -> None:
    assert delete_records(folder, before_offset=47, config=AT_ONCE).start_offset == 47
    assert logs(folder) == [40, 60, 80, 100]
    assert values(folder) == ALL[47:]
    assert start_of(folder.parent) == 47
    assert (folder / "leader-epoch-checkpoint").read_text().split() == ["0", "1", "0", "47"]
    assert findings(folder) == []
    # A lower offset is no step back.
    assert delete_records(folder, before_offset=3).start_offset == 47


def test_records_before_a_time_are_gone(folder: Path) -> None:
    assert delete_records(folder, before_time=1033).start_offset == 33
    assert delete_records(folder, before_time=10**12).start_offset == 120


def test_all_records_go_and_offsets_go_on(folder: Path) -> None:
    found = delete_records(folder, before_offset=-1, config=AT_ONCE)
    assert (found.start_offset, found.end_offset) == (120, 120)
    assert values(folder) == []
    assert sorted(path.name for path in folder.glob("*.log")) == ["00000000000000000120.log"]
    with LogWriter.open(folder) as log:
        assert log.append({"value": [b"next"]}) == (120, 120)
    assert findings(folder) == []


def test_removed_files_stay_for_a_while(folder: Path) -> None:
    delete_records(folder, before_offset=40)
    assert len([name for name in names(folder) if name.endswith(".deleted")]) == 6
    with sparklog.open_log(folder) as log:
        assert log.start_offset == 40
    LogWriter.open(folder, AT_ONCE).close()
    assert not [name for name in names(folder) if name.endswith(".deleted")]


def test_offset_past_the_end_is_refused(folder: Path) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="up to 120"):
        delete_records(folder, before_offset=121)
    with pytest.raises(InvalidOptionError, match="one of before_offset and before_time"):
        delete_records(folder)
    assert values(folder) == ALL


@pytest.mark.parametrize(("offset", "end"), [(120, 120), (119, 110), (101, 100), (100, 100), (60, 60), (5, 0)])
def test_log_is_cut_at_the_batch_that_holds_an_offset(
    folder: Path, offset: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")
    for name in checkpoints:
        (folder.parent / name).write_bytes(encode_offset_checkpoint({AT: 120, TopicPartition("other", 0): 7}))
    with caplog.at_level(logging.WARNING, "sparklog"):
        assert truncate_to(folder, offset).end_offset == end
    assert values(folder) == ALL[:end]
    assert caplog.messages == []
    with LogWriter.open(folder) as log:
        assert log.append({"value": [b"next"]}) == (end, end)
    assert values(folder) == [*ALL[:end], b"next"]
    assert findings(folder) == []
    for name in checkpoints:
        lines = parse_offset_checkpoint((folder.parent / name).read_bytes(), name)
        assert lines[AT] <= end
        assert lines[TopicPartition("other", 0)] == 7


def test_log_is_not_cut_before_its_start(folder: Path) -> None:
    delete_records(folder, before_offset=50)
    with pytest.raises(OffsetOutOfRangeError, match="begins at offset 50"):
        truncate_to(folder, 49)


def test_cut_that_is_killed_anywhere_leaves_a_sound_log(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        write(folder / "events-0")

    def run(storage: CrashingStorage, folder: Path) -> None:
        truncate_to(folder / "events-0", 35, storage=storage)

    ends = set()
    for crash in crashes(prepare, run, tmp_path, ("kept", "lost")):
        folder = crash.folder / "events-0"
        with sparklog.open_log(folder) as log:
            end = log.end_offset
        assert values(folder) == ALL[:end], str(crash)
        assert truncate_to(folder, 35).end_offset == 30, str(crash)
        assert values(folder) == ALL[:30], str(crash)
        assert findings(folder) == [], str(crash)
        ends.add(end)
    assert ends == {120, 100, 80, 60, 40, 30}


def test_log_that_begins_above_zero_is_cut_at_its_first_batch_and_begins_there_again(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        # Only its name says where it starts: no checkpoint has a line of it.
        batches = [batch(offset) for offset in range(1000, 1040, 10)]
        write_partition(folder / "events-0", batches, base_offset=1000, segment_bytes=2 * len(batches[0]))

    def run(storage: CrashingStorage, folder: Path) -> None:
        look = truncation.look_at_truncation(folder_at(folder / "events-0"), 1000)
        assert look.after == Extent(1000, 1000)
        assert truncate_to(folder / "events-0", 1000, storage=storage) == look.after

    for crash in crashes(prepare, run, tmp_path, ("kept", "lost")):
        folder = crash.folder / "events-0"
        with sparklog.open_log(folder) as log:
            assert log.start_offset == 1000, str(crash)
        with LogWriter.open(folder) as writer:
            assert writer.append({"value": [b"next"]})[0] in (1000, 1020, 1040), str(crash)
        assert findings(folder) == [], str(crash)


def test_aborted_transaction_that_is_cut_off_is_in_no_index(tmp_path: Path) -> None:
    folder, config = tmp_path / "events-0", replace(AT_ONCE, index_interval_bytes=0)
    rows: list[Record] = [Record(0, timestamp=1000, value=b"aborted")]
    data = v2_batch(rows, base_offset=10, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    write_partition(folder, [batch(0), data, control_batch("abort", 11, 7, timestamp=2000)], segment_bytes=1 << 20)
    (folder / "00000000000000000000.txnindex").write_bytes(encode_aborted([AbortedTransaction(7, 10, 11, 10)]))
    LogWriter.open(folder, config).close()
    assert truncate_to(folder, 11, config=config).end_offset == 11
    assert findings(folder) == []
    assert not (folder / "00000000000000000000.txnindex").exists()


@pytest.mark.parametrize("start", [47, 40])
def test_log_that_is_cut_in_the_batch_of_its_start_is_empty_and_begins_there(folder: Path, start: int) -> None:
    delete_records(folder, before_offset=start, config=AT_ONCE)
    found = truncate_to(folder, 49)
    assert (found.start_offset, found.end_offset) == (start, start)
    assert values(folder) == []
    assert findings(folder) == []
    with LogWriter.open(folder) as log:
        assert log.append({"value": [b"next"]}) == (start, start)
    assert values(folder) == [b"next"]


def test_log_of_which_only_batches_before_its_start_would_be_left_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0), batch(20), batch(60), batch(80)], segment_bytes=300)
    delete_records(folder, before_offset=35, config=AT_ONCE)
    assert truncate_to(folder, 61).end_offset == 35
    assert values(folder) == []
    assert findings(folder) == []


def test_cuts_take_what_was_said_before(tmp_path: Path) -> None:
    write(tmp_path / "events-0")
    lengths = {path.name: path.stat().st_size for path in (tmp_path / "events-0").glob("*.log")}
    for offset in range(0, 121, 4):
        for name, look, act in (
            ("delete", look_at_deletion, delete_before),
            ("truncate", truncation.look_at_truncation, truncate_to),
        ):
            folder = tmp_path / f"{name}{offset}" / "events-0"
            shutil.copytree(tmp_path / "events-0", folder)
            cut = look(folder_at(folder), offset)
            assert act(folder, offset) == cut.after, (name, offset)
            left = {path.name: path.stat().st_size for path in folder.glob("*.log")}
            assert sum(lengths.values()) - sum(left.values()) == cut.size_bytes, (name, offset)
            # A log of which nothing is left begins anew, under the name that its first segment had.
            is_empty = cut.after.start_offset == cut.after.end_offset
            gone = len(lengths) if is_empty else len(lengths.keys() - left.keys())
            assert cut.segments == gone, (name, offset)


def look_at_deletion(folder: PartitionFolder, offset: int) -> Cut:
    return truncation.look_at_deletion(folder, before_offset=offset)


def delete_before(folder: Path, offset: int) -> Extent:
    return delete_records(folder, before_offset=offset, config=AT_ONCE)
