"""From options to ranges: where they begin and end, and how they are split."""

from __future__ import annotations

import json
import logging
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DataLossError, InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import OffsetPosition, Segment
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.spark.options import limits
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.plan import plan_batch, split
from sparklog.topic.places.ranges import ReadRange
from tests.build import Record, control_batch, v2_batch, write_partition
from tests.golden import golden_set
from tests.places import folder_at
from tests.topic.groups import commits, write_groups

START_MS = 1_700_000_000_000


def batch(base_offset: int, count: int, value_bytes: int = 100, **fields: Any) -> bytes:
    """Encode records whose timestamps, in seconds from `START_MS`, are their offsets."""
    records = [Record(n, START_MS + 1000 * (base_offset + n), value=bytes(value_bytes)) for n in range(count)]
    return v2_batch(records, base_offset=base_offset, **fields)


def batches(counts: list[int], base_offset: int = 0) -> list[bytes]:
    starts = [base_offset + sum(counts[:n]) for n in range(len(counts))]
    return [batch(start, count) for start, count in zip(starts, counts, strict=True)]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Topics a (two partitions, 100 offsets each from 0) and b (one, 50 offsets from 1000)."""
    for partition in range(2):
        write_partition(tmp_path / f"a-{partition}", batches([10] * 10), segment_bytes=4000)
    write_partition(tmp_path / "b-0", batches([10] * 5, 1000), base_offset=1000)
    return tmp_path


def plan_tasks(path: Path, **given: Any) -> list[tuple[ReadRange, ...]]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return plan_batch(SeglogOptions.parse({"path": str(path), **texts}))


def plan(path: Path, **given: Any) -> list[ReadRange]:
    """Plan a read of which each task has one range."""
    return [planned for (planned,) in plan_tasks(path, packBytes="0", **given)]


def spans(ranges: list[ReadRange]) -> list[tuple[str, int, int]]:
    return [(str(each.topic_partition), each.start_offset, each.end_offset) for each in ranges]


def test_whole_log_is_a_range_a_partition(log_dir: Path) -> None:
    assert spans(plan(log_dir)) == [("a-0", 0, 100), ("a-1", 0, 100), ("b-0", 1000, 1050)]


def test_ranges_go_to_tasks_as_they_are_and_are_small(log_dir: Path) -> None:
    for planned in plan(log_dir):
        pickled = pickle.dumps(planned)
        again = pickle.loads(pickled)
        assert again == planned
        assert vars(again) == vars(planned)
        assert len(pickled) < 1000


def test_topics_and_partitions_are_chosen(log_dir: Path) -> None:
    assert spans(plan(log_dir, subscribe="b")) == [("b-0", 1000, 1050)]
    assert spans(plan(log_dir, subscribePattern="a|x")) == [("a-0", 0, 100), ("a-1", 0, 100)]
    assert spans(plan(log_dir, assign={"a": [1], "b": [0]})) == [("a-1", 0, 100), ("b-0", 1000, 1050)]
    with pytest.raises(PathNotFoundError, match="no topic 'c'"):
        plan(log_dir, subscribe="b,c")


def test_offsets_a_partition(log_dir: Path) -> None:
    ranges = plan(
        log_dir,
        startingOffsets={"a": {"0": 23, "1": -2}, "b": {"0": 1000}},
        endingOffsets={"a": {"0": -1, "1": 7}, "b": {"0": 1000}},
    )
    assert spans(ranges) == [("a-0", 23, 100), ("a-1", 0, 7)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("topic = 'b' OR partition = 1", [("a-1", 0, 100), ("b-0", 1000, 1050)]),
        ("offset >= 95 AND offset < 1003", [("a-0", 95, 100), ("a-1", 95, 100), ("b-0", 1000, 1003)]),
        (
            f"timestamp >= {START_MS + 75_000} AND key IS NULL",
            [("a-0", 70, 100), ("a-1", 70, 100), ("b-0", 1000, 1050)],
        ),
        (f"timestamp > {START_MS + 1_020_000}", [("b-0", 1020, 1050)]),
        ("topic = 'a' AND offset < 10 OR topic = 'b'", [("a-0", 0, 10), ("a-1", 0, 10), ("b-0", 1000, 1050)]),
        ("offset > 2000", []),
        ("NOT offset >= 0", []),
    ],
)
def test_filter_bounds_what_is_planned(log_dir: Path, where: str, expected: list[tuple[str, int, int]]) -> None:
    assert spans(plan(log_dir, where=where)) == expected
    offsets = {"a": {"0": 0, "1": 0}, "b": {"0": 1000}}
    assert spans(plan(log_dir, where=where, startingOffsets=offsets)) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", {"a": {"0": 1}}),
        ("endingOffsets", {"a": {"0": 1, "1": 1, "2": 1}, "b": {"0": 1000}}),
        ("startingOffsetsByTimestamp", {"a": {"0": 1}}),
        ("endingOffsetsByTimestamp", {"b": {"0": 1}}),
    ],
)
def test_offsets_must_name_every_partition_and_no_other(log_dir: Path, name: str, value: object) -> None:
    with pytest.raises(InvalidOptionError, match="don't match what are assigned") as raised:
        plan(log_dir, **{name: value})
    assert "Assigned: {a-0, a-1, b-0}" in raised.value.message


def test_topic_that_is_not_read_is_named_with_the_one_that_was_meant(log_dir: Path) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        plan(log_dir, startingOffsets={"aa": {"0": 1, "1": 1}, "b": {"0": 1000}})
    assert raised.value.message.endswith(". 'aa' is not read: did you mean 'a'?")
    with pytest.raises(InvalidOptionError) as raised:
        plan(log_dir, startingOffsets={"orders": {"0": 1}})
    assert raised.value.message.endswith(". 'orders' is not read: topics are a, b")


def test_times_become_the_first_offset_at_or_after_them(log_dir: Path) -> None:
    at = {name: str(START_MS + 1000 * offset) for name, offset in (("startingTimestamp", 33), ("endingTimestamp", 66))}
    assert spans(plan(log_dir / "a", **at)) == [("a-0", 33, 66), ("a-1", 33, 66)]
    by_partition = {"a": {"0": START_MS + 500, "1": START_MS + 98_001}}
    assert spans(plan(log_dir / "a", startingOffsetsByTimestamp=by_partition)) == [("a-0", 1, 100), ("a-1", 99, 100)]
    assert spans(plan(log_dir / "a", endingOffsetsByTimestamp=by_partition)) == [("a-0", 0, 1), ("a-1", 0, 99)]


def test_time_after_every_record_is_an_error_or_the_end(log_dir: Path) -> None:
    late = str(START_MS + 100_000)
    with pytest.raises(InvalidOptionError) as raised:
        plan(log_dir / "a", startingTimestamp=late)
    assert raised.value.message == f"No offset matched from request of topic-partition a-0 and timestamp {late}."
    assert spans(plan(log_dir, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == [
        ("b-0", 1000, 1050)
    ]
    assert spans(plan(log_dir / "a", endingTimestamp=late)) == [("a-0", 0, 100), ("a-1", 0, 100)]


def test_start_after_end_is_an_error_that_names_both(log_dir: Path) -> None:
    with pytest.raises(
        InvalidOptionError, match="start offset 50 is greater than the resolved end offset 40 for topic b"
    ):
        plan(log_dir / "b", startingOffsets={"b": {"0": 50}}, endingOffsets={"b": {"0": 40}}, failOnDataLoss="false")
    with pytest.raises(InvalidOptionError, match="start offset 66 is greater than the resolved end offset 33"):
        plan(log_dir / "a-0", startingTimestamp=str(START_MS + 66_000), endingTimestamp=str(START_MS + 33_000))


@pytest.mark.parametrize(
    ("given", "span"),
    [
        ({"startingOffsets": {"b": {"0": 900}}}, (1000, 1050)),
        ({"endingOffsets": {"b": {"0": 1051}}}, (1000, 1050)),
    ],
)
def test_offsets_outside_the_log_are_data_loss_or_a_warning(
    log_dir: Path, given: dict[str, object], span: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match=r"for b-0 is \d+, and the log has offsets \[1000, 1050\)"):
        plan(log_dir / "b", **given)
    assert spans(plan(log_dir / "b", **given, failOnDataLoss="false")) == [("b-0", *span)]
    assert "data may have been lost" in caplog.text


def test_read_committed_ends_at_the_last_stable_offset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fields = {"transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    write_partition(
        tmp_path / "t-0",
        [
            batch(0, 10, **fields),
            control_batch("commit", 10, 7),
            batch(11, 10, **fields),
            batch(21, 10),
        ],
    )
    assert spans(plan(tmp_path)) == [("t-0", 0, 31)]
    assert spans(plan(tmp_path, isolationLevel="read_committed")) == [("t-0", 0, 11)]
    assert plan(tmp_path, isolationLevel="read_committed")[0].stable_offset == 11
    late = str(START_MS + 15_000)
    with pytest.raises(InvalidOptionError, match="No offset matched"):
        plan(tmp_path, isolationLevel="read_committed", startingTimestamp=late)
    with caplog.at_level(logging.WARNING):
        ending = {"endingOffsets": {"t": {"0": 20}}}
        assert spans(plan(tmp_path, isolationLevel="read_committed", **ending)) == [("t-0", 0, 11)]
    assert "transactions are open" in caplog.text


def test_golden_partitions_are_planned_from_the_start_to_the_end_that_the_broker_told() -> None:
    for name in ("v2-log-start", "v2-transactions", "v2-compacted", "v2-crash", "old-transactions"):
        golden = golden_set(name)
        for level in ("read_uncommitted", "read_committed"):
            planned = plan(golden.log_dir, isolationLevel=level)
            told = {
                f"{topic}-{partition}": (
                    offsets.beginning,
                    offsets.end if level == "read_uncommitted" else offsets.last_stable,
                )
                for (topic, partition), offsets in golden.offsets.items()
            }
            assert {at: (start, end) for at, start, end in spans(planned)} == {
                at: (start, end) for at, (start, end) in told.items() if start < end
            }  # fmt: skip


def test_planning_imports_no_compiler_and_no_arrow(log_dir: Path) -> None:
    program = f"""
