"""The same directories compacted by a real broker and by us: a consumer is given the same records of both.

A broker makes the workloads and is stopped. Its log directory is copied; the broker is started again and cleans its
own, and we clean the copy. Then the newest broker adopts what we cleaned, serves it, and cleans it once more.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cleaner.compaction_pass import Compacted, compact
from sparklog.cleaner.opened import open_to_clean
from sparklog.cleaner.rewriting import Rewriter
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from sparklog.log.reader import IsolationLevel
from sparklog.record.rewrite.offset_map import OffsetMap
from tests.cleaner.logs import findings
from tests.golden import decoded
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker, HarnessError
from tests.kafka.compaction_workloads import ALWAYS, NEVER, NEW, OLD, Workload
from tests.kafka.content import segment_bytes
from tests.kafka.jars import NEWEST
from tests.kafka.jars import OLD as OLD_VERSION
from tests.places import folder_at

pytestmark = pytest.mark.kafka

LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
CLEAN_TIMEOUT_S = 60
OLD_S = 3 * 86_400
PROPERTIES = {"log.cleaner.backoff.ms": 200, "log.retention.check.interval.ms": 600_000}
HEADER_FIELDS = (
    "magic", "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch",
    "record_count", "attributes", "max_timestamp",
)  # fmt: skip
READ = ("offset", "timestamp", "timestampType", "key", "value", "headers")
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}

Rows = dict[IsolationLevel, dict[str, list[Any]]]


@dataclass
class Run:
    """What came of the workloads of one broker, by topic.

    Attributes
    ----------
    results : mapping of str to Compacted
        Of our compactions.
    ours, theirs : Path
        The log directories that we and the broker cleaned.
    told : Rows
        What a consumer reads of the broker's.
    told_of_ours, told_at_last : Rows
        What a consumer of a broker that adopted ours reads, before and after that broker cleans it.
    complaints : list of str
        Of the broker that adopted ours.
    """

    results: dict[str, Compacted]
    ours: Path
    theirs: Path
    told: Rows
    told_of_ours: Rows = field(default_factory=dict)
    told_at_last: Rows = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def config_of(workload: Workload) -> LogConfig:
    """Return what we clean a topic by."""
    taken = {name: value for name, value in workload.config.items() if name.endswith((".lag.ms", ".retention.ms"))}
    properties = {
        "segment.bytes": workload.segment_bytes,
        "index.interval.bytes": 512,
        "file.delete.delay.ms": 0,
        **ALWAYS,
        **taken,
    }
    return LogConfig.from_properties({name: str(value) for name, value in properties.items()})


def clean_offsets(log_dir: Path) -> dict[TopicPartition, int]:
    path = log_dir / "cleaner-offset-checkpoint"
    return parse_offset_checkpoint(path.read_bytes(), str(path)) if path.exists() else {}


def compacted(log_dir: Path, workload: Workload) -> Compacted:
    """Compact a topic of a stopped broker's directory."""
    at, config, now_ms = folder_at(log_dir / f"{workload.topic}-0"), config_of(workload), wall_clock_ms()
    checkpoint = clean_offsets(log_dir).get(TopicPartition(workload.topic, 0))
    log = open_to_clean(at, config, now_ms)
    return compact(log, Rewriter(at, config, now_ms), OffsetMap(1 << 20), checkpoint)


def wait_until_clean_to(broker: Broker, offsets: dict[str, int]) -> None:
    """Wait until the broker has cleaned topics up to offsets, and the old files are gone."""
    deadline = time.monotonic() + CLEAN_TIMEOUT_S
    while True:
        reached = clean_offsets(broker.log_dir)
        missing = {
            topic: offset for topic, offset in offsets.items() if reached.get(TopicPartition(topic, 0), 0) < offset
        }
        old = [path for topic in offsets for path in (broker.log_dir / f"{topic}-0").glob("*.deleted")]
        if not missing and not old:
            return
        if time.monotonic() > deadline:
            raise HarnessError(f"not clean: {missing}, {reached}, {old}\n{broker.log_text()[-4000:]}")
        time.sleep(0.2)


def consumed(broker: Broker, topics: Sequence[str]) -> Rows:
    told: Rows = {}
    for level in LEVELS:
        told[level] = {topic: [] for topic in topics}
        for row in broker.consume(*topics, isolation=level):
            told[level][row["topic"]].append(fields_of(decoded(row)))
    return told


def fields_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a consumer is told of a record; the type of a timestamp that is not there may be any."""
    kind = row["timestampType"] if row["timestamp"] >= 0 else None
    return (row["offset"], row["timestamp"], kind, row["key"], row["value"], tuple(map(tuple, row["headers"])))


def read(folder: Path, level: IsolationLevel) -> list[tuple[Any, ...]]:
    """Return what our own reader gives of a log, as `fields_of` a consumer's row."""
    with sparklog.open_log(str(folder)) as log:
        rows = log.read(isolation_level=level, columns=READ)
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    pairs = zip(rows["timestampType"].to_pylist(), times, strict=True)
    kinds = [TIMESTAMP_TYPES[kind] if at >= 0 else None for kind, at in pairs]
    headers = [tuple((each["key"], each["value"]) for each in of_row or ()) for of_row in rows["headers"].to_pylist()]
    columns = (rows["offset"].to_pylist(), times, kinds, rows["key"].to_pylist(), rows["value"].to_pylist(), headers)
    return list(zip(*columns, strict=True))


