"""``verify --deep`` finds no fault across the files of real brokers, however they end, and finds a lost partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.jobs.verifying import problems_across
from tests.kafka.broker import Broker
from tests.kafka.content import groups, records
from tests.kafka.jars import NEWEST, OLD

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_directory_of_a_broker_has_no_fault_across_its_files(tmp_path: Path, version: str) -> None:
    """While it runs, after topics were deleted and made again, killed, started again, and stopped."""
    # In one directory with the metadata log, as a broker has it that does not set this.
    properties = {"metadata.log.dir": None} if version == NEWEST else {}
    with Broker.start(tmp_path / "broker", version=version, properties=properties) as broker:
        broker.create_topic("cut", config={"segment.bytes" if version == OLD else "internal.segment.bytes": 4096})
        for turn in range(3):
            broker.create_topic("kept" if not turn else f"kept-{turn}", partitions=3)
            # A broker beside ZooKeeper takes long to forget a topic.
            passing = "passing" if version == NEWEST else f"passing-{turn}"
            broker.create_topic(passing, partitions=2)
            broker.produce(*groups(records(passing, 50, seed=turn), 9), *groups(records("cut", 80, seed=turn), 9))
            with broker.producer(transactional_id="writer") as writer:
                writer.begin()
                writer.send(*groups(records("kept", 12, seed=turn), 4))
                writer.commit()
            (end,) = broker.offsets("cut")
            broker.delete_records("cut", 0, end["end"] - 5)
            assert problems_across(broker.log_dir) == []
            broker.delete_topic(passing)
            assert problems_across(broker.log_dir) == []
            for step in (broker.kill, broker.restart):
                step()
                assert problems_across(broker.log_dir) == []
        # A broker that has just started knows its topics once it has served one.
        broker.produce(*groups(records("kept-1", 10), 5))
        broker.delete_topic("kept-1")
        broker.kill()
        assert problems_across(broker.log_dir) == []
        broker.restart()
        broker.stop()
        assert problems_across(broker.log_dir) == []
        if version == NEWEST:
            shutil.rmtree(broker.log_dir / "kept-0")
            assert ("error", "partition-missing", "kept-0") in problems_across(broker.log_dir)
