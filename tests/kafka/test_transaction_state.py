"""What we record in ``__transaction_state``: what a coordinator of Kafka has, and it goes on with it."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.log.layout import read_layout
from sparklog.topic.transactions.writer import transaction
from tests.kafka.admin import run_tool
from tests.kafka.broker import Broker, Record
from tests.places import folder_at

pytestmark = pytest.mark.kafka

TOPIC = "paid"
WORKLOADS = {"started": [], "committed": ["commit"], "aborted": ["commit", "abort"], "again": ["commit", "start"]}
LEFT_OPEN = """
import sys, time
import sparklog

directory, name, topic = sys.argv[1:]
clock = lambda: time.time_ns() // 10**6 - 3_600_000
with_records, with_offsets = (
    sparklog.TransactionalWriter.open(directory, each, clock=clock) for each in (name, name + "-offsets")
)
with_records.begin()
for partition in (1, 0):
    with_records.append(topic, partition, {"value": [b"never seen"]})
with_offsets.begin()
with_offsets.send_offsets({(topic, 0): 1}, "group")
print("open", flush=True)
time.sleep(600)
"""
"""Writes transactions that began an hour ago, one of records and one of offsets alone, and waits to be killed."""
IDS = ("producer_id", "previous_producer_id", "start_timestamp", "last_update_timestamp", "transactional_id")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with Broker.start(tmp_path_factory.mktemp("transaction-state") / "broker", properties=properties) as broker:
        broker.create_topic(TOPIC)
        yield broker


def write_by_broker(broker: Broker, name: str, steps: list[str]) -> None:
    with broker.producer(transactional_id=name, transaction_timeout_ms=60_000) as producer:
        for step in steps:
            if step == "start":
                broker.producer(transactional_id=name, transaction_timeout_ms=60_000).close()
                continue
            producer.begin()
            producer.send([Record(TOPIC, None, name.encode())])
            getattr(producer, step)()


def write_here(directory: Path, name: str, steps: list[str]) -> None:
    with transaction(directory, name) as writer:
        for step in steps:
            if step == "start":
                with transaction(directory, name):
                    pass
                continue
            writer.append(TOPIC, 0, {"value": [name.encode()]})
            getattr(writer, step)()
            writer.begin()


def states(broker: Broker) -> dict[str, dict[str, Any]]:
    rows = sparklog.views.read(broker.log_dir, "transactions").to_pylist()
    return {row["transactional_id"]: row for row in rows}


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """Return a state without ids and times, but for whether they are there and alike."""
    kept = {name: value for name, value in row.items() if name not in IDS}
    is_same = row["previous_producer_id"] == row["producer_id"]
    return {**kept, "is_same": is_same, "has_start": row["start_timestamp"] is not None}


def test_state_is_what_a_coordinator_writes_and_a_producer_goes_on(broker: Broker) -> None:
    for name, steps in WORKLOADS.items():
        write_by_broker(broker, f"theirs-{name}", steps)
    broker.stop()
    for name, steps in WORKLOADS.items():
        write_here(broker.log_dir, f"ours-{name}", steps)
    found = states(broker)
    for name in WORKLOADS:
        assert compared(found[f"ours-{name}"]) == compared(found[f"theirs-{name}"]), name
    broker.restart()
    listed = run_tool(broker, "kafka-transactions", "list")
    for name in WORKLOADS:
        ours = found[f"ours-{name}"]
        assert any(
            {f"ours-{name}", str(ours["producer_id"]), ours["state"]} <= {*line.split()} for line in listed.splitlines()
        )
    described = run_tool(broker, "kafka-transactions", "describe", "--transactional-id", "ours-aborted")
    assert {"ours-aborted", "CompleteAbort", "60000", str(found["ours-aborted"]["producer_id"])} <= {*described.split()}
    with broker.producer(transactional_id="ours-aborted", transaction_timeout_ms=60_000) as producer:
        producer.begin()
        producer.send([Record(TOPIC, None, b"from a broker")])
        producer.commit()
    broker.stop()
    after = states(broker)["ours-aborted"]
    assert after["producer_id"] == found["ours-aborted"]["producer_id"]
    assert after["producer_epoch"] > found["ours-aborted"]["producer_epoch"]
    # And back again: nothing is written with an epoch that the broker has given.
    with transaction(broker.log_dir, "ours-aborted") as writer:
        assert writer.producer_id == after["producer_id"]
        assert writer.producer_epoch > after["producer_epoch"]
        writer.append(TOPIC, 0, {"value": [b"here again"]})
    broker.restart()
    values = [record["value"] for record in broker.consume(TOPIC, isolation="read_committed")]
    assert len(values) == 2 * 3 + 2
    assert broker.complaints() == []


def test_transaction_of_a_writer_that_was_killed_is_aborted_by_a_coordinator(broker: Broker) -> None:
    topic, partitions = "left", 2
    broker.create_topic(topic, partitions=partitions)
    theirs = broker.producer(transactional_id="theirs-left", transaction_timeout_ms=60_000)
    theirs.begin()
    theirs.send([Record(topic, None, b"nor this", partition=number) for number in (1, 0)])
    broker.stop()
    kill_within_a_transaction(broker.log_dir, "ours-left", topic)
    found = states(broker)
    assert compared(found["ours-left"]) == compared(found["theirs-left"])
    assert (found["ours-left"]["state"], found["ours-left-offsets"]["state"]) == ("Ongoing", "Ongoing")
    broker.restart()
    broker.producer(transactional_id="theirs-left").close()
    broker.produce([Record(topic, None, b"behind it", partition=number) for number in range(partitions)])
    wait_until_stable(broker, topic)
    values = [base64.b64decode(each["value"]) for each in broker.consume(topic, isolation="read_committed")]
    assert values == [b"behind it"] * partitions
    broker.stop()
    assert states(broker)["ours-left-offsets"]["state"] == "CompleteAbort"
    after = states(broker)["ours-left"]
    ours = found["ours-left"]
    assert (after["state"], after["producer_id"]) == ("CompleteAbort", ours["producer_id"])
    assert after["producer_epoch"] > ours["producer_epoch"]
    # The coordinator has ended it: here it is not ended once more.
    before = log_ends(broker.log_dir, topic)
    with transaction(broker.log_dir, "ours-left") as writer:
        assert writer.producer_id == after["producer_id"]
        assert writer.producer_epoch > after["producer_epoch"]
        assert log_ends(broker.log_dir, topic) == before
        writer.append(topic, 0, {"value": [b"here again"]})
    broker.restart()
    values = [base64.b64decode(each["value"]) for each in broker.consume(topic, isolation="read_committed")]
    assert sorted(values) == [*[b"behind it"] * partitions, b"here again"]
    assert broker.complaints() == []


def kill_within_a_transaction(directory: Path, name: str, topic: str) -> None:
    """Write transactions in another process, and kill that before their ends."""
    command = [sys.executable, "-c", LEFT_OPEN, str(directory), name, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    assert said == "open\n"


def wait_until_stable(broker: Broker, topic: str) -> None:
    """Wait until no transaction is open in a topic."""
    deadline = time.monotonic() + 60
    while any(each["last_stable"] < each["end"] for each in broker.offsets(topic)):
        assert time.monotonic() < deadline, broker.offsets(topic)
        time.sleep(0.1)


def log_ends(directory: Path, topic: str) -> list[int]:
    return [read_layout(folder_at(path)).end_offset for path in sorted(directory.glob(f"{topic}-*"))]