def run(directory: Path, version: str, workloads: Sequence[Workload]) -> Run:
    """Have a broker make workloads and clean them; clean a copy; have the newest broker adopt that and clean it."""
    topics, ours = [each.topic for each in workloads], directory / "ours"
    with Broker.start(directory / "theirs", version=version, properties=PROPERTIES) as broker:
        for each in workloads:
            each.make(broker)
        broker.tool.kill()
        broker.stop()
        shutil.copytree(broker.log_dir, ours)
        results = {each.topic: compacted(ours, each) for each in workloads}
        broker.restart()
        for topic in topics:
            broker.alter_topic(topic, ALWAYS)
        wait_until_clean_to(broker, {topic: result.clean_offset for topic, result in results.items()})
        found = Run(results, ours, directory / "kept", consumed(broker, topics))
        broker.stop()
        shutil.copytree(broker.log_dir, found.theirs)
    adopt_and_clean(directory / "adopting", workloads, found)
    return found


def adopt_and_clean(directory: Path, workloads: Sequence[Workload], found: Run) -> None:
    topics = [each.topic for each in workloads]
    starts = _starts(found.ours)
    with Broker.start(directory, properties=PROPERTIES) as broker:
        for each in workloads:
            config = {name: each.config[name] for name in each.config if name != "message.format.version"}
            config |= {
                **segment_bytes(broker, each.segment_bytes),
                "cleanup.policy": "compact",
                "file.delete.delay.ms": 100,
                **NEVER,
            }
            broker.create_topic(each.topic, config=config)
        broker.stop()
        with adoption(broker, trust_indexes=True) as adopt:
            for topic in topics:
                adopt(topic, 0, found.ours / f"{topic}-0", log_start_offset=starts.get(TopicPartition(topic, 0)))
                for log in (broker.log_dir / f"{topic}-0").glob("*.log"):
                    # A segment of which nothing stays is as old as its file, and a young one would not be cleaned.
                    os.utime(log, (time.time() - OLD_S, time.time() - OLD_S))
        broker.restart()
        found.told_of_ours = consumed(broker, topics)
        for topic in topics:
            broker.alter_topic(topic, ALWAYS)
        wait_until_clean_to(broker, {topic: result.clean_offset for topic, result in found.results.items()})
        found.told_at_last = consumed(broker, topics)
        found.complaints = broker.complaints()


def _starts(log_dir: Path) -> dict[TopicPartition, int]:
    path = log_dir / "log-start-offset-checkpoint"
    return parse_offset_checkpoint(path.read_bytes(), str(path))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("new"), NEWEST, NEW)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("old"), OLD_VERSION, OLD)


@pytest.fixture(
    params=[*(("new", each) for each in NEW), *(("old", each) for each in OLD)], ids=lambda each: each[1].topic
)
def case(request: pytest.FixtureRequest) -> tuple[Run, Workload]:
    name, workload = request.param
    return request.getfixturevalue(name), workload


def headers_of(folder: Path) -> list[tuple[int, ...]]:
    """Return what the headers of the batches in sealed segments say, but for when a horizon is."""
    found = []
    for segment in read_layout(folder_at(folder)).segments:
        with segment.open() as log:
            for window in log.windows(log.start):
                found += [tuple(int(batch[name]) for name in HEADER_FIELDS) for batch in window.headers.table]
    return found


def test_consumer_is_given_the_records_that_a_broker_leaves(case: tuple[Run, Workload]) -> None:
    found, workload = case
    result = found.results[workload.topic]
    assert result.is_due
    assert result.rounds == 1
    assert result.removed_records > 0
    for level in LEVELS:
        told = found.told[level][workload.topic]
        assert told
        assert read(found.ours / f"{workload.topic}-0", level) == told
        assert found.told_of_ours[level][workload.topic] == told


def test_batches_are_those_that_a_broker_leaves(new: Run) -> None:
    """Of a group that ends with nothing, ours has an empty batch more, so that its swap can be finished."""
    for workload in NEW:
        ours, theirs = (headers_of(log_dir / f"{workload.topic}-0") for log_dir in (new.ours, new.theirs))
        more = [batch for batch in ours if batch not in theirs]
        assert [batch for batch in ours if batch not in more] == theirs, workload.topic
        assert {batch[HEADER_FIELDS.index("record_count")] for batch in more} <= {0}


def test_transaction_indexes_are_those_that_a_broker_leaves(new: Run) -> None:
    for workload in NEW:
        ours, theirs = (
            {path.name: path.read_bytes() for path in (log_dir / f"{workload.topic}-0").glob("*.txnindex")}
            for log_dir in (new.ours, new.theirs)
        )
        assert ours == theirs, workload.topic


def test_nothing_is_wrong_with_what_is_left(case: tuple[Run, Workload]) -> None:
    found, workload = case
    assert findings(found.ours / f"{workload.topic}-0") == []


def test_broker_cleans_what_we_cleaned_and_leaves_the_same(case: tuple[Run, Workload]) -> None:
    found, workload = case
    for level in LEVELS:
        told, at_last = (rows[level][workload.topic] for rows in (found.told, found.told_at_last))
        assert [row for row in at_last if row[4] is not None] == [row for row in told if row[4] is not None]
    assert found.complaints == []
