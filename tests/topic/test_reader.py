"""Many partitions read as one: what each has, and which partition it is of."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import CorruptLogError, InvalidOptionError, OffsetOutOfRangeError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.topic.reader import TOPIC_DEFAULT_COLUMNS, TOPIC_SCHEMA, open_topic
from tests.golden import golden_sets
from tests.log.logs import only_log, write
from tests.topic.groups import commits, write_groups

PARTITIONS = 3
BATCHES = (12, 3, 40)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three partitions of a topic, and one of another."""
    for n, count in enumerate(BATCHES):
        write(tmp_path / f"events-{n}", count)
    write(tmp_path / "orders-0", 2)
    return tmp_path


def offsets(table: pa.Table) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in table.to_pylist()]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_partitions_are_read_and_each_row_says_which_it_is_of(directory: Path, threads: int) -> None:
    with open_topic(directory / "events", threads=threads) as topic:
        table = topic.read(columns=["topic", "value", "partition", "offset"])
        assert table.schema.names == ["topic", "value", "partition", "offset"]
        want = [("events", n, offset) for n, count in enumerate(BATCHES) for offset in range(10 * count)]
        assert offsets(table) == want
        assert table["value"].to_pylist() == [b"value of %d" % offset for offset in table["offset"].to_pylist()]
        for n in range(PARTITIONS):
            mine = [
                offset
                for batch in topic.batches(columns=["partition", "offset"])
                for partition, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True)
                if partition == n
            ]
            assert mine == list(range(10 * BATCHES[n]))


@pytest.mark.parametrize("threads", [1, 3])
def test_filter_may_ask_for_partitions_and_topics(directory: Path, threads: int) -> None:
    with open_topic(directory, threads=threads) as logs:
        found = logs.read(
            columns=["topic", "partition", "offset"],
            where="topic = 'orders' AND offset < 2 OR partition = 2 AND value IN ('value of 7', 'value of 399')",
        )
        assert offsets(found) == [("events", 2, 7), ("events", 2, 399), ("orders", 0, 0), ("orders", 0, 1)]
        assert sum(batch.num_rows for batch in logs.batches(columns=[], where="NOT topic contains 'vent'")) == 20
        with pytest.raises(InvalidOptionError, match="where, at character 1: no column 'partitions'"):
            logs.batches(where="partitions = 1")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_golden_directory_reads_as_its_partitions_do(level: Any, threads: int) -> None:
    for golden in golden_sets():
        topic, partition = next(iter(golden.partitions))
        path = golden.partition_dir(topic, partition).parent
        found = open_topic(path, threads=threads)
        table = found.read(isolation_level=level)
        assert table.schema == found.schema
        logs = [log.read(isolation_level=level) for log in found.logs.values()]
        assert table.drop_columns(["topic", "partition"]) == pa.concat_tables(logs)


def test_directory_has_all_topics_and_a_partition_one(directory: Path) -> None:
    assert open_topic(directory).topics == ["events", "orders"]
    assert list(open_topic(str(directory / "events-1")).logs) == [("events", 1)]
    assert list(open_topic([directory / "orders", directory / "events-2"]).logs) == [("events", 2), ("orders", 0)]
    with pytest.raises(PathNotFoundError, match=r"did you mean .events."):
        open_topic(directory / "event")
    with pytest.raises(InvalidOptionError, match="threads is 0"):
        open_topic(directory, threads=0)
    assert repr(open_topic(directory, threads=2)) == "TopicReader(events, orders: 4 partitions, threads=2)"


def test_empty_directory_is_an_empty_table_of_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    topic = open_topic(tmp_path, threads=2)
    wanted = pa.schema([TOPIC_SCHEMA.field(name) for name in TOPIC_DEFAULT_COLUMNS])
    assert topic.read().schema == topic.schema == wanted
    assert topic.read().num_rows == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_ranges_are_of_the_partitions_that_they_name(directory: Path, threads: int) -> None:
    topic = open_topic(directory / "events", threads=threads)
    starts, ends = {0: 5, TopicPartition("events", 2): 398}, {("events", 0): 8, 1: 1}
    table = topic.read(starts, ends, ["topic", "partition", "offset"])
    assert offsets(table) == [("events", n, at) for n, at in [(0, 5), (0, 6), (0, 7), (1, 0), (2, 398), (2, 399)]]
    assert topic.start_offsets == {("events", n): 0 for n in range(3)}
    assert topic.end_offsets == {("events", n): 10 * count for n, count in enumerate(BATCHES)}
    with pytest.raises(OffsetOutOfRangeError, match="events-1"):
        topic.batches({1: 31})
    with pytest.raises(InvalidOptionError, match=r"start_offsets has 7.*events-0, events-1, events-2"):
        topic.batches({7: 0})
    with pytest.raises(InvalidOptionError, match=r"end_offsets has 0.*'topic', 0"):
        open_topic(directory).batches(None, {0: 0})


