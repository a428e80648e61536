"""Golden sets that the newest broker writes: magic 2."""

from __future__ import annotations

import random

from tests.kafka.broker import Broker
from tests.kafka.capture import Recipe
from tests.kafka.content import (
    START_MS,
    groups,
    nulls_and_empties,
    records,
    repetitive,
    segment_bytes,
    wait_until_clean,
    wait_until_gone,
)
from tests.kafka.sets_both import TRANSACTION_TOPICS, build_transactions
from tests.kafka.tool import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLEANER = {"log.cleaner.backoff.ms": 300}
NO_RETENTION_CHECK = {"log.initial.task.delay.ms": 900_000}


def build_codecs(broker: Broker) -> None:
    """Several segments with indexes for each codec, then batches larger than a block of the codec."""
    for codec in CODECS:
        topic = f"v2-{codec}"
        broker.create_topic(topic, config={**segment_bytes(broker, 4096), "index.interval.bytes": 768})
        broker.produce(*groups(records(topic, 180), 12), compression_type=codec)
        broker.alter_topic(topic, segment_bytes(broker, 1 << 17))
        large = repetitive(topic, 100 if codec == "none" else 700)
        noise = Record(topic, b"noise", random.Random(3).randbytes(2000), 0, START_MS + 7_200_000)
        broker.produce(large, [noise, *records(topic, 3, seed=4)], compression_type=codec)


