"""Golden sets that the old broker writes: magic 0 and 1, files of mixed magic, transactions of before KIP-890."""

from __future__ import annotations

from tests.kafka.broker import Broker
from tests.kafka.capture import Recipe
from tests.kafka.content import START_MS, groups, nulls_and_empties, plain, records, repetitive, wait_until_clean
from tests.kafka.jars import OLD
from tests.kafka.sets_both import TRANSACTION_TOPICS, build_transactions
from tests.kafka.tool import Record

FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}
CODECS = ("none", "gzip", "snappy", "lz4")
APPENDED = ("v1-append-none", "v1-append-gzip")
COMPACTED = {"v0-compacted-none": 0, "v0-compacted-snappy": 0, "v1-compacted-none": 1, "v1-compacted-gzip": 1}


def _config(magic: int, **config: object) -> dict[str, object]:
    small = {"message.format.version": FORMATS[magic], "segment.bytes": 4096, "index.interval.bytes": 768}
    return {**small, **{key.replace("_", "."): value for key, value in config.items()}}


def build_codecs(broker: Broker) -> None:
    """Magic 0 and 1 with each codec: several segments, wrappers, large wrappers, nulls; magic 1 with LogAppendTime."""
    for magic in (0, 1):
        for codec in CODECS:
            topic = f"v{magic}-{codec}"
            broker.create_topic(topic, config=_config(magic))
            small = groups(plain(records(topic, 120)), 12)
            broker.produce(nulls_and_empties(topic), *small, compression_type=codec)
            broker.alter_topic(topic, {"segment.bytes": 1 << 17})
            large = repetitive(topic, 40 if codec == "none" else 700)
            broker.produce(large, compression_type=codec)
    for topic in APPENDED:
        broker.create_topic(topic, config=_config(1, message_timestamp_type="LogAppendTime"))
        broker.produce(*groups(plain(records(topic, 60)), 10), compression_type=topic.rpartition("-")[2])


def build_mixed(broker: Broker) -> None:
    """One segment file of magic 0, then 1, then 2, as topics of upgraded clusters have."""
    for codec in ("none", "gzip"):
        topic = f"mixed-{codec}"
        broker.create_topic(topic, config=_config(0, segment_bytes=1 << 20))
        for magic, message_format in FORMATS.items():
            broker.alter_topic(topic, {"message.format.version": message_format})
            broker.produce(*groups(plain(records(topic, 30, seed=magic)), 6), compression_type=codec)


def build_compacted(broker: Broker) -> None:
    """Magic 0 and 1 after the cleaner: gaps between messages, and inside wrappers."""
    for topic, magic in COMPACTED.items():
        config = _config(magic, segment_bytes=4096, cleanup_policy="compact", file_delete_delay_ms=500)
        broker.create_topic(topic, config={**config, "min.cleanable.dirty.ratio": 0.001})
        codec = topic.rpartition("-")[2]
        made = plain(records(topic, 300, keys=60))
        tombstones = [Record(topic, b"key-%04d" % i, None, 0, START_MS + 80_000) for i in range(0, 60, 9)]
        broker.produce(*groups(made, 10), tombstones, compression_type=codec)
        broker.produce(*groups(plain(records(topic, 80, seed=2, keys=10_000)), 10), compression_type=codec)
        wait_until_clean(broker, topic)


OLDEN = (
    Recipe(
        "old-codecs",
        build_codecs,
        [*(f"v{magic}-{codec}" for magic in (0, 1) for codec in CODECS), *APPENDED],
        version=OLD,
    ),
    Recipe("old-mixed", build_mixed, ["mixed-none", "mixed-gzip"], version=OLD),
    Recipe(
        "old-compacted",
        build_compacted,
        list(COMPACTED),
        version=OLD,
        properties={"log.cleaner.backoff.ms": 300},
    ),
    Recipe("old-transactions", build_transactions, TRANSACTION_TOPICS, version=OLD, transactional=True),
)
