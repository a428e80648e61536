"""What we record in ``__transaction_state``: what a coordinator of Kafka has, and it goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.topic.transactional_writer import transaction
from tests.kafka.admin import run_tool
from tests.kafka.broker import Broker, Record

pytestmark = pytest.mark.kafka

TOPIC = "paid"
WORKLOADS = {"started": [], "committed": ["commit"], "aborted": ["commit", "abort"], "again": ["commit", "start"]}
IDS = ("producer_id", "previous_producer_id", "start_timestamp", "last_update_timestamp", "transactional_id")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.start(tmp_path_factory.mktemp("transaction-state") / "broker") as broker:
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
