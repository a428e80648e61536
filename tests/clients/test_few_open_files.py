"""Clients of more partitions than their process may have files open."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import sparklog
from sparklog.clients import fetcher
from sparklog.topic.log_manager import LogManager
from sparklog.write.partition import LogWriter
from tests import terminal
from tests.limits import descriptors_beneath, with_open_files

PARTITIONS, LIMIT, ROUNDS = 64, 64, 3


def write(directory: Path) -> None:
    """Write with a producer, in a transaction of a producer, and in a transaction by hand; every partition gets all."""
    order = random.Random(0)

    def shuffled() -> list[int]:
        return order.sample(range(PARTITIONS), PARTITIONS)

    with sparklog.Producer(directory) as producer:
        sent = [
            producer.send("events", b"%d" % number, partition=partition)
            for number in range(ROUNDS)
            for partition in shuffled()
        ]
        producer.flush()
        assert not any(each.failed() for each in sent)
    with sparklog.Producer(directory, transactional_id="first") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in shuffled():
            producer.send("events", b"first", partition=partition)
        producer.commit_transaction()
    with sparklog.transaction(directory, "second") as writer:
        for partition in shuffled():
            writer.append("events", partition, {"value": [b"second"]})


def read(directory: Path) -> None:
    found: dict[int, list[bytes]] = {}
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with sparklog.Consumer(directory, "events", max_poll_records=7, **options) as consumer:
        for _ in range(PARTITIONS * (ROUNDS + 2)):
            for at, records in consumer.poll(60_000, max_records=1).items():
                found.setdefault(at.partition, []).extend(each.value for each in records)
    assert found == {number: [b"0", b"1", b"2", b"first", b"second"] for number in range(PARTITIONS)}
    with sparklog.open_topic(directory) as topic:
        assert topic.read(columns="offset").num_rows == PARTITIONS * (ROUNDS + 2)


def clean(directory: Path) -> None:
    result = terminal.run("clean", directory, "--retention-ms", "1")
    assert result.exit_code == 0, result.output


def test_producers_and_consumers_of_more_partitions_than_files_may_be_open(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", PARTITIONS)
    with_open_files(LIMIT, write, tmp_path)
    result = terminal.run("verify", tmp_path)
    assert result.exit_code == 0, result.output
    assert terminal.lines("transactions", tmp_path, "--hanging") == []
    with_open_files(LIMIT, read, tmp_path)
    with_open_files(LIMIT, clean, tmp_path)
    with sparklog.open_topic(tmp_path) as topic:
        assert topic.read(columns="offset").num_rows == 0


def test_consumer_with_a_backlog_in_each_partition_keeps_a_few_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "files_max", lambda: 32)
    for partition in range(10):
        with LogWriter.open(tmp_path / f"events-{partition}") as log:
            log.append({"value": [b"%d" % number for number in range(50)]})
    found: dict[int, list[bytes]] = {}
    with sparklog.Consumer(tmp_path, "events", auto_offset_reset="earliest", max_poll_records=7) as consumer:
        while sum(map(len, found.values())) < 500:
            for at, records in consumer.poll(1000).items():
                found.setdefault(at.partition, []).extend(each.value for each in records)
            assert descriptors_beneath(tmp_path) <= 4
        consumer.seek_to_beginning()
        for _ in range(5):
            assert consumer.poll(60_000)
        assert descriptors_beneath(tmp_path)
        consumer.unsubscribe()
        assert descriptors_beneath(tmp_path) == 0
    assert found == {partition: [b"%d" % number for number in range(50)] for partition in range(10)}
