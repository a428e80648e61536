"""A broker adopts copies of a directory that was written, cleaned, erased and cut at random, and serves what is right.

The walk is that of `tests.cleaner.life`, whose model says what a consumer is given at both isolation levels.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.cleaner.life import LEVELS, PARTITIONS, TOPIC, Content, Life, Told, step
from tests.golden import decoded
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker
from tests.kafka.content import segment_bytes

pytestmark = pytest.mark.kafka

STEPS = 200
ADOPTED_EVERY = 20
CONFIG = {"retention.ms": -1, "cleanup.policy": "delete", "max.message.bytes": 600}


def consumed(broker: Broker, level: str) -> dict[int, list[Told]]:
    found: dict[int, list[Told]] = {number: [] for number in PARTITIONS}
    for row in map(decoded, broker.consume(TOPIC, isolation=level)):
        headers = tuple(map(tuple, row["headers"]))
        found[row["partition"]].append((row["offset"], row["timestamp"], row["key"], row["value"], headers))
    return found


@pytest.mark.parametrize("seed", [1])
def test_broker_adopts_a_life_every_20_steps(seed: int, tmp_path: Path) -> None:
    rng, life = random.Random(seed), Life(tmp_path / "logs")
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, partitions=len(PARTITIONS), config={**CONFIG, **segment_bytes(broker, 700)})
        broker.stop()
        for number in range(1, STEPS + 1):
            step(life, rng)
            life.check()
            if number % ADOPTED_EVERY == 0:
                # Half of the times it goes through every batch, and makes the indexes again.
                check_adopted(broker, life, trust_indexes=number % (2 * ADOPTED_EVERY) == 0)


def check_adopted(broker: Broker, life: Life, *, trust_indexes: bool) -> None:
    for number in PARTITIONS:
        if life.ends_in_a_gap(number):
            # A consumer would wait there for what was cut off.
            life.append(number, [Content()], "uncompressed")
    logged = len(broker.complaints())
    with adoption(broker, trust_indexes=trust_indexes) as adopt:
        for number, model in life.partitions.items():
            adopt(TOPIC, number, life.folder(number), log_start_offset=model.start)
    broker.restart()
    bounds = {row["partition"]: (row["beginning"], row["end"]) for row in broker.offsets(TOPIC)}
    assert bounds == {number: (model.start, model.end) for number, model in life.partitions.items()}
    for level in LEVELS:
        served = consumed(broker, level)
        for number, model in life.partitions.items():
            stable_offset = None
            if level == "read_committed":
                # That a transaction is open of which no batch is left, is known by a snapshot alone.
                stable_offset = life.stable_offset(number) if trust_indexes else life.stable_offset_of_batches(number)
            assert served[number] == model.told(stable_offset), (life.history, number, level)
    broker.stop()
    assert broker.complaints()[logged:] == [], life.history
