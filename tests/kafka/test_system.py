"""Views of a cluster that made snapshots of its metadata, and of a share group, beside what Kafka's tools say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog import views
from sparklog.log.checkpoints import parse_topic_id
from tests.kafka.broker import Broker, Record
from tests.kafka.jars import NEWEST_TOOLS
from tests.kafka.jvm import run_java

pytestmark = pytest.mark.kafka

TOPICS = [f"topic-{number}" for number in range(8)]
DELETED = "topic-3"
SHARED, GROUP = "topic-0", "sharing"
PROPERTIES: dict[str, object] = {
    "metadata.log.dir": None,
    "metadata.log.max.record.bytes.between.snapshots": 2000,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2,
}
_TOOLS = "org.apache.kafka.tools.consumer"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[list[str]]]]:
    """The log directory of a broker that was stopped, and what ``kafka-share-groups`` said before."""
    directory = tmp_path_factory.mktemp("broker")
    with Broker.start(directory, properties=PROPERTIES) as broker:

        def tool(name: str, *arguments: str) -> str:
            return run_java(NEWEST_TOOLS, [name, "--bootstrap-server", broker.bootstrap, *arguments], directory)

        for number, topic in enumerate(TOPICS):
            broker.create_topic(topic, partitions=3, config={"retention.ms": 1000000 + number})
        broker.delete_topic(DELETED)
        broker.produce([Record(SHARED, b"key", b"value %d" % number) for number in range(20)])
        earliest = ("--add-config", "share.auto.offset.reset=earliest")
        tool("kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups", "--entity-name", GROUP, *earliest)
        limits = ("--max-messages", "7", "--timeout-ms", "20000")
        tool(f"{_TOOLS}.ConsoleShareConsumer", "--topic", SHARED, "--group", GROUP, *limits)
        said = tool(f"{_TOOLS}.group.ShareGroupCommand", "--describe", "--group", GROUP)
        broker.stop()
        yield broker.log_dir, [line.split() for line in said.splitlines() if line.strip()]


def rows(path: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = views.read(path, name).to_pylist()
    return found


def test_topics_are_those_that_were_made_and_not_deleted(stopped: tuple[Path, list[list[str]]]) -> None:
    logs, _ = stopped
    found = {row["topic"]: row for row in rows(logs, "cluster_topics")}
    assert [name for name in found if not name.startswith("__")] == [each for each in TOPICS if each != DELETED]
    for name, row in found.items():
        path = logs / f"{name}-0" / "partition.metadata"
        assert row["topic_id"] == parse_topic_id(path.read_bytes(), str(path))
        assert row["partitions"] == len(list(logs.glob(f"{name}-[0-9]")))
        if name in TOPICS:
            assert ("retention.ms", str(1000000 + TOPICS.index(name))) in row["configs"]
    configs = [(row["resource_type"], row["resource_name"], row["value"]) for row in rows(logs, "cluster_configs")]
    assert ("group", GROUP, "earliest") in configs


def test_snapshot_and_the_log_behind_it_make_what_the_whole_log_makes(
    tmp_path: Path, stopped: tuple[Path, list[list[str]]]
) -> None:
    logs, _ = stopped
    assert any(row["snapshot"] for row in rows(logs, "cluster_metadata"))
    shutil.copytree(logs / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    for path in tmp_path.rglob("*.checkpoint"):
        path.unlink()
    for name in views.NAMES:
        if name.startswith("cluster_") and name != "cluster_metadata":
            assert rows(tmp_path, name) == rows(logs, name), name
    assert not any(row["snapshot"] for row in rows(tmp_path, "cluster_metadata"))


def test_share_group_is_as_the_tool_says(stopped: tuple[Path, list[list[str]]]) -> None:
    logs, (titles, *lines) = stopped
    assert len(lines) == 3
    told = [dict(zip(titles, line, strict=True)) for line in lines]
    found = {(row["topic"], row["partition"]): row["start_offset"] for row in rows(logs, "share_group_state")}
    for each in told:
        start = found[each["TOPIC"], int(each["PARTITION"])]
        assert str(start if start is not None else "-") == each["START-OFFSET"]
    (group,) = [row for row in rows(logs, "consumer_groups") if row["group"] == GROUP]
    assert (group["type"], group["state"]) == ("share", "Empty")
