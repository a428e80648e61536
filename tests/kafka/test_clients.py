"""The producer and the consumer of ours in the log directory of a real broker."""

from __future__ import annotations

import base64
import threading
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import BrokerRunningError
from tests.kafka.broker import Broker, Record
from tests.kafka.dump import dump_log

pytestmark = pytest.mark.kafka

TOPIC, PARTITIONS, RECORDS = "clients", 3, 500


def test_broker_serves_what_a_producer_wrote_and_a_consumer_follows_it(tmp_path: Path) -> None:
    # The metadata beside the topics, where most brokers have them.
    with Broker.start(tmp_path / "broker", properties={"metadata.log.dir": None}) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS, config={"compression.type": "zstd", "retention.ms": -1})
        broker.produce([Record(TOPIC, b"k", b"of the broker", partition=1)])
        broker.stop()
        with sparklog.Producer(broker.log_dir) as producer:
            futures = [producer.send(TOPIC, b"%d" % n, key=b"key-%d" % (n % 40)) for n in range(RECORDS)]
            sent = {(f.get(60).partition, f.get(60).offset): b"%d" % n for n, f in enumerate(futures)}
        codecs = sparklog.open_topic(broker.log_dir / TOPIC).read(columns=["compression", "value"]).to_pylist()
        assert {row["compression"] for row in codecs if row["value"] != b"of the broker"} == {"zstd"}
        broker.restart()
        there = {(row["partition"], row["offset"]): base64.b64decode(row["value"]) for row in broker.consume(TOPIC)}
        assert sent.items() <= there.items()
        assert [each for at, each in there.items() if at not in sent] == [b"of the broker"]
        with sparklog.Producer(broker.log_dir) as producer, pytest.raises(BrokerRunningError, match="a broker runs on"):
            producer.send(TOPIC, b"beside it").get(60)
        followed = follow(broker, len(there) + RECORDS)
        assert sorted(followed) == sorted([*there.values(), *(b"more %d" % n for n in range(RECORDS))])
        broker.stop()
        for folder in broker.log_dir.glob(f"{TOPIC}-?"):
            dump_log(sorted(folder.glob("*.log")), root=broker.log_dir)
        assert broker.complaints() == []


def follow(broker: Broker, count: int) -> list[bytes]:
    """Consume while the broker writes, and return the values in the order in which they came."""
    found: list[bytes] = []

    def consume() -> None:
        with sparklog.Consumer(broker.log_dir, TOPIC, auto_offset_reset="earliest", group_id="ours") as consumer:
            while len(found) < count:
                batch = consumer.poll(1000)
                found.extend(each.value for records in batch.values() for each in records)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    for start in range(0, RECORDS, 100):
        broker.produce([Record(TOPIC, None, b"more %d" % n, partition=n % 3) for n in range(start, start + 100)])
    thread.join(120)
    assert not thread.is_alive()
    return found
