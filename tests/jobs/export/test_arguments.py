"""What an export moves, and what a rerun moves after it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparklog.errors import CorruptBatchError, DataLossError, InvalidOptionError, LockedError, PathNotFoundError
from sparklog.jobs.targets.targets import TableFolder
from sparklog.storage.registry import locate
from tests.build import Record, v2_batch, write_partition
from tests.jobs.tables import EXAMPLES, append, files, moved_to, read, rows
from tests.log.logs import write
from tests.topic.groups import commits, write_groups, write_shop


def test_every_record_is_moved_in_its_order(tmp_path: Path) -> None:
    summary = moved_to(tmp_path / "out", partition_by=())
    assert rows(tmp_path / "out") == read(EXAMPLES)
    assert summary.rows == len(read(EXAMPLES))
    assert summary.files == 5


def test_folders_name_topic_and_partition_and_files_their_offsets(tmp_path: Path) -> None:
    moved_to(tmp_path / "out", topics="shop-orders")
    assert files(tmp_path / "out") == [
        f"topic=shop-orders/partition={n}/shop-orders-{n}-00000000000000000000-00000000000000000094.parquet"
        for n in range(2)
    ]
    (name, _) = files(tmp_path / "out")
    schema = pq.ParquetFile(tmp_path / "out" / name).schema_arrow
    assert schema.names == ["key", "value", "offset", "timestamp", "timestampType", "headers"]


@pytest.mark.parametrize("by", [["date"], ["date", "hour"], ["topic", "date"]])
def test_records_lie_in_the_folders_of_their_times(tmp_path: Path, by: list[str]) -> None:
    moved_to(tmp_path / "out", partition_by=by)
    there = read(EXAMPLES)
    found = {}
    for name in files(tmp_path / "out"):
        values = dict(part.split("=") for part in name.split("/")[:-1])
        assert list(values) == by
        for row in pq.ParquetFile(tmp_path / "out" / name).read().to_pylist():
            assert f"{row['timestamp']:%Y-%m-%d}" == values["date"]
            assert values.get("hour") in (None, f"{row['timestamp']:%H}")
            topic = values.get("topic") or row["topic"]
            found[topic, row["partition"], row["offset"]] = row["value"]
    assert found == {(row["topic"], row["partition"], row["offset"]): row["value"] for row in there}


def test_a_rerun_moves_only_what_is_new(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    append(logs / "a-0", "a", "b")
    assert moved_to(out, source=logs).rows == 2
    assert moved_to(out, source=logs).rows == 0
    append(logs / "a-0", "c")
    append(logs / "a-1", "d")
    assert moved_to(out, source=logs).rows == 2
    assert [row["value"] for row in rows(out)] == [b"a", b"b", b"c", b"d"]
    assert [name.rpartition("/")[2] for name in files(out)] == [
        f"a-0-{0:020}-{2:020}.parquet",
        f"a-0-{2:020}-{3:020}.parquet",
        f"a-1-{0:020}-{1:020}.parquet",
    ]


def test_only_records_that_pass_become_rows_and_the_others_are_not_looked_at_again(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    append(logs / "a-0", "a", "b", "c")
    append(logs / "a-1", "c")
    where = "value != 'b' AND partition = 0"
    first = moved_to(out, source=logs, where=where)
    assert [(each.partition, each.start_offset, each.end_offset, each.rows) for each in first.moved] == [
        (0, 0, 3, 2),
        (1, 0, 1, 0),
    ]
    assert len(files(out)) == 1
    assert moved_to(out, source=logs, where=where).moved == ()
    append(logs / "a-0", "b", "d")
    assert moved_to(out, source=logs, where=where).rows == 1
    assert [row["value"] for row in rows(out)] == [b"a", b"c", b"d"]


def test_a_table_keeps_its_filter_and_a_wrong_one_makes_nothing(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    append(logs / "a-0", "a", "b")
    with pytest.raises(InvalidOptionError, match="expected AND, OR or the end"):
        moved_to(out, source=logs, where="value = 'a' 'b'")
    assert not out.exists()
    moved_to(out, source=logs, where="value = 'a'")
    with pytest.raises(InvalidOptionError, match="has where \"value = 'a'\", and now it is 'nothing'"):
        moved_to(out, source=logs)
    moved_to(tmp_path / "whole", source=logs)
    with pytest.raises(InvalidOptionError, match="has where 'of nothing', and now it is \"value = 'a'\""):
        moved_to(tmp_path / "whole", source=logs, where="value = 'a'")


def test_a_log_that_is_not_the_one_of_before_is_refused(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    append(logs / "a-0", "a", "b")
    moved_to(out, source=logs)
    append(tmp_path / "other" / "a-0", "c")
    with pytest.raises(DataLossError, match=r"ends at offset 1, and offsets up to 2 were moved"):
        moved_to(out, source=tmp_path / "other")


def test_a_bound_restricts_a_run_and_the_next_goes_on(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    append(logs / "a-0", *"abcdef")
    assert moved_to(out, source=logs, start_offsets={("a", 0): 1}, end_offsets={("a", 0): 3}).rows == 2
    assert moved_to(out, source=logs).rows == 3
    assert [row["value"] for row in rows(out)] == [b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"source": "/nowhere"}, PathNotFoundError, "/nowhere"),
        ({"topics": "shop-ordres"}, PathNotFoundError, "shop-orders"),
        ({"format": "parket"}, InvalidOptionError, "parquet"),
        ({"columns": ["valeu"]}, InvalidOptionError, "value"),
        ({"partition_by": ["day"]}, InvalidOptionError, "date"),
        ({"topics": "a", "partitions": [("a", 0)]}, InvalidOptionError, "topics and partitions are given"),
        ({"topics": "a", "topic_pattern": "b.*"}, InvalidOptionError, "topics and topic_pattern are given"),
        ({"columns": "topic"}, InvalidOptionError, "no column is left"),
        ({"format": "csv", "columns": ["headers"]}, InvalidOptionError, "which CSV cannot hold"),
        ({"format": "csv", "key_format": "raw"}, InvalidOptionError, "the column key is binary"),
        ({"value_format": "jsno"}, InvalidOptionError, "json"),
        ({"value_format": "json"}, InvalidOptionError, "needs a schema"),
        ({"value_options": {"schmea": "x"}}, InvalidOptionError, "value_options has 'schmea'"),
        ({"on_decode_error": "skip"}, InvalidOptionError, "fail, dead_letter or null"),
        ({"unnests_value": True}, InvalidOptionError, "the fields of the value are to be columns, and it has none"),
        (
            {"value_format": "json", "value_options": {"schema": "offset bigint"}, "unnests_value": True},
            InvalidOptionError,
            "the value has a field offset",
        ),
        ({"task_bytes": 0}, InvalidOptionError, "task_bytes is 0"),
        ({"isolation_level": "commited"}, InvalidOptionError, "read_committed"),
        ({"start_offsets": {("nosuch", 0): 1}}, InvalidOptionError, "nosuch-0"),
        ({"start_offsets": {0: 1}}, InvalidOptionError, "('topic', 0)"),
        ({"start_offsets": {("shop-orders", 0): 1}, "start_time": 5}, InvalidOptionError, "give one of them"),
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_made(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        moved_to(tmp_path / "out", **given)
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_second_job_waits_and_is_refused(tmp_path: Path) -> None:
    target = TableFolder(*locate(tmp_path / "out"))
    with target.held(), pytest.raises(LockedError, match="another job moves to"):
        moved_to(tmp_path / "out", lock_timeout_seconds=0)
    assert moved_to(tmp_path / "out").rows > 0


def test_damage_in_the_middle_is_told_what_was_moved_stays_and_a_rerun_after_repair_goes_on(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    batches = [v2_batch([Record(value=b"%05d" % at * 200)], base_offset=at) for at in range(300)]
    write_partition(logs / "a-0", batches, segment_bytes=50_000)
    segments = sorted((logs / "a-0").glob("*.log"))
    sound = segments[3].read_bytes()
    position = sound.index(b"%05d" % (int(segments[3].stem) + 10))
    segments[3].write_bytes(sound[:position] + b"x" + sound[position + 1 :])
    for processes in (1, 2):
        with pytest.raises(CorruptBatchError) as caught:
            moved_to(out, source=logs, task_bytes=60_000, processes=processes)
        assert caught.value.path == str(segments[3])
        assert caught.value.offset == int(segments[3].stem) + 10
        assert caught.value.position is not None
        assert 0 < position - caught.value.position < 100
        assert "in partition a-0" in caught.value.__notes__
        there = [row["offset"] for row in rows(out)]
        assert 0 < len(there) <= caught.value.offset
        assert there == list(range(len(there)))
    segments[3].write_bytes(sound)
    moved_to(out, source=logs, task_bytes=60_000)
    assert [row["offset"] for row in rows(out)] == list(range(300))


def test_what_a_group_has_not_read_is_moved(tmp_path: Path) -> None:
    logs = write_shop(tmp_path / "logs", {"g": {("a", 0): 90, ("b", 0): 30}})
    assert moved_to(tmp_path / "left", source=logs, start_group="g").rows == 10 + 50
    assert moved_to(tmp_path / "done", source=logs, end_group="g").rows == 90 + 30
    # A rerun goes on from where the last one ended, wherever the group is by then.
    append(logs / "a-0", "new")
    assert moved_to(tmp_path / "left", source=logs, start_group="g").rows == 1


def test_offset_of_a_group_that_is_gone_is_data_loss(tmp_path: Path) -> None:
    write_partition(tmp_path / "logs" / "a-0", [v2_batch([Record(0, 0)], base_offset=50)], base_offset=50)
    write_groups(tmp_path / "logs", {"g": commits("g", {("a", 0): 7})})
    for bound, rows_left in (("start_group", 1), ("end_group", 0)):
        out = tmp_path / bound
        with pytest.raises(DataLossError, match=r"group g has committed offset 7 of a-0, and .* \[50, 51\)"):
            moved_to(out, source=tmp_path / "logs", **{bound: "g"})
        assert moved_to(out, source=tmp_path / "logs", **{bound: "g"}, fail_on_data_loss=False).rows == rows_left


def test_offsets_of_groups_may_be_on_a_disk_without_a_partition_that_is_moved(tmp_path: Path) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    write(disks[0] / "a-0", 10)
    write_groups(disks[1], {"g": commits("g", {("a", 0): 90})})
    assert moved_to(tmp_path / "out", source=disks, start_group="g").rows == 10


def test_offsets_of_groups_may_be_elsewhere(tmp_path: Path) -> None:
    write_shop(tmp_path / "logs", {})
    write_shop(tmp_path / "elsewhere", {"g": {("a", 0): 90, ("a", 1): 50, ("b", 0): 30}})
    moved = moved_to(tmp_path / "out", source=tmp_path / "logs", start_group="g", offsets_path=tmp_path / "elsewhere")
    assert moved.rows == 10
    with pytest.raises(InvalidOptionError, match="start_time and start_group are given: give one of them"):
        moved_to(tmp_path / "out", source=tmp_path / "logs", start_group="g", start_time=0)


def test_formulas_of_csv_are_escaped_where_it_is_asked_for_and_a_table_has_them_all_or_none(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    append(logs / "a-0", "=1+1", "1+1", "-2")
    moved_to(out, source=logs, format="csv", escape_formulas=True)
    (name,) = files(out)
    with (out / name).open(newline="") as file:
        assert [row["value"] for row in csv.DictReader(file)] == ["'=1+1", "1+1", "'-2"]
    with pytest.raises(InvalidOptionError, match="has format 'csv, formulas escaped', and now it is 'csv'"):
        moved_to(out, source=logs, format="csv")
    with pytest.raises(InvalidOptionError, match="escape_formulas is of CSV, and the format is jsonl"):
        moved_to(tmp_path / "other", source=logs, format="jsonl", escape_formulas=True)