import sys
import pyspark.sql.datasource, pyspark.sql.types
before = set(sys.modules)
import pyspark_seglog
from pyspark.sql.datasource import CaseInsensitiveDict
source = pyspark_seglog.DefaultSource(CaseInsensitiveDict({{"path": {str(log_dir)!r}, "minPartitions": "9"}}))
reader = source.reader(source.schema())
assert len(reader.partitions()) == 10
slow = {{"numba", "pyarrow", "llvmlite", "pandas", "lz4", "zstandard", "isal", "snappy"}}
print(sorted(slow & (set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]", done.stderr


# Splitting


def whole(start: int, end: int, partition: int = 0) -> ReadRange:
    return ReadRange(folder_at(f"/logs/a-{partition}"), start, end, end)


def sizes(log_dir: Path, **given: Any) -> list[int]:
    return [each.size for each in plan(log_dir, **given)]


def test_large_partitions_are_split_by_the_connectors_arithmetic(log_dir: Path) -> None:
    assert len(plan(log_dir, minPartitions="3")) == 3
    assert [at for at, _, _ in spans(plan(log_dir, minPartitions="5"))] == ["a-0", "a-0", "a-1", "a-1", "b-0"]
    assert len(plan(log_dir, minPartitions="25")) == 25
    assert len(plan(log_dir, minPartitions="1000")) == 250
    assert sizes(log_dir, maxRecordsPerPartition="50") == [50, 50, 50, 50, 50]
    assert max(sizes(log_dir, maxRecordsPerPartition="7")) <= 7
    assert len(plan(log_dir, maxRecordsPerPartition="7")) == 15 + 15 + 8
    assert len(plan(log_dir, maxRecordsPerPartition="50", minPartitions="4")) == 5
    assert len(plan(log_dir, maxRecordsPerPartition="50", minPartitions="10")) == 10


def test_cuts_are_at_batch_boundaries_that_the_index_knows(tmp_path: Path) -> None:
    write_partition(tmp_path / "a-0", batches([7] * 100), index_interval_bytes=1)
    cuts = [each.start_offset for each in plan(tmp_path, minPartitions="6")]
    assert len(cuts) == 6
    assert all(cut % 7 == 0 for cut in cuts)


def test_connectors_own_examples_of_splitting() -> None:
    def counts(sizes: list[int], parts_min: int) -> list[int]:
        ranges = [whole(0, size, partition) for partition, size in enumerate(sizes)]
        layouts = {each.topic_partition: without_index(each.folder) for each in ranges}
        found = split(ranges, parts_min, None, layouts)
        return [sum(each.folder.partition == partition for each in found) for partition in range(len(sizes))]

    assert counts([4, 4, 1], 4) == [2, 2, 1]
    assert counts([1, 21], 4) == [1, 3]
    assert counts([1, 5, 4], 3) == [1, 1, 1]
    assert counts([0, 10], 2) == [0, 2]


def without_index(folder: PartitionFolder) -> PartitionLayout:
    """Return the layout of a log whose index, which is not there, knows no boundary."""
    segment = Segment(folder, 0, OFFSET_MAX, 0, is_last=True)
    return PartitionLayout(folder, (segment,), 0, OffsetPosition(0, 0))


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    return draw(
        st.lists(
            st.tuples(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(0, 5000)),
            min_size=1,
            max_size=3,
        )
    )


@settings(max_examples=60, deadline=None)
@given(
    layouts(),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 200),
    st.sampled_from([1, 200, 4096]),
    st.booleans(),
)
def test_splitting_covers_every_offset_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[list[int], int]],
    min_partitions: int | None,
    records_max: int | None,
    interval_bytes: int,
    wrong_index: bool,
) -> None:
    log_dir = tmp_path_factory.mktemp("logs")
    for partition, (counts, base_offset) in enumerate(drawn):
        folder = log_dir / f"a-{partition}"
        write_partition(
            folder,
            batches(counts, base_offset),
            base_offset=base_offset,
            segment_bytes=3000,
            index_interval_bytes=interval_bytes,
        )
        if wrong_index:
            for index in folder.glob("*.index"):
                index.write_bytes(index.read_bytes()[::-1])
    options = {
        "path": str(log_dir),
        **({} if min_partitions is None else {"minPartitions": str(min_partitions)}),
        **({} if records_max is None else {"maxRecordsPerPartition": str(records_max)}),
    }
    ranges = [planned for task in plan_batch(SeglogOptions.parse(options)) for planned in task]
    for partition, (counts, base_offset) in enumerate(drawn):
        mine = [each for each in ranges if each.folder.partition == partition]
        assert mine[0].start_offset == base_offset
        assert mine[-1].end_offset == base_offset + sum(counts)
        assert all(one.end_offset == other.start_offset for one, other in pairwise(mine))
        assert all(each.size > 0 for each in mine)
        assert all(records_max is None or each.size <= records_max for each in mine)
        assert read_layout(mine[0].folder).end_offset == mine[-1].end_offset


