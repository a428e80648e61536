"""In which files records come to lie, also where their times and the names of their topics are odd."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from sparklog.errors import CorruptBatchError
from sparklog.jobs.targets import outputs
from sparklog.record.decode.columns import DecodeLimits
from tests.build import Record, legacy_message, v2_batch, write_partition
from tests.jobs.tables import append, files, moved_to, rows

HOUR_MS = 3600 * 1000
NO_TIME = "__HIVE_DEFAULT_PARTITION__"


def write_times(folder: Path, *times: int) -> None:
    records = [Record(at, time, value=str(time).encode()) for at, time in enumerate(times)]
    write_partition(folder, [v2_batch(records)])


def by_folder(path: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in files(path):
        values = [int(value) for value in pq.ParquetFile(path / name).read().column("value").to_pylist()]
        found.setdefault(name.rpartition("/")[0], []).extend(values)
    return found


def test_records_without_a_time_that_a_table_can_hold_have_a_folder_of_their_own(tmp_path: Path) -> None:
    microseconds = 1_700_000_000_000_000
    write_times(tmp_path / "logs" / "a-0", -1, 0, microseconds, 1_700_000_000_000)
    moved_to(tmp_path / "out", source=tmp_path / "logs", partition_by=["date", "hour"])
    assert by_folder(tmp_path / "out") == {
        f"date={NO_TIME}/hour={NO_TIME}": [-1, microseconds],
        "date=1970-01-01/hour=00": [0],
        "date=2023-11-14/hour=22": [1_700_000_000_000],
    }


def test_records_of_magic_0_have_no_date(tmp_path: Path) -> None:
    write_partition(tmp_path / "logs" / "a-0", [legacy_message(0, None, b"5", magic=0)])
    moved_to(tmp_path / "out", source=tmp_path / "logs", partition_by=["date"])
    assert by_folder(tmp_path / "out") == {f"date={NO_TIME}": [5]}


def test_times_in_no_order_do_not_open_more_files_than_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "OPEN_FILES_MAX", 3)
    times = [hour * HOUR_MS + part for part in range(4) for hour in range(5)]
    for start in range(0, len(times), 5):
        records = [Record(at, time, value=str(time).encode()) for at, time in enumerate(times[start : start + 5])]
        batch = v2_batch(records, base_offset=start)
        write_partition(tmp_path / "logs" / "a-0", [batch], base_offset=start)
    moved_to(tmp_path / "out", source=tmp_path / "logs", partition_by=["hour"])
    found = by_folder(tmp_path / "out")
    assert found == {f"hour={hour:02}": [hour * HOUR_MS + part for part in range(4)] for hour in range(5)}


def test_a_folder_that_comes_again_gets_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "OPEN_FILES_MAX", 1)
    # A batch that is decoded at once is sorted by its folders, and so there have to be several.
    monkeypatch.setattr("sparklog.jobs.export.job._LIMITS", DecodeLimits(chunk_bytes=1, output_bytes_max=1))
    for number in range(4):
        time = (number % 2) * HOUR_MS + number
        record = Record(0, time, value=str(time).encode() * 1000)
        write_partition(tmp_path / "logs" / "a-0", [v2_batch([record], base_offset=number)], base_offset=number)
    moved_to(tmp_path / "out", source=tmp_path / "logs", partition_by=["hour"])
    stem = f"a-0-{0:020}-{4:020}"
    assert files(tmp_path / "out") == [
        f"hour={hour:02}/{stem}{again}.parquet" for hour in range(2) for again in ("", "~0001")
    ]
    assert [row["offset"] for row in rows(tmp_path / "out")] == [0, 2, 1, 3]


@pytest.mark.parametrize(("topic", "visible"), [("_schemas", "%5Fschemas"), (".odd", "%2Eodd")])
def test_files_of_topics_that_readers_of_tables_would_pass_over_are_seen(
    tmp_path: Path, topic: str, visible: str
) -> None:
    append(tmp_path / "logs" / f"{topic}-0", "a")
    moved_to(tmp_path / "out", source=tmp_path / "logs", partition_by=[])
    assert files(tmp_path / "out") == [f"{visible}-0-{0:020}-{1:020}.parquet"]
    with duckdb.connect() as connection:
        found = connection.execute(f"select topic from '{tmp_path}/out/*.parquet'").fetchall()
    assert found == [(topic,)]


def test_damage_in_one_partition_of_a_task_does_not_keep_the_others_of_it(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    for partition in range(4):
        append(logs / f"a-{partition}", f"value {partition}")
    segment = logs / "a-1" / f"{0:020}.log"
    sound = segment.read_bytes()
    segment.write_bytes(sound[:-3] + b"xyz" + v2_batch([Record(value=b"later")], base_offset=1))
    with pytest.raises(CorruptBatchError) as caught:
        moved_to(out, source=logs)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (str(segment), 0, 0)
    assert "in a-1 [0, 2)" in caught.value.__notes__
    assert [row["value"] for row in rows(out)] == [b"value 0", b"value 2", b"value 3"]
    segment.write_bytes(sound)
    assert moved_to(out, source=logs).rows == 1
    assert [row["value"] for row in rows(out)] == [b"value 0", b"value 1", b"value 2", b"value 3"]
