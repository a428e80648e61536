"""Loads: what is in the logs afterwards, what the ledger remembers, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.errors import (
    InputFileError,
    InvalidOptionError,
    LockedError,
    PathNotFoundError,
    RecordTooLargeError,
    SeglogError,
)
from sparklog.jobs.run.job import Amount
from sparklog.storage.local_writing import LocalWritableStorage
from tests.jobs.loads import (
    HEADERS,
    leftovers,
    load_job,
    records,
    run,
    strings,
    values,
    write_arrow,
    write_parquet,
    write_stream,
)
from tests.topic.staged import findings, write
from tests.topic.staged import rows as rows_of

keys = st.none() | st.binary(max_size=8)
record = st.fixed_dictionaries(
    {
        "key": keys,
        "value": keys,
        "headers": st.none() | st.lists(st.tuples(st.text(max_size=3), keys), min_size=1, max_size=2),
        "timestamp": st.integers(0, 1_700_000_000_000),
    }
)
SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS), ("timestamp", pa.timestamp("ms", "UTC"))]
)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    headers = row["headers"]
    return {**row, "headers": None if headers is None else [{"key": key, "value": value} for key, value in headers]}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(record, max_size=5), min_size=1, max_size=4), st.sampled_from([write_parquet, write_arrow]))
def test_what_was_loaded_is_read_in_the_order_of_files_and_rows(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[dict[str, Any]]], write: Any
) -> None:
    folder = tmp_path_factory.mktemp("load")
    for number, rows in enumerate(files):
        table = pa.Table.from_pylist([plain(row) for row in rows], SCHEMA)
        write(folder / f"{number}.{'parquet' if write is write_parquet else 'arrow'}", table)
    found = sparklog.load(f"{folder}/*", folder / "_logs", topic="t", num_partitions=1, processes=1)
    wanted = [plain(row) for rows in files for row in rows]
    assert found.records == len(wanted)
    assert [(each.rows) for each in found.files] == [len(rows) for rows in files]
    read = records(folder / "_logs" / "t-0", "key", "value", "headers", "timestamp")
    times = [row.pop("timestamp") for row in read]
    assert [each.timestamp() * 1000 for each in times] == pytest.approx([row.pop("timestamp") for row in wanted])
    assert read == wanted
    assert findings(folder / "_logs") == []


def test_files_of_every_kind_go_to_the_partitions_that_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.jobs.load.plan._TASK_BYTES_MIN", 1)
    folder = tmp_path / "in" / "topic=a" / "partition=1"
    folder.mkdir(parents=True)
    write_parquet(folder / "1.parquet", strings(["p"]))
    write_stream(folder / "2.arrows", strings(["s"], key=["k"]))
    (folder / "3.csv").write_text("value,timestamp\nc,2026-01-31T00:00:00+01:00\n")
    (folder / "4.json").write_text('{"value":"j","timestamp":"17"}\n')
    write_arrow(tmp_path / "in" / "b.arrow", strings(["b"], topic=["b"], partition=pa.array([0], pa.int64())))
    found = sparklog.load(tmp_path / "in", tmp_path / "logs", num_partitions=2, processes=2)
    assert [(each.topic, each.partition, each.records) for each in found.partitions] == [("a", 1, 4), ("b", 0, 1)]
    assert values(tmp_path / "logs" / "a-1") == [b"p", b"s", b"c", b"j"]
    times = [each["timestamp"] for each in records(tmp_path / "logs" / "a-1", "timestamp")]
    assert times[2] == dt.datetime(2026, 1, 30, 23, tzinfo=dt.UTC)
    assert times[3] == dt.datetime(1970, 1, 1, 0, 0, 0, 17_000, tzinfo=dt.UTC)
    assert times[0] > dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_row_groups_of_a_file_keep_their_order_over_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.jobs.load.plan._TASK_BYTES_MIN", 1)
    write_parquet(tmp_path / "a.parquet", strings([f"{n}" for n in range(1000)]), row_group_size=90)
    write_parquet(tmp_path / "b.parquet", strings([f"{n}" for n in range(1000, 1010)]))
    job = load_job([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "logs", partitions=1)
    with job.held():
        tasks = job.plan()
    assert len(tasks) > 3
    assert tasks[1].name.startswith(f"{tmp_path}/a.parquet, row groups ")
    assert sum(task.size_bytes for task in tasks) <= sum(
        (tmp_path / name).stat().st_size for name in ("a.parquet", "b.parquet")
    )
    summary = run(load_job([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "logs", partitions=1))
    assert values(tmp_path / "logs" / "events-0") == [f"{n}".encode() for n in range(1000 + 10)]
    assert [each.rows for each in summary.files] == [1000, 10]


def test_tasks_have_about_as_many_bytes_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.jobs.load.plan._TASK_BYTES_MIN", 1)
    rng = random.Random(1)
    for name, rows in (("a", 4000), ("b", 1500), ("c", 1500), ("d", 50)):
        write_parquet(
            tmp_path / f"{name}.parquet", strings([rng.randbytes(50).hex() for _ in range(rows)]), row_group_size=100
        )
    job = load_job([tmp_path], tmp_path / "_logs", partitions=1, workers=3)
    with job.held():
        tasks = job.plan()
    sizes = [task.size_bytes for task in tasks]
    assert len(tasks) == 6
    assert max(sizes) < 1.2 * min(sizes)
    assert sum(sizes) == sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    assert run(load_job([tmp_path], tmp_path / "_logs", partitions=1, workers=3)).records == 7050


def test_files_that_reach_a_little_into_another_task_are_not_opened_to_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.jobs.load.plan._TASK_BYTES_MIN", 1)
    monkeypatch.setattr("sparklog.jobs.load.plan.read_footer", None)
    for number in range(8):
        write_parquet(tmp_path / f"{number}.parquet", strings(["x" * number] * 1000), row_group_size=100)
    job = load_job([tmp_path], tmp_path / "_logs")
    with job.held():
        assert [len(task.parts) for task in job.plan()] == [2, 2, 2, 2]


def test_json_of_other_columns_becomes_the_value(tmp_path: Path) -> None:
    times = pa.array([1, 2], pa.timestamp("s"))
    table = pa.table({"id": [1, 2], "user": ["a", None], "at": times, "l": [[1], []]})
    write_parquet(tmp_path / "a.parquet", table)
    sparklog.load(
        tmp_path / "a.parquet", tmp_path / "logs", topic="t", num_partitions=1, key="user", timestamp="at",
        value_json=True,
    )  # fmt: skip
    found = records(tmp_path / "logs" / "t-0", "key", "value", "timestamp")
    assert [json.loads(each["value"]) for each in found] == [{"id": 1, "l": [1]}, {"id": 2, "l": []}]
    assert [each["key"] for each in found] == [b"a", None]
    assert [each["timestamp"].second for each in found] == [1, 2]


def test_lines_of_json_become_values_as_they_are(tmp_path: Path) -> None:
    lines = ['{"id": "7", "n": 1.0}', '{"n":12345678901234567890123,"id":null}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    sparklog.load(tmp_path / "a.jsonl", tmp_path / "logs", key="id", value_json=True, topic="t", num_partitions=1)
    found = records(tmp_path / "logs" / "t-0", "key", "value")
    assert found == [{"key": b"7", "value": lines[0].encode()}, {"key": None, "value": lines[1].encode()}]


def test_a_rerun_loads_only_what_is_new(tmp_path: Path) -> None:
    logs = tmp_path / "logs"

    def load(**options: Any) -> sparklog.jobs.load.job.LoadSummary:
        return sparklog.load(tmp_path / "in", logs, topic="t", num_partitions=1, processes=1, **options)

    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in" / "a.parquet", strings(["a"]))
    assert load().records == 1
    write_parquet(tmp_path / "in" / "b.parquet", strings(["b", "c"]))
    found = load()
    assert (found.records, found.skipped) == (2, (f"{tmp_path}/in/a.parquet",))
    assert (found.partitions[0].first_offset, found.partitions[0].last_offset) == (1, 2)
    nothing = load()
    assert (nothing.records, nothing.partitions, len(nothing.skipped)) == (0, (), 2)
    assert load(again=True).records == 3
    assert values(logs / "t-0") == [b"a", b"b", b"c", b"a", b"b", b"c"]
    assert leftovers(logs) == []
    # Another topic has not had them.
    assert sparklog.load(tmp_path / "in", logs, topic="u", num_partitions=1).records == 3


def test_a_file_that_has_changed_since_it_was_loaded_is_refused(tmp_path: Path) -> None:
    path, logs = tmp_path / "a.parquet", tmp_path / "logs"
    write_parquet(path, strings(["a"]))
    sparklog.load(path, logs, topic="t", num_partitions=1)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InvalidOptionError, match=r"a.parquet was loaded before, with 1 rows.*again=True"):
        sparklog.load(path, logs, topic="t")
    assert sparklog.load(path, logs, topic="t", again=True).records == 1
    assert values(logs / "t-0") == [b"a", b"a"]


def test_columns_that_are_missing_in_some_files_are_null(tmp_path: Path) -> None:
    write_parquet(tmp_path / "1.parquet", strings(["a"]))
    write_parquet(tmp_path / "2.parquet", strings(["b"], user=pa.array(["u"], pa.large_string())))
    (tmp_path / "3.csv").write_text("value\nc\n")
    sparklog.load(tmp_path, tmp_path / "_logs", topic="t", num_partitions=1, key="user", processes=1)
    found = [(each["key"], each["value"]) for each in records(tmp_path / "_logs" / "t-0")]
    assert found == [(None, b"a"), (b"u", b"b"), (None, b"c")]


@pytest.mark.parametrize(
    ("second", "options", "error", "message"),
    [
        ({"x": ["b"]}, {}, InputFileError, r"2.parquet has no column 'value' for the value of records; it has x"),
        ({"value": [1]}, {}, InputFileError, r"column 'value' of .*2.parquet cannot be the value.*type int64"),
        ({"value": ["b"], "key": [1.5]}, {}, InputFileError, r"column 'key' of .*2.parquet cannot be the key.*double"),
        ({"value": ["b"], "timestamp": ["noon"]}, {}, InputFileError, r"column 'timestamp' of .*2.parquet.*noon"),
        ({"value": ["b"], "headers": ["h"]}, {}, InputFileError, r"column 'headers' of .*2.parquet.*headers must be"),
        ({"value": ["b"], "partition": [1 << 40]}, {}, InputFileError, r"column 'partition' of .*2.parquet"),
        ({"value": ["b"], "partition": [2]}, {}, InvalidOptionError, r"says 2 .* partitions are 0 to 1"),
        ({"value": ["b"]}, {"key": "usr"}, InvalidOptionError, r"no file has a column 'usr', .* the key of records"),
        ({"value": ["b"]}, {"topic": None}, InputFileError, r"1.parquet has no column 'topic' that says the topic"),
        ({"value": [True]}, {"value_json": True}, InputFileError, r"'value' is true or false in .*2.parquet, and text"),
        ({"value": ["b"]}, {"format": "orc"}, InvalidOptionError, r"format must be one of parquet"),
        ({"value": ["b"]}, {"value": None}, InvalidOptionError, r"records need a value"),
        ({"value": ["b"]}, {"key": "value"}, InvalidOptionError, r"'value' is to be both key and value"),
        ({"value": ["b"]}, {"config": {"no.such": "1"}}, InvalidOptionError, r"no topic property 'no.such'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_names_file_and_column_and_nothing_is_visible(
    tmp_path: Path, second: dict[str, Any], options: dict[str, Any], error: type[SeglogError], message: str
) -> None:
    write_parquet(tmp_path / "1.parquet", strings(["a"]))
    write_parquet(tmp_path / "2.parquet", pa.table(second))
    with pytest.raises(error, match=message):
        sparklog.load(f"{tmp_path}/*.parquet", tmp_path / "logs", **{"topic": "t", "num_partitions": 2, **options})
    if (tmp_path / "logs").exists():
        assert leftovers(tmp_path / "logs") == []
        assert [path.name for path in (tmp_path / "logs").iterdir() if path.is_dir()] == []


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("value,value\n1,2\n")
    with pytest.raises(InputFileError, match=r"a.csv has more than one column 'value'"):
        sparklog.load(tmp_path / "a.csv", tmp_path / "logs", topic="t", num_partitions=1)


@pytest.mark.parametrize("processes", [0, 2])
def test_a_damaged_file_leaves_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr("sparklog.jobs.load.plan._TASK_BYTES_MIN", 1)
    for number in range(4):
        write_parquet(tmp_path / f"{number}.parquet", strings([f"{number}"] * 1000))
    (tmp_path / "2.parquet").write_bytes((tmp_path / "2.parquet").read_bytes()[:-20])
    with pytest.raises(InputFileError, match=r"2.parquet cannot be read as parquet") as caught:
        run(load_job([tmp_path], tmp_path / "_logs"), processes=processes)
    assert any(note.startswith("in ") for note in caught.value.__notes__)
    assert leftovers(tmp_path / "_logs") == []
    write_parquet(tmp_path / "2.parquet", strings(["2"] * 1000))
    assert run(load_job([tmp_path], tmp_path / "_logs")).records == 4000


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(PathNotFoundError, match="no file to load in"):
        sparklog.load(tmp_path / "a.csv", tmp_path / "logs", topic="t", num_partitions=1)
    with pytest.raises(PathNotFoundError, match=r"b.csv"):
        sparklog.load(tmp_path / "b.csv", tmp_path / "logs", topic="t", num_partitions=1)


def test_no_rows_make_the_topic_and_are_remembered(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", strings(["a"]).slice(1))
    (tmp_path / "b.csv").write_text("")
    found = sparklog.load(f"{tmp_path}/*.*", tmp_path / "logs", topic="t", num_partitions=2)
    assert (found.records, [each.rows for each in found.files]) == (0, [0, 0])
    assert [values(tmp_path / "logs" / f"t-{n}") for n in range(2)] == [[], []]
    assert len(sparklog.load(f"{tmp_path}/*.*", tmp_path / "logs", topic="t").skipped) == 2


def test_a_value_of_a_hundred_megabytes_is_loaded_where_the_topic_takes_it(tmp_path: Path) -> None:
    large = b"v" * 100_000_000
    config = {"compression.type": "uncompressed"}
    write_parquet(tmp_path / "a.parquet", pa.table({"value": [b"a", large, b"b"]}))
    with (tmp_path / "b.csv").open("wb") as file:
        file.writelines([b"value\n", large, b"\n"])
    with (tmp_path / "c.json").open("wb") as file:
        file.writelines([b'{"value":"', large, b'"}\n'])
    with pytest.raises(RecordTooLargeError, match="a record for t-0 is too large") as caught:
        sparklog.load(tmp_path / "a.parquet", tmp_path / "logs", topic="t", num_partitions=1, config=config)
    assert f"in {tmp_path}/a.parquet" in caught.value.__notes__
    config["max.message.bytes"] = "200000000"
    sparklog.load(f"{tmp_path}/*.*", tmp_path / "logs", topic="t", num_partitions=1, config=config, processes=1)
    with sparklog.open_log(tmp_path / "logs" / "t-0") as log:
        sizes = [len(each) for rows in log.batches(columns=["value"]) for each in rows["value"].to_pylist()]
    assert sizes == [1, len(large), 1, len(large), len(large)]


def test_another_job_waits_and_is_refused_and_a_writer_is_not(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", strings(["a"]))
    logs = tmp_path / "logs"
    job = load_job([tmp_path / "a.parquet"], logs)
    with job.held():
        with pytest.raises(LockedError, match=r"another job, such as a load or a copy, works on .*logs.* 0.01 s"):
            sparklog.load(tmp_path / "a.parquet", logs, topic="u", num_partitions=1, lock_timeout_seconds=0.01)
        write(logs, [rows_of(["w"], partition=[0])])
        job.commit([job.run(task, lambda _: None) for task in job.plan()])
    assert {*values(logs / "events-0"), *values(logs / "events-1")} == {b"a", b"w"}


def test_what_is_done_is_told_and_comes_to_what_was_planned(tmp_path: Path) -> None:
    for number in range(3):
        write_parquet(tmp_path / f"{number}.parquet", strings([f"{number}"] * 10))
    (tmp_path / "4.csv").write_text("value\n1\n")

    class Seen:
        tasks = planned_bytes = done_bytes = records = 0

        def planned(self, tasks: int, size_bytes: int) -> None:
            self.tasks, self.planned_bytes = tasks, size_bytes

        def advanced(self, name: str, more: Amount) -> None:  # noqa: ARG002
            self.done_bytes += more.size_bytes
            self.records += more.records

    seen = Seen()
    sparklog.load(f"{tmp_path}/*.*", tmp_path / "logs", topic="t", num_partitions=1, watch=seen)
    assert seen.records == 31
    assert seen.done_bytes == seen.planned_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.*"))


def test_a_topic_or_a_partition_may_be_the_target(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", strings(["a", "b"]))
    write(tmp_path / "logs", [rows_of(["x"], partition=[0])])
    one = sparklog.load(tmp_path / "a.parquet", tmp_path / "logs" / "events-1")
    assert [(each.partition, each.records) for each in one.partitions] == [(1, 2)]
    whole = sparklog.load(tmp_path / "a.parquet", tmp_path / "logs" / "events")
    assert whole.records == 2
    assert LocalWritableStorage().is_folder(str(tmp_path / "logs" / "events-1"))


def log_of(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write a log, and return its records."""
    with sparklog.PartitionLog.open(folder) as log:
        log.append(pa.Table.from_pylist([plain(row) for row in rows], SCHEMA))
    return records(folder, "key", "value", "headers", "timestamp")


