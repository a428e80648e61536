"""Offsets that were set in a stopped cluster: its broker hands them out, and a consumer of the group goes on there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

import sparklog
from sparklog import views
from sparklog.errors import BrokerRunningError, InvalidOptionError
from sparklog.log.layout import read_layout
from sparklog.system.group_commits import read_group
from sparklog.system.messages import message
from sparklog.system.records import InternalLog
from sparklog.topic.internal.groups import partition_of_group
from sparklog.topic.internal.set_offsets import Goal, OffsetRequest, set_group_offsets
from tests.kafka import admin
from tests.kafka.broker import Broker, Record
from tests.kafka.cluster_scenario import PROPERTIES, RECORDS, build
from tests.kafka.jars import NEWEST, OLD, is_zookeeper
from tests.places import folder_at

pytestmark = pytest.mark.kafka

YEAR_MS = 365 * 86_400_000
EXPIRED_TIMEOUT_S = 30


@pytest.fixture(scope="module", params=[NEWEST, OLD])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("set") / "broker"
    # A broker that looks for expired offsets all the time finds those that it should not.
    properties = {**PROPERTIES, "offsets.retention.check.interval.ms": 200}
    with Broker.start(directory, version=request.param, properties=properties) as broker:
        build(broker)
        broker.create_topic("unread")
        broker.produce([Record("unread", b"k", b"%d" % n) for n in range(RECORDS)])
        yield broker


def set_offsets(broker: Broker, group: str, goal: Goal, *topics: str, forced: bool = False) -> int:
    request = OffsetRequest(group, dict.fromkeys(topics, ()), goal, is_forced=forced)
    done = set_group_offsets([broker.log_dir], request, executes=True)
    assert done.log_offset is not None
    return len(done.changes)


def handed_out(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    return {(row["topic"], row["partition"]): row["offset"] for row in broker.group_offsets(group)}


def age(broker: Broker, group: str) -> None:
    """Write the record of a stopped broker's group again, empty for a year."""
    number = partition_of_group(group, int(str(PROPERTIES["offsets.topic.num.partitions"])))
    folder = broker.log_dir / f"__consumer_offsets-{number}"
    found = read_group(InternalLog(read_layout(folder_at(folder))), group)
    assert found.classic is not None
    since = {**found.classic, "currentStateTimestamp": found.classic["currentStateTimestamp"] - YEAR_MS}
    key = b"\0\2" + message("GroupMetadataKey").encode({"group": group}, 0)
    value = message("GroupMetadataValue").encode_versioned(since, found.classic_version)
    with sparklog.PartitionLog.open(folder) as log:
        log.append({"key": [key], "value": [value]})


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_broker_hands_out_what_was_set_and_consumers_go_on_there(
    broker: Broker, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BrokerRunningError):
        set_offsets(broker, "readers", Goal(offset=7), "orders")
    (broker.stop if end == "stop" else broker.kill)()
    set_offsets(broker, "readers", Goal(offset=7), "orders")
    set_offsets(broker, "readers", Goal(word="earliest"), "clicks")
    assert set_offsets(broker, "by-hand", Goal(shift=-2)) == 5
    set_offsets(broker, "by-transaction", Goal(word="latest"), "orders")
    with caplog.at_level(logging.WARNING, "sparklog"):
        set_offsets(broker, f"made-after-{end}", Goal(offset=16), "unread")
    with pytest.raises(InvalidOptionError, match="has members"):
        set_offsets(broker, "lively-classic", Goal(offset=2), "orders")
    if not is_zookeeper(broker.version):
        set_offsets(broker, "left-consumer", Goal(offset=3), "orders")
        with pytest.raises(InvalidOptionError, match="is a share group"):
            set_offsets(broker, "sharers", Goal(offset=2), "orders")
    expected = views.lag(broker.log_dir).to_pylist()
    broker.restart()

    assert handed_out(broker, "readers") == {
        **{("orders", n): 7 for n in range(3)},
        **{("clicks", n): 6 * (n == 0) for n in range(4)},
    }
    assert handed_out(broker, f"made-after-{end}") == {("unread", 0): 16}
    for group in ("readers", "by-hand", "by-transaction", f"made-after-{end}"):
        told = {(row["topic"], row["partition"]): row["current_offset"] for row in expected if row["group"] == group}
        assert handed_out(broker, group) == told
        assert {row["CURRENT-OFFSET"] for row in admin.lag(broker) if row["GROUP"] == group} == set(
            map(str, told.values())
        )
    if not is_zookeeper(broker.version):
        assert set(handed_out(broker, "left-consumer").values()) == {3}
    rows = broker.ask_rows("group_read", group=f"made-after-{end}", topics=["unread"])[0]
    assert [row["offset"] for row in rows] == list(range(16, RECORDS))
    assert broker.complaints() == []


def test_offsets_of_a_group_that_has_been_empty_for_long_do_not_expire(broker: Broker) -> None:
    """A broker lets offsets expire by the time since when the group is empty, and not by that of their commit."""
    for group in ("long-gone", "long-lost"):
        broker.group_consume(group, "unread", **{"group.protocol": "classic"})
    broker.stop()
    for group in ("long-gone", "long-lost"):
        age(broker, group)
    set_offsets(broker, "long-gone", Goal(offset=5), "unread")
    broker.restart()
    deadline = time.monotonic() + EXPIRED_TIMEOUT_S
    while handed_out(broker, "long-lost"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert handed_out(broker, "long-gone") == {("unread", 0): 5}
