"""What a real cleaner leaves of a batch is taken for the same batch, and another log's is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.log.layout import batch_holding, read_layout
from sparklog.log.log_identity import EndBatch, end_batch
from tests.kafka.broker import Broker
from tests.kafka.content import groups, records, segment_bytes, wait_until_clean
from tests.kafka.jars import NEWEST, OLD
from tests.places import folder_at

pytestmark = pytest.mark.kafka

TOPIC, AGAIN = "cleaned", "again"
EAGER = {"log.cleaner.backoff.ms": 50, "log.initial.task.delay.ms": 100}


def found_in(broker: Broker, topic: str = TOPIC) -> dict[int, tuple[EndBatch, int]]:
    """Return for each end offset the batch before it, and its checksum."""
    layout = read_layout(folder_at(broker.log_dir / f"{topic}-0"))
    found = {}
    for offset in range(1, layout.end_offset + 1):
        batch, header = end_batch(layout, offset), batch_holding(layout, offset - 1)
        if batch is not None and header is not None:
            found[offset] = batch, int(header.column("crc")[0])
    return found


def write(broker: Broker, seed: int, topic: str = TOPIC) -> None:
    """Write records of few keys, tombstones, and transactions that end either way."""
    made = [replace(each, topic=topic) for each in records(TOPIC, 300, seed=seed, keys=30)]
    deleted = [replace(each, value=None) if row % 11 == 0 else each for row, each in enumerate(made)]
    broker.produce(*groups(deleted[:150], 7), compression_type="lz4")
    with broker.producer(transactional_id=f"writer-{seed}") as writer:
        for turn in range(4):
            writer.begin()
            writer.send(*groups(deleted[150 + 25 * turn : 175 + 25 * turn], 5))
            writer.abort() if turn % 2 else writer.commit()
    broker.produce(*groups(deleted[250:], 9))


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_batch_that_was_cleaned_may_be_what_it_was(tmp_path: Path, version: str) -> None:
    with Broker.start(tmp_path / "broker", version=version, properties=EAGER) as broker:
        lazy = {**segment_bytes(broker, 8192), "cleanup.policy": "compact", "min.compaction.lag.ms": 3_600_000_000}
        config = {**lazy, "min.cleanable.dirty.ratio": 0.001, "delete.retention.ms": 0, "file.delete.delay.ms": 300}
        broker.create_topic(TOPIC, config=config)
        write(broker, 1)
        before = found_in(broker)
        broker.alter_topic(TOPIC, {**config, "min.compaction.lag.ms": 0})
        write(broker, 2)
        wait_until_clean(broker, TOPIC)
        after = found_in(broker)
        both = before.keys() & after.keys()
        # Many batches are gone, some have lost records, and none is taken for another.
        assert len(both) < len(before)
        assert any(before[offset][1] != after[offset][1] for offset in both)
        assert all(before[offset][0].may_become(after[offset][0]) for offset in both)
        broker.create_topic(AGAIN, config=lazy)
        write(broker, 1, AGAIN)
        again = found_in(broker, AGAIN)
        # The same records in the same batches, of which those without a producer's id cannot be told apart.
        same = [again[offset][0] for offset in both & again.keys() if before[offset][0].may_become(again[offset][0])]
        assert all(batch.producer_id < 0 for batch in same)
