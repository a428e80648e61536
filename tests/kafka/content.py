"""Records to write: text that compresses, from fixed seeds."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping

from tests.kafka.broker import Broker, HarnessError
from tests.kafka.tool import Record

START_MS = 1_740_000_000_000
"""2025-02-19T21:20:00Z: the timestamps of golden records begin here."""

CLEAN_TIMEOUT_S = 90

WORDS = ("anchor", "basket", "cotton", "drawer", "engine", "fabric", "garden", "hammer", "island", "jacket", "kettle")


def records(
    topic: str, count: int, *, seed: int = 1, partition: int = 0, start_ms: int = START_MS, keys: int = 50
) -> list[Record]:
    """Return `count` records of about 100 bytes: keys of `keys` kinds, timestamps that wander, some with headers."""
    rng = random.Random(f"{topic}/{partition}/{seed}")
    made = []
    for i in range(count):
        text = " ".join(rng.choices(WORDS, k=rng.randint(4, 16)))
        headers = [("trace-id", rng.randbytes(4).hex().encode())] if i % 9 == 0 else []
        timestamp = start_ms + 250 * i + rng.randint(-2000, 2000)
        key = f"key-{rng.randrange(keys):04d}".encode()
        made.append(Record(topic, key, text.encode(), partition, timestamp, headers))
    return made


def repetitive(topic: str, count: int) -> list[Record]:
    """Return `count` records of about 130 bytes that nearly vanish when compressed: batches beyond a codec's block."""
    text = " ".join(WORDS[i * i % len(WORDS)] for i in range(18)).encode()
    return [Record(topic, b"key-%04d" % (i % 9), text, 0, START_MS + 3_600_000 + i) for i in range(count)]


def plain(made: list[Record]) -> list[Record]:
    """Return the records without headers, which magic 0 and 1 do not have."""
    return [Record(r.topic, r.key, r.value, r.partition, r.timestamp) for r in made]


def groups(made: list[Record], size: int) -> Iterator[list[Record]]:
    """Cut records into groups; each becomes a batch."""
    for i in range(0, len(made), size):
        yield made[i : i + size]


def nulls_and_empties(topic: str) -> list[Record]:
    """Return records with every mix of null, empty and present key and value."""
    pairs = [(key, value) for key in (None, b"", b"k") for value in (None, b"", b"v")]
    return [Record(topic, key, value, 0, START_MS + i) for i, (key, value) in enumerate(pairs)]


def segment_bytes(broker: Broker, size: int) -> Mapping[str, object]:
    """Return the topic config for a small segment; Kafka 4 has another name for those under 1 MiB."""
    return {"internal.segment.bytes" if broker.version >= "4" else "segment.bytes": size}


def wait_until_clean(broker: Broker, topic: str, partition: int = 0) -> None:
    """Wait until the cleaner has been through every segment but the active one, and its old files are gone."""
    directory = broker.log_dir / f"{topic}-{partition}"
    deadline = time.monotonic() + CLEAN_TIMEOUT_S
    while True:
        segments = sorted(int(path.stem) for path in directory.glob("*.log"))
        leftovers = [path for path in directory.iterdir() if path.suffix in (".deleted", ".cleaned", ".swap")]
        cleaned = _cleaner_offsets(broker).get((topic, partition), 0)
        if segments and cleaned >= segments[-1] > 0 and not leftovers:
            return
        if time.monotonic() > deadline:
            raise HarnessError(
                f"{topic}-{partition}: clean to {cleaned}, segments {segments}\n{broker.log_text()[-4000:]}"
            )
        time.sleep(0.2)


def wait_until_gone(broker: Broker, topic: str, partition: int = 0) -> None:
    """Wait until a deleted topic's directory has its other name, which it has for ``file.delete.delay.ms``."""
    deadline = time.monotonic() + CLEAN_TIMEOUT_S
    while (broker.log_dir / f"{topic}-{partition}").exists():
        if time.monotonic() > deadline:
            raise HarnessError(f"{topic}-{partition} is still there\n{broker.log_text()[-4000:]}")
        time.sleep(0.1)


def _cleaner_offsets(broker: Broker) -> dict[tuple[str, int], int]:
    path = broker.log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    rows = (line.split() for line in lines)
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
