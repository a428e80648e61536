"""What programs rely on that were written for kafka-python, as far as no broker is in it; see its own unit tests."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka.errors
import pytest

import sparklog
from sparklog.clients.consumer import Consumer
from sparklog.clients.producer import Producer
from sparklog.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    IllegalStateError,
    InvalidOptionError,
    InvalidTopicError,
    KafkaConfigurationError,
    LockedError,
    OffsetOutOfRangeError,
)
from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.topic.log_manager import LogManager
from sparklog.write.group_offsets import read_group_offsets
from tests.clients.test_consumer import EVENTS, SECONDS, from_start, polled, send
from tests.places import LOCAL, directory_at

OTHER = TopicPartition("events", 1)


def test_converters_of_kafka_python_2_take_no_headers(tmp_path: Path) -> None:
    class Text:
        def serialize(self, topic: str, value: str) -> bytes:
            return f"{topic}:{value}".encode()

        def deserialize(self, topic: str, bytes_: bytes) -> str:
            return bytes_.decode().removeprefix(f"{topic}:")

    with Producer(tmp_path, key_serializer=Text(), value_serializer=Text()) as producer:
        producer.send("events", "v", key="k")
    row = sparklog.open_log(tmp_path / "events-0").read(columns=["key", "value"]).to_pylist()
    assert row == [{"key": b"events:k", "value": b"events:v"}]
    with from_start(tmp_path, "events", key_deserializer=Text(), value_deserializer=Text()) as consumer:
        (record,) = next(iter(consumer.poll(1000).values()))
        assert (record.key, record.value) == ("k", "v")


def test_partitioner_of_kafka_python_3_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    class Sticky:
        def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
            raise AssertionError(topic, key, key_bytes, value, value_bytes, cluster)

    with pytest.raises(KafkaConfigurationError, match="give a function of"):
        Producer(tmp_path, partitioner=Sticky())


def test_producer_that_nobody_has_any_more_writes_what_it_was_sent_and_ends_its_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    producer = Producer(tmp_path, linger_ms=600_000)
    future = producer.send("events", b"a")
    (thread,) = set(threading.enumerate()) - before
    del producer
    gc.collect()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert future.get(0).offset == 0
    sparklog.PartitionLog.open(tmp_path / "events-0", lock_timeout_seconds=0).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_child_that_forgets_the_producer_of_its_parent_ends_nothing(tmp_path: Path) -> None:
    producer = Producer(tmp_path, linger_ms=600_000)
    future = producer.send("events", b"a")
    child = os.fork()
    if not child:
        del producer
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not future.is_done
    producer.close()
    assert future.get(0).offset == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "a" * 250, None, 5])
def test_name_that_no_topic_can_have_is_not_subscribed_to(tmp_path: Path, name: Any) -> None:
    with Consumer(tmp_path) as consumer:
        with pytest.raises(InvalidTopicError, match="not a topic's name"):
            consumer.subscribe(["events", name])
        assert consumer.subscription() is None


def test_subscription_and_assignment_are_copies(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    with Consumer(tmp_path, "events") as consumer:
        consumer.subscription().add("other")  # type: ignore[union-attr]
        consumer.assignment().clear()
        assert consumer.subscription() == {"events"}
        assert consumer.assignment() == {EVENTS}


def test_empty_assignment_is_none_and_leaves_nothing_paused(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    with Consumer(tmp_path) as consumer:
        consumer.assign([EVENTS])
        consumer.pause(EVENTS)
        consumer.assign([])
        assert consumer.assignment() == consumer.paused() == set()
        consumer.subscribe(["events"])
        assert consumer.assignment() == {EVENTS}
        assert consumer.paused() == set()


@pytest.mark.parametrize(
    "leave",
    [
        lambda consumer: (consumer.unsubscribe(), consumer.assign([("other", 0)])),
        lambda consumer: consumer.subscribe(["other"]),
        lambda consumer: consumer.unsubscribe(),
    ],
)
def test_position_in_a_partition_that_is_left_is_committed(tmp_path: Path, leave: Callable[[Consumer], Any]) -> None:
    send(tmp_path, b"a", b"b")
    send(tmp_path, b"c", topic="other")
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert polled(consumer, 2) == [b"a", b"b"]
        leave(consumer)
        assert read_group_offsets(directory_at(tmp_path))["g"][EVENTS].offset == 2


def test_position_in_a_partition_that_is_no_longer_assigned_is_committed_only_by_itself(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    send(tmp_path, b"a", partition=0)
    for commits_itself in (False, True):
        with from_start(tmp_path, group_id="g", enable_auto_commit=commits_itself) as consumer:
            consumer.assign([EVENTS])
            assert polled(consumer, 1) == [b"a"]
            consumer.assign([OTHER])
            committed = read_group_offsets(directory_at(tmp_path)).get("g", {})
            assert committed.keys() == ({EVENTS} if commits_itself else set())


def test_calls_with_a_timeout_are_taken(tmp_path: Path) -> None:
    send(tmp_path, b"a", timestamp_ms=5)
    with from_start(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
        assert consumer.position(EVENTS, timeout_ms=10) == 0
        assert consumer.beginning_offsets([EVENTS], timeout_ms=10) == {EVENTS: 0}
        assert consumer.end_offsets([EVENTS], timeout_ms=10) == {EVENTS: 1}
        assert consumer.offsets_for_times({EVENTS: 0}, timeout_ms=10) == {EVENTS: (0, 5, 0)}
        consumer.commit({EVENTS: 1}, timeout_ms=None)
        assert consumer.committed(EVENTS, timeout_ms=10) == 1
        with (
            LOCAL.lock(str(tmp_path / files.GROUP_OFFSETS_LOCK), 0),
            pytest.raises(LockedError),
        ):
            consumer.commit({EVENTS: 0}, timeout_ms=1)
        consumer.close(autocommit=False, timeout_ms=10)


def test_consumer_counts_what_it_gets(tmp_path: Path) -> None:
    send(tmp_path, b"abc", b"de", b"f")
    with from_start(tmp_path, "events") as consumer:
        names = ("records-consumed-total", "bytes-consumed-total", "records-lag-max")

        def counted() -> list[int]:
            return [consumer.metrics()["consumer-fetch-manager-metrics"][name] for name in names]

        assert counted() == [0, 0, 0]
        assert polled(consumer, 1, max_records=1) == [b"abc"]
        # The position is behind a record when the next one is asked for.
        assert counted()[0] == 1
        assert polled(consumer, 1, max_records=1) == [b"de"]
        assert counted() == [2, 5, 1]


def test_errors_have_the_base_that_they_have_in_kafka_python(tmp_path: Path) -> None:
    for name in ("KafkaTimeoutError", "IllegalStateError", "UnknownTopicOrPartitionError", "NoOffsetForPartitionError"):
        assert issubclass(getattr(kafka.errors, name), kafka.errors.KafkaError)
        assert issubclass(getattr(sparklog.errors, name), sparklog.errors.KafkaError)
    with Producer(tmp_path, allow_auto_create_topics=False) as producer, pytest.raises(sparklog.errors.KafkaError):
        producer.send("events", b"a")


def test_serializers_and_deserializers_are_called_for_none_and_for_the_key_first(tmp_path: Path) -> None:
    calls: list[Any] = []

    def called(name: str) -> Callable[[Any], Any]:
        def convert(data: Any) -> Any:
            calls.append((name, data))
            return data

        return convert

    with Producer(tmp_path, key_serializer=called("key"), value_serializer=called("value")) as producer:
        producer.send("events", b"v")
        producer.send("events", key=b"k")
    wanted = [("key", None), ("value", b"v"), ("key", b"k"), ("value", None)]
    assert calls == wanted
    calls.clear()
    with from_start(tmp_path, "events", key_deserializer=called("key"), value_deserializer=called("value")) as consumer:
        assert polled(consumer, 2) == [b"v", None]
    assert calls == wanted


def test_commit_async_returns_a_future_of_the_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    send(tmp_path, b"a")
    seen: list[Any] = []
    with from_start(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
        future = consumer.commit_async({EVENTS: 1}).add_callback(seen.append)
        assert (future.is_done, future.succeeded(), future.get(0), seen) == (True, True, {EVENTS: 1}, [{EVENTS: 1}])
        (tmp_path / "seglog.offsets").write_bytes(b"{")
        failed = consumer.commit_async({EVENTS: 1}, lambda *found: seen.append(found)).add_errback(seen.append)
        assert failed.failed()
        assert isinstance(failed.exception, CorruptCheckpointError)
        assert seen[1:] == [({EVENTS: 1}, failed.exception), failed.exception]
        assert consumer.commit_async().failed()
        assert "could not be committed" in caplog.text
        with pytest.raises(InvalidOptionError):
            consumer.commit_async({EVENTS: -1})
    with from_start(tmp_path, "events") as consumer, pytest.raises(IllegalStateError, match="group_id"):
        consumer.commit_async()


class Listener:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.consumer: Any = None

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.seen.append(("revoked", {tuple(at) for at in revoked}))
        if revoked and self.consumer is not None:
            self.consumer.commit()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.seen.append(("assigned", {tuple(at) for at in assigned}))


def test_listener_is_called_at_the_first_assignment_and_before_the_consumer_is_closed(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    listener = Listener()
    consumer = from_start(tmp_path, group_id="g", enable_auto_commit=False)
    consumer.subscribe(["events"], listener=listener)
    listener.consumer = consumer
    assert polled(consumer, 1) == [b"a"]
    consumer.close()
    consumer.close()
    assert listener.seen == [("revoked", set()), ("assigned", {EVENTS}), ("revoked", {EVENTS})]
    assert read_group_offsets(directory_at(tmp_path))["g"][EVENTS].offset == 1


def test_iteration_without_a_timeout_waits(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    with from_start(tmp_path, "events", consumer_timeout_ms=-1) as consumer:
        assert next(consumer).value == b"a"
        timer = threading.Timer(0.3, send, [tmp_path, b"b"])
        timer.start()
        assert next(consumer).value == b"b"
        timer.join()


def test_records_before_a_damaged_batch_are_given_first(tmp_path: Path) -> None:
    for value in (b"a", b"b", b"c", b"d"):
        send(tmp_path, value)
    path = tmp_path / "events-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    # The last byte of the third of four batches that are equally long.
    data[len(data) // 4 * 3 - 1] ^= 1
    path.write_bytes(data)
    with from_start(tmp_path, "events") as consumer:
        assert polled(consumer, 2) == [b"a", b"b"]
        for _ in range(2):
            with pytest.raises(CorruptBatchError):
                consumer.poll(1000)
        assert consumer.position(EVENTS) == 2
        consumer.seek(EVENTS, 3)
        assert polled(consumer, 1) == [b"d"]


def test_error_of_one_partition_loses_no_record_of_another(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    send(tmp_path, b"0", partition=0)
    send(tmp_path, b"1", b"2", b"3", partition=1)
    with Consumer(tmp_path, auto_offset_reset="none") as consumer:
        consumer.assign([EVENTS, OTHER])
        consumer.seek(EVENTS, 7)
        consumer.seek(OTHER, 0)
        found: list[Any] = []
        errors: list[str] = []
        for _ in range(4):
            try:
                found += [record.value for records in consumer.poll().values() for record in records]
            except OffsetOutOfRangeError as error:
                errors.append(str(error))
        assert found == [b"1", b"2", b"3"]
        assert errors
        assert all("events-0" in each for each in errors)
        assert consumer.position(OTHER) == 3
        consumer.seek(EVENTS, 0)
        assert polled(consumer, 1) == [b"0"]


def test_position_within_a_batch_or_where_a_record_was_compacted_away(tmp_path: Path) -> None:
    with Producer(tmp_path, linger_ms=600_000) as producer:
        for number in range(10):
            producer.send("events", b"%d" % number, key=b"k%d" % (number % 9))
    sparklog.clean(tmp_path, config={"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"})
    with Consumer(tmp_path) as consumer:
        consumer.assign([EVENTS])
        consumer.seek(EVENTS, 7)
        assert polled(consumer, 3) == [b"7", b"8", b"9"]
        consumer.seek(EVENTS, 0)
        assert polled(consumer, 10, max_records=4)[-1] == b"9"


def test_iteration_goes_on_after_it_has_ended(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    with from_start(tmp_path, "events", consumer_timeout_ms=50) as consumer:
        assert [record.value for record in consumer] == [b"a"]
        send(tmp_path, b"b")
        deadline = time.monotonic() + SECONDS
        while not (found := [record.value for record in consumer]) and time.monotonic() < deadline:
            pass
        assert found == [b"b"]
