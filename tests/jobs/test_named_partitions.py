"""Whatever names a partition to be written to or committed for, it is checked first, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import InvalidOptionError
from sparklog.jobs.clean.arguments import clean
from sparklog.jobs.copy.arguments import copy
from sparklog.topic.write.configs import update_configs
from tests.places import directory_at

TABLE = pa.table({"value": [b"x"]})
PARTITIONS = (-1, 10_000_000, True, 1.0, "1", "../../../e-0", None)
TOPICS = ("../../../e", "a/b", "..", "", None, "__cluster_metadata")
Door = Callable[[Path, Any, Any], object]


def transactional(logs: Path, topic: Any, partition: Any) -> None:
    with sparklog.TransactionalWriter.open(logs, "billing") as writer:
        writer.begin()
        writer.append(topic, partition, TABLE)


def send_offsets(logs: Path, topic: Any, partition: Any) -> None:
    with sparklog.TransactionalWriter.open(logs, "billing") as writer:
        writer.begin()
        writer.send_offsets({(topic, partition): 1}, "group")


def commit(logs: Path, topic: Any, partition: Any) -> None:
    with sparklog.Consumer(logs, group_id="group") as consumer:
        consumer.assign([("events", 0)])
        consumer.commit({(topic, partition): 1})


def send(logs: Path, topic: Any, partition: Any) -> None:
    with sparklog.Producer(logs) as producer:
        producer.send(topic, b"x", partition=0 if partition is None else partition).get(10)


OF_PARTITIONS: dict[str, Door] = {
    "a transaction": transactional,
    "offsets of a transaction": send_offsets,
    "a consumer's commit": commit,
    "a job's partitions": lambda logs, topic, partition: clean(logs, partitions=[(topic, partition)], processes=1),
    "a job's offsets": lambda logs, topic, partition: copy(
        logs, logs.parent / "copied", start_offsets={(topic, partition): 0}, processes=1
    ),
}
OF_TOPICS: dict[str, Door] = {
    **OF_PARTITIONS,
    "a producer": send,
    "a new topic": lambda logs, topic, _: sparklog.LogManager(logs).create_topic(topic),
    "stored properties": lambda logs, topic, _: update_configs(directory_at(logs), topic, {"retention.ms": "1"}),
    "a subscription": lambda logs, topic, _: sparklog.Consumer(logs).subscribe([topic]),
    "a copy": lambda logs, topic, _: copy(logs, logs.parent / "copied", renames={"events": topic}, processes=1),
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    sparklog.LogManager(tmp_path / "a" / "b" / "logs").create_topic("events", 2)
    return tmp_path / "a" / "b" / "logs"


def folders(logs: Path) -> list[str]:
    return sorted(str(path) for path in logs.parents[2].rglob("*") if path.is_dir() and "-" in path.name)


@pytest.mark.parametrize("door", OF_PARTITIONS.values(), ids=OF_PARTITIONS)
def test_number_that_no_partition_has_is_refused_at_every_door(logs: Path, door: Door) -> None:
    before = folders(logs)
    for partition in PARTITIONS:
        with pytest.raises(InvalidOptionError, match="not a partition of topic events"):
            door(logs, "events", partition)
    assert folders(logs) == before


@pytest.mark.parametrize("door", OF_TOPICS.values(), ids=OF_TOPICS)
def test_name_that_no_topic_has_is_refused_at_every_door(logs: Path, door: Door) -> None:
    before = folders(logs)
    for topic in TOPICS:
        with pytest.raises(InvalidOptionError, match="not a topic's name"):
            door(logs, topic, 0)
    assert folders(logs) == before


@pytest.mark.parametrize("name", ["events-10000000", "events-1000000"])
def test_log_with_a_number_that_no_partition_has_is_read_and_not_begun(logs: Path, name: str) -> None:
    with pytest.raises(InvalidOptionError, match="not a partition of topic events"):
        sparklog.PartitionLog.open(logs / name)
    assert not (logs / name).exists()
    (logs / "events-0").rename(logs / name)
    with sparklog.open_log(logs / name) as log:
        assert log.end_offset == 0


def test_more_partitions_than_any_topic_has_are_not_made(logs: Path) -> None:
    with pytest.raises(InvalidOptionError, match="not a partition of topic many: 1000000"):
        sparklog.LogManager(logs).create_topic("many", 1_000_001)
    assert sparklog.LogManager(logs).topics() == {"events": 2}
