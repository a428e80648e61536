"""A group that commits at a broker and here in turn: the later commit counts for readers here, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sparklog
from sparklog import views
from sparklog.log.files import TopicPartition
from sparklog.topic.internal.set_offsets import Goal, OffsetRequest, set_group_offsets
from tests.kafka.broker import Broker, Record
from tests.kafka.cluster_scenario import create_again
from tests.kafka.jars import NEWEST, OLD, is_zookeeper

pytestmark = pytest.mark.kafka

TOPIC, GROUP, RECORDS = "orders", "workers", 60
AT = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module", params=[NEWEST, OLD])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("truth") / "broker"
    properties = {"offsets.topic.num.partitions": 3}
    with Broker.start(directory, version=request.param, properties=properties) as broker:
        broker.create_topic(TOPIC)
        broker.produce([Record(TOPIC, None, b"%d" % n) for n in range(RECORDS)])
        yield broker


def told(path: Path) -> tuple[int, str]:
    """Return the offset that every reader of ours goes on from, and where it is committed."""
    (row,) = views.lag(path, GROUP).to_pylist()
    (offset,) = views.read(path, "consumer_offsets").filter(_of_group(path)).to_pylist()
    with sparklog.open_topic(path / TOPIC) as topic:
        assert topic.offsets_for_group(GROUP) == {AT: row["current_offset"]}
    with sparklog.Consumer(path, TOPIC, group_id=GROUP, enable_auto_commit=False) as consumer:
        assert consumer.committed(AT) == consumer.position(AT) == row["current_offset"] == offset["offset"]
    assert row["committed_in"] == offset["committed_in"]
    return row["current_offset"], row["committed_in"]


def _of_group(path: Path) -> list[bool]:
    return [group == GROUP for group in views.read(path, "consumer_offsets")["group"].to_pylist()]


def commit_here(path: Path, offset: int) -> None:
    with sparklog.Consumer(path, TOPIC, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.commit({AT: offset})


def test_later_commit_counts_and_what_is_set_counts_for_the_broker_too(broker: Broker) -> None:
    path = broker.log_dir
    for offset in (10, 40):
        commit_here(path, offset)
        assert told(path) == (offset, "seglog.offsets")
        broker.commit_group_offsets(GROUP, [(TOPIC, 0, offset + 10, "")])
        assert told(path) == (offset + 10, "__consumer_offsets")
    commit_here(path, 55)
    broker.stop()
    assert told(path) == (55, "seglog.offsets")
    request = OffsetRequest(GROUP, {TOPIC: ()}, Goal(shift=-25))
    (change,) = set_group_offsets([path], request, executes=True).changes
    assert (change.current_offset, change.new_offset) == (55, 30)
    assert told(path) == (30, "__consumer_offsets")
    broker.restart()
    assert [row["offset"] for row in broker.group_offsets(GROUP)] == [30]
    broker.group_consume(GROUP, TOPIC, **{"group.protocol": "classic"})
    assert told(path) == (RECORDS, "__consumer_offsets")
    if is_zookeeper(broker.version):
        # Its topics have no ids.
        return
    broker.delete_topic(TOPIC)
    create_again(broker, TOPIC, 1)
    broker.produce([Record(TOPIC, None, b"new") for _ in range(RECORDS)])
    with sparklog.Consumer(path, TOPIC, group_id=GROUP, auto_offset_reset="earliest") as consumer:
        assert consumer.position(AT) == 0
