"""Topics to compact: what a broker is made to write, and what it has compacted of that already."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.kafka.broker import Broker, Producer
from tests.kafka.content import groups, plain, records, segment_bytes, wait_until_clean
from tests.kafka.sets_old import FORMATS
from tests.kafka.tool import Record

NEVER: Mapping[str, object] = {"min.cleanable.dirty.ratio": 1}
"""No log is dirtier than this, and so none is cleaned."""
ALWAYS: Mapping[str, object] = {"min.cleanable.dirty.ratio": 0}
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
OPEN_MS = 900_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONS = 12

Write = Callable[[Broker, str], None]


@dataclass(frozen=True)
class Workload:
    """A topic, what is written to it, and its configs beside those that every workload has."""

    topic: str
    write: Write
    config: Mapping[str, object] = field(default_factory=dict)
    segment_bytes: int = 4096

    def make(self, broker: Broker) -> None:
        """Create the topic and write to it."""
        config = {**segment_bytes(broker, self.segment_bytes), "cleanup.policy": "compact", "file.delete.delay.ms": 100}
        broker.create_topic(self.topic, config={**config, "index.interval.bytes": 512, **NEVER, **self.config})
        self.write(broker, self.topic)


def clean_now(broker: Broker, topic: str) -> None:
    """Have the broker clean a topic, and then no more."""
    broker.alter_topic(topic, ALWAYS)
    wait_until_clean(broker, topic)
    broker.alter_topic(topic, NEVER)


def _tombstones(topic: str, keys: range) -> list[Record]:
    return [Record(topic, f"key-{key:04d}".encode(), None) for key in keys]


def _mixed(topic: str, seed: int, count: int = 300, keys: int = 60) -> list[list[Record]]:
    """Return batches of records, among which are some tombstones."""
    made = list(groups(records(topic, count, seed=seed, keys=keys), 10))
    rng = random.Random(f"{topic}/{seed}")
    for batch in made[::3]:
        batch.insert(rng.randrange(len(batch)), rng.choice(_tombstones(topic, range(seed, min(keys, 60), 11))))
    return made


def _compressed(codec: str) -> Write:
    def write(broker: Broker, topic: str) -> None:
        broker.produce(*_mixed(topic, 1), compression_type=codec)

    return write


def _within_a_batch(broker: Broker, topic: str) -> None:
    batches = list(groups(records(topic, 400, keys=7), 80))
    broker.produce(*batches, compression_type="zstd")
    broker.produce(*groups(records(topic, 100, seed=2, keys=30), 50), compression_type="lz4")


def _null_keys(broker: Broker, topic: str) -> None:
    """A compacted topic takes no null key; those that it has are from before."""
    made = [Record(topic, [None, b"", b"k%d" % (i % 9)][i % 3], b"value %d" % i if i % 5 else b"") for i in range(300)]
    broker.produce(*groups(made, 10))
    broker.alter_topic(topic, {"cleanup.policy": "compact"})
    broker.produce(*_mixed(topic, 1, count=60))


def _huge_keys(broker: Broker, topic: str) -> None:
    rng = random.Random(topic)
    keys = [rng.randbytes(size) for size in (100_000, 300_000, 65_536, 1, 0)]
    for turn in range(6):
        broker.produce(*[[Record(topic, key, b"turn %d" % turn)] for key in keys], compression_type=CODECS[turn % 5])
    broker.produce(*_mixed(topic, 1, count=60))


def _headers(broker: Broker, topic: str) -> None:
    made = [
        Record(topic, b"%d" % (i % 13), b"v%d" % i, headers=[("h", b"%d" % i), ("h", None), ("", b"")][: i % 4])
        for i in range(300)
    ]
    broker.produce(*groups(made, 12), compression_type="gzip")


def _after_an_earlier_cleaning(broker: Broker, topic: str) -> None:
    """Write tombstones whose horizon is set, with records of the same keys behind some of them."""
    broker.produce(*_mixed(topic, 1), _tombstones(topic, range(40)), compression_type="lz4")
    broker.produce(*_mixed(topic, 2, keys=1000))
    clean_now(broker, topic)
    broker.produce(*_mixed(topic, 3, keys=20), _tombstones(topic, range(30, 50)))
    broker.produce(*_mixed(topic, 4, keys=1000, count=100))


def _in_turns(broker: Broker, topic: str, seed: int, *, aborts: int) -> list[Producer]:
    """Write transactions of three producers, one in another; every ``aborts``-th is aborted."""
    around, within, after = (broker.producer(transactional_id=f"{topic}-{seed}-{n}") for n in range(3))
    for turn in range(TRANSACTIONS):
        around.begin()
        around.send(*groups(records(topic, 20, seed=100 * seed + turn, keys=30), 10))
        within.begin()
        within.send(records(topic, 8, seed=100 * seed + turn + 30, keys=30))
        broker.produce(records(topic, 4, seed=100 * seed + turn + 60, keys=30))
        (within.abort if aborts and turn % aborts == 0 else within.commit)()
        around.send(_tombstones(topic, range(turn, turn + 4)))
        (around.abort if aborts and turn % aborts == 1 else around.commit)()
    return [around, within, after]


def _transactions(aborts: int) -> Write:
    def write(broker: Broker, topic: str) -> None:
        for producer in _in_turns(broker, topic, 1, aborts=aborts):
            producer.close()

    return write


def _open_transaction(broker: Broker, topic: str) -> None:
    _in_turns(broker, topic, 1, aborts=3)
    left_open = broker.producer(transactional_id=f"{topic}-open", transaction_timeout_ms=OPEN_MS)
    left_open.begin()
    left_open.send(records(topic, 5, keys=30))
    _in_turns(broker, topic, 2, aborts=3)


def _markers_in_turn(broker: Broker, topic: str) -> None:
    """Clean three times, so that markers are met, given a horizon, and gone; write over them each time."""
    producers = _in_turns(broker, topic, 1, aborts=2)
    for turn in range(3):
        broker.produce(*groups(records(topic, 100, seed=turn, keys=30), 10))
        clean_now(broker, topic)
    producers[0].begin()
    producers[0].send(records(topic, 5, keys=3))
    producers[0].abort()
    broker.produce(*groups(records(topic, 100, seed=9, keys=30), 10))


def _many_producers(broker: Broker, topic: str) -> None:
    """Each producer's last batch is replaced by others, and must stay for its sequence."""
    for seed in range(8):
        with broker.producer(enable_idempotence=True) as producer:
            producer.send(*groups(records(topic, 50, seed=seed, keys=10), 5))