def test_read_begins_where_a_time_does(directory: Path) -> None:
    topic = open_topic(directory / "events")
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1000 + 35)
    found = topic.offsets_for_time(at)
    assert found == {("events", 0): 35, ("events", 1): 30, ("events", 2): 35} == topic.offsets_for_time(1035)
    assert topic.read(found).num_rows == sum(10 * count for count in BATCHES) - 35 - 30 - 35


@pytest.mark.parametrize("columns", ["value", "partition", ["offset", "file", "topic"], []])
def test_any_columns_are_read_and_a_single_name_is_one(directory: Path, columns: Any) -> None:
    table = open_topic(directory / "events", threads=2).read(columns=columns)
    assert table.schema.names == ([columns] if isinstance(columns, str) else columns)
    assert all(batch.num_rows for batch in open_topic(directory / "events").batches(columns=columns))
    with pytest.raises(InvalidOptionError, match=r"no column 'values'.*topic, partition"):
        open_topic(directory).batches(columns="values")


@pytest.mark.parametrize("threads", [1, 2])
def test_damage_is_raised_with_its_partition_and_ends_the_threads(directory: Path, threads: int) -> None:
    path = only_log(directory / "events-1")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    before = threading.active_count()
    with pytest.raises(CorruptLogError, match="events-1") as raised:
        open_topic(directory / "events", threads=threads).read()
    assert raised.value.__notes__ == ["in partition events-1"]
    assert threading.active_count() == before


def test_iterator_that_is_left_early_ends_its_threads(directory: Path) -> None:
    before = threading.active_count()
    for _ in open_topic(directory / "events", threads=3).batches():
        break
    assert threading.active_count() == before


def test_threads_and_a_forked_process_share_a_reader(directory: Path) -> None:
    topic = open_topic(directory / "events")
    want, found = topic.read(), []
    threads = [threading.Thread(target=lambda: found.append(topic.read())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 4
    child = os.fork()
    if not child:
        os._exit(0 if topic.read() == want else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_polars_duckdb_and_pandas_read_it_without_knowing_it(directory: Path, threads: int | None) -> None:
    log: Any = sparklog.open_log(directory / "events-0") if threads is None else open_topic(directory, threads=threads)
    want = log.read()
    order = [name for name in ("topic", "partition", "offset") if name in want.schema.names]
    frame = polars.DataFrame(log)
    assert frame.sort(order).equals(polars.DataFrame(want))
    assert set(pa.table(log).schema.names) == set(log.schema.names)
    (counted,) = duckdb.execute('SELECT count(*), sum("offset"), max(value) FROM log').fetchall()
    assert counted == (len(want), sum(want["offset"].to_pylist()), max(want["value"].to_pylist()))
    read = pandas.DataFrame.from_arrow(log).sort_values(order, ignore_index=True)
    pandas.testing.assert_frame_equal(read, want.to_pandas(), check_dtype=False)


@pytest.mark.parametrize("take", [pa.table, pandas.DataFrame.from_arrow], ids=["pyarrow", "pandas"])
def test_damage_in_a_stream_is_an_error_of_the_library_that_names_the_file(directory: Path, take: Any) -> None:
    path = only_log(directory / "events-1")
    path.write_bytes(path.read_bytes()[:100] + b"?" + path.read_bytes()[101:])
    with pytest.raises(Exception, match=r"events-1/0+\.log, position 0"):
        take(open_topic(directory, threads=2))


def test_topic_is_read_from_where_a_group_is(directory: Path) -> None:
    write_groups(directory, {"g": commits("g", {("events", 0): 100, ("events", 2): 3, ("orders", 0): 20})})
    with open_topic(directory / "events") as topic:
        starts = topic.offsets_for_group("g")
        assert starts == {("events", 0): 100, ("events", 1): 0, ("events", 2): 3}
        left, done = topic.read(starts, columns=["offset"]), topic.read(end_offsets=starts, columns=["offset"])
        assert (len(left), len(done)) == (20 + 30 + 397, 103)
        with pytest.raises(InvalidOptionError, match="no group 'h'"):
            topic.offsets_for_group("h")
        with pytest.raises(PathNotFoundError):
            topic.offsets_for_group("g", directory / "nothing")


@pytest.mark.parametrize("threads", [1, 3])
def test_bounded_reads_that_go_on_behind_their_last_offsets_give_each_row_once(directory: Path, threads: int) -> None:
    with open_topic(directory / "events", threads=threads) as topic:
        every, starts, found = offsets(topic.read()), dict.fromkeys(range(PARTITIONS), 0), []
        row_bytes = topic.read(max_bytes=1).nbytes
        while rows := topic.read(start_offsets=starts, max_bytes=3 * row_bytes):
            assert 1 <= rows.num_rows <= 4
            found += offsets(rows)
            starts |= {partition: offset + 1 for _, partition, offset in offsets(rows)}
        assert sorted(found) == every
        assert {batch.num_rows for batch in topic.batches(columns="value", max_bytes=1)} == {1}
        for wrong in (0, -1, True, 1.5, "1"):
            with pytest.raises(InvalidOptionError, match="max_bytes must be a whole number, at least 1"):
                topic.read(max_bytes=wrong)  # type: ignore[arg-type]
