"""Programs for kafka-python, run with it on a real broker and with the clients of ours: what they see is the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka
import kafka.serializer
import pytest

import sparklog
from sparklog.topic.log_manager import LogManager
from tests.clients.test_as_kafka_python import Listener
from tests.kafka.broker import Broker

pytestmark = pytest.mark.kafka

TOPIC, PARTITIONS, SECONDS = "events", 3, 60
OPTIONS: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False, "auto_offset_reset": "latest"}
Clients = tuple[Callable[..., Any], Callable[..., Any]]


class KafkaListener(Listener, kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener that both take."""


# kafka-python leaves sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_program_sees_what_it_sees_with_kafka_python_and_a_broker(tmp_path: Path) -> None:
    LogManager(tmp_path / "logs").create_topic(TOPIC, PARTITIONS)
    ours = program(
        lambda **config: sparklog.Producer(tmp_path / "logs", **config),
        lambda **config: sparklog.Consumer(tmp_path / "logs", **config),
    )
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        theirs = program(
            lambda **config: kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, **config),
            lambda **config: kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, **config),
        )
    assert ours == theirs


def program(producer_of: Callable[..., Any], consumer_of: Callable[..., Any]) -> dict[str, Any]:
    """Send and consume, and return what a program sees of it."""
    calls: list[Any] = []

    class Noted(kafka.serializer.Serializer, kafka.serializer.Deserializer):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.name = name

        def serialize(self, topic: str, headers: Any, data: Any) -> Any:
            calls.append((self.name, topic, headers, data))
            return data

        deserialize = serialize

    producer = producer_of(key_serializer=Noted("key"), value_serializer=Noted("value"))
    called: list[int] = []

    def call(found: Any) -> None:
        time.sleep(0.001)
        called.append(found.offset)

    for number in range(200):
        sent = producer.send(TOPIC, b"old %d" % number, partition=number % PARTITIONS)
        sent.add_callback(call)
    producer.flush()
    found: dict[str, Any] = {"callbacks after flush": len(called), "serializers": calls[:2]}
    calls.clear()
    partitions = [kafka.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    listener = KafkaListener()
    consumer = consumer_of(
        **OPTIONS, max_poll_records=1, value_deserializer=Noted("value"), key_deserializer=Noted("key")
    )
    consumer.subscribe([TOPIC], listener=listener)
    # No records of before: the group begins at the ends.
    while set(map(tuple, consumer.assignment())) != set(map(tuple, partitions)) or any(
        consumer.position(at) is None for at in partitions
    ):
        assert not consumer.poll(100)
    for at in partitions:
        producer.send(TOPIC, None, key=b"new %d" % at.partition, partition=at.partition)
    producer.flush()
    calls.clear()
    first = polled(consumer, 1)
    found["deserializers"] = [(name, topic, data and data[:3]) for name, topic, _, data in calls[:2]]
    consumer.commit()
    found["committed"] = sum(consumer.committed(at) for at in partitions)
    future = consumer.commit_async()
    deadline = time.monotonic() + SECONDS
    while not future.is_done and time.monotonic() < deadline:
        consumer.poll(10)
    found["commit_async"] = future.succeeded()
    found["groups of metrics"] = {"consumer-fetch-manager-metrics"} & set(consumer.metrics())
    found["names"] = {"records-lag-max"} & set(consumer.metrics()["consumer-fetch-manager-metrics"])
    found["groups of the producer"] = {"producer-metrics"} & set(producer.metrics())
    consumer.close(autocommit=False)
    found["listener"] = listener.seen
    found["first"] = len(first)
    producer.close()
    with_timeout = consumer_of(group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=-1)
    with_timeout.subscribe([TOPIC])
    found["without a timeout"] = next(with_timeout).value[:3]
    with_timeout.close()
    return found


def polled(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += [each for records in consumer.poll(100).values() for each in records]
    return found
