"""A broker of a new cluster starts on what a restore made, serves every record, and groups go on where they were."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.inspect.describe import describe_directory
from sparklog.inspect.diff import DiffKind
from tests.kafka import broker as harness
from tests.kafka import jvm
from tests.kafka.broker import Broker, Record
from tests.kafka.jars import NEWEST
from tests.kafka.jvm import run_java
from tests.places import directory_at
from tests.topic.staged import findings

pytestmark = pytest.mark.kafka

TOPIC = "restored"
GROUP = "readers"
CONFIG = {"retention.ms": "-1", "min.insync.replicas": "1", "cleanup.policy": "delete"}
FIELDS = ("partition", "offset", "timestamp", "key", "value", "headers")


@dataclass
class Original:
    """A stopped broker's directories, and what it told: at the time of the cut, and at its end."""

    log_dir: Path
    metadata: Path
    cut_ms: int = 0
    records: dict[bool, list[Any]] = field(default_factory=dict)
    offsets: dict[bool, list[Any]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    with Broker.start(tmp_path_factory.mktemp("original")) as broker:
        told = Original(broker.log_dir, broker.directory / "metadata")
        broker.create_topic(TOPIC, partitions=3, config=CONFIG)
        around, decided = (broker.producer(transactional_id=name) for name in ("around", "decided"))
        broker.produce([record(n) for n in range(60)])
        decided.begin()
        decided.send([record(n, b"committed") for n in range(6)])
        decided.commit()
        decided.begin()
        decided.send([record(n, b"aborted") for n in range(6)])
        decided.abort()
        broker.group_consume(GROUP, TOPIC)
        broker.produce([record(n) for n in range(20)])
        told.records[True] = broker.consume(TOPIC, isolation="read_committed")
        told.offsets[True] = broker.group_offsets(GROUP)
        around.begin()
        around.send([record(n, b"open at the cut") for n in range(3)])
        time.sleep(0.1)
        told.cut_ms = int(time.time() * 1000)
        around.send([record(n, b"late") for n in range(3)])
        around.commit()
        broker.produce([record(n, b"late") for n in range(30)])
        broker.group_consume(GROUP, TOPIC)
        told.records[False] = broker.consume(TOPIC, isolation="read_committed")
        told.offsets[False] = broker.group_offsets(GROUP)
        broker.stop()
        yield told


def record(number: int, value: bytes = b"plain", parts: int = 3) -> Record:
    return Record(TOPIC, b"k%d" % number, b"%s %d" % (value, number), partition=number % parts)


@pytest.mark.parametrize(
    ("is_cut", "is_formatted", "is_backup"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, False), (True, False, True)],
    ids=["whole", "whole, formatted by kafka-storage", "cut", "cut, formatted by kafka-storage", "cut of a backup"],
)
def test_broker_of_a_new_cluster_serves_a_restore(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    original: Original,
    is_cut: bool,
    is_formatted: bool,
    is_backup: bool,
) -> None:
    place, source = tmp_path / "node", original.log_dir
    if is_backup:
        source = tmp_path / "set"
        sparklog.backup(original.log_dir, source)
    if is_formatted:
        format_by_kafka(place)
    summary = sparklog.restore(
        source,
        place / "logs",
        to=original.cut_ms if is_cut else None,
        for_cluster=place / "metadata",
        metadata=original.metadata,
    )
    assert findings(place / "logs") == []
    assert (summary.cluster_id == harness.CLUSTER_ID) == is_formatted
    monkeypatch.setattr(harness, "CLUSTER_ID", summary.cluster_id)
    with Broker.start(place) as broker:
        described = broker.describe_topics(TOPIC)[TOPIC]
        known = sparklog.views.read(original.metadata, "cluster_topics").to_pylist()
        assert described["topic_id"] == next(each["topic_id"] for each in known if each["topic"] == TOPIC)
        assert [each["leader"] for each in described["partitions"]] == [1, 1, 1]
        assert shown(broker.consume(TOPIC, isolation="read_committed")) == shown(original.records[is_cut])
        assert broker.group_offsets(GROUP) == original.offsets[is_cut]
        # The log has no open transaction, and the coordinator neither.
        assert all(each["last_stable"] == each["end"] for each in broker.offsets(TOPIC))
        with broker.producer(transactional_id="around") as again:
            again.begin()
            again.send([record(n, b"after") for n in range(3)])
            again.commit()
        broker.produce([record(n, b"after") for n in range(3)])
        told = broker.consume(TOPIC, isolation="read_committed")
        assert len(told) == len(original.records[is_cut]) + 6
        broker.group_consume(GROUP, TOPIC)
        broker.stop()
        broker.restart()
        assert shown(broker.consume(TOPIC, isolation="read_committed")) == shown(told)
        assert not [path for path in broker.log_dir.iterdir() if path.name.endswith("-stray")]
        assert [line for line in broker.complaints() if "ERROR" in line or "corrupt" in line.lower()] == []


