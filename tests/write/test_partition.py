"""The single writer of a partition's folder."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.errors import (
    ALL_VISIBLE,
    NOTHING_VISIBLE,
    BrokerRunningError,
    CorruptLogError,
    InvalidOptionError,
    InvalidProducerEpochError,
    LockedError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    SeglogError,
    StorageError,
)
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log.config import LogConfig
from sparklog.log.files import SNAPSHOT, offset_file_name
from sparklog.log.producer_state import Producers
from sparklog.storage.local_writing import LocalWritableFile, LocalWritableStorage
from sparklog.write.partition import LogWriter
from sparklog.write.recovery import recover_log
from tests.places import folder_at
from tests.storage.crash import EVERY_LOSS, CrashingStorage, FailingStorage, crashes

NOW_MS = 1_700_000_000_000
SMALL = LogConfig(
    compression_type="uncompressed",
    segment_bytes=1 << 20,
    segment_index_bytes=400,
    index_interval_bytes=200,
    batch_size=300,
)


def table(values: list[bytes | None], **columns: Any) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary()), **columns})


def opened(folder: Path, config: LogConfig = SMALL, **options: Any) -> LogWriter:
    return LogWriter.open(folder, config, **{"clock": lambda: NOW_MS, "rng": lambda: 0, **options})


def read(folder: Path, *columns: str) -> list[Any]:
    with sparklog.open_log(str(folder)) as log:
        found = log.read(columns=list(columns or ["value"])).to_pylist()
    return [tuple(row.values()) if columns else row["value"] for row in found]


def findings(folder: Path) -> list[str]:
    events = verify_partition(folder_at(folder))
    return [str(each) for each in events if isinstance(each, Finding) and each.severity != Severity.NOTE]


def test_appended_records_are_read(tmp_path: Path) -> None:
    rows = table(
        [b"v", None, b""],
        key=pa.array(["k", "", None]),
        timestamp=pa.array([1, None, 3], pa.int64()),
        headers=pa.array([[{"key": "h", "value": b"1"}], [], None], sparklog_headers()),
    )
    with opened(tmp_path / "events-0") as log:
        assert log.append(rows) == (0, 2)
        assert log.append(table([])) == (3, 2)
        assert log.append(rows.slice(0, 1)) == (3, 3)
        assert (log.start_offset, log.end_offset) == (0, 4)
    found = read(tmp_path / "events-0", "offset", "key", "value", "timestamp", "headers")
    assert [row[:3] for row in found] == [(0, b"k", b"v"), (1, b"", None), (2, None, b""), (3, b"k", b"v")]
    assert [int(row[3].timestamp() * 1000) for row in found] == [1, NOW_MS, 3, 1]
    assert [row[4] for row in found] == [[{"key": "h", "value": b"1"}], None, None, [{"key": "h", "value": b"1"}]]


def sparklog_headers() -> pa.DataType:
    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.lists(st.binary(max_size=400), max_size=12), max_size=4), min_size=1, max_size=4))
def test_whatever_is_appended_and_reopened_is_there(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[list[bytes]]]
) -> None:
    folder, appended = tmp_path_factory.mktemp("logs") / "events-0", list[bytes]()
    for run in runs:
        with opened(folder) as log:
            for values in run:
                assert log.append(table(list(values))) == (len(appended), len(appended) + len(values) - 1)
                appended += values
    assert read(folder) == appended
    assert findings(folder) == []


def test_segments_roll_by_size_index_and_time(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", segment_ms=1000, segment_bytes=1 << 20)
    with opened(tmp_path / "events-0", config) as log:
        for timestamp in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001):
            log.append(table([b"x"], timestamp=pa.array([timestamp])))
    bases = sorted(path.stem for path in (tmp_path / "events-0").glob("*.log"))
    assert [int(base) for base in bases] == [0, 2]
    assert (tmp_path / "events-0" / "00000000000000000002.snapshot").exists()
    assert findings(tmp_path / "events-0") == []


def test_preallocated_segment_is_cut_when_it_is_closed(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", segment_bytes=1 << 20, preallocate=True)
    log = opened(tmp_path / "events-0", config)
    log.append(table([b"x"]))
    path = tmp_path / "events-0" / "00000000000000000000.log"
    assert path.stat().st_size == 1 << 20
    assert read(tmp_path / "events-0") == [b"x"]
    log.close()
    log.close()
    assert path.stat().st_size < 100
    with pytest.raises(StorageError, match="is closed"):
        log.append(table([b"y"]))


def test_append_time_is_the_time_of_the_append(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    with opened(tmp_path / "events-0", config) as log:
        log.append(table([b"x"], timestamp=pa.array([5])))
    ((timestamp, kind),) = read(tmp_path / "events-0", "timestamp", "timestampType")
    assert (int(timestamp.timestamp() * 1000), kind) == (NOW_MS, 1)


def test_folder_is_one_writers(tmp_path: Path) -> None:
    with opened(tmp_path / "events-0"), opened(tmp_path / "events-1"):
        with pytest.raises(LockedError, match="open in this process already"):
            opened(tmp_path / "events-0")
        ask = f"import sparklog; sparklog.PartitionLog.open({str(tmp_path / 'events-2')!r}, lock_timeout_seconds=0.1)"
        refused = subprocess.run([sys.executable, "-c", ask], check=False, capture_output=True, text=True)
        assert "LockedError" in refused.stderr
    opened(tmp_path / "events-0").close()


def test_directory_of_a_running_broker_is_refused(tmp_path: Path) -> None:
    holding = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True)"
    command = [sys.executable, "-c", f"{holding}; time.sleep(60)", str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(BrokerRunningError):
            opened(tmp_path / "events-0")
        broker.kill()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_marker_of_a_clean_shutdown_is_gone_while_somebody_writes(tmp_path: Path) -> None:
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.write_text("{}")
    with opened(tmp_path / "events-0"):
        with opened(tmp_path / "events-1"):
            assert not marker.exists()
        assert not marker.exists()
    assert marker.read_text() == "{}"


@pytest.mark.parametrize("name", ["events", "events-x", "events-0.0-delete"])
def test_folder_must_be_named_for_a_partition(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidOptionError, match="<topic>-<partition>"):
        opened(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "rows", "message"),
    [
        (LogConfig(cleanup_policy=("compact",)), table([b"x"]), "have no key"),
        (LogConfig(), table([b"x"], timestamp=pa.array([NOW_MS + 3_600_001])), r"message\.timestamp\.after\.max\.ms"),
        (
            LogConfig(message_timestamp_before_max_ms=10),
            table([b"x"], timestamp=pa.array([NOW_MS - 11])),
            r"message\.timestamp\.before\.max\.ms",
        ),
        (LogConfig(), pa.table({"key": ["k"]}), "Required attribute 'value' not found"),
    ],
)
def test_record_that_a_broker_would_refuse_is_refused(
    tmp_path: Path, config: LogConfig, rows: pa.Table, message: str
) -> None:
    with opened(tmp_path / "events-0", config) as log:
        with pytest.raises(InvalidOptionError, match=message):
            log.append(rows)
        assert log.append(table([b"k"], key=pa.array(["k"]))) == (0, 0)


def test_record_that_is_too_large_is_refused_and_the_rest_with_it(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", max_message_bytes=1000)
    with opened(tmp_path / "events-0", config) as log:
        with pytest.raises(RecordTooLargeError):
            log.append(table([b"x", b"y" * 1000]))
        assert log.append(table([b"z"])) == (0, 0)
    assert read(tmp_path / "events-0") == [b"z"]


def test_metrics_count_appends_and_flushes(tmp_path: Path) -> None:
    with opened(tmp_path / "events-0") as log:
        assert log.metrics().appends == log.metrics().flushes == 0
        log.append(table([b"a", b"b"]))
        log.append(table([b"c"]))
        log.flush()
        found = log.metrics()
        assert (found.appends, found.records, found.batches, found.flushes) == (2, 3, 2, 1)
        assert found.bytes == (tmp_path / "events-0" / f"{0:020d}.log").stat().st_size
        assert found.flush_seconds == found.flush_seconds_max > 0


def test_batches_are_made_as_one_append_wishes(tmp_path: Path) -> None:
    with opened(tmp_path / "events-0") as log:
        log.append(table([b"a" * 1000]), config=LogConfig(compression_type="zstd"))
        log.append(table([b"b" * 1000]))
    found = sparklog.open_log(tmp_path / "events-0").read(columns=["compression"])
    assert found["compression"].to_pylist() == ["zstd", SMALL.codec]


def test_repeated_batch_of_an_idempotent_producer_is_appended_once(tmp_path: Path) -> None:
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    with opened(tmp_path / "events-0") as log:
        assert log.append(table([b"a", b"b"]), base_sequence=0, **producer) == (0, 1)
        assert log.append(table([b"c"]), base_sequence=2, **producer) == (2, 2)
        assert log.append(table([b"a", b"b"]), base_sequence=0, **producer) == (0, 1)
        with pytest.raises(InvalidOptionError, match="an epoch and a base sequence"):
            log.append(table([b"x"]), producer_id=7)
        with pytest.raises(InvalidOptionError, match="an epoch and a base sequence"):
            log.append(table([b"x"]), is_transactional=True)
        with pytest.raises(OutOfOrderSequenceError, match="must continue with sequence 3"):
            log.append(table([b"x"]), base_sequence=5, **producer)
    with opened(tmp_path / "events-0") as log:
        assert log.append(table([b"c"]), base_sequence=2, **producer) == (2, 2)
        assert log.append(table([b"d"]), base_sequence=0, producer_id=7, producer_epoch=1) == (3, 3)
        with pytest.raises(InvalidProducerEpochError, match="is fenced"):
            log.append(table([b"e"]), base_sequence=3, **producer)
    assert read(tmp_path / "events-0") == [b"a", b"b", b"c", b"d"]


def test_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the midst of an append that rolls."""
    whole = LocalWritableFile.append
    room = [3000]

    def append(file: LocalWritableFile, data: bytes | bytearray | memoryview) -> None:
        if file.path.endswith(".log"):
            if len(data) > room[0]:
                whole(file, memoryview(data)[: room[0]])
                raise StorageError("cannot write: the disk is full")
            room[0] -= len(data)
        whole(file, data)

    config = LogConfig(compression_type="uncompressed", segment_bytes=1 << 20, segment_index_bytes=48, batch_size=300)
    config = replace(config, index_interval_bytes=0)
    with opened(tmp_path / "events-0", config) as log:
        log.append(table([b"before"]))
        monkeypatch.setattr(LocalWritableFile, "append", append)
        with pytest.raises(StorageError, match="the disk is full"):
            log.append(table([b"x" * 200] * 40))
        monkeypatch.undo()
        assert log.append(table([b"after"])) == (1, 1)
    assert read(tmp_path / "events-0") == [b"before", b"after"]
    assert findings(tmp_path / "events-0") == []


