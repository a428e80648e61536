"""A task's rows on their way into staged files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.write.accumulator import RecordAccumulator, TaskAttempt
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.target import WriteTarget
from sparklog.write.running_jobs import begin
from tests.places import directory_at
from tests.topic.staged import CONFIG, NOW_MS, findings, rows, values

STORAGE = LocalWritableStorage()
JOB = "0000000000ff00"


def accumulator(
    directory: Path, target: WriteTarget | None = None, buffered_bytes_max: int = 1 << 20, config: LogConfig = CONFIG
) -> RecordAccumulator:
    found = target or WriteTarget(directory_at(directory), "events", None, {}, 4)
    begin(directory_at(directory), JOB)
    task = TaskAttempt(found, config, "default", JOB, 0, 0, NOW_MS)
    return RecordAccumulator(task, lambda: NOW_MS, buffered_bytes_max)


def test_what_is_gathered_is_bounded_and_order_is_kept(tmp_path: Path) -> None:
    """However often it is written out meanwhile."""
    given = [f"{n}" for n in range(500)]
    for bound in (1, 300, 1 << 20):
        directory = tmp_path / str(bound)
        taking = accumulator(directory, buffered_bytes_max=bound)
        for start in range(0, 500, 7):
            taking.append(rows(given[start : start + 7], partition=[int(n) % 4 for n in given[start : start + 7]]))
        staged = taking.finish()
        assert sum(each.records for each in staged) == 500
        commit(CommitRequest(JOB, directory_at(directory), CONFIG, {"events": 4}), staged, NOW_MS)
        assert values(directory) == {f"events-{p}": [n for n in given if int(n) % 4 == p] for p in range(4)}
        assert findings(directory) == []


def test_offsets_are_counted_from_those_that_are_expected(tmp_path: Path) -> None:
    begin(directory_at(tmp_path), JOB)
    target = WriteTarget(directory_at(tmp_path), "events", None, {}, 4)
    task = TaskAttempt(target, CONFIG, "default", JOB, 0, 0, NOW_MS, base_offsets={"events-1": 7})
    taking = RecordAccumulator(task, lambda: NOW_MS, buffered_bytes_max=1)
    for _ in range(3):
        taking.append(rows(["a", "b", "c", "d"], partition=[0, 1, 1, 1]))
    staged = taking.finish()
    found = {folder: [each for each in staged if each.folder == folder] for folder in ("events-0", "events-1")}
    assert {name: (runs[0].base_offset, runs[-1].end_offset) for name, runs in found.items()} == {
        "events-0": (0, 3),
        "events-1": (7, 16),
    }
    commit(CommitRequest(JOB, directory_at(tmp_path), CONFIG, {"events": 4}), staged, NOW_MS)
    assert values(tmp_path)["events-1"] == ["b", "c", "d"] * 3
    assert findings(tmp_path) == []


def test_files_are_rolled_as_segments_are(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", segment_bytes=1 << 20, batch_size=10_000)
    taking = accumulator(tmp_path, config=config)
    taking.append(rows(["x" * 1000] * 2500, partition=[1] * 2500))
    staged = taking.finish()
    assert [each.number for each in staged] == [0, 1, 2]
    assert all(each.size_bytes <= 1 << 20 for each in staged)
    commit(CommitRequest(JOB, directory_at(tmp_path), config, {"events": 4}), staged, NOW_MS)
    assert len(list((tmp_path / "events-1").glob("*.log"))) == 3
    assert findings(tmp_path) == []


def test_null_topic_is_refused(tmp_path: Path) -> None:
    taking = accumulator(tmp_path, WriteTarget(directory_at(tmp_path), None, None, {}, 1))
    taking.append(rows(["a", "b"], topic=pa.array(["t", None])))
    with pytest.raises(InvalidOptionError, match="null topic present in the data"):
        taking.finish()


def test_path_of_a_partition_refuses_rows_for_others(tmp_path: Path) -> None:
    only = WriteTarget(directory_at(tmp_path), "events", 2, {}, None)
    taking = accumulator(tmp_path, only)
    taking.append(rows(["a", "b"], partition=pa.array([2, None], pa.int32())))
    assert [each.folder for each in taking.finish()] == ["events-2"]
    taking = accumulator(tmp_path, only)
    taking.append(rows(["a"], partition=[3]))
    with pytest.raises(InvalidOptionError, match="the path is of partition 2, and the column partition says 3"):
        taking.finish()


def test_record_that_a_broker_would_refuse_names_its_rule(tmp_path: Path) -> None:
    taking = accumulator(tmp_path, config=LogConfig(cleanup_policy=("compact",)))
    taking.append(rows(["a"], key=pa.array([None], pa.binary())))
    with pytest.raises(InvalidOptionError, match=r"1 of 1 records have no key, and cleanup\.policy is compact"):
        taking.finish()


def test_strings_of_any_arrow_type_are_written(tmp_path: Path) -> None:
    taking = accumulator(tmp_path, WriteTarget(directory_at(tmp_path), "events", 0, {}, None))
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        taking.append(pa.record_batch({"value": pa.array([b"v"], pa.binary()).cast(kind)}))
        commit(CommitRequest(JOB, directory_at(tmp_path), CONFIG, {}), taking.finish(), NOW_MS)
        taking = accumulator(tmp_path, WriteTarget(directory_at(tmp_path), "events", 0, {}, None))
    assert values(tmp_path) == {"events-0": ["v"] * 4}


def test_keys_of_any_arrow_type_choose_the_same_partitions(tmp_path: Path) -> None:
    keys = [f"k{n}" for n in range(40)]
    kinds = [pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    for number, kind in enumerate(kinds):
        directory = tmp_path / str(number)
        taking = accumulator(directory)
        column = pa.array(keys).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(keys).cast(kind)
        taking.append(rows(keys, key=column))
        commit(CommitRequest(JOB, directory_at(directory), CONFIG, {"events": 4}), taking.finish(), NOW_MS)
        assert values(directory) == values(tmp_path / "0")


def test_partition_column_that_is_no_integer_is_refused_for_one_partition_too(tmp_path: Path) -> None:
    taking = accumulator(tmp_path, WriteTarget(directory_at(tmp_path), "events", 0, {}, None))
    taking.append(rows(["a"], partition=pa.array([0.0])))
    with pytest.raises(InvalidOptionError, match="the column partition must be of integers, and is of double"):
        taking.finish()


def test_partition_column_may_be_of_any_integers(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int8(), pa.uint16(), pa.int64(), pa.uint64())):
        taking = accumulator(tmp_path / str(number))
        taking.append(rows(["a", "b"], partition=pa.array([3, None], kind)))
        assert "events-3" in {each.folder for each in taking.finish()}
    taking = accumulator(tmp_path / "far")
    taking.append(rows(["a"], partition=pa.array([2**63], pa.uint64())))
    with pytest.raises(InvalidOptionError, match="the column partition says 9223372036854775808 in row 0"):
        taking.finish()