def dumped(folder: Path, form: str) -> bytes:
    run = [
        sys.executable,
        "-c",
        "from sparklog.cli.commands.main import run; run()",
        "dump",
        str(folder),
        "--format",
        form,
    ]
    return subprocess.run(run, check=True, capture_output=True).stdout


EXACTLY: list[dict[str, Any]] = [
    {
        "key": b"\xff\x00",
        "value": b"\xfe",
        "headers": [("h", b"\xff"), ("n", None), ("e", b""), ("t", b"x")],
        "timestamp": 1,
    },
    {"key": None, "value": None, "headers": None, "timestamp": 2},
    {"key": b"", "value": b"", "headers": None, "timestamp": 3},
    {"key": b"\xff", "value": None, "headers": [("a", b"\x80")], "timestamp": 4},
    {"key": b'"\n,\r\x00\\', "value": "ü\x1b\u2028'".encode(), "headers": [('"\n', b'"\n')], "timestamp": 5},
    {"key": b"null", "value": b"NULL", "headers": None, "timestamp": 6},
]


@settings(deadline=None, max_examples=20)
@given(st.lists(record, min_size=1, max_size=30))
def test_json_lines_of_an_export_load_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("back")
    for number, some in enumerate((rows, EXACTLY)):
        written = log_of(folder / f"logs{number}" / "t-0", some)
        sparklog.export(folder / f"logs{number}", folder / f"table{number}", format="jsonl")
        sparklog.load(folder / f"table{number}", folder / f"back{number}", num_partitions=1, processes=1)
        assert records(folder / f"back{number}" / "t-0", "key", "value", "headers", "timestamp") == written