class Node(Broker):
    """A broker, a controller or both, in a cluster with a controller at a given port."""

    def __init__(self, directory: Path, node_id: int, roles: str, controller_port: int) -> None:
        self._node_id, self._roles, self._controller_port = node_id, roles, controller_port
        super().__init__(directory.resolve(), NEWEST, {})

    def _kraft_properties(self) -> dict[str, object]:
        names = {
            "broker": f"PLAINTEXT://{self.bootstrap}",
            "controller": f"CONTROLLER://127.0.0.1:{self._controller_port}",
        }
        roles = self._roles.split(",")
        return super()._kraft_properties() | {
            "process.roles": self._roles,
            "node.id": self._node_id,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "listeners": ",".join(names[role] for role in roles),
            # A broker has its metadata beside its logs.
            "metadata.log.dir": self.directory / "metadata" if "controller" in roles else None,
            "default.replication.factor": 2,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "log.dirs": self.directory / ("logs" if "broker" in roles else "metadata"),
            # A group must not wait for a broker that is gone.
            "replica.lag.time.max.ms": 3000,
        }

    def format(self) -> None:
        arguments = ["format", "--cluster-id", harness.CLUSTER_ID, "--config", str(self._config)]
        alone = ["--standalone"] if "controller" in self._roles else []
        run_java(NEWEST, ["kafka.tools.StorageTool", *arguments, *alone], self.directory)

    def end(self) -> None:
        self.tool.kill()
        if self._jvm is not None:
            self._jvm.kill()


@contextlib.contextmanager
def nodes_in(place: Path, roles: Mapping[int, str], *, is_new: bool = False) -> Iterator[dict[int, Node]]:
    """Start nodes one after the other; each has a folder with its number."""
    (port,), nodes = harness._free_ports(1), dict[int, Node]()
    try:
        for number, of_node in roles.items():
            nodes[number] = Node(place / str(number), number, of_node, port)
            if is_new:
                nodes[number].format()
            nodes[number]._start_broker()
        yield nodes
    finally:
        for node in nodes.values():
            node.end()


def test_broker_serves_a_restore_apart_from_its_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, original: Original
) -> None:
    monkeypatch.setattr(jvm, "HEAP", "-Xmx256m")
    sparklog.restore(
        original.log_dir,
        tmp_path / "1" / "logs",
        for_cluster=tmp_path / "100" / "metadata",
        controller_id=100,
        metadata=original.metadata,
    )
    with nodes_in(tmp_path, {100: "controller", 1: "broker"}) as nodes:
        broker = nodes[1]
        assert shown(broker.consume(TOPIC, isolation="read_committed")) == shown(original.records[False])
        assert broker.group_offsets(GROUP) == original.offsets[False]
        partitions = broker.describe_topics(TOPIC)[TOPIC]["partitions"]
        assert [(each["leader"], each["replicas"]) for each in partitions] == [(1, [1])] * 3
        broker.produce([record(n, b"after") for n in range(3)])
        broker.group_consume(GROUP, TOPIC)
        broker.stop()
        nodes[100].restart()
        broker.restart()
        assert len(broker.consume(TOPIC, isolation="read_committed")) == len(original.records[False]) + 3
        assert not list(broker.log_dir.glob("*-stray"))
    for place in (tmp_path / "1" / "logs", tmp_path / "100" / "metadata"):
        rows = sparklog.views.read(place, "cluster_topics").to_pylist()
        (config,) = [dict(row["configs"]) for row in rows if row["topic"] == TOPIC]
        assert config == CONFIG, place