def build_timestamps(broker: Broker) -> None:
    """Both timestamp types, and a topic whose type changes; timestamps out of order and equal."""
    small = {**segment_bytes(broker, 4096), "index.interval.bytes": 512}
    for topic, kind in (("create-time", "CreateTime"), ("append-time", "LogAppendTime")):
        broker.create_topic(topic, config={**small, "message.timestamp.type": kind})
        for codec in ("none", "lz4"):
            broker.produce(*groups(records(topic, 60, seed=len(codec)), 10), compression_type=codec)
    broker.create_topic("falling-time", config=small)
    falling = [Record("falling-time", b"k%d" % i, b"%d" % i, 0, START_MS - 1000 * (i // 2)) for i in range(80)]
    broker.produce(*groups(falling, 8), compression_type="gzip")
    broker.create_topic("changing-time")
    for i, kind in enumerate(("CreateTime", "LogAppendTime", "CreateTime")):
        broker.alter_topic("changing-time", {"message.timestamp.type": kind})
        broker.produce(*groups(records("changing-time", 12, seed=i), 4), compression_type="zstd")
    # Year 1970, year 9999, and beyond what Spark's microseconds hold.
    broker.create_topic("far-times", config={"message.timestamp.after.max.ms": 2**63 - 1})
    far = [Record("far-times", b"k", b"%d" % ms, 0, ms) for ms in (0, 1, 0, 253_402_300_799_999, 2**63 - 1, 5)]
    broker.produce(*([record] for record in far))


def build_records(broker: Broker) -> None:
    """Headers, nulls, names, an empty partition, one-record batches."""
    for codec in ("none", "snappy"):
        topic = f"headers-{codec}"
        broker.create_topic(topic)
        kinds: list[list[tuple[str, bytes | None]]] = [
            [],
            [("h", b"v")],
            [("h", None)],
            [("h", b"")],
            [("twice", b"1"), ("other", b"x"), ("twice", b"2"), ("twice", None)],
            [("", b"an empty name")],
            [("größe-尺寸-📏", "größe-尺寸-📏".encode())],
            [("bytes", bytes(range(256)))],
            [(f"h{i}", b"%d" % i) for i in range(100)],
        ]
        made = [Record(topic, b"k%d" % i, b"v", 0, START_MS + i, kind) for i, kind in enumerate(kinds)]
        broker.produce(made, *([record] for record in made), compression_type=codec)
        topic = f"nulls-{codec}"
        broker.create_topic(topic)
        made = nulls_and_empties(topic)
        broker.produce(made, *([record] for record in made), compression_type=codec)
    one = "one-record-batches"
    broker.create_topic(one, config={"index.interval.bytes": 1024})
    broker.produce(*groups(records(one, 200), 1), enable_idempotence=False, acks=1)
    broker.produce(*groups(records(one, 100, seed=2), 1), compression_type="zstd")
    for topic in ("shop.orders-eu", "_under_score.and-dash-1"):
        broker.create_topic(topic, partitions=3)
        for partition in (0, 2):
            broker.produce(*groups(records(topic, 20, partition=partition), 7))
    broker.create_topic("empty")


def build_compacted(broker: Broker) -> None:
    """Topics the cleaner has been through: gaps, tombstones, delete horizons, empty batches of idle producers."""
    for codec in ("none", "lz4", "zstd"):
        _compact(broker, f"compacted-{codec}", codec, delete_retention_ms=86_400_000)
    _compact(broker, "compacted-purged", "gzip", delete_retention_ms=0)
    _compact_transactions(broker, "compacted-transactions", delete_retention_ms=86_400_000)
    _compact_transactions(broker, "compacted-transactions-purged", delete_retention_ms=0)


def _compact_transactions(broker: Broker, topic: str, *, delete_retention_ms: int) -> None:
    broker.create_topic(topic, config=_compaction(broker, delete_retention_ms))
    writers = [broker.producer(transactional_id=f"{topic}-{i}") for i in range(3)]
    for round_ in range(12):
        producer = writers[2 if round_ == 1 else round_ % 2]
        producer.begin()
        producer.send(*groups(records(topic, 16, seed=round_, keys=12), 8))
        if round_ % 3 == 2:
            producer.abort()
        else:
            producer.commit()
    # A pass empties a transaction, the next sets its marker a horizon, the one after that drops the marker.
    for seed in (100, 101, 102, 103):
        broker.produce(*groups(records(topic, 60, seed=seed, keys=12), 10))
        wait_until_clean(broker, topic)
    # In the segment that the cleaner leaves alone: here the isolation levels differ.
    writers[0].begin()
    writers[0].send(records(topic, 4, seed=110, keys=12))
    writers[0].abort()


def _compaction(broker: Broker, delete_retention_ms: int) -> dict[str, object]:
    return {
        **segment_bytes(broker, 4096),
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0.001,
        "delete.retention.ms": delete_retention_ms,
        "file.delete.delay.ms": 500,
        "index.interval.bytes": 256,
    }


def _compact(broker: Broker, topic: str, codec: str, *, delete_retention_ms: int) -> None:
    broker.create_topic(topic, config=_compaction(broker, delete_retention_ms))
    # Its records are all written again by others: its batch stays, empty, for its sequence number.
    idle = broker.producer(compression_type=codec)
    idle.send([Record(topic, b"key-%04d" % i, b"idle", 0, START_MS) for i in range(5)])
    with broker.producer(compression_type=codec) as busy:
        for round_ in range(2):
            made = records(topic, 240, seed=round_, keys=30, start_ms=START_MS + 1_000_000 * round_)
            doomed = {b"key-%04d" % i for i in range(0, 30, 6)}
            late = made[200:]
            busy.send(*groups(made[:200], 10))
            busy.send([Record(topic, key, None, 0, START_MS + 70_000) for key in sorted(doomed)])
            busy.send(*groups([record for record in late if record.key not in doomed], 5))
            # What fills the active segment, which the cleaner leaves alone.
            busy.send(*groups(records(topic, 60, seed=1000 + round_, keys=10_000), 30))
            wait_until_clean(broker, topic)


def build_log_start(broker: Broker) -> None:
    """Log start offsets inside a batch, in a later segment, at the end."""
    plans = {"trimmed-none": ("none", 1 << 20), "trimmed-gzip": ("gzip", 1 << 20), "trimmed-segments": ("lz4", 2048)}
    for topic, (codec, size) in plans.items():
        broker.create_topic(topic, config={**segment_bytes(broker, size), "index.interval.bytes": 256})
        broker.produce(*groups(records(topic, 200), 10), compression_type=codec)
        broker.delete_records(topic, 0, 137)
    broker.create_topic("trimmed-all")
    broker.produce(*groups(records("trimmed-all", 20), 10))
    broker.delete_records("trimmed-all", 0, -1)


def build_crash(broker: Broker) -> None:
    """What kill -9 leaves: indexes with zero tails, a preallocated log, an open transaction, no marker."""
    small = {"segment.index.bytes": 4096, "index.interval.bytes": 512}
    broker.create_topic("crashed", partitions=2, config={**segment_bytes(broker, 8192), **small})
    for codec in ("none", "zstd"):
        broker.produce(*groups(records("crashed", 120), 8), compression_type=codec)
    broker.create_topic("crashed-preallocated", config={**segment_bytes(broker, 16384), **small, "preallocate": True})
    broker.produce(*groups(records("crashed-preallocated", 180), 9))
    topic = "crashed-transactions"
    broker.create_topic(topic, config={**segment_bytes(broker, 8192), **small})
    aborted = broker.producer(transactional_id="crash-aborted")
    left_open = broker.producer(transactional_id="crash-open", transaction_timeout_ms=900_000)
    for round_ in range(3):
        aborted.begin()
        aborted.send(records(topic, 20, seed=round_))
        aborted.abort()
        broker.produce(records(topic, 20, seed=10 + round_))
    left_open.begin()
    left_open.send(records(topic, 10, seed=20))
    broker.produce(records(topic, 10, seed=21))


def build_internal(broker: Broker) -> None:
    """Kafka's own topics: committed offsets by both group protocols and by hand, and transactions."""
    broker.create_topic("read-by-groups", partitions=2)
    for partition in range(2):
        broker.produce(records("read-by-groups", 10, partition=partition))
    broker.group_consume("classic-group", "read-by-groups", group_protocol="classic")
    broker.group_consume("new-group", "read-by-groups", group_protocol="consumer")
    broker.commit_group_offsets("by-hand", [("read-by-groups", 0, 3, "three"), ("read-by-groups", 1, 4, "")])
    producer = broker.producer(transactional_id="bookkeeper")
    for end in (producer.commit, producer.abort):
        producer.begin()
        producer.send(records("read-by-groups", 4, seed=5))
        end()


def build_lifecycle(broker: Broker) -> None:
    """Leader epochs over restarts, clean and not; a topic deleted, and one made again under its name."""
    broker.create_topic("restarted", config={"index.interval.bytes": 256})
    broker.produce(*groups(records("restarted", 20, seed=1), 5))
    broker.restart()
    broker.produce(*groups(records("restarted", 20, seed=2), 5))
    broker.kill()
    broker.restart()
    broker.produce(*groups(records("restarted", 20, seed=3), 5))
    for topic in ("deleted", "made-again"):
        # A deleted log is not trimmed, so its indexes are taken as they are.
        broker.create_topic(topic, config={"segment.index.bytes": 1024})
        broker.produce([Record(topic, b"k", b"the first life", 0, START_MS)])
        broker.delete_topic(topic)
        wait_until_gone(broker, topic)
    broker.create_topic("made-again")
    broker.produce([Record("made-again", b"k", b"the second life", 0, START_MS + 1)])


NEW = (
    Recipe("v2-codecs", build_codecs, [f"v2-{codec}" for codec in CODECS]),
    Recipe(
        "v2-timestamps",
        build_timestamps,
        ["create-time", "append-time", "falling-time", "changing-time", "far-times"],
    ),
    Recipe(
        "v2-records",
        build_records,
        [
            *(f"{kind}-{codec}" for kind in ("headers", "nulls") for codec in ("none", "snappy")),
            *("one-record-batches", "shop.orders-eu", "_under_score.and-dash-1", "empty"),
        ],
    ),
    Recipe("v2-transactions", build_transactions, TRANSACTION_TOPICS, transactional=True),
    Recipe(
        "v2-compacted",
        build_compacted,
        [f"compacted-{kind}" for kind in ("none", "lz4", "zstd", "purged", "transactions", "transactions-purged")],
        properties=CLEANER,
        transactional=True,
    ),
    Recipe(
        "v2-log-start",
        build_log_start,
        [f"trimmed-{kind}" for kind in ("none", "gzip", "segments", "all")],
        properties=NO_RETENTION_CHECK,
    ),
    Recipe(
        "v2-crash",
        build_crash,
        ["crashed", "crashed-preallocated", "crashed-transactions"],
        transactional=True,
        end="kill",
    ),
    Recipe(
        "v2-internal",
        build_internal,
        ["read-by-groups", "__consumer_offsets", "__transaction_state"],
        # In one directory with the partitions, as a broker has it that does not set this.
        properties={"metadata.log.dir": None},
        transactional=True,
        keep=["__cluster_metadata"],
    ),
    Recipe("v2-lifecycle", build_lifecycle, ["restarted", "made-again"]),
)
