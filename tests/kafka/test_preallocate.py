"""A broker that makes its files longer beforehand is no damage to whoever looks at them meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import sparklog
from tests.kafka.broker import Broker
from tests.kafka.jars import NEWEST, OLD
from tests.kafka.test_verify import small, writing

pytestmark = pytest.mark.kafka

SECONDS = 15
LOOKS_MIN = 300


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_live_log_whose_files_are_preallocated_is_sound_to_every_look(tmp_path: Path, version: str) -> None:
    with Broker.start(tmp_path / "broker", version=version) as broker:
        broker.create_topic("events", config=small(broker, 1 << 20, preallocate="true"))
        folder, looks, read = broker.log_dir / "events-0", 0, 0
        with writing(broker, "events", compression_type="none"):
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                with sparklog.open_log(folder) as log:
                    assert log.end_offset >= read
                    if not looks % 10:
                        table = log.read(max(log.start_offset, log.end_offset - 200), columns=["offset"])
                        assert table.num_rows == min(200, log.end_offset - log.start_offset)
                    read = log.end_offset
                looks += 1
        assert looks > LOOKS_MIN
        assert read > 0
