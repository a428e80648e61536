"""Transactions of a producer: who sees their records, what is refused, and what a process that dies leaves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

import sparklog
from sparklog.clients.consumer import Consumer
from sparklog.clients.producer import Producer
from sparklog.errors import (
    IllegalStateError,
    InvalidOptionError,
    KafkaConfigurationError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.clock import wall_clock_ms
from sparklog.topic.internal.given_offsets import OffsetAndMetadata
from sparklog.topic.log_manager import LogManager
from tests.system.logs import put, write_log
from tests.topic.staged import findings

SECONDS = 60


def started(path: Path, transactional_id: str = "loader", **config: Any) -> Producer:
    producer = Producer(path, transactional_id=transactional_id, **config)
    producer.init_transactions()
    return producer


def seen(path: Path, isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed") -> list[bytes]:
    """Return what a consumer gets of a topic, which is what a reader of the logs gets."""
    with Consumer(
        path, "events", auto_offset_reset="earliest", isolation_level=isolation_level, consumer_timeout_ms=0
    ) as consumer:
        found = sorted(record.value for record in consumer)
    read: list[bytes] = []
    for folder in path.glob("events-*"):
        with sparklog.open_log(folder) as log:
            read += log.read(columns=["value"], isolation_level=isolation_level)["value"].to_pylist()
    assert found == sorted(read)
    return found


def test_committed_records_are_seen_at_once_and_aborted_ones_never(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    with started(tmp_path, linger_ms=10_000) as producer:
        producer.begin_transaction()
        producer.send("events", b"a", partition=0)
        producer.send_table("events", {"value": [b"b"], "partition": [1]})
        producer.flush()
        assert (seen(tmp_path), seen(tmp_path, "read_uncommitted")) == ([], [b"a", b"b"])
        last = producer.send("events", b"c", partition=1)
        producer.commit_transaction()
        assert last.succeeded()
        assert seen(tmp_path) == [b"a", b"b", b"c"]
        producer.begin_transaction()
        producer.send("events", b"d", partition=0).get(SECONDS)
        unwritten = producer.send("events", b"e", partition=1)
        producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="aborted before the record was written"):
            unwritten.get(SECONDS)
        producer.begin_transaction()
        producer.send("events", b"f", partition=0)
        producer.commit_transaction()
    assert seen(tmp_path) == [b"a", b"b", b"c", b"f"]
    assert seen(tmp_path, "read_uncommitted") == [b"a", b"b", b"c", b"d", b"f"]
    assert findings(tmp_path) == []


def test_producers_of_a_process_share_logs_across_commits(tmp_path: Path) -> None:
    with started(tmp_path, "one") as one, started(tmp_path, "other") as other, Producer(tmp_path) as plain:
        for n in range(3):
            one.begin_transaction()
            other.begin_transaction()
            for producer in (one, other, plain):
                producer.send("events", b"%d" % n).get(SECONDS)
            one.commit_transaction()
            plain.send("events", b"%d again" % n).get(SECONDS)
            other.abort_transaction()
    assert seen(tmp_path) == sorted(value for n in range(3) for value in (b"%d" % n, b"%d" % n, b"%d again" % n))
    assert findings(tmp_path) == []


def test_fenced_producer_is_told_by_every_call(tmp_path: Path) -> None:
    with started(tmp_path) as old:
        old.begin_transaction()
        old.send("events", b"old").get(SECONDS)
        with started(tmp_path) as new:
            new.begin_transaction()
            future = old.send("events", b"too late")
            with pytest.raises(ProducerFencedError, match="fenced"):
                future.get(SECONDS)
            for call in (old.commit_transaction, old.abort_transaction, old.begin_transaction):
                with pytest.raises(ProducerFencedError, match="fenced"):
                    call()
            with pytest.raises(ProducerFencedError, match="fenced"):
                old.send("events", b"too late")
            new.send("events", b"new")
            new.commit_transaction()
    assert seen(tmp_path) == [b"new"]


def test_producer_that_is_fenced_when_it_commits_is_told(tmp_path: Path) -> None:
    with started(tmp_path) as old:
        old.begin_transaction()
        old.send("events", b"old").get(SECONDS)
        with started(tmp_path), pytest.raises(ProducerFencedError, match="fenced"):
            old.commit_transaction()
    assert seen(tmp_path) == []


def test_transaction_with_a_record_that_failed_can_only_be_aborted(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 1, {"max.message.bytes": "1000"})
    with started(tmp_path) as producer:
        producer.begin_transaction()
        producer.send("events", b"a").get(SECONDS)
        too_large = producer.send("events", random.Random(16).randbytes(5000))
        with pytest.raises(IllegalStateError, match=r"can only be aborted, .*max\.message\.bytes"):
            producer.commit_transaction()
        with pytest.raises(MessageSizeTooLargeError):
            too_large.get(SECONDS)
        for call in (producer.commit_transaction, lambda: producer.send("events", b"b")):
            with pytest.raises(IllegalStateError, match="can only be aborted"):
                call()
        assert seen(tmp_path) == []
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("events", b"c")
        producer.commit_transaction()
    assert seen(tmp_path) == [b"c"]


def test_calls_that_do_not_fit_the_state_are_refused(tmp_path: Path) -> None:
    with Producer(tmp_path) as plain, pytest.raises(IllegalStateError, match="give it a transactional_id"):
        plain.begin_transaction()
    with Producer(tmp_path, transactional_id="loader") as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(IllegalStateError, match="init_transactions"):
                call()
        with pytest.raises(IllegalStateError, match="init_transactions"):
            producer.send("events", b"a")
        producer.init_transactions()
        with pytest.raises(IllegalStateError, match="was called before"):
            producer.init_transactions()
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(IllegalStateError, match="no transaction of 'loader' has begun"):
                call()
        with pytest.raises(IllegalStateError, match="no transaction of 'loader' has begun"):
            producer.send("events", b"a")
        with pytest.raises(IllegalStateError, match="no transaction of 'loader' has begun"):
            producer.send_offsets_to_transaction({}, "group")
        with pytest.raises(IllegalStateError, match="no transaction of 'loader' has begun"):
            producer.send_table("events", {"value": [b"a"]})
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="has begun already"):
            producer.begin_transaction()
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        producer.begin_transaction()


@pytest.mark.parametrize("config", [{"transactional_id": ""}, {"acks": 1}, {"enable_idempotence": False}])
def test_configuration_that_allows_no_transactions_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError, match="transactional_id"):
        Producer(tmp_path, **{"transactional_id": "loader", **config})
    with pytest.raises(KafkaConfigurationError, match="a single log directory"):
        Producer([tmp_path / "a", tmp_path / "b"], transactional_id="loader")


def test_close_aborts_what_is_open(tmp_path: Path) -> None:
    with started(tmp_path) as producer:
        producer.begin_transaction()
        producer.send("events", b"a").get(SECONDS)
    assert (seen(tmp_path), seen(tmp_path, "read_uncommitted")) == ([], [b"a"])
    with Producer(tmp_path) as plain:
        plain.send("events", b"b").get(SECONDS)
    assert seen(tmp_path) == [b"b"]


def test_threads_send_in_one_transaction(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 3)
    with started(tmp_path, idle_release_ms=0) as producer:
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()

            def send(thread: int) -> None:
                for n in range(500):
                    producer.send("events", b"%d-%04d" % (thread, n), key=b"%d" % thread)

            threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            end()
    assert seen(tmp_path) == [b"%d-%04d" % (thread, n) for thread in range(4) for n in range(500)]
    assert findings(tmp_path) == []


# A line for each commit that has returned.
_COMMIT = """
import os, sys, sparklog

