"""Our tables of a directory are what the admin tools of its broker said before it ended, by a kill or a clean stop."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparklog import views
from tests.kafka import admin
from tests.kafka.broker import Broker
from tests.kafka.cluster_scenario import PROPERTIES, build
from tests.kafka.jars import NEWEST, OLD, is_zookeeper

pytestmark = pytest.mark.kafka

ENDS = ("killed", "stopped")
LAG_COLUMNS = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "CURRENT-OFFSET": "current_offset",
    "LOG-END-OFFSET": "log_end_offset",
    "LAG": "lag",
    "CONSUMER-ID": "consumer_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
}


@dataclass
class Cluster:
    """What a broker's tools said of it, and what it left."""

    version: str
    directories: dict[str, Path] = field(default_factory=dict)
    said: dict[str, dict[str, Any]] = field(default_factory=dict)

    def ask(self, broker: Broker, end: str) -> None:
        """Ask the tools for everything, before the broker ends."""
        self.said[end] = {
            "lag": admin.lag(broker),
            "states": admin.group_states(broker),
            "members": admin.group_members(broker),
            "topics": admin.topics(broker),
            "topic_configs": {name: admin.configs(broker, "topics", name) for name in ("orders", "clicks")},
            "broker_configs": admin.configs(broker, "brokers", "1"),
            "offsets": [row for group in self.groups(broker) for row in broker.group_offsets(group)],
        }
        if not is_zookeeper(self.version):
            self.said[end]["transactions"] = admin.transactions(broker)
            self.said[end]["group_configs"] = admin.configs(broker, "groups", "sharers")
            self.said[end]["share"] = admin.share_groups(broker)

    def groups(self, broker: Broker) -> list[str]:
        return sorted({row["GROUP"] for row in admin.group_states(broker)})

    def keep(self, broker: Broker, end: str, target: Path) -> None:
        """Copy what the broker left; it has ended."""
        shutil.copytree(broker.directory, target)
        self.directories[end] = target

    def logs(self, end: str) -> Path:
        return self.directories[end] / "logs"

    def metadata(self, end: str) -> Path:
        """Return the directory of the cluster's metadata; a cluster with ZooKeeper has them there."""
        if is_zookeeper(self.version):
            pytest.skip("its metadata are in ZooKeeper")
        return self.directories[end] / "metadata"


@pytest.fixture(scope="module", params=[NEWEST, OLD])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Fill a cluster, kill its broker, start it again, and stop it; members and producers live through all of it."""
    scratch = tmp_path_factory.mktemp("cluster")
    found = Cluster(request.param)
    with Broker.start(scratch / "broker", version=found.version, properties=PROPERTIES) as broker:
        build(broker)
        found.ask(broker, "killed")
        broker.kill()
        found.keep(broker, "killed", scratch / "killed")
        broker.restart()
        broker.commit_group_offsets("after-the-kill", [("orders", 0, 4, "")])
        found.ask(broker, "stopped")
        broker.stop()
        found.keep(broker, "stopped", scratch / "stopped")
    return found


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_lag_is_what_the_tool_prints(cluster: Cluster, end: str) -> None:
    printed = {tuple(row[title] for title in LAG_COLUMNS) for row in cluster.said[end]["lag"]}
    found = {
        tuple(admin.NO_VALUE if row[name] is None else str(row[name]) for name in LAG_COLUMNS.values())
        for row in views.lag(cluster.logs(end)).to_pylist()
    }
    assert found == printed
    assert len(printed) == len(cluster.said[end]["lag"])
    # All that there can be is in it.
    columns = [Counter(row[number] == admin.NO_VALUE for row in printed) for number in (3, 6)]
    assert all(count[True] and count[False] for count in columns)


def test_committed_offsets_are_what_the_broker_hands_out(cluster: Cluster, end: str) -> None:
    handed = {
        (row["group"], row["topic"], row["partition"], row["offset"], row["metadata"])
        for row in cluster.said[end]["offsets"]
    }
    rows = views.read(cluster.logs(end), "consumer_offsets").to_pylist()
    found = {tuple(row[name] for name in ("group", "topic", "partition", "offset", "metadata")) for row in rows}
    assert found == handed
    assert ("by-transaction", "orders", 0, 5, "committed") in found
    assert ("by-transaction", "clicks", 1, 8, "") in found
    assert ("by-hand", "clicks", 0, 2, "é") in found


def test_groups_and_their_members_are_what_the_tool_prints(cluster: Cluster, end: str) -> None:
    states = {
        row["GROUP"]: (row["STATE"], int(row["#MEMBERS"]), row["ASSIGNMENT-STRATEGY"].strip(admin.NO_VALUE))
        for row in cluster.said[end]["states"]
    }
    groups = {
        row["group"]: row
        for row in views.read(cluster.logs(end), "consumer_groups").to_pylist()
        if row["type"] in ("classic", "consumer")
    }
    assert set(groups) == set(states)
    for name, (state, members, strategy) in states.items():
        assert (groups[name]["state"], len(groups[name]["members"])) == (state, members), name
        # The log of a consumer group does not say how partitions are assigned: its brokers know.
        if groups[name]["type"] == "classic":
            assert (groups[name]["protocol"] or "") == strategy, name
    printed = {
        (row["GROUP"], row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"], int(row["#PARTITIONS"]), _assignment(row))
        for row in cluster.said[end]["members"]
    }
    assert printed == {
        (
            name,
            member["member_id"],
            member["client_host"],
            member["client_id"],
            sum(len(each["partitions"]) for each in member["assigned_partitions"]),
            frozenset((each["topic"], tuple(each["partitions"])) for each in member["assigned_partitions"]),
        )
        for name, group in groups.items()
        for member in group["members"]
    }
    assert {row["GROUP"] for row in cluster.said[end]["members"]} >= {"lively-classic"}


def _assignment(row: admin.Row) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Read ``orders:0,1;empty:0`` of the new tool, or ``orders(0,1), empty(0)`` of the old one."""
    text = row.get("CURRENT-ASSIGNMENT", row.get("ASSIGNMENT", ""))
    pieces = text.replace("), ", ";").replace("(", ":").rstrip(")").split(";")
    named = (piece.split(":") for piece in pieces)
    return frozenset((topic, tuple(map(int, numbers.split(",")))) for topic, numbers in named)


