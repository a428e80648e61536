"""The producer without a broker: what its futures say, what it refuses, and who may share it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparklog
from sparklog.clients.producer import Producer
from sparklog.errors import (
    IllegalStateError,
    InvalidOptionError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    LockedError,
    MessageSizeTooLargeError,
    RecordTooLargeError,
    SeglogError,
    SerializationError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.files import TopicPartition
from sparklog.record.batches.producer_stamps import FIRST_OWN_PRODUCER_ID
from sparklog.topic.log_manager import LogManager
from sparklog.topic.write.partitioner import partitions_of_keys
from sparklog.write.partition import LogWriter
from tests.places import LOCAL
from tests.topic.staged import findings

SECONDS = 60


def read(path: Path, *columns: str) -> list[Any]:
    table = sparklog.open_topic(path).read(columns=list(columns))
    return [row if len(columns) > 1 else row[columns[0]] for row in table.to_pylist()]


def test_future_says_where_the_record_is(tmp_path: Path) -> None:
    with Producer(tmp_path) as producer:
        future = producer.send("events", b"value", key=b"key", headers=[("a", b"xy"), ("b", None)], timestamp_ms=77)
        found = future.get(SECONDS)
        assert future.is_done
        assert future.succeeded()
        assert not future.failed()
        assert future.value == found
    assert found == ("events", 0, TopicPartition("events", 0), 0, 77, None, 3, 5, 4)
    row = sparklog.open_log(tmp_path / "events-0").read(columns=["key", "value", "headers", "timestamp"]).to_pylist()[0]
    assert (row["key"], row["value"], int(row["timestamp"].timestamp() * 1000)) == (b"key", b"value", 77)
    assert row["headers"] == [{"key": "a", "value": b"xy"}, {"key": "b", "value": None}]
    assert findings(tmp_path) == []


def test_key_or_value_may_be_missing_and_their_sizes_say_so(tmp_path: Path) -> None:
    with Producer(tmp_path) as producer:
        first, second = producer.send("events", key=b"k"), producer.send("events", b"")
        assert first.get(SECONDS)[6:] == (1, -1, -1)
        assert second.get(SECONDS)[6:] == (-1, 0, -1)
        with pytest.raises(ValueError, match="neither"):
            producer.send("events")


def test_keys_go_where_kafka_puts_them(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 5)
    keys = [f"user-{n}".encode() for n in range(50)]
    with Producer(tmp_path) as producer:
        futures = [producer.send("events", b"v", key=key) for key in keys]
        assert [each.get(SECONDS).partition for each in futures] == partitions_of_keys(pa.array(keys), 5).tolist()
        assert producer.partitions_for("events") == set(range(5))
        assert producer.send("events", b"v", key=b"user-1", partition=3).get(SECONDS).partition == 3


def test_offsets_of_interleaved_partitions_are_those_of_their_records(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 3)
    with Producer(tmp_path, linger_ms=50) as producer:
        futures = [producer.send("events", b"%d" % n, partition=n % 3) for n in range(100)]
        places = {(f.get(SECONDS).partition, f.get(SECONDS).offset): b"%d" % n for n, f in enumerate(futures)}
    for row in read(tmp_path, "partition", "offset", "value"):
        assert places.pop((row["partition"], row["offset"])) == row["value"]
    assert places == {}


def test_serializers_are_functions_or_objects(tmp_path: Path) -> None:
    class Upper:
        def serialize(self, topic: str, headers: Any, data: str) -> bytes:
            return f"{topic}:{len(headers)}:{data.upper()}".encode()

    with Producer(tmp_path, key_serializer=str.encode, value_serializer=Upper()) as producer:
        producer.send("events", "v", key="k", headers=[("h", b"")])
    assert read(tmp_path, "key", "value") == [{"key": b"k", "value": b"events:1:V"}]


def test_what_a_serializer_raises_comes_from_send(tmp_path: Path) -> None:
    def fail(_: Any) -> bytes:
        raise ZeroDivisionError

    with Producer(tmp_path, value_serializer=fail) as producer, pytest.raises(ZeroDivisionError):
        producer.send("events", "v")


@pytest.mark.parametrize(
    "record",
    [{"value": "text"}, {"value": b"", "key": 5}, {"value": b"", "headers": {"a": b"b"}}]
    + [{"value": b"", "headers": [each]} for each in (("a", "b"), (b"a", b"b"), ("a",), "ab")],
)
def test_what_is_not_bytes_is_a_type_error(tmp_path: Path, record: dict[str, Any]) -> None:
    with Producer(tmp_path) as producer:
        with pytest.raises(SerializationError):
            producer.send("events", **record)
        with pytest.raises(TypeError):
            producer.send("events", **record)


def test_bytes_come_in_three_kinds(tmp_path: Path) -> None:
    with Producer(tmp_path) as producer:
        for value in (b"a", bytearray(b"b"), memoryview(b"c")):
            producer.send("events", value)
    assert read(tmp_path, "value") == [b"a", b"b", b"c"]


def test_callbacks_are_called_before_and_after(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    with Producer(tmp_path, linger_ms=10_000) as producer:
        future = producer.send("events", b"v")
        future.add_callback(seen.append).add_callback(lambda extra, found: seen.append((extra, found)), "extra")
        future.add_errback(seen.append)
        future.add_callback(lambda _: 1 // 0)
        future.get(SECONDS)
        producer.flush()
        future.add_both(seen.append)
    assert seen == [future.value, ("extra", future.value), future.value]
    assert "a callback of a record for events has failed" in caplog.text


@pytest.mark.parametrize("wait", [lambda producer, _: producer.flush(), lambda _, futures: futures[0].get(SECONDS)])
def test_flush_and_get_return_behind_the_callbacks(tmp_path: Path, wait: Callable[..., Any]) -> None:
    called: list[Any] = []

    def call(number: int, sent: Any) -> None:
        time.sleep(0.001)
        # Who is called back may ask for what is written, and does not wait for itself.
        called.append(futures[number].get(0) == sent and futures[number].is_done)
        producer.flush(0)

    with Producer(tmp_path, linger_ms=600_000) as producer:
        futures = [producer.send("events", b"v") for _ in range(50)]
        for number, future in enumerate(futures):
            future.add_callback(call, number)
        wait(producer, futures)
        assert called == [True] * 50


def test_flush_returns_behind_the_callbacks_of_what_failed(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", configs={"cleanup.policy": "compact"})
    called: list[Any] = []

    def call(error: Any) -> None:
        time.sleep(0.01)
        called.append(type(error))

    with Producer(tmp_path, linger_ms=600_000) as producer:
        for _ in range(3):
            producer.send("events", b"no key").add_both(call)
        producer.flush()
        assert called == [InvalidOptionError] * 3


def test_flush_and_get_do_not_wait_for_linger(tmp_path: Path) -> None:
    with Producer(tmp_path, linger_ms=600_000) as producer:
        assert producer.send("events", b"a").get(SECONDS).offset == 0
        producer.send("events", b"b")
        producer.flush(SECONDS)
        assert sparklog.open_log(tmp_path / "events-0").end_offset == 2
        producer.send("events", b"c")
    assert read(tmp_path, "value") == [b"a", b"b", b"c"]


def test_table_is_behind_what_was_sent_before(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    with Producer(tmp_path, linger_ms=600_000) as producer:
        producer.send("events", b"first", partition=1)
        table = pa.table({"value": [b"a", b"b", b"c"], "partition": [1, 0, 1]})
        found = producer.send_table("events", table).get(SECONDS)
        assert (found.records, found.offsets) == (3, {0: (0, 0), 1: (1, 2)})
        seen: list[Any] = []
        producer.send_table("events", {"value": ["d"], "key": ["k"]}).add_callback(seen.append).get(SECONDS)
        producer.flush()
        assert seen[0].records == 1
        with pytest.raises(InvalidOptionError, match="'value' not found"):
            producer.send_table("events", {"key": ["k"]})
        with pytest.raises(InvalidOptionError, match=r"message\.timestamp\.after\.max\.ms"):
            producer.send_table("events", {"value": [b"a"], "timestamp": pa.array([1 << 60])})
        too_large = producer.send_table("events", {"value": [os.urandom(1 << 21)]})
        with pytest.raises(RecordTooLargeError):
            too_large.get(SECONDS)


def test_record_that_a_log_refuses_fails_alone(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", configs={"cleanup.policy": "compact", "max.message.bytes": "1000"})
    with Producer(tmp_path, linger_ms=600_000, compression_type="none") as producer:
        futures = [producer.send("events", b"v", key=b"%d" % n) for n in range(20)]
        no_key, too_large = producer.send("events", b"v"), producer.send("events", b"v" * 2000, key=b"k")
        late = producer.send("events", b"v", key=b"k", timestamp_ms=1 << 60)
        last = producer.send("events", b"v", key=b"last")
        assert [each.get(SECONDS).offset for each in futures] == list(range(20))
        for failed, kind in ((no_key, ValueError), (too_large, MessageSizeTooLargeError), (late, InvalidOptionError)):
            with pytest.raises(kind):
                failed.get(SECONDS)
            assert failed.failed()
            assert isinstance(failed.exception, SeglogError)
        assert last.get(SECONDS).offset == 20
        assert producer.metrics()["producer-metrics"]["record-error-total"] == 3
    assert findings(tmp_path) == []


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 63, 1.5, True])
def test_time_that_no_record_can_have_is_refused_at_once(tmp_path: Path, timestamp_ms: Any) -> None:
    with Producer(tmp_path) as producer:
        with pytest.raises(ValueError, match="timestamp_ms must be ms since 1970"):
            producer.send("events", b"v", timestamp_ms=timestamp_ms)
        assert producer.send("events", b"v").get(SECONDS).offset == 0


def test_oversize_record_is_refused_at_once(tmp_path: Path) -> None:
    with Producer(tmp_path, max_request_size=1000) as producer:
        producer.send("events", b"x" * (1000 - 61 - 21))
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size is 1000"):
            producer.send("events", b"x" * (1000 - 61 - 20))


def test_full_buffer_blocks_and_then_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    append = LogWriter.append

    def slow(*args: Any, **options: Any) -> Any:
        assert go_on.wait(SECONDS)
        return append(*args, **options)

    monkeypatch.setattr(LogWriter, "append", slow)
    with Producer(tmp_path, buffer_memory=1000, max_block_ms=50) as producer:
        kept = producer.send("events", b"x" * 900)
        with pytest.raises(KafkaTimeoutError, match="buffer_memory=1000"):
            producer.send("events", b"x" * 900)
        with pytest.raises(TimeoutError):
            producer.flush(0.01)
        with pytest.raises(KafkaTimeoutError, match="may be yet"):
            kept.get(0.01)
        go_on.set()
        kept.get(SECONDS)
        producer.send("events", b"x" * 5000).get(SECONDS)


def test_closed_producer_has_written_all_and_takes_no_more(tmp_path: Path) -> None:
    producer = Producer(tmp_path, linger_ms=600_000)
    future = producer.send("events", b"a")
    producer.close()
    assert future.value.offset == 0
    producer.close()
    for call in (lambda: producer.send("events", b"b"), lambda: producer.send_table("events", {"value": [b"b"]})):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    with sparklog.PartitionLog.open(tmp_path / "events-0") as log:
        assert log.end_offset == 1


def test_producer_has_one_thread_while_it_is_open(tmp_path: Path) -> None:
    before = threading.active_count()
    with Producer(tmp_path) as producer:
        producer.send("events", b"a").get(SECONDS)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_close_that_may_not_wait_fails_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, is_writing = threading.Event(), threading.Event()
    append = LogWriter.append

    def slow(*args: Any, **options: Any) -> Any:
        is_writing.set()
        assert go_on.wait(SECONDS)
        return append(*args, **options)

    monkeypatch.setattr(LogWriter, "append", slow)
    producer = Producer(tmp_path)
    written = producer.send("events", b"a")
    assert is_writing.wait(SECONDS)
    left = producer.send("events", b"b")
    producer.close(timeout=0.01)
    with pytest.raises(IllegalStateError, match="before the record was written"):
        left.get(SECONDS)
    go_on.set()
    assert written.get(SECONDS).offset == 0


def test_partitions_of_a_directory_that_is_locked_wait_once(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 4)
    run = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with Producer(tmp_path, max_block_ms=50, linger_ms=600_000) as producer:
            futures = [producer.send("events", b"a", partition=n) for n in range(4)]
            for future in futures:
                with pytest.raises(LockedError, match="another writer holds"):
                    future.get(SECONDS)
            assert len({id(future.exception) for future in futures}) == 1
            process.stdin.close()
            assert process.wait(SECONDS) == 0
            assert producer.send("events", b"b", partition=0).get(SECONDS).offset == 0


_HOLD = """
import sys, sparklog
with sparklog.PartitionLog.open(sys.argv[1] + "/held-0"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_close_in_a_callback_ends_the_producer(tmp_path: Path) -> None:
    producer = Producer(tmp_path)
    closed = threading.Event()

    def close(_: Any) -> None:
        producer.close()
        closed.set()

    producer.send("events", b"a").add_callback(close)
    assert closed.wait(SECONDS)
    with pytest.raises(IllegalStateError):
        producer.send("events", b"b")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"lingerms": 5}, "did you mean 'linger_ms'"),
        ({"acks": 2}, "acks must be 0, 1 or 'all'"),
        ({"compression_type": "lzma"}, "compression_type must be one of"),
        ({"linger_ms": -1}, "linger_ms must be a number, at least 0"),
        ({"buffer_memory": "1"}, "buffer_memory must be a number"),
        ({"topic_config": {"segment.bytes": "1"}}, r"segment\.bytes must be"),
        ({"value_serializer": 5}, "value_serializer must be a function"),
        ({"partitioner": 5}, "partitioner must be a function"),
        ({"transactional_id": "t", "enable_idempotence": False}, "needs enable_idempotence"),
    ],
)
def test_wrong_configuration_is_refused(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=said):
        Producer(tmp_path, **config)