path, run = sys.argv[1:]
producer = sparklog.Producer(path, transactional_id="loader", linger_ms=0)
producer.init_transactions()
number = 0
while True:
    producer.begin_transaction()
    for partition in range(2):
        for n in range(10):
            producer.send("events", b"%s-%d" % (run.encode(), number), partition=partition)
    producer.commit_transaction()
    os.write(1, b"%d\\n" % number)
    number += 1
"""


def test_what_a_killed_producer_leaves_open_is_aborted_by_the_next_start(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    for run in range(4):
        command = [sys.executable, "-c", _COMMIT, str(tmp_path), str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(1 + 2 * run)]
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines(keepends=True)
        committed = [int(line) for line in lines if line.endswith(b"\n")]
        assert committed == list(range(len(committed)))
        with started(tmp_path) as producer:
            producer.begin_transaction()
            producer.send("events", b"%d-after" % run, partition=0)
            producer.commit_transaction()
        found = seen(tmp_path)
        assert found.count(b"%d-after" % run) == 1
        # The last one may have been committed without a line of it.
        numbers = {value for value in found if value.startswith(b"%d-" % run) and not value.endswith(b"after")}
        assert numbers - {b"%d-%d" % (run, len(committed))} == {b"%d-%d" % (run, n) for n in committed}
        assert {found.count(value) for value in numbers} == {20}
    assert findings(tmp_path) == []


def committed_offset(path: Path, group: str = "app") -> int | None:
    """Return what a consumer of the group has committed for the first partition of ``orders``, as the view shows it."""
    with Consumer(path, group_id=group) as consumer:
        found: int | None = consumer.committed(("orders", 0))
    if found is not None:
        rows = sparklog.views.read(path, "consumer_offsets").to_pylist()
        assert [row["offset"] for row in rows if (row["group"], row["topic"]) == (group, "orders")] == [found]
    return found


def test_offsets_are_committed_with_the_transaction_and_never_with_an_abort(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("orders", 1)
    with started(tmp_path) as producer, Consumer(tmp_path, "orders", group_id="app") as consumer:
        producer.begin_transaction()
        producer.send("events", b"a").get(SECONDS)
        producer.send_offsets_to_transaction({("orders", 0): 3}, consumer.group_metadata())
        producer.send_offsets_to_transaction({("orders", 0): OffsetAndMetadata(4, "note")}, "app")
        assert (committed_offset(tmp_path), seen(tmp_path)) == (None, [])
        producer.abort_transaction()
        assert (committed_offset(tmp_path), seen(tmp_path)) == (None, [])
        producer.begin_transaction()
        producer.send("events", b"b")
        producer.send_offsets_to_transaction(
            {("orders", 0): OffsetAndMetadata(2, "note")}, SimpleNamespace(group_id="app")
        )
        producer.commit_transaction()
        assert (committed_offset(tmp_path), seen(tmp_path)) == (2, [b"b"])
        assert consumer.committed(("orders", 0), metadata=True) == (2, "note", -1)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("orders", 0): 9}, "app")
        producer.commit_transaction()
        assert (committed_offset(tmp_path), seen(tmp_path)) == (9, [b"b"])
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("orders", 0): 5}, "app")
    assert committed_offset(tmp_path) == 9
    assert findings(tmp_path) == []


def test_offsets_of_a_transaction_are_behind_what_the_group_committed_at_a_broker(tmp_path: Path) -> None:
    """Also where the broker's clock goes ahead of the one here."""
    LogManager(tmp_path).create_topic("orders")
    value = {"offset": 1, "commitTimestamp": wall_clock_ms() + 3_600_000}
    key = {"group": "app", "topic": "orders", "partition": 0}
    write_log(tmp_path / "__consumer_offsets-0", [put("OffsetCommit", key, value, 3)])
    with started(tmp_path) as producer, Consumer(tmp_path, group_id="app", enable_auto_commit=False) as consumer:
        assert consumer.committed(("orders", 0)) == 1
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("orders", 0): 3}, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed(("orders", 0)) == 3


