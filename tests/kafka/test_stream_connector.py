"""What a stream of Spark's own Kafka connector reads from a broker, batch by batch, seglog reads from its directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.beside_connector import TOPIC
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]


def test_same_stream_gives_the_same_batches_as_the_connector(tmp_path: Path) -> None:
    connector_jars()
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, partitions=3)
        command = [sys.executable, "-m", "tests.kafka.streams_beside_connector", str(broker.log_dir), broker.bootstrap]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert len(lines) == 30
    assert all(line.endswith("same") for line in lines)
    counts = dict(line.split(": [") for line in lines)
    assert counts["earliest, 1,700 a trigger"].startswith("1698, 1698, 1604]")
    assert counts["latest, all"].startswith("] by the connector, []")