def test_damaged_end_of_a_log_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    write_partition(tmp_path / "a-0", batches([10] * 3), with_indexes=False)
    log = tmp_path / "a-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[16] = 9
    log.write_bytes(data)
    with pytest.raises(SeglogError, match=rf"{log}, position 0"):
        plan(tmp_path)


def test_range_is_cut_into_no_more_pieces_than_it_has_offsets(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", batches([3, 2]))
    assert [end - start for _, start, end in spans(plan(tmp_path, minPartitions=100_000))] == [1] * 5


def test_more_tasks_than_spark_can_plan_are_refused_by_the_options_name(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", [batch(0, 1), batch(2**30 - 1, 1)])
    with pytest.raises(InvalidOptionError) as raised:
        plan(tmp_path, maxRecordsPerPartition=10)
    assert raised.value.message == (
        "maxRecordsPerPartition is 10, which makes 107374183 tasks of 1073741824 offsets, "
        "and there may be no more than 100000: set it higher"
    )
    assert len(plan(tmp_path, maxRecordsPerPartition=2**29)) == 2


def test_folder_of_a_partition_that_kafka_cannot_have_is_refused_with_the_reason(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-2147483648", batches([3]))
    with pytest.raises(PathNotFoundError, match="with a partition of at most 2147483647"):
        plan(tmp_path / "events-2147483648")
    with pytest.raises(PathNotFoundError, match="it holds events-2147483648"):
        plan(tmp_path)


def test_pattern_that_backtracks_for_ever_is_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MATCH_SECONDS_MAX", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    write_partition(tmp_path / f"{'a' * 200}b-0", batches([3]))
    with pytest.raises(InvalidOptionError, match=r"subscribePattern '\(a\+\)\+' cannot be matched .* in 0.2 s"):
        plan(tmp_path, subscribePattern="(a+)+")
    assert signal.getsignal(signal.SIGALRM) == before
    assert plan(tmp_path, subscribePattern="a+b")


def test_pattern_is_matched_in_any_thread(log_dir: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(plan, log_dir, subscribePattern="a").result()) == 2


def with_groups(log_dir: Path) -> Path:
    """Add what two groups have committed of some partitions."""
    offsets = {"g": {("a", 0): 23, ("b", 0): 1050}, "ahead": {("a", 0): 60, ("a", 1): 100, ("b", 0): 1000}}
    write_groups(log_dir, {group: commits(group, of_group) for group, of_group in offsets.items()})
    return log_dir


def test_group_may_have_committed_on_a_disk_without_a_partition_that_is_read(
    log_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = tmp_path_factory.mktemp("disk")
    write_groups(disk, {"g": commits("g", {("b", 0): 1020})})
    # The disk has a second name, and is not taken for two.
    again = tmp_path_factory.mktemp("links") / "again"
    again.symlink_to(disk)
    paths = [str(disk), str(again)]
    assert spans(plan(log_dir, paths=paths, subscribe="b", startingOffsetsByGroup="g")) == [("b-0", 1020, 1050)]


def test_read_begins_where_a_group_is_and_at_the_start_where_it_has_not_been(log_dir: Path) -> None:
    with_groups(log_dir)
    assert spans(plan(log_dir, startingOffsetsByGroup="g")) == [("a-0", 23, 100), ("a-1", 0, 100)]
    assert spans(plan(log_dir / "b", startingOffsetsByGroup="ahead")) == [("b-0", 1000, 1050)]
    assert spans(plan(log_dir / "a-0", startingOffsetsByGroup="ahead", endingOffsets={"a": {"0": 70}})) == [
        ("a-0", 60, 70)
    ]


def test_reads_up_to_a_group_and_from_it_on_are_all_together(log_dir: Path) -> None:
    with_groups(log_dir)
    done, left = (plan(log_dir, **{f"{which}OffsetsByGroup": "g"}) for which in ("ending", "starting"))
    assert spans(done) == [("a-0", 0, 23), ("b-0", 1000, 1050)]
    assert sum(each.size for each in (*done, *left)) == 250


def test_nothing_is_read_of_a_partition_where_the_group_is_beyond_the_end(log_dir: Path) -> None:
    with_groups(log_dir)
    between = plan(log_dir, startingOffsetsByGroup="g", endingOffsetsByGroup="ahead")
    assert spans(between) == [("a-0", 23, 60), ("a-1", 0, 100)]
    assert spans(plan(log_dir, startingOffsetsByGroup="ahead", endingOffsetsByGroup="g")) == [("b-0", 1000, 1050)]
    until = plan(log_dir / "a", startingOffsetsByGroup="ahead", endingTimestamp=str(START_MS + 50_000))
    assert spans(until) == []


@pytest.mark.parametrize("option", ["startingOffsetsByGroup", "endingOffsetsByGroup"])
def test_committed_offset_that_the_log_has_lost_is_data_loss(
    log_dir: Path, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_groups(log_dir, {"late": commits("late", {("b", 0): 7}), "cut": commits("cut", {("b", 0): 5000})})
    for group, inside in (("late", 1000), ("cut", 1050)):
        with pytest.raises(DataLossError, match=rf"{option} {group} for b-0 is .* \[1000, 1050\)"):
            plan(log_dir / "b", **{option: group})
        found = plan(log_dir / "b", **{option: group, "failOnDataLoss": "false"})
        whole = (inside == 1000) == (option == "startingOffsetsByGroup")
        assert spans(found) == ([("b-0", 1000, 1050)] if whole else [])
        assert "data may have been lost" in caplog.text


def test_group_whose_offsets_are_elsewhere_is_found_where_it_is_said(log_dir: Path, tmp_path_factory: Any) -> None:
    with pytest.raises(InvalidOptionError, match="consumerOffsetsPath"):
        plan(log_dir, startingOffsetsByGroup="g")
    elsewhere = with_groups(tmp_path_factory.mktemp("elsewhere"))
    for path in (str(elsewhere), json.dumps([str(elsewhere)])):
        found = plan(log_dir, startingOffsetsByGroup="g", consumerOffsetsPath=path, subscribe="a")
        assert spans(found) == [("a-0", 23, 100), ("a-1", 0, 100)]


def test_group_that_is_not_there_is_refused(log_dir: Path) -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'ahead'"):
        plan(with_groups(log_dir), startingOffsetsByGroup="ahed")
    with pytest.raises(InvalidOptionError, match="names no group"):
        plan(log_dir, startingOffsetsByGroup="")