def test_consumer_that_commits_behind_a_transaction_is_not_put_back(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("orders", 1)
    with started(tmp_path) as producer, Consumer(tmp_path, group_id="app") as consumer:
        for offset in (5, 3):
            producer.begin_transaction()
            producer.send_offsets_to_transaction({("orders", 0): offset}, consumer.group_metadata())
            consumer.commit({("orders", 0): 1})
            assert committed_offset(tmp_path) == 1
            producer.commit_transaction()
            assert committed_offset(tmp_path) == offset
            consumer.commit({("orders", 0): 4})
            assert committed_offset(tmp_path) == 4


def test_offsets_that_are_not_committed_in_the_directory_of_the_transaction_are_refused(tmp_path: Path) -> None:
    for name in ("here", "there"):
        LogManager(tmp_path / name).create_topic(f"orders-{name}", 1)
    both = [tmp_path / "here", tmp_path / "there"]
    with started(tmp_path / "here") as producer:
        producer.begin_transaction()
        for home in (both[1:], both[::-1]):
            metadata = Consumer(home, group_id="app").group_metadata()
            with pytest.raises(InvalidOptionError, match=r"'app' commits in .*there, .* transaction is one of .*here"):
                producer.send_offsets_to_transaction({("orders-here", 0): 1}, metadata)
        with pytest.raises(UnknownTopicOrPartitionError, match=r"orders-there-0 is not in .*here"):
            producer.send_offsets_to_transaction({("orders-there", 0): 1}, "app")
        for group in ("", None, 5):
            with pytest.raises(InvalidOptionError, match="a group is given by its id"):
                producer.send_offsets_to_transaction({("orders-here", 0): 1}, group)
        with pytest.raises(InvalidOptionError, match="at least 0"):
            producer.send_offsets_to_transaction({("orders-here", 0): -1}, "app")
        with Consumer(both, group_id="app") as consumer:
            producer.send_offsets_to_transaction({("orders-there", 0): 1}, consumer.group_metadata())
            producer.commit_transaction()
            assert consumer.committed(("orders-there", 0)) == 1


def test_fenced_producer_commits_no_offsets(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("orders", 1)
    with started(tmp_path) as old:
        old.begin_transaction()
        old.send_offsets_to_transaction({("orders", 0): 1}, "app")
        with started(tmp_path):
            with pytest.raises(ProducerFencedError, match="fenced"):
                old.send_offsets_to_transaction({("orders", 0): 2}, "app")
            with pytest.raises(ProducerFencedError, match="fenced"):
                old.commit_transaction()
    assert committed_offset(tmp_path) is None


# Consumes orders, and sends an event for each; a line for each commit that has returned.
_TRANSFORM = """
import os, sys, sparklog

path = sys.argv[1]
consumer = sparklog.Consumer(path, "orders", group_id="app", auto_offset_reset="earliest", enable_auto_commit=False)
producer = sparklog.Producer(path, transactional_id="app", linger_ms=0, num_partitions=2)
producer.init_transactions()
while True:
    records = [each for found in consumer.poll(1000, max_records=3).values() for each in found]
    producer.begin_transaction()
    for each in records:
        producer.send("events", each.value, key=each.value)
    positions = {at: consumer.position(at) for at in consumer.assignment()}
    producer.send_offsets_to_transaction(positions, consumer.group_metadata())
    producer.commit_transaction()
    os.write(1, b"%d\\n" % len(records))
"""


def test_killed_loop_that_consumes_and_produces_loses_and_doubles_nothing(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("orders", 2)
    values = [b"%03d" % n for n in range(60)]
    with Producer(tmp_path) as producer:
        for n, value in enumerate(values):
            producer.send("orders", value, partition=n % 2)
    for run in range(5):
        with subprocess.Popen([sys.executable, "-c", _TRANSFORM, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(1 + run):
                process.stdout.readline()
            if run == 4:
                assert b"0\n" in process.stdout
            process.send_signal(signal.SIGKILL)
    with started(tmp_path, "app"):
        pass
    assert seen(tmp_path) == values
    assert findings(tmp_path) == []
