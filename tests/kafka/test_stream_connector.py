"""What a stream of Spark's own Kafka connector reads from a broker, batch by batch, seglog reads from its directory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.beside_connector import TOPIC
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]


def lines_of(program: str, folder: Path) -> list[str]:
    """Return what a program prints that runs beside a broker."""
    connector_jars()
    with Broker.start(folder / "broker") as broker:
        broker.create_topic(TOPIC, partitions=3)
        command = [sys.executable, "-m", f"tests.kafka.{program}", str(broker.log_dir), broker.bootstrap]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()


def test_same_stream_gives_the_same_batches_as_the_connector(tmp_path: Path) -> None:
    lines = lines_of("streams_beside_connector", tmp_path)
    assert len(lines) == 30
    assert all(line.endswith("same") for line in lines)
    counts = dict(line.split(": [") for line in lines)
    assert counts["earliest, 1,700 a trigger"].startswith("1698, 1698, 1604]")
    assert counts["latest, all"].startswith("] by the connector, []")


def test_query_of_the_connector_is_taken_over_from_its_checkpoint(tmp_path: Path) -> None:
    """By both versions of Spark's offset log."""
    lines = lines_of("stream_taken_over", tmp_path)
    assert len(lines) == 2
    for version, line in enumerate(lines, 1):
        assert re.fullmatch(rf"v{version}: \[[1-9]\d*, [1-9]\d*, 5000\] rows, each once", line)
