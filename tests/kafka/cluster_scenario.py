"""A cluster of one broker with groups, transactions and topics of every kind, for the tests of internal topics.

`build` fills a broker that runs; what the admin tools then say of it is what its directory must say once it is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tests.kafka.broker import Broker, HarnessError
from tests.kafka.jars import is_zookeeper
from tests.kafka.tool import Producer, Record

PROPERTIES: Mapping[str, object] = {
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 3,
    "group.share.min.session.timeout.ms": 1000,
}
RECORDS = 20
MEMBER = "member-client"
TIMEOUT_MS = 900_000
DELETED_TIMEOUT_S = 20

Offset = tuple[str, int, int, str]


def build(broker: Broker) -> None:
    """Make everything; producers and members stay open in the broker's tool."""
    _topics(broker)
    _classic_groups(broker)
    _transactions(broker)
    _living_member(broker, "lively-classic", {"group.protocol": "classic"})
    if not is_zookeeper(broker.version):
        _living_member(broker, "lively-consumer", {"group.protocol": "consumer"})
        _consumer_protocol_that_left(broker)
        _share_group(broker)
    _configs(broker)


def _topics(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3, config={"retention.ms": -1, "segment.bytes": 1_048_576})
    broker.create_topic("clicks", partitions=2)
    broker.create_topic("empty", partitions=2)
    broker.create_topic("doomed", partitions=2)
    broker.create_topic("again")
    broker.produce(_records("orders", 3), _records("clicks", 2), _records("doomed", 2), _records("again", 1))
    broker.delete_topic("again")
    create_again(broker, "again", 2)
    broker.ask("add_partitions", topic="clicks", partitions=4)
    broker.delete_records("clicks", 0, 6)


def create_again(broker: Broker, topic: str, partitions: int) -> None:
    """Make a topic that was just deleted; a broker with ZooKeeper answers before it is gone."""
    deadline = time.monotonic() + DELETED_TIMEOUT_S
    while True:
        try:
            broker.create_topic(topic, partitions=partitions)
            return
        except HarnessError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _records(topic: str, partitions: int) -> list[Record]:
    return [
        Record(topic, b"key-%d" % n, b"value-%d" % n, partition)
        for n in range(RECORDS)
        for partition in range(partitions)
    ]


def _classic_groups(broker: Broker) -> None:
    commit = broker.commit_group_offsets
    commit("by-hand", [("orders", 0, 3, "up to the third"), ("orders", 1, RECORDS, ""), ("clicks", 0, 2, "é")])
    commit("by-hand", [("orders", 0, 7, "up to the seventh"), ("clicks", 3, 0, "")])
    commit("forgotten", [("orders", 0, 1, "")])
    broker.ask("delete_group", group="forgotten")
    commit("of-the-doomed", [("doomed", 0, 4, ""), ("doomed", 1, 5, ""), ("orders", 2, 6, "")])
    broker.delete_topic("doomed")
    broker.group_consume("readers", "orders", "clicks", **{"group.protocol": "classic"})


def _transactions(broker: Broker) -> None:
    _producer(broker, "t-empty")
    committed = _producer(broker, "t-committed")
    _transaction(broker, committed, "by-transaction", [("orders", 0, 5, "committed")])
    committed.commit()
    aborted = _producer(broker, "t-aborted")
    _transaction(broker, aborted, "by-transaction", [("orders", 0, 9, "aborted"), ("orders", 1, 9, "aborted")])
    aborted.abort()
    for name in ("t-ongoing", "t-hanging"):
        ongoing = _producer(broker, name)
        _transaction(broker, ongoing, "by-transaction", [("orders", 2, 11, "open")])
        _send_offsets(broker, ongoing, "open-alone", [("orders", 2, 11, "open")])
        # What is committed after it is valid, though the transaction in the same log is open.
        broker.commit_group_offsets("by-transaction", [("clicks", 1, 8, "")])
    broker.commit_group_offsets("by-hand", [("orders", 2, 8, "")])


def _producer(broker: Broker, name: str) -> Producer:
    return broker.producer(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)


def _transaction(broker: Broker, producer: Producer, group: str, offsets: Sequence[Offset]) -> None:
    """Begin a transaction, write in it, and add offsets of a group to it."""
    producer.begin()
    producer.send([Record("clicks", None, b"in a transaction", 1), Record("orders", None, b"in a transaction", 2)])
    _send_offsets(broker, producer, group, offsets)


def _send_offsets(broker: Broker, producer: Producer, group: str, offsets: Sequence[Offset]) -> None:
    names = ("topic", "partition", "offset", "metadata")
    rows = [dict(zip(names, offset, strict=True)) for offset in offsets]
    broker.ask("send_offsets", name=producer.name, group=group, offsets=rows)


def _living_member(broker: Broker, group: str, config: Mapping[str, str]) -> None:
    """Let a member join that stays, and commit an offset as one."""
    with_client = {**config, "client.id": f"{MEMBER}-{group}"}
    broker.ask("join", name=group, group=group, topics=["orders", "empty"], config=with_client)
    offsets = [{"topic": "orders", "partition": 1, "offset": 12, "metadata": "of a member"}]
    broker.ask("commit_as_member", name=group, offsets=offsets)


def _consumer_protocol_that_left(broker: Broker) -> None:
    broker.group_consume("left-consumer", "orders", **{"group.protocol": "consumer"})


def _share_group(broker: Broker) -> None:
    broker.ask("alter_config", type="GROUP", name="sharers", config={"share.auto.offset.reset": "earliest"})
    broker.ask("join", name="sharers", group="sharers", topics=["orders"], share=True, config={"client.id": "sharer"})
    broker.ask("commit_as_member", name="sharers", offsets=[])


def _configs(broker: Broker) -> None:
    broker.alter_topic("orders", {"retention.ms": 86_400_000, "max.message.bytes": 2_000_000})
    broker.alter_topic("orders", {"max.message.bytes": None})
    broker.ask(
        "alter_config", type="BROKER", name="1", config={"log.cleaner.threads": "2", "message.max.bytes": "1500000"}
    )
    broker.ask("alter_config", type="BROKER", name="1", config={"message.max.bytes": None})
