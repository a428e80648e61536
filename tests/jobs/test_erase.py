"""Keys are erased from all logs of a directory, logs are converted, and killed anywhere a rerun finishes it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import sparklog
from sparklog.cleaner.erasure import ErasurePass
from sparklog.errors import InputFileError, InvalidOptionError, SeglogError
from sparklog.inspect.absent import verify_absent, verify_absent_beside
from sparklog.inspect.verify_segment import Finding
from sparklog.jobs.clean.arguments import clean
from sparklog.jobs.clean.job import CleanJob
from sparklog.jobs.clean.keys import read_keys
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.topic.write.commit import commit
from sparklog.write.partition import LogWriter
from sparklog.write.running_jobs import new_job
from tests import build
from tests.build import Record
from tests.cleaner.logs import NOW_MS, findings, names
from tests.oracle import OracleBatch, decode_log
from tests.places import directory_at, folder_at
from tests.storage.crash import CrashingStorage, crashes
from tests.topic.staged import rows, stage

AT_ONCE = {"file.delete.delay.ms": "0"}
KEYS = [b"k%d" % n for n in range(0, 60, 7)]


def write(folder: Path, **fields: Any) -> None:
    batches = [
        build.v2_batch(
            [Record(n, 1000 + first + n, b"k%d" % (first + n), b"value", [("h", b"x")]) for n in range(5)],
            base_offset=first,
            **fields,
        )
        for first in range(0, 60, 5)
    ]
    build.write_partition(folder, batches, segment_bytes=2 * max(map(len, batches)), index_interval_bytes=100)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path / "events-0", codec="lz4")
    write(tmp_path / "orders-0")
    return tmp_path


def batches_of(folder: Path) -> list[OracleBatch]:
    return [batch for path in sorted(folder.glob("*.log")) for batch in decode_log(path.read_bytes())]


def offsets(folder: Path) -> list[int]:
    return [record.offset for batch in batches_of(folder) for record in batch.records]


def remnants(folder: Path) -> list[Finding]:
    return [each for each in verify_absent(read_keys(KEYS), folder_at(folder)) if isinstance(each, Finding)]


def all_remnants(directory: Path, *partitions: str) -> dict[str, str]:
    """Return what a whole directory still has of the keys: files by their names, and codes."""
    keys = read_keys(KEYS)
    events = [
        event for name in partitions for event in verify_absent(keys, folder_at(directory / name), looks_aside=False)
    ]
    events += verify_absent_beside(keys, directory_at(directory))
    return {str(Path(each.path).relative_to(directory)): each.code for each in events if isinstance(each, Finding)}


def test_keys_are_found_and_erased_in_what_is_no_log_any_more(directory: Path) -> None:
    """Deleted topics are looked into whether or not their partitions are there; a write has staged such a record."""
    kept = directory / "kept-0.0123456789abcdef-stray"
    for gone in ("deleted-0.0123456789abcdef0123456789abcdef-delete", "events-0.0123456789abcdef-delete", kept.name):
        write(directory / "passing-0")
        (directory / "passing-0").rename(directory / gone)
    job, runs = stage(
        directory, [rows(["value"], key=[b"k7"], partition=[0])], partitions=1, job_id=new_job(wall_clock_ms())
    )
    other, other_runs = stage(
        directory, [rows(["value"], key=[b"other"], partition=[0])], partitions=1, job_id=new_job(wall_clock_ms())
    )
    before = all_remnants(directory, "events-0", "orders-0")
    assert {str(Path(name).parent) for name in before} == {
        ".", "events-0", "orders-0", kept.name,
        "deleted-0.0123456789abcdef0123456789abcdef-delete", "events-0.0123456789abcdef-delete",
    }  # fmt: skip
    assert set(before.values()) == {"present"}
    would = clean(directory, erase=KEYS, config=AT_ONCE, processes=1, dry_run=True)
    assert all_remnants(directory, "events-0", "orders-0") == before
    done = clean(directory, erase=KEYS, config=AT_ONCE, processes=1)
    assert done.removed == would.removed
    assert [Path(path).name.rpartition("-")[2].rpartition(".")[2] for path in done.removed] == ["delete"] * 2 + [
        "staged"
    ]
    assert {str(Path(name).parent) for name in all_remnants(directory, "events-0", "orders-0")} == {kept.name}
    with pytest.raises(SeglogError):
        commit(job, runs, wall_clock_ms())
    commit(other, other_runs, wall_clock_ms())
    assert offsets(directory / "events-0") == [*LEFT, 60]


def test_only_deleted_folders_of_the_topics_that_are_named_go(directory: Path) -> None:
    for topic in ("events", "orders"):
        (directory / f"{topic}-1.0123456789abcdef-delete").mkdir()
    found = clean(directory, topics="events", erase_where="key = 'k7'", config=AT_ONCE, processes=1)
    assert found.removed == (str(directory / "events-1.0123456789abcdef-delete"),)
    assert (directory / "orders-1.0123456789abcdef-delete").exists()
    assert clean(directory, config=AT_ONCE, processes=1).removed == ()


LEFT = [n for n in range(60) if n % 7]


def test_keys_go_from_every_segment_the_active_one_included(directory: Path) -> None:
    found = clean(directory, erase=KEYS, config=AT_ONCE, processes=1)
    for name in ("events-0", "orders-0"):
        assert offsets(directory / name) == LEFT
        assert remnants(directory / name) == []
        assert findings(directory / name) == []
    assert [(each.topic, each.erased) for each in found.partitions] == [
        (topic, tuple((n, n) for n in range(0, 60, 7))) for topic in ("events", "orders")
    ]
    assert {each.removed_records for each in found.partitions} == {9}
    again = clean(directory, erase=KEYS, config=AT_ONCE, processes=1)
    assert {each.erased for each in again.partitions} == {()}
    with LogWriter.open(directory / "events-0") as log:
        assert log.append(pa.table({"value": [b"after"]})) == (60, 60)


def test_dry_run_says_what_would_go_of_the_active_segment_too(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    found = clean(directory, erase=KEYS, dry_run=True, processes=1)
    assert [each.erased_records for each in found.partitions] == [9, 9]
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_old_files_stay_for_a_while_and_the_proof_says_so(directory: Path) -> None:
    clean(directory, erase=KEYS, processes=1)
    left = remnants(directory / "events-0")
    assert left
    assert all(each.path.endswith(".log.deleted") and each.code == "present" for each in left)


def test_filter_erases_what_passes_and_blank_keeps_the_records(directory: Path) -> None:
    where = "topic = 'events' AND (key = 'k3' OR offset >= 58)"
    found = clean(directory, erase_where=where, blank="empty", processes=1)
    assert [(each.topic, each.erased) for each in found.changed] == [("events", ((3, 3), (58, 59)))]
    records = [record for batch in batches_of(directory / "events-0") for record in batch.records]
    assert [record.offset for record in records if record.value == b""] == [3, 58, 59]
    assert len(records) == 60


def test_logs_are_recompressed(directory: Path) -> None:
    clean(directory, recompress="zstd", processes=1)
    for name in ("events-0", "orders-0"):
        assert {batch.codec for batch in batches_of(directory / name)} == {"zstd"}
        assert offsets(directory / name) == list(range(60))
        assert findings(directory / name) == []
    assert not clean(directory, recompress="zstd", processes=1).changed


def test_conversion_that_loses_something_is_refused_and_changes_nothing(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*.log")}
    with pytest.raises(InvalidOptionError, match="in format 1 would lose 60 headers: allow a lossy conversion"):
        clean(directory, format=1, processes=1)
    assert {path: path.read_bytes() for path in before} == before
    found = clean(directory, format=1, lossy=True, processes=1)
    assert {each.lost for each in found.partitions} == {"60 headers"}
    for name in ("events-0", "orders-0"):
        assert {batch.magic for batch in batches_of(directory / name)} == {1}
        assert offsets(directory / name) == list(range(60))
        assert findings(directory / name) == []
    clean(directory, format=2, recompress="gzip", processes=1)
    assert {(batch.magic, batch.codec) for batch in batches_of(directory / "orders-0")} == {(2, "gzip")}
    assert offsets(directory / "orders-0") == list(range(60))


def test_last_messages_that_are_erased_leave_the_end_of_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    build.write_partition(folder, [build.legacy_message(n, b"k%d" % n, b"v") for n in range(5)])
    clean(folder, erase=[b"k3", b"k4"], config=AT_ONCE, processes=1)
    assert offsets(folder) == [0, 1, 2]
    with LogWriter.open(folder) as log:
        assert log.append(pa.table({"value": [b"after"]})) == (5, 5)


def test_aborted_records_do_not_come_back_in_a_format_without_transactions(tmp_path: Path) -> None:
    def data(first: int, producer: int) -> bytes:
        records = [Record(n, 0, b"k", b"v") for n in range(2)]
        fields: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
        return build.v2_batch(records, base_offset=first, producer_id=producer, **fields)

    folder = tmp_path / "events-0"
    pieces = [data(0, 1), data(2, 2), build.control_batch("abort", 4, 1), build.control_batch("commit", 5, 2)]
    build.write_partition(folder, pieces, segment_bytes=len(pieces[0]))
    waits = "4 sequences, 2 control batches, the batch at its end: a consumer waits before the end of the log"
    with pytest.raises(InvalidOptionError, match=waits):
        clean(folder, format=1, processes=1)
    (done,) = clean(folder, format=1, lossy=True, processes=1).partitions
    assert done.removed_records == 2
    assert done.lost.startswith(waits)
    assert offsets(folder) == [2, 3]
    with sparklog.open_log(folder) as log:
        assert log.end_offset == 6
    open_folder = tmp_path / "open-0"
    build.write_partition(open_folder, [data(0, 1)])
    with pytest.raises(InvalidOptionError, match="a transaction is open at offset 0"):
        clean(open_folder, format=0, lossy=True, processes=1)
    assert offsets(open_folder) == [0, 1]


def test_crash_at_any_call_and_a_rerun_erase_all(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        write(folder / "events-0", codec="lz4")

    def run(storage: CrashingStorage, folder: Path) -> None:
        at = folder_at(folder / "events-0", storage)
        job = CleanJob(
            directory=directory_at(folder, storage),
            folders=(at,),
            config=LogConfig.from_properties(AT_ONCE),
            run_id=new_job(NOW_MS),
            now_ms=NOW_MS,
            passes=(ErasurePass(read_keys(KEYS)),),
        )
        run_job(job, LocalRunner(1))

    seen = set()
    for crash in crashes(prepare, run, tmp_path):
        folder = crash.folder / "events-0"
        with sparklog.open_log(folder) as log:
            left = log.read(columns=["offset"])["offset"].to_pylist()
            assert log.end_offset == 60, str(crash)
        assert set(LEFT) <= set(left), str(crash)
        seen.add(len(left))
        clean(folder, erase=KEYS, config=AT_ONCE, processes=1)
        assert offsets(folder) == LEFT, str(crash)
        assert remnants(folder) == [], str(crash)
        assert findings(folder) == [], str(crash)
        assert not [name for name in names(folder) if name.endswith((".cleaned", ".swap", ".deleted"))], str(crash)
    assert len(seen) > 3


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_keys_come_from_parquet(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "gone.parquet"
    keys = pa.array(["007", "é"]).cast(kind) if kind != pa.binary() else pa.array([b"007", "é".encode()])
    pyarrow.parquet.write_table(pa.table({"id": [1, 2], "key": keys}), path)
    found = read_keys(str(path))
    assert found.octets.tobytes() == "007é".encode()
    pyarrow.parquet.write_table(pa.table({"user": keys}), path)
    assert read_keys(path).count == 2


def test_keys_come_from_csv_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "gone.csv"
    path.write_text('id,key\n1,007\n2,"a,""b"\n3,NULL\n4,\n5,1e3\n')
    found = read_keys(path)
    borders = found.borders.tolist()
    octets = found.octets.tobytes()
    keys = [octets[start:end] for start, end in itertools.pairwise(borders)]
    assert keys == [b"007", b'a,"b', b"NULL", b"", b"1e3"]


def test_files_that_name_no_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gone.csv"
    path.write_text("user-1\nuser-2\n")
    with pytest.raises(InvalidOptionError, match=r"first line is 'user-1', and must name one column key"):
        read_keys(path)
    path.write_text("key\n")
    with pytest.raises(InvalidOptionError, match="no keys are given"):
        read_keys(path)
    path.write_bytes(b"PAR1 no parquet")
    with pytest.raises(InputFileError, match="cannot be read as keys"):
        read_keys(path)
    pyarrow.parquet.write_table(pa.table({"a": ["x"], "b": ["y"]}), path)
    with pytest.raises(InvalidOptionError, match=r"none of its columns a, b is named key"):
        read_keys(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blank": "null"}, "say what by erase or erase_where"),
        ({"blank": "x", "erase": [b"k"]}, "must be one of null, empty"),
        ({"recompress": "brotli"}, "must be one of none, gzip"),
        ({"format": 3}, "must be one of 0, 1 and 2"),
        ({"format": 1, "recompress": "zstd"}, "format 1 does not have the codec zstd"),
        ({"lossy": True, "format": 2}, "lossy allows the losses of formats 0 and 1"),
    ],
)
def test_options_that_contradict_each_other_are_refused(directory: Path, options: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        clean(directory, **options)
