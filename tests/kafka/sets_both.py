"""Transactions, which the old broker and the newest one write alike, but for the epochs."""

from __future__ import annotations

from tests.kafka.broker import Broker
from tests.kafka.content import groups, records, segment_bytes

TRANSACTION_TOPICS = ("transactions", "transactions-wide")


def build_transactions(broker: Broker) -> None:
    """Commits and aborts, interleaved, across segments and partitions; one transaction stays open."""
    topic, wide = TRANSACTION_TOPICS
    small = {**segment_bytes(broker, 4096), "index.interval.bytes": 256}
    broker.create_topic(topic, config=small)
    broker.create_topic(wide, partitions=3)
    plain = broker.producer(enable_idempotence=False, acks=1)
    idempotent = broker.producer(enable_idempotence=True)
    a, b, c = (
        broker.producer(transactional_id=f"writer-{name}", compression_type=codec)
        for name, codec in (("a", "none"), ("b", "lz4"), ("c", "gzip"))
    )
    plain.send(records(topic, 5, seed=1))
    idempotent.send(*groups(records(topic, 9, seed=2), 3))
    for seed, end in ((3, a.commit), (4, a.abort)):
        a.begin()
        a.send(records(topic, 4, seed=seed))
        end()
    # Interleaved: b is aborted inside a's committed transaction, with plain records between.
    a.begin()
    a.send(records(topic, 2, seed=5))
    b.begin()
    b.send(records(topic, 3, seed=6))
    a.send(records(topic, 2, seed=7))
    plain.send(records(topic, 2, seed=8))
    b.abort()
    a.send(records(topic, 1, seed=9))
    a.commit()
    # Aborted over several segments, around a commit and another abort.
    c.begin()
    for seed in range(10, 20):
        c.send(records(topic, 10, seed=seed))
        if seed == 13:
            a.begin()
            a.send(records(topic, 5, seed=30))
        if seed == 15:
            b.begin()
            b.send(records(topic, 5, seed=31))
            b.abort()
        if seed == 17:
            a.commit()
        idempotent.send(records(topic, 3, seed=40 + seed))
    c.abort()
    _write_wide(broker, wide)
    left_open = broker.producer(transactional_id="writer-open", transaction_timeout_ms=900_000)
    left_open.begin()
    left_open.send(records(topic, 3, seed=50), records(wide, 2, partition=1, seed=50))
    plain.send(records(topic, 4, seed=51), records(wide, 4, partition=1, seed=51))
    for seed, end in ((52, a.commit), (53, b.abort)):
        producer = a if seed == 52 else b
        producer.begin()
        producer.send(records(topic, 3, seed=seed))
        end()


def _write_wide(broker: Broker, wide: str) -> None:
    """One transaction over partitions 0 and 1, aborted and then committed; partition 2 stays empty."""
    producer = broker.producer(transactional_id="writer-wide", compression_type="snappy")
    for seed, end in ((60, producer.abort), (61, producer.commit), (62, producer.abort)):
        producer.begin()
        for partition in range(2):
            producer.send(records(wide, 5, partition=partition, seed=seed))
        end()
