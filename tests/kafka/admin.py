"""What Kafka's own admin tools say of a running broker: their main classes are run, and their tables read.

A broker of 2.8.2 is asked by its own tools, and one of 4.4.0 by those of 4.3.1, the newest on Maven Central.
"""

from __future__ import annotations

import re
from typing import Any

from tests.kafka.broker import Broker
from tests.kafka.jars import NEWEST_TOOLS, is_zookeeper
from tests.kafka.jvm import run_java

Row = dict[str, str]

NO_VALUE = "-"
"""What a tool prints where there is nothing."""

_OLD = {
    "kafka-consumer-groups": "kafka.admin.ConsumerGroupCommand",
    "kafka-topics": "kafka.admin.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
}
_NEW = {
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
_COLUMN = re.compile(r"[A-Z#][A-Z#-]*( \(ID\))?")


def run_tool(broker: Broker, tool: str, *arguments: str) -> str:
    """Run a tool against a broker and return what it printed."""
    is_old = is_zookeeper(broker.version)
    main = (_OLD if is_old else _NEW)[tool]
    version = broker.version if is_old else NEWEST_TOOLS
    return run_java(version, [main, "--bootstrap-server", broker.bootstrap, *arguments], broker.directory)


def lag(broker: Broker) -> list[Row]:
    """Return the rows of ``kafka-consumer-groups --describe --all-groups``, by the names of its columns."""
    return _tables(run_tool(broker, "kafka-consumer-groups", "--describe", "--all-groups"))


def group_states(broker: Broker) -> list[Row]:
    """Return the rows of ``kafka-consumer-groups --describe --all-groups --state``."""
    return _tables(run_tool(broker, "kafka-consumer-groups", "--describe", "--all-groups", "--state"))


def group_members(broker: Broker) -> list[Row]:
    """Return the rows of ``kafka-consumer-groups --describe --all-groups --members --verbose``."""
    arguments = ("--describe", "--all-groups", "--members", "--verbose")
    return _tables(run_tool(broker, "kafka-consumer-groups", *arguments))


def share_groups(broker: Broker) -> list[Row]:
    """Return the rows of ``kafka-share-groups --describe --all-groups``."""
    return _tables(run_tool(broker, "kafka-share-groups", "--describe", "--all-groups"))


def transactions(broker: Broker) -> list[Row]:
    """Return the rows of ``kafka-transactions list``, each with those of ``describe`` for it."""
    listed = _tab_separated(run_tool(broker, "kafka-transactions", "list"))
    return [
        {**row, **described}
        for row in listed
        for described in _tab_separated(
            run_tool(broker, "kafka-transactions", "describe", "--transactional-id", row["TransactionalId"])
        )
    ]


def topics(broker: Broker) -> dict[str, dict[str, Any]]:
    """Return what ``kafka-topics --describe`` says: of each topic its id, its configs and its partitions."""
    found: dict[str, dict[str, Any]] = {}
    for line in run_tool(broker, "kafka-topics", "--describe").splitlines():
        fields = dict(re.findall(r"(\w+): ?(\S*)", line))
        if "PartitionCount" in fields:
            configs = dict(pair.split("=", 1) for pair in fields["Configs"].split(",") if pair)
            found[fields["Topic"]] = {"id": fields.get("TopicId"), "configs": configs, "partitions": {}}
        elif "Partition" in fields:
            numbers = {name: [int(n) for n in fields[name].split(",") if n] for name in ("Replicas", "Isr")}
            found[fields["Topic"]]["partitions"][int(fields["Partition"])] = {
                "leader": int(fields["Leader"]),
                **numbers,
            }
    return found


def configs(broker: Broker, kind: str, name: str) -> dict[str, str]:
    """Return the dynamic configs of one resource by ``kafka-configs --describe``; `kind` is topics, brokers, groups."""
    text = run_tool(broker, "kafka-configs", "--describe", "--entity-type", kind, "--entity-name", name)
    return dict(re.findall(r"^  ([\w.-]+)=(.*?) sensitive=", text, re.MULTILINE))


def _tables(text: str) -> list[Row]:
    """Read tables in which each column begins below its name; a line that begins with GROUP has the names."""
    rows: list[Row] = []
    columns: list[tuple[str, int, int | None]] = []
    for line in text.splitlines():
        if line.startswith("GROUP "):
            found = list(_COLUMN.finditer(line))
            ends = [each.start() for each in found[1:]]
            columns = [(each[0], each.start(), end) for each, end in zip(found, [*ends, None], strict=True)]
        elif columns and line.strip():
            rows.append({name: line[start:end].strip() for name, start, end in columns})
    return rows


def _tab_separated(text: str) -> list[Row]:
    names, *lines = ([cell.strip() for cell in line.split("\t")] for line in text.splitlines() if line.strip())
    return [dict(zip(names, line, strict=True)) for line in lines]