def test_writer_that_dies_anywhere_loses_no_record_that_was_flushed(tmp_path: Path) -> None:
    values = [[b"first %d" % n for n in range(8)], [b"second"], [b"third %d" % n for n in range(8)]]
    config = replace(SMALL, segment_index_bytes=48)

    def prepare(folder: Path) -> None:
        with opened(folder / "events-0", config) as log:
            log.append(table([b"old"]))

    def run(storage: CrashingStorage, folder: Path) -> None:
        storage.reached = 0
        with opened(folder / "events-0", config, storage=storage) as log:
            for number, each in enumerate(values, 1):
                log.append(table(list(each)))
                log.flush()
                storage.reached = number

    refused = 0
    for crash in crashes(prepare, run, tmp_path, (*EVERY_LOSS, "pages", "pages")):
        folder = crash.folder / "events-0"
        try:
            opened(folder, config).close()
        except CorruptLogError:
            # Pages that are written in any order may leave a whole batch behind a hole, or one that is whole but for
            # its size: nobody cuts those off unasked.
            assert crash.loss == "pages", str(crash)
            reasons = ("the next whole batch begins", "its checksum is that of the bytes to the file's end")
            assert any(reason in each for each in findings(folder) for reason in reasons), str(crash)
            recover_log(folder_at(folder), config, NOW_MS, truncate=True)
            refused += 1
        with opened(folder, config) as log:
            log.append(table([b"new"]))
        found = read(folder)
        assert isinstance(crash.reached, int)
        flushed = [b"old", *(value for each in values[: crash.reached] for value in each)]
        every = [b"old", *(value for each in values for value in each)]
        assert found[: len(flushed)] == flushed, str(crash)
        assert found[-1] == b"new", str(crash)
        assert found[:-1] == every[: len(found) - 1], str(crash)
        assert findings(folder) == [], str(crash)
    assert refused