def _log_append_time(broker: Broker, topic: str) -> None:
    for codec in CODECS:
        broker.produce(*_mixed(topic, 1, count=60), compression_type=codec)


def _deleted_prefix(broker: Broker, topic: str) -> None:
    broker.produce(*_mixed(topic, 1))
    broker.delete_records(topic, 0, 77)
    broker.produce(*_mixed(topic, 2))


def _young(broker: Broker, topic: str) -> None:
    """What is in the second half must not be cleaned yet."""
    old_ms = int(time.time() * 1000) - 3 * DAY_MS
    broker.produce(*groups(records(topic, 300, start_ms=old_ms, keys=30), 10))
    broker.produce(*groups(records(topic, 300, seed=2, start_ms=old_ms + 3 * DAY_MS, keys=30), 10))


def _nothing_but_replaced(broker: Broker, topic: str) -> None:
    """Whole segments of which nothing stays."""
    for seed in range(6):
        broker.produce(*groups(records(topic, 100, seed=seed, keys=4), 10))


NEW = (
    *(Workload(f"codec-{codec}", _compressed(codec)) for codec in CODECS),
    Workload("within-a-batch", _within_a_batch),
    Workload("null-keys", _null_keys, {"cleanup.policy": "delete"}),
    Workload("huge-keys", _huge_keys, segment_bytes=1 << 20),
    Workload("headers", _headers),
    Workload("tombstones-waiting", _after_an_earlier_cleaning, {"delete.retention.ms": 10 * DAY_MS}),
    Workload("tombstones-over", _after_an_earlier_cleaning, {"delete.retention.ms": 1}),
    Workload("transactions-committed", _transactions(0)),
    Workload("transactions-aborted", _transactions(3)),
    Workload("transactions-all-aborted", _transactions(1)),
    Workload("transactions-open", _open_transaction),
    Workload("transactions-markers", _markers_in_turn, {"delete.retention.ms": 1}),
    Workload("many-producers", _many_producers),
    Workload("log-append-time", _log_append_time, {"message.timestamp.type": "LogAppendTime"}),
    Workload("deleted-prefix", _deleted_prefix, {"cleanup.policy": "compact,delete"}),
    Workload("young", _young, {"min.compaction.lag.ms": 24 * HOUR_MS}),
    Workload("nothing-but-replaced", _nothing_but_replaced),
)


def _of_format(magic: int, codec: str) -> Write:
    def write(broker: Broker, topic: str) -> None:
        made = plain([record for batch in _mixed(topic, magic) for record in batch])
        broker.produce(*groups(made, 10), compression_type=codec)

    return write


def _legacy_tombstones(broker: Broker, topic: str) -> None:
    """Write tombstones of magic 1, in files that were cleaned and whose times differ."""
    for seed in range(3):
        made = plain([record for batch in _mixed(topic, seed, count=150) for record in batch])
        broker.produce(*groups([*made, *_tombstones(topic, range(seed, 60, 5))], 10), compression_type="gzip")
        time.sleep(0.5)
    broker.produce(*groups(plain(records(topic, 60, seed=5, keys=1000)), 10))
    clean_now(broker, topic)
    broker.produce(*groups(plain(records(topic, 150, seed=7, keys=20)), 10))


def _all_formats(codec: str) -> Write:
    def write(broker: Broker, topic: str) -> None:
        for magic, message_format in FORMATS.items():
            broker.alter_topic(topic, {"message.format.version": message_format})
            made = plain(records(topic, 120, seed=magic, keys=40))
            broker.produce(*groups(made, 8), compression_type=codec)

    return write


OLD = (
    Workload("format-0-none", _of_format(0, "none"), {"message.format.version": FORMATS[0]}),
    Workload("format-0-gzip", _of_format(0, "gzip"), {"message.format.version": FORMATS[0]}),
    Workload("format-1-snappy", _of_format(1, "snappy"), {"message.format.version": FORMATS[1]}),
    Workload("format-1-lz4", _of_format(1, "lz4"), {"message.format.version": FORMATS[1]}),
    *(
        Workload(
            f"legacy-tombstones-{name}",
            _legacy_tombstones,
            {"message.format.version": FORMATS[1], "delete.retention.ms": retention_ms},
        )
        for name, retention_ms in (("kept", 10 * DAY_MS), ("over", 1))
    ),
    Workload("all-formats-none", _all_formats("none"), {"message.format.version": FORMATS[0]}),
    Workload("all-formats-gzip", _all_formats("gzip"), {"message.format.version": FORMATS[0]}),
)