def test_configuration_of_brokers_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"), Producer(tmp_path, client_id="c", retries=3) as producer:
        producer.send("events", b"a").get(SECONDS)
    assert "client_id, retries" in caplog.text


def test_topic_or_partition_that_is_not_there_is_refused(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    with Producer(tmp_path, allow_auto_create_topics=False) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="allow_auto_create_topics is off"):
            producer.send("other", b"a")
        for partition in (-1, 2):
            with pytest.raises(UnknownTopicOrPartitionError, match="which has 0 to 1"):
                producer.send("events", b"a", partition=partition)
        for wrong in ("0", True, 1.0, "../../events-0"):
            with pytest.raises(InvalidOptionError, match="not a partition of topic events"):
                producer.send("events", b"a", partition=wrong)  # type: ignore[arg-type]
        future = producer.send("events", b"a", partition=np.int64(1))  # type: ignore[arg-type]
        assert future.get(SECONDS).partition == 1
    with Producer(tmp_path, num_partitions=3) as producer:
        for name in ("", "a/b", "a" * 250, 5):
            with pytest.raises(InvalidTopicError):
                producer.send(name, b"a")  # type: ignore[arg-type]
        producer.send("other", b"a").get(SECONDS)
    assert LogManager(tmp_path).topics() == {"events": 2, "other": 3}