def test_eight_processes_append_to_the_same_partition(tmp_path: Path) -> None:
    append = """
import sys, pyarrow as pa, sparklog
for turn in range(5):
    with sparklog.PartitionLog.open(sys.argv[1]) as log:
        log.append(pa.table({"value": [f"{sys.argv[2]} {turn} {n}" for n in range(50)]}))
"""
    folder = tmp_path / "events-0"
    processes = [subprocess.Popen([sys.executable, "-c", append, str(folder), str(n)]) for n in range(8)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 8
    found = [value.decode() for value in read(folder)]
    assert sorted(found) == sorted(f"{p} {turn} {n}" for p in range(8) for turn in range(5) for n in range(50))
    for p in range(8):
        own = [value for value in found if value.startswith(f"{p} ")]
        assert own == [f"{p} {turn} {n}" for turn in range(5) for n in range(50)]
    assert findings(folder) == []


def test_topic_id_is_written_once(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    opened(folder, topic_id="Q2TYVrXaSDWPZ5lUZtm3Jg").close()
    assert (folder / "partition.metadata").read_text().endswith("topic_id: Q2TYVrXaSDWPZ5lUZtm3Jg")
    with pytest.raises(InvalidOptionError, match="topicId is"):
        opened(folder, topic_id="Q2TYVrXaSDWPZ5lUZtm3Jh")
    opened(folder).close()


def test_storage_is_left_open_for_nobody(tmp_path: Path) -> None:
    """The lock is let go of where opening fails, too."""
    (tmp_path / "events-0").mkdir()
    (tmp_path / "events-0" / "partition.metadata").write_bytes(b"?")
    with pytest.raises(sparklog.errors.CorruptLogError):
        opened(tmp_path / "events-0", topic_id="Q2TYVrXaSDWPZ5lUZtm3Jg")
    LocalWritableStorage().lock(str(tmp_path / ".lock"), 0.1).close()


@pytest.mark.parametrize("is_full", [False, True], ids=["once", "full"])
def test_error_of_an_append_at_any_call_says_what_is_visible(tmp_path: Path, is_full: bool) -> None:
    """And that is so; doing as the sentence says gives every record once."""
    config = replace(SMALL, segment_index_bytes=48, flush_messages=3)
    values, fail_at, seen = [[b"a"] * 2, [b"b"] * 12, [b"c"]], 0, set()
    while True:
        fail_at += 1
        root = tmp_path / f"at-{fail_at}"
        folder = root / "events-0"
        with opened(folder, config) as log:
            log.append(table([b"old"]))
        storage, there, said = FailingStorage(root, fail_at, is_full=is_full), [b"old"], ""
        try:
            log = opened(folder, config, storage=storage)
        except SeglogError:
            assert read(folder) == there
            continue
        for each in values:
            try:
                log.append(table(list(each)))
                there += each
            except SeglogError as error:
                seen.add(error.outcome)
                there += each if error.outcome == ALL_VISIBLE else []
            assert read(folder) == there, storage.calls[-1]
        try:
            log.close()
        except SeglogError as error:
            said = error.outcome
            seen.add(said)
        assert said in ("", ALL_VISIBLE)
        assert read(folder) == there, storage.calls[-1]
        with opened(folder, config) as log:
            assert log.end_offset == len(there)
        assert findings(folder) == []
        if not storage.has_failed:
            break
    assert seen == {NOTHING_VISIBLE, ALL_VISIBLE}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"timestamp": pa.array([1], pa.date32())}, r"timestamp attribute unsupported type date32\[day\]"),
        ({"timestamp": pa.array(["1"])}, "timestamp attribute unsupported type string"),
        ({"timestamp": pa.nulls(1)}, "timestamp attribute unsupported type null"),
        ({"timestamp": pa.array([1], pa.uint64())}, "timestamp attribute unsupported type uint64"),
        ({"timestamp": pa.array([2**62], pa.timestamp("s"))}, "timestamp of row 0 is 4611686018427387904 s"),
        ({"timestamp": pa.array([-500], pa.timestamp("us"))}, "which is -1 ms"),
        ({"key": pa.array([1], pa.uint64())}, "key attribute unsupported type uint64"),
    ],
)
def test_columns_of_wrong_types_are_named_and_nothing_is_written(
    tmp_path: Path, columns: dict[str, pa.Array], message: str
) -> None:
    with opened(tmp_path / "events-0") as log:
        with pytest.raises(InvalidOptionError, match=message):
            log.append(table([b"x"], **columns))
        with pytest.raises(InvalidOptionError, match="there are 2 columns 'value', of types binary and string"):
            log.append(pa.table([pa.array([b"x"]), pa.array(["y"])], names=["value", "value"]))
        assert log.append(table([b"x"])) == (0, 0)
    assert len(read(tmp_path / "events-0", "value")) == 1


def test_snapshot_of_a_roll_has_the_batches_that_the_same_append_wrote_before_it(tmp_path: Path) -> None:
    folder, one_batch_a_segment = tmp_path / "events-0", replace(SMALL, segment_bytes=500)
    with opened(folder, one_batch_a_segment) as log:
        log.append(table([b"v" * 280] * 3), producer_id=7, producer_epoch=0, base_sequence=0)
    for offset in (1, 2, 3):
        path = folder / offset_file_name(offset, SNAPSHOT)
        assert Producers.parse(path.read_bytes(), str(path)).entries[7].last_sequence == offset - 1


def test_record_without_a_timestamp_is_not_too_early(tmp_path: Path) -> None:
    config = replace(SMALL, message_timestamp_before_max_ms=1000)
    with opened(tmp_path / "events-0", config) as log:
        log.append(table([b"v", b"v"], timestamp=pa.array([-1, NOW_MS - 1000], pa.int64())))
        with pytest.raises(InvalidOptionError, match="1001 ms from now"):
            log.append(table([b"v", b"v"], timestamp=pa.array([-1, NOW_MS - 1001], pa.int64())))
