"""A cluster of one controller and three brokers on loopback; each can be killed and started on its own.

with Cluster.start(directory) as cluster:
    cluster.create_topic("orders", [[1, 2, 3], [2, 3, 1]])     # the brokers of each partition, its leader first
    cluster.kill(2, 3)
    cluster.wait("orders", lambda each: each["isr"] == [1])
    cluster.restart(2, 3)
    records = cluster.consume("orders")

The controller is a process of its own: it goes on electing leaders, whichever brokers are dead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.kafka.broker import START_TIMEOUT_S, Broker, HarnessError, Producer
from tests.kafka.jars import NEWEST
from tests.kafka.tool import Json, KafkaTool

CONTROLLER = 100
BROKERS = (1, 2, 3)
POLL_S = 0.1

PROPERTIES: dict[str, object] = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": 1,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
    "transaction.state.log.replication.factor": len(BROKERS),
    # No election without a death, and small files: whole directories are copied.
    "auto.leader.rebalance.enable": "false",
    "log.index.size.max.bytes": 100_000,
}

GIVES_UP_SOON: dict[str, object] = {
    "linger.ms": 500,
    "request.timeout.ms": 1500,
    "delivery.timeout.ms": 2000,
    "max.block.ms": 4000,
}
"""Properties of a producer that waits seconds, not minutes, where a partition has no leader."""


class Node(Broker):
    """The controller of a cluster, or one of its brokers."""

    java_options = ("-Xmx256m",)

    def __init__(self, directory: Path, node_id: int, controller: Node | None = None) -> None:
        self.node_id = node_id
        self._controller = controller
        self.format_options = () if controller else ("--standalone",)
        super().__init__(directory / f"node-{node_id}", NEWEST, PROPERTIES)

    def _kraft_properties(self) -> dict[str, object]:
        broker, own_controller = self._ports
        controller = self._controller._ports[1] if self._controller else own_controller
        role, port = ("broker", broker) if self._controller else ("controller", controller)
        listener = "PLAINTEXT" if self._controller else "CONTROLLER"
        return super()._kraft_properties() | {
            "process.roles": role,
            "node.id": self.node_id,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"{listener}://127.0.0.1:{port}",
        }

    @property
    def lives(self) -> bool:
        return self._jvm is not None


class Cluster:
    """Three brokers and their controller; made by `Cluster.start`.

    Attributes
    ----------
    brokers : dict of int to Node
        By their ids, 1 to 3. A request to any of them goes to those that live.
    controller : Node
    """

    def __init__(self, directory: Path) -> None:
        self.controller = Node(directory, CONTROLLER)
        self.brokers = {number: Node(directory, number, self.controller) for number in BROKERS}
        bootstrap = ",".join(each.bootstrap for each in self.brokers.values())
        self._tool = KafkaTool(bootstrap, directory / "tool.log")
        for each in self.brokers.values():
            each.tool = self._tool
        self.writer = KafkaTool(bootstrap, directory / "writer.log")
        """A second process of clients, that a thread may keep busy."""

    @classmethod
    @contextlib.contextmanager
    def start(cls, directory: Path) -> Iterator[Cluster]:
        """Start the controller and the brokers, wait until they serve, and end all of them at the end of ``with``."""
        cluster = cls(directory.resolve())
        nodes = [cluster.controller, *cluster.brokers.values()]
        try:
            # The first use of the jars may compile the tools: threads would do it each.
            cluster.controller._format()
            _together(Node._format, nodes[1:])
            cluster.restart(CONTROLLER)
            cluster.restart(*cluster.brokers)
            yield cluster
        finally:
            for tool in (cluster._tool, cluster.writer):
                tool.kill()
            for node in nodes:
                if node.lives:
                    node.kill()

    @property
    def log_dirs(self) -> list[Path]:
        """The directories of partition logs, in the order of the brokers' ids."""
        return [each.log_dir for each in self.brokers.values()]

    def kill(self, *numbers: int) -> None:
        """Kill nodes with SIGKILL, one after the other."""
        for number in numbers:
            self._node(number).kill()

    def restart(self, *numbers: int) -> None:
        """Start nodes at the same time, and wait until they serve."""
        _together(Node.restart, [self._node(number) for number in numbers])

    def _node(self, number: int) -> Node:
        return self.controller if number == CONTROLLER else self.brokers[number]

    # Requests

    def ask(self, op: str, **arguments: Any) -> Any:
        """Send any request of ``KafkaTool`` to the brokers that live."""
        return self._tool.ask(op, **arguments)

    def create_topic(self, topic: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str]) -> None:
        """Create a topic on given brokers, for each partition its leader first, and wait until all are in sync."""
        self.ask("create_topic", topic=topic, replicas=replicas, config=config)
        self.wait(
            topic, lambda each: each["leader"] == each["replicas"][0] and len(each["isr"]) == len(each["replicas"])
        )

    def partitions(self, topic: str) -> list[Json]:
        """Return the leader, the replicas and the ISR of each partition."""
        found: list[Json] = self.ask("describe_topics", topics=[topic])[topic]["partitions"]
        return found

    def wait(self, topic: str, is_right: Callable[[Json], bool]) -> list[Json]:
        """Wait until the brokers say that every partition of a topic is as wanted, and return what they say."""
        deadline = time.monotonic() + START_TIMEOUT_S
        said: object = None
        while time.monotonic() < deadline:
            with contextlib.suppress(HarnessError):
                said = found = self.partitions(topic)
                if all(map(is_right, found)):
                    return found
            time.sleep(POLL_S)
        raise HarnessError(f"{topic} does not become as wanted: {said}\n{self.controller.log_text()[-4000:]}")

    def consume(self, topic: str) -> list[Json]:
        """Read all records of a topic, those of open and aborted transactions too."""
        return self.brokers[1].consume(topic)

    def producer(self, **config: object) -> Producer:
        """Open a producer; `config` has Kafka's names with ``_`` for ``.``."""
        return self.brokers[1].producer(**config)


def _together(act: Callable[[Node], None], nodes: Sequence[Node]) -> None:
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(act, nodes))
