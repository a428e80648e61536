"""A mirror that follows a live broker takes its place: a broker starts on it and serves all that the first one had."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparklog
from sparklog.jobs.mirror.arguments import mirror
from sparklog.log.reader import IsolationLevel
from tests.kafka.broker import Broker, Producer, Record
from tests.kafka.content import segment_bytes
from tests.kafka.jars import NEWEST, OLD

pytestmark = pytest.mark.kafka

TOPIC = "mirrored"
LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


def send(producer: Producer, count: int, turn: int) -> None:
    producer.send([Record(TOPIC, b"k%d" % (n % 7), b"%d %d" % (turn, n) * 20) for n in range(count)])


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_broker_starts_on_the_mirror_of_one_that_was_killed(tmp_path: Path, version: str) -> None:
    with Broker.start(tmp_path / "broker", version=version) as broker:
        broker.create_topic(TOPIC, config=segment_bytes(broker, 20_000))
        broker.create_topic("deleted")
        plain = broker.producer(compression_type="lz4")
        within = broker.producer(transactional_id="within")
        target, copied_bytes = tmp_path / "mirror", []
        for turn in range(12):
            send(plain, 30, turn)
            within.begin()
            send(within, 20, turn)
            if turn % 3:
                within.commit()
            else:
                within.abort()
            if turn == 4:
                broker.delete_records(TOPIC, 0, 100)
            if turn == 6:
                broker.delete_topic("deleted")
            copied_bytes.append(mirror(broker.log_dir, target).copied_bytes)
        assert min(copied_bytes) > 0
        told = {level: broker.consume(TOPIC, isolation=level) for level in LEVELS}
        broker.kill()
        mirror(broker.log_dir, target)
        for level in LEVELS:
            with sparklog.open_log(target / f"{TOPIC}-0") as log:
                assert log.start_offset == 100
                assert log.read(columns="offset", isolation_level=level)["offset"].to_pylist() == [
                    each["offset"] for each in told[level]
                ]
        broker.log_dir.rename(tmp_path / "lost")
        target.rename(broker.log_dir)
        broker.restart()
        assert {level: broker.consume(TOPIC, isolation=level) for level in LEVELS} == told
        send(broker.producer(), 5, 99)
        assert len(broker.consume(TOPIC)) == len(told["read_uncommitted"]) + 5
        assert not (broker.log_dir / "deleted-0").exists()