def test_partitioner_may_be_a_function_a_name_or_ours(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 4)
    with Producer(tmp_path, partitioner=lambda key, every, _: every[len(key or b"")]) as producer:
        assert producer.send("events", b"v", key=b"abc").get(SECONDS).partition == 3
        with pytest.raises(IndexError):
            producer.send("events", b"v", key=b"abcde")
    with Producer(tmp_path, partitioner="roundRobin") as producer:
        found = [producer.send("events", b"v", key=b"same").get(SECONDS).partition for _ in range(8)]
        assert Counter(found) == dict.fromkeys(range(4), 2)
    with Producer(tmp_path, partitioner=lambda *_: 9) as producer, pytest.raises(UnknownTopicOrPartitionError):
        producer.send("events", b"v")


def test_stored_properties_are_obeyed(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("zstd", configs={"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
    manager.create_topic("free", configs={"compression.type": "producer"})
    before_ms = time.time_ns() // 1_000_000
    with Producer(tmp_path, compression_type="gzip") as producer:
        found = producer.send("zstd", b"x" * 1000, timestamp_ms=5).get(SECONDS)
        producer.send("free", b"x" * 1000)
    codecs = dict(zip(*(read(tmp_path, name) for name in ("topic", "compression")), strict=True))
    assert codecs == {"zstd": "zstd", "free": "gzip"}
    stored = sparklog.open_log(tmp_path / "zstd-0").read(columns="timestamp")["timestamp"].cast(pa.int64())
    assert stored.to_pylist() == [found.timestamp]
    assert found.timestamp >= before_ms


def test_acks_0_tells_no_offset_and_writes(tmp_path: Path) -> None:
    with Producer(tmp_path, acks=0) as producer:
        future = producer.send("events", b"a")
        assert future.get(SECONDS).offset == -1
        producer.flush()
    assert read(tmp_path, "value") == [b"a"]
    # The metadata are made when they are asked for: the write must not have changed what they are made of.
    assert future.get(SECONDS).offset == -1


def test_acks_decide_whether_the_disk_is_waited_for(tmp_path: Path) -> None:
    for acks, flushes in ((1, 0), ("all", 1)):
        with Producer(tmp_path, acks=acks) as producer:
            producer.send(f"t{acks}", b"a").get(SECONDS)
            assert producer.metrics()["logs"][f"t{acks}-0"].flushes == flushes


def test_idempotent_batches_carry_an_id_of_our_own_block(tmp_path: Path) -> None:
    with Producer(tmp_path) as producer:
        for _ in range(3):
            producer.send("events", b"a").get(SECONDS)
    with Producer(tmp_path, enable_idempotence=False) as producer:
        producer.send("events", b"a")
    ids, sequences = (read(tmp_path, name) for name in ("producer_id", "sequence"))
    assert ids[0] == ids[1] == ids[2] >= FIRST_OWN_PRODUCER_ID
    assert ids[3] == -1
    assert sequences[:3] == [0, 1, 2]


def test_after_an_error_of_the_disk_nothing_new_is_taken_for_a_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = LogWriter.append
    with Producer(tmp_path) as producer:
        producer.send("events", b"a").get(SECONDS)

        def fail(self: LogWriter, *args: Any, **options: Any) -> Any:
            append(self, *args, **options)
            raise StorageError("the disk is gone")

        monkeypatch.setattr(LogWriter, "append", fail)
        with pytest.raises(StorageError, match="the disk is gone"):
            producer.send("events", b"b").get(SECONDS)
        monkeypatch.setattr(LogWriter, "append", append)
        assert producer.send("events", b"c").get(SECONDS).offset == 2
    assert read(tmp_path, "value") == [b"a", b"b", b"c"]


def test_records_whose_partitioner_fails_are_not_taken_for_written(tmp_path: Path) -> None:
    class Broken:
        def partition(self, keys: Any, row_bytes: Any, partitions: int) -> Any:
            raise ZeroDivisionError(keys, row_bytes, partitions)

    with Producer(tmp_path, partitioner=Broken()) as producer:
        future = producer.send("events", b"a")
        with pytest.raises(ZeroDivisionError):
            future.get(SECONDS)
        assert future.failed()
        assert producer.metrics()["producer-metrics"]["record-error-total"] == 1


def wait_until_released(path: Path) -> None:
    """Wait until an idle producer has closed its logs."""
    deadline = time.monotonic() + SECONDS
    while any(LOCAL.claimed_as(str(each)) for each in path.glob("*-?")) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_idle_producer_sleeps(tmp_path: Path) -> None:
    with Producer(tmp_path, idle_release_ms=0) as producer:
        producer.send("events", b"a").get(SECONDS)
        wait_until_released(tmp_path)
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.2


def test_topic_that_was_deleted_is_made_as_a_whole_and_not_by_the_way(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("events", 2, {"compression.type": "zstd"})
    with Producer(tmp_path, num_partitions=3, idle_release_ms=0) as producer:
        producer.send("events", b"a", partition=1).get(SECONDS)
        wait_until_released(tmp_path)
        manager.delete_topic("events")
        assert producer.send("events", b"b").get(SECONDS).offset == 0
        assert producer.partitions_for("events") == {0, 1, 2}
    assert manager.topics() == {"events": 3}
    assert manager.configs("events") == {}
    assert read(tmp_path, "value") == [b"b"]
    assert findings(tmp_path) == []


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_topic_that_was_deleted_stays_away_where_topics_are_not_made(
    tmp_path: Path, transactional_id: str | None
) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("events", 2)
    options: dict[str, Any] = {"allow_auto_create_topics": False, "idle_release_ms": 0}
    with Producer(tmp_path, transactional_id=transactional_id, **options) as producer:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        producer.send("events", b"a").get(SECONDS)
        if transactional_id is not None:
            producer.commit_transaction()
            producer.begin_transaction()
        wait_until_released(tmp_path)
        manager.delete_topic("events")
        future = producer.send("events", b"b")
        with pytest.raises(UnknownTopicOrPartitionError, match="allow_auto_create_topics is off"):
            future.get(SECONDS)
        if transactional_id is not None:
            producer.abort_transaction()
        with pytest.raises(UnknownTopicOrPartitionError, match="allow_auto_create_topics is off"):
            producer.partitions_for("events")
    assert manager.topics() == {}
    assert not (tmp_path / "events-0").exists()
    assert not (tmp_path / "events-1").exists()


def test_log_that_is_deleted_while_its_writer_waits_is_not_made_by_the_way(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    with Producer(tmp_path, allow_auto_create_topics=False, idle_release_ms=0) as producer:
        producer.send("events", b"a", partition=0).get(SECONDS)
        wait_until_released(tmp_path)
        with subprocess.Popen(
            [sys.executable, "-c", _DELETE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            future = producer.send("events", b"b", partition=0)
            time.sleep(0.2)
            process.stdin.close()
            with pytest.raises(UnknownTopicOrPartitionError):
                future.get(SECONDS)
    assert [path.name for path in tmp_path.glob("events-?")] == []


_DELETE = """
import sys, sparklog
with sparklog.PartitionLog.open(sys.argv[1] + "/held-0"):
    print("held", flush=True)
    sys.stdin.read()
    sparklog.LogManager(sys.argv[1]).delete_topic("events")
"""


def test_partitions_that_are_added_are_seen_in_time_and_where_they_are_named(tmp_path: Path) -> None:
    def add(number: int) -> None:
        LogWriter.open(tmp_path / f"events-{number}").close()

    add(0)
    with Producer(tmp_path) as patient, Producer(tmp_path, metadata_max_age_ms=50, linger_ms=0) as producer:
        patient.send("events", b"a").get(SECONDS)
        producer.send("events", b"a").get(SECONDS)
        add(1)
        assert patient.send("events", b"b", partition=1).get(SECONDS).partition == 1
        add(2)
        assert patient.partitions_for("events") == {0, 1}
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3 of events, which has 0 to 2"):
            patient.send("events", b"b", partition=3)
        time.sleep(0.06)
        assert producer.partitions_for("events") == {0, 1, 2}
        sent = {producer.send("events", b"%d" % n, key=b"%d" % n).get(SECONDS).partition for n in range(30)}
        assert sent == {0, 1, 2}


def test_properties_of_a_topic_that_are_changed_are_obeyed_in_time(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("events", 1, {"compression.type": "gzip"})
    with Producer(tmp_path, metadata_max_age_ms=50) as producer:
        producer.send("events", b"a").get(SECONDS)
        manager.alter_configs("events", {"compression.type": "zstd"})
        time.sleep(0.06)
        producer.send("events", b"b").get(SECONDS)
    assert read(tmp_path, "compression") == ["gzip", "zstd"]


@pytest.mark.parametrize(("version", "has_times"), [("0.9.0", False), ("0.10.0", True)])
def test_topic_of_an_old_record_format_is_written(tmp_path: Path, version: str, has_times: bool) -> None:
    LogManager(tmp_path).create_topic("events", 1, {"message.format.version": version})
    with Producer(tmp_path) as producer:
        first = producer.send("events", b"a", key=b"k").get(SECONDS)
        assert (first.offset, first.timestamp > 0) == (0, has_times)
        timed, headed = (
            producer.send("events", b"b", timestamp_ms=77),
            producer.send("events", b"c", headers=[("h", b"")]),
        )
        producer.send_table("events", {"value": ["d"]}).get(SECONDS)
        if has_times:
            assert timed.get(SECONDS).timestamp == 77
        else:
            with pytest.raises(
                InvalidOptionError, match="no timestamps: 1 of 1 records would lose theirs: leave timestamps out"
            ):
                timed.get(SECONDS)
        with pytest.raises(InvalidOptionError, match="leave headers out"):
            headed.get(SECONDS)
    assert read(tmp_path, "value") == [b"a", *([b"b"] if has_times else []), b"d"]
    assert findings(tmp_path) == []


@pytest.mark.parametrize("records", [2000, pytest.param(100_000, marks=pytest.mark.fuzz)])
def test_threads_share_a_producer_and_producers_share_the_logs(tmp_path: Path, records: int) -> None:
    LogManager(tmp_path).create_topic("events", 3)
    acknowledged: list[tuple[int, int, bytes]] = []
    with Producer(tmp_path, acks=1) as first, Producer(tmp_path, acks=1) as second:

        def send(thread: int) -> None:
            producer = (first, second)[thread % 2]
            for n in range(records):
                value = b"%d-%d" % (thread, n)
                future = producer.send("events", value, key=b"%d" % thread)
                future.add_callback(lambda sent, found: acknowledged.append((*found[1:4:2], sent)), value)

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first.flush()
        second.flush()
    there = [(row["partition"], row["offset"], row["value"]) for row in read(tmp_path, "partition", "offset", "value")]
    assert len(acknowledged) == 8 * records
    assert sorted(acknowledged) == sorted(there)
    for number in range(8):
        mine = [value for _, _, value in sorted(there) if value.startswith(b"%d-" % number)]
        assert mine == [b"%d-%d" % (number, n) for n in range(records)]
    assert findings(tmp_path) == []


def test_idle_producer_lets_others_write(tmp_path: Path) -> None:
    with Producer(tmp_path, idle_release_ms=20) as producer:
        producer.send("events", b"a").get(SECONDS)
        run = [sys.executable, "-c", _SEND_ONE, str(tmp_path)]
        subprocess.run(run, check=True, timeout=SECONDS)
        assert producer.send("events", b"c").get(SECONDS).offset == 2
    assert read(tmp_path, "value") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("producers", [1, 2])
def test_busy_producer_lets_others_have_their_turns(tmp_path: Path, producers: int) -> None:
    ended, futures = threading.Event(), []

    def keep_busy(number: int) -> None:
        with Producer(tmp_path, idle_release_ms=100, acks=1, linger_ms=0) as producer:
            while not ended.is_set():
                futures.append(producer.send(f"busy-{number}", b"a"))
                time.sleep(0.001)

    threads = [threading.Thread(target=keep_busy, args=[number]) for number in range(producers)]
    for thread in threads:
        thread.start()
    try:
        subprocess.run([sys.executable, "-c", _SEND_ONE, str(tmp_path)], check=True, timeout=SECONDS)
        # One of the same process that wants the directory for itself gets its turn as well.
        assert len(sparklog.clean(tmp_path, topics="events", lock_timeout_seconds=SECONDS).partitions) == 1
        before = len(futures)
        deadline = time.monotonic() + SECONDS
        while len(futures) < before + 100 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        ended.set()
        for thread in threads:
            thread.join(SECONDS)
    assert all(future.succeeded() for future in futures)
    table = sparklog.open_topic(tmp_path).read(columns=["topic"])
    assert table.num_rows == len(futures) + 1
    assert findings(tmp_path) == []


def test_process_that_may_not_write_is_refused_by_name(tmp_path: Path) -> None:
    with Producer(tmp_path, idle_release_ms=60_000) as producer:
        producer.send("events", b"a").get(SECONDS)
        run = [sys.executable, "-c", _SEND_ONE, str(tmp_path), "200"]
        done = subprocess.run(run, check=False, timeout=SECONDS, capture_output=True, text=True)
        assert done.returncode
        assert f"another writer holds {tmp_path}" in done.stderr
        assert "LockedError" in done.stderr


def test_log_that_this_process_has_open_itself_is_refused(tmp_path: Path) -> None:
    with sparklog.PartitionLog.open(tmp_path / "events-0"), Producer(tmp_path) as producer:
        future = producer.send("events", b"a")
        with pytest.raises(LockedError, match="open in this process"):
            future.get(SECONDS)


_SEND_ONE = """
import sys, sparklog
wait = float(sys.argv[2]) if len(sys.argv) > 2 else 30_000
with sparklog.Producer(sys.argv[1], max_block_ms=wait) as producer:
    producer.send("events", b"b").get(60)
"""


def test_forked_process_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    with Producer(tmp_path, linger_ms=600_000) as producer:
        future = producer.send("events", b"a")
        child = os.fork()
        if not child:
            status = 1
            try:
                producer.send("events", b"b")
            except IllegalStateError as error:
                producer.close()
                with Producer(tmp_path / "own") as own:
                    status = 0 if "forked" in str(error) and own.send("events", b"c").get(SECONDS) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert future.get(SECONDS).offset == 0
    assert read(tmp_path, "value") == [b"a"]


def test_what_was_sent_is_written_at_the_end_of_a_program_that_forgets_to_close(tmp_path: Path) -> None:
    program = "import sys, sparklog; sparklog.Producer(sys.argv[1], linger_ms=600000).send('events', b'a')"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=SECONDS)
    assert read(tmp_path, "value") == [b"a"]