def test_three_brokers_of_a_new_cluster_serve_what_three_disks_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third broker was dead at the end, so its logs are not those that the cluster had."""
    monkeypatch.setattr(jvm, "HEAP", "-Xmx256m")
    roles = {1: "broker,controller", 2: "broker", 3: "broker"}
    with nodes_in(tmp_path / "old", roles, is_new=True) as nodes:
        first = nodes[1]
        first.ask("create_topic", topic=TOPIC, partitions=6, config=CONFIG)
        first.produce([record(n, parts=6) for n in range(60)])
        with first.producer(transactional_id="one") as producer:
            producer.begin()
            producer.send([record(n, b"committed", 6) for n in range(6)])
            producer.commit()
        first.group_consume(GROUP, TOPIC)
        nodes[3].kill()
        first.produce([record(n, b"late", 6) for n in range(30)], retries=100)
        first.group_consume(GROUP, TOPIC)
        told, offsets = first.consume(TOPIC, isolation="read_committed"), first.group_offsets(GROUP)
        assignments = replicas_in(first)
        nodes[2].stop()
        first.stop()
    for number in roles:
        summary = sparklog.restore(
            tmp_path / "old" / str(number) / "logs",
            tmp_path / "new" / str(number) / "logs",
            for_cluster=tmp_path / "new" / "1" / "metadata",
            metadata=tmp_path / "old" / "1" / "metadata",
            processes=1,
        )
        assert summary.cluster_id not in (None, harness.CLUSTER_ID)
    with nodes_in(tmp_path / "new", roles) as nodes:
        first = nodes[1]
        assert len(told) == 96
        assert shown(first.consume(TOPIC, isolation="read_committed")) == shown(told)
        assert first.group_offsets(GROUP) == offsets
        assert replicas_in(first) == assignments
        deadline = time.monotonic() + 60
        while any(set(each["isr"]) != set(each["replicas"]) for each in partitions_in(first)):
            assert time.monotonic() < deadline, partitions_in(first)
            time.sleep(0.2)
        with first.producer(transactional_id="one") as producer:
            producer.begin()
            producer.send([record(n, b"after", 6) for n in range(6)])
            producer.commit()
        first.group_consume(GROUP, TOPIC)
        assert len(first.consume(TOPIC, isolation="read_committed")) == 102
        for number in (3, 2, 1):
            nodes[number].stop()
            assert not list(nodes[number].log_dir.glob("*-stray"))
    places = [tmp_path / "new" / str(number) / "logs" for number in roles]
    for here, there in ((0, 1), (0, 2), (1, 2)):
        # A leader notes its epoch before a record has it.
        kinds = {row.kind for row in sparklog.diff(places[here], places[there])}
        assert kinds <= {DiffKind.EQUAL, DiffKind.PARTITION, DiffKind.EPOCHS}


def partitions_in(broker: Broker) -> list[Any]:
    return list(broker.describe_topics(TOPIC, "__consumer_offsets")[TOPIC]["partitions"])


def replicas_in(broker: Broker) -> dict[str, list[list[int]]]:
    described = broker.describe_topics(TOPIC, "__consumer_offsets", "__transaction_state")
    return {topic: [each["replicas"] for each in of["partitions"]] for topic, of in described.items()}


def format_by_kafka(place: Path) -> None:
    """Format the directories of a broker that never starts, as a user does before a restore."""
    broker = Broker(place.resolve(), NEWEST, {})
    broker._format()
    assert describe_directory(directory_at(broker.log_dir)).cluster_id == harness.CLUSTER_ID


def shown(records: list[Any]) -> list[Any]:
    return sorted([each[name] for name in FIELDS] for each in records)
