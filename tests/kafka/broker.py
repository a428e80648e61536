"""A real Kafka broker on loopback, from Maven Central's jars.

with Broker.start(directory) as broker:
    broker.create_topic("orders", partitions=3)
    broker.produce([Record("orders", b"key", b"value")])
    records = broker.consume("orders")
    broker.stop()                                  # or kill(); then read broker.log_dir
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kafka.jars import NEWEST, HarnessError, is_zookeeper
from tests.kafka.jvm import Jvm, run_java
from tests.kafka.tool import Json, KafkaTool, Producer, Record

__all__ = ["Broker", "HarnessError", "Producer", "Record"]

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
ALTER_TIMEOUT_S = 5
CLUSTER_ID = "c3Bhcmtsb2ctdGVzdHMtMQ"
ZOOKEEPER_SESSION_MS = 3000

_PORTS = (20_000, 32_000)
"""Below those that Linux gives to the ends of connections, by its default."""
_SHARES = 8

COMMON: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
    # Records of the past beside markers of today would roll a segment each.
    "log.roll.ms": 10 * 365 * 86_400_000,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.recovery.threads.per.data.dir": 1,
    "log.cleaner.dedupe.buffer.size": 16 << 20,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


class Broker:
    """One broker of a release, alone in its cluster; made by `Broker.start`.

    Attributes
    ----------
    directory : Path
        Everything of it: its properties file, its own log, and `log_dir`.
    log_dir : Path
        The directory of partition logs.
    bootstrap : str
        Address for clients.
    tool : KafkaTool
        Kafka's clients; the methods below are its common requests.
    """

    java_options: Sequence[str] = ()
    format_options: Sequence[str] = ("--standalone",)

    def __init__(self, directory: Path, version: str, properties: Mapping[str, object]) -> None:
        self.directory = directory
        self.version = version
        self.log_dir = directory / "logs"
        self._ports = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{self._ports[0]}"
        self._log = directory / "broker.log"
        self._config = directory / "broker.properties"
        self._jvm: Jvm | None = None
        self._zookeeper: Jvm | None = None
        self._names = itertools.count()
        self.tool = KafkaTool(self.bootstrap, directory / "tool.log")
        own = self._zookeeper_properties() if is_zookeeper(version) else self._kraft_properties()
        directory.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        _write_properties(self._config, {**COMMON, "log.dirs": self.log_dir, **own, **properties})

    @classmethod
    @contextlib.contextmanager
    def start(
        cls, directory: Path, *, version: str = NEWEST, properties: Mapping[str, object] | None = None
    ) -> Iterator[Broker]:
        """Start a broker, wait until it serves, and end everything of it at the end of ``with``.

        Parameters
        ----------
        directory : Path
            Taken for the broker; made when missing. Log directories already in it are kept.
        version : str
            A release on Maven Central: with KRaft in one process, or before 3.5 with ZooKeeper in another.
        properties : mapping, optional
            Broker properties over the harness's own; None takes one of those away.

        Raises
        ------
        HarnessError
            It does not come up; the message has the tail of its log.
        """
        broker = cls(directory.resolve(), version, properties or {})
        try:
            if is_zookeeper(version):
                broker._start_zookeeper()
            else:
                broker._format()
            broker._start_broker()
            yield broker
        finally:
            broker.tool.kill()
            for jvm in (broker._jvm, broker._zookeeper):
                if jvm is not None:
                    jvm.kill()

    # Life and death

    def stop(self) -> None:
        """Stop cleanly: SIGTERM, and wait until it has ended."""
        self._running().terminate(STOP_TIMEOUT_S)
        self._jvm = None

    def kill(self) -> None:
        """Kill with SIGKILL, as a crash of the process would; what the page cache holds survives."""
        self._running().kill()
        self._jvm = None
        if self._zookeeper is not None:
            # ZooKeeper keeps the dead broker's registration as long as its session lives.
            time.sleep(2 * ZOOKEEPER_SESSION_MS / 1000)

    def restart(self) -> None:
        """Start it again in the same directory; a broker that still runs is stopped first."""
        if self._jvm is not None:
            self.stop()
        self._start_broker()

    def log_text(self) -> str:
        """The broker's own log, since `Broker.start`."""
        return self._log.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """Lines of the broker's own log at WARN and above that speak of logs, segments or indexes."""
        loud = [line for line in self.log_text().splitlines() if " WARN " in line or " ERROR " in line]
        return [line for line in loud if ".log." in line or "LogLoader" in line or "UnifiedLog" in line]

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._jvm is not None

    def _running(self) -> Jvm:
        if self._jvm is None:
            raise HarnessError("the broker does not run")
        return self._jvm

    def _kraft_properties(self) -> dict[str, object]:
        broker, controller = self._ports
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "metadata.log.dir": self.directory / "metadata",
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
        }

    def _zookeeper_properties(self) -> dict[str, object]:
        broker, zookeeper = self._ports
        return {
            "broker.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "zookeeper.connect": f"127.0.0.1:{zookeeper}",
            "zookeeper.session.timeout.ms": ZOOKEEPER_SESSION_MS,
        }

    def _format(self) -> None:
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(self._config), "--ignore-formatted"]
        run_java(self.version, ["kafka.tools.StorageTool", *arguments, *self.format_options], self.directory)

    def _start_zookeeper(self) -> None:
        config = self.directory / "zookeeper.properties"
        properties: dict[str, object] = {
            "dataDir": self.directory / "zookeeper",
            "clientPort": self._ports[1],
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": 500,
        }
        _write_properties(config, properties)
        main = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]
        self._zookeeper = Jvm(self.version, main, self.directory / "zookeeper.log", self.directory)
        self._zookeeper.wait_for_log(r"binding to port|started$", START_TIMEOUT_S)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(self._ports[1]):
            if not self._zookeeper.alive() or time.monotonic() > deadline:
                raise HarnessError(f"ZooKeeper does not listen:\n{self._zookeeper.log_tail()}")
            time.sleep(0.05)

    def _start_broker(self) -> None:
        logged = len(self.log_text())
        main = ["kafka.Kafka", str(self._config)]
        self._jvm = Jvm(self.version, main, self._log, self.directory, options=self.java_options)
        started = r"KafkaServer id=1\] started" if is_zookeeper(self.version) else r"Kafka Server started"
        self._jvm.wait_for_log(started, START_TIMEOUT_S, logged)

    # Requests

    def ask(self, op: str, **arguments: Any) -> Any:
        """Send any request of ``KafkaTool``; an error comes with the tail of the broker's log."""
        return self.ask_rows(op, **arguments)[1]

    def ask_rows(self, op: str, **arguments: Any) -> tuple[list[Json], Any]:
        """Send any request of ``KafkaTool`` that answers with rows."""
        try:
            return self.tool.ask_rows(op, **arguments)
        except HarnessError as err:
            tail = self._jvm.log_tail() if self._jvm else "(it does not run)"
            raise HarnessError(f"{err}\nThe broker's log:\n{tail}") from err

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic with topic configs, and wait until its folders are there: a broker makes them afterwards."""
        self.ask("create_topic", topic=topic, partitions=partitions, config=_texts(config))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all((self.log_dir / f"{topic}-{number}").is_dir() for number in range(partitions)):
            if time.monotonic() > deadline:
                raise HarnessError(f"the folders of {topic} do not come up:\n{self.log_text()[-4000:]}")
            time.sleep(0.02)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; its directories go after ``file.delete.delay.ms``."""
        self.ask("delete_topic", topic=topic)

    def describe_topics(self, *topics: str) -> Json:
        """Return for each topic its id, and its partitions' leaders and replicas."""
        described: Json = self.ask("describe_topics", topics=topics)
        return described

    def alter_topic(self, topic: str, config: Mapping[str, object]) -> None:
        """Set topic configs, and wait until the broker has taken them; None takes one away.

        A broker tells its log about a change, but not about a change that changes nothing: that costs 5 s.
        """
        logged = len(self.log_text())
        self.ask("alter_topic", topic=topic, config=_texts(config))
        name = re.escape(topic)
        taken = rf"Updating topic {name} with new configuration|Processing override for entityPath: topics/{name} "
        deadline = time.monotonic() + ALTER_TIMEOUT_S
        while not re.search(taken, self.log_text()[logged:]) and time.monotonic() < deadline:
            time.sleep(0.05)
        # The line comes just before the change.
        time.sleep(0.1)

    def producer(self, **config: object) -> Producer:
        """Open a producer; `config` has Kafka's names with ``_`` for ``.`` (``compression_type="lz4"``).

        Batches are closed by a flush or by ``batch.size`` only. A ``transactional_id`` initializes transactions.
        """
        named = {key.replace("_", "."): value for key, value in config.items()}
        defaults: dict[str, object] = {"linger.ms": 60_000, "batch.size": 1 << 20, "delivery.timeout.ms": 120_000}
        if is_zookeeper(self.version) and "transactional.id" not in named:
            # Idempotence needs magic 2, which the old broker's topics may not have.
            defaults["enable.idempotence"] = False
        return Producer(self.ask, f"producer-{next(self._names)}", {**defaults, **named})

    def produce(self, *groups: Iterable[Record], **config: object) -> list[int]:
        """Produce groups of records, each a batch a partition if it fits, and return their offsets."""
        with self.producer(**config) as producer:
            return producer.send(*groups)

    def consume(self, *topics: str, isolation: str = "read_uncommitted", **config: object) -> list[Json]:
        """Read all partitions of topics from beginning to end: records as ``KafkaTool`` prints them."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        return self.ask_rows("consume", topics=topics, isolation=isolation, config=_texts(named))[0]

    def offsets(self, *topics: str, max_timestamp: bool = False) -> list[Json]:
        """Return the beginning, end and last stable offsets of each partition."""
        found: list[Json] = self.ask("offsets", topics=topics, max_timestamp=max_timestamp)
        return found

    def offsets_for_times(self, queries: Sequence[tuple[str, int, int]]) -> list[Json]:
        """For each (topic, partition, timestamp in ms): the first offset at or after it, or None."""
        asked = [{"topic": topic, "partition": partition, "timestamp": ms} for topic, partition, ms in queries]
        found: list[Json] = self.ask("offsets_for_times", queries=asked)
        return found

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Raise the log start offset; return what it is now. -1 is the high watermark."""
        low: int = self.ask("delete_records", topic=topic, partition=partition, before_offset=before_offset)
        return low

    def group_consume(self, group: str, *topics: str, **config: object) -> None:
        """Join a group, read to the end, commit, leave."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.ask("group_consume", group=group, topics=topics, config=_texts(named))

    def commit_group_offsets(self, group: str, offsets: Sequence[tuple[str, int, int, str]]) -> None:
        """Commit (topic, partition, offset, metadata) for a group without members."""
        names = ("topic", "partition", "offset", "metadata")
        rows = [dict(zip(names, offset, strict=True)) for offset in offsets]
        self.ask("commit_group_offsets", group=group, offsets=rows)

    def group_offsets(self, *groups: str) -> list[Json]:
        """Return what groups have committed."""
        found: list[Json] = self.ask("groups", groups=groups)
        return found


def _texts(config: Mapping[str, object] | None) -> dict[str, str | None]:
    def text(value: object) -> str | None:
        if value is None:
            return None
        return str(value).lower() if isinstance(value, bool) else str(value)

    return {key: text(value) for key, value in (config or {}).items()}


def _write_properties(path: Path, properties: Mapping[str, object]) -> None:
    lines = (f"{key}={value}\n" for key, value in properties.items() if value is not None)
    path.write_text("".join(lines))


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _free_ports(count: int) -> list[int]:
    """Return ports that no connection takes for its own end, so that a dead broker's port stays free for it."""
    # Of several processes that share the tests, each has ports of its own.
    first, end = _PORTS
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    share = (end - first) // _SHARES
    candidates = range(first + worker * share, first + (worker + 1) * share)
    found: list[int] = []
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as each, contextlib.suppress(OSError):
            each.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise HarnessError(f"of the ports {candidates}, fewer than {count} are free")