@pytest.mark.parametrize("form", ["json", "csv"])
def test_what_dump_prints_loads_back_exactly(tmp_path: Path, form: str) -> None:
    written = log_of(tmp_path / "logs" / "t-0", EXACTLY * 3)
    (tmp_path / f"a.{form}").write_bytes(dumped(tmp_path / "logs" / "t-0", form))
    sparklog.load(tmp_path / f"a.{form}", tmp_path / "back", num_partitions=1)
    assert records(tmp_path / "back" / "t-0", "key", "value", "headers", "timestamp") == written


@pytest.mark.parametrize("digits", ["base64", "hex"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_digits_of_an_export_load_back_as_the_bytes_that_they_stand_for(tmp_path: Path, form: str, digits: str) -> None:
    written = log_of(tmp_path / "logs" / "t-0", EXACTLY)
    named: dict[str, Any] = {"key_format": digits, "value_format": digits}
    sparklog.export(tmp_path / "logs", tmp_path / "table", format=form, **named)
    sparklog.load(tmp_path / "table", tmp_path / "back", num_partitions=1, **named)
    columns = ("key", "value", "timestamp")
    of_log = [{name: row[name] for name in columns} for row in written]
    assert records(tmp_path / "back" / "t-0", *columns) == of_log
    (tmp_path / "wrong.csv").write_text("key,value\n!,a\n")
    with pytest.raises(InputFileError, match=r"column 'key' of .*: row 0 is not (hexadecimal digits|base64):"):
        sparklog.load(tmp_path / "wrong.csv", tmp_path / "back" / "t", key_format=digits)


def test_text_and_base64_of_the_same_row_are_refused(tmp_path: Path) -> None:
    both = '{"value":null,"value_base64":"/w=="}\n{"value":"a","value_base64":"/w=="}\n'
    (tmp_path / "a.jsonl").write_text(both)
    with pytest.raises(InputFileError, match=r"row 1 has 'value_base64' as well: give one of the two"):
        sparklog.load(tmp_path / "a.jsonl", tmp_path / "logs", topic="t", num_partitions=1)
    (tmp_path / "b.jsonl").write_text('{"value":"a","headers":[{"key":"h","value":"a","value_base64":"/w=="}]}\n')
    with pytest.raises(InputFileError, match=r"cannot be the headers of records: row 0 has 'value_base64' as well"):
        sparklog.load(tmp_path / "b.jsonl", tmp_path / "logs", topic="t", num_partitions=1)
    # A column that is named is what it is named for.
    sparklog.load(
        tmp_path / "a.jsonl", tmp_path / "logs", topic="t", num_partitions=1, value="value_base64", key="value"
    )
    assert records(tmp_path / "logs" / "t-0", "key", "value") == [
        {"key": None, "value": b"/w=="},
        {"key": b"a", "value": b"/w=="},
    ]
    # In other formats nothing is base64 by its name.
    write_parquet(tmp_path / "a.parquet", pa.table({"value": ["a"], "value_base64": ["/w=="]}))
    sparklog.load(tmp_path / "a.parquet", tmp_path / "logs", topic="p", num_partitions=1)
    assert values(tmp_path / "logs" / "p-0") == [b"a"]


@pytest.mark.parametrize("name", ["schlüssel", "key", 'a"', "a\\"])
def test_escaped_names_of_json_are_names_of_columns(tmp_path: Path, name: str) -> None:
    escaped = "".join(f"\\u{ord(each):04x}" for each in name)
    lines = [f'{{"{escaped}" :"k","value":"v"}}', json.dumps({name: "ü:", "value": "\\u006b"})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    sparklog.load(tmp_path / "a.jsonl", tmp_path / "logs", topic="t", num_partitions=1, key=name)
    assert [each["key"] for each in records(tmp_path / "logs" / "t-0")] == [b"k", "ü:".encode()]


def test_names_that_no_line_of_json_has_are_refused_though_others_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"\\u006bey":"usr","value":"usr"}\n')
    with pytest.raises(InvalidOptionError, match="no file has a column 'usr', which was to be the key of records"):
        sparklog.load(tmp_path / "a.jsonl", tmp_path / "logs", topic="t", num_partitions=1, key="usr")


def test_keys_of_headers_do_not_take_the_place_of_the_key_that_a_folder_says(tmp_path: Path) -> None:
    (tmp_path / "key=k").mkdir()
    (tmp_path / "key=k" / "a.jsonl").write_text('{"value":"v","headers":[{"key":"h","value":"x"}]}\n')
    sparklog.load(tmp_path / "key=k", tmp_path / "logs", topic="t", num_partitions=1)
    assert [each["key"] for each in records(tmp_path / "logs" / "t-0")] == [b"k"]