def test_transactions_are_what_the_tool_prints(cluster: Cluster, end: str) -> None:
    found = {row["transactional_id"]: row for row in views.read(cluster.logs(end), "transactions").to_pylist()}
    states = {name: row["state"] for name, row in found.items()}
    assert states == {
        "t-empty": "Empty",
        "t-committed": "CompleteCommit",
        "t-aborted": "CompleteAbort",
        "t-ongoing": "Ongoing",
        "t-hanging": "Ongoing",
    }
    # The tool came with brokers of 3.0, which are the first to answer it.
    for row in cluster.said[end].get("transactions", ()):
        mine = found.pop(row["TransactionalId"])
        partitions = {f"{each['topic']}-{n}" for each in mine["partitions"] for n in each["partitions"]}
        assert partitions == {name for name in row["TopicPartitions"].split(",") if name}
        numbers = ("ProducerId", "ProducerEpoch", "TransactionTimeoutMs")
        assert [mine[name] for name in ("producer_id", "producer_epoch", "timeout_ms")] == [
            int(row[n]) for n in numbers
        ]
        assert mine["state"] == row["TransactionState"]
        began = mine["start_timestamp"]
        if row["CurrentTransactionStartTimeMs"] not in ("None", "-", ""):
            assert round(began.timestamp() * 1000) == int(row["CurrentTransactionStartTimeMs"])
    assert is_zookeeper(cluster.version) or not found


def test_histories_have_what_became_of_the_rest(cluster: Cluster, end: str) -> None:
    rows = views.read(cluster.logs(end), "consumer_offsets", history=True).to_pylist()
    assert not [row for row in rows if row["raw_key"] is not None or row["raw_value"] is not None]
    by_hand = [
        row["offset"] for row in rows if (row["group"], row["topic"], row["partition"]) == ("by-hand", "orders", 0)
    ]
    assert by_hand == [3, 7]
    of_transactions = {(row["offset"], row["transaction"]) for row in rows if row["transaction"] is not None}
    assert of_transactions == {(5, "committed"), (9, "aborted"), (11, "open")}
    assert {row["topic"] for row in rows if row["is_tombstone"]} >= {"doomed"}
    states = [
        row["state"]
        for row in views.read(cluster.logs(end), "transactions", history=True).to_pylist()
        if row["transactional_id"] == "t-committed"
    ]
    assert [state for state in ("Ongoing", "PrepareCommit", "CompleteCommit") if state in states] == states[-3:]


def test_topics_and_partitions_are_what_the_tool_prints(cluster: Cluster, end: str) -> None:
    path, printed = cluster.metadata(end), cluster.said[end]["topics"]
    topics = {row["topic"]: row for row in views.read(path, "cluster_topics").to_pylist()}
    assert {name: (row["topic_id"], row["partitions"]) for name, row in topics.items()} == {
        name: (row["id"], len(row["partitions"])) for name, row in printed.items()
    }
    assert "doomed" not in topics
    found = {(row["topic"], row["partition"]): row for row in views.read(path, "cluster_partitions").to_pylist()}
    assert set(found) == {(name, number) for name, row in printed.items() for number in row["partitions"]}
    for (name, number), row in found.items():
        of_tool = printed[name]["partitions"][number]
        assert row["replicas"] == of_tool["Replicas"]
        if end == "killed":
            assert (row["leader"], row["isr"]) == (of_tool["leader"], of_tool["Isr"])
        else:
            # A broker that stops gives up what it leads, after the tool has asked; no other is there to take it.
            assert (row["leader"], row["isr"], row["eligible_leader_replicas"]) == (None, [], of_tool["Isr"])


def test_configs_are_what_the_tool_prints(cluster: Cluster, end: str) -> None:
    rows = views.read(cluster.metadata(end), "cluster_configs").to_pylist()
    said = cluster.said[end]
    printed = {("topic", name): configs for name, configs in said["topic_configs"].items()}
    printed |= {("broker", "1"): said["broker_configs"], ("group", "sharers"): said["group_configs"]}
    for (kind, name), configs in printed.items():
        of_resource = [row for row in rows if (row["resource_type"], row["resource_name"]) == (kind, name)]
        assert {row["name"]: row["value"] for row in of_resource} == configs, name
    assert said["topic_configs"]["orders"] == {"retention.ms": "86400000", "segment.bytes": "1048576"}


def test_share_group_is_where_the_tool_says(cluster: Cluster, end: str) -> None:
    if is_zookeeper(cluster.version):
        pytest.skip("it has no share groups")
    found = {
        (row["group"], row["topic"], str(row["partition"]), str(row["start_offset"]))
        for row in views.read(cluster.logs(end), "share_group_state").to_pylist()
    }
    columns = ("GROUP", "TOPIC", "PARTITION", "START-OFFSET")
    assert found == {tuple(row[name] for name in columns) for row in cluster.said[end]["share"]}
    (group,) = (
        row for row in views.read(cluster.logs(end), "consumer_groups").to_pylist() if row["group"] == "sharers"
    )
    assert (group["type"], group["state"], len(group["members"])) == ("share", "Stable", 1)
