"""What Spark's own Kafka connector reads from a broker, seglog reads from its directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.beside_connector import ROWS, TOPIC
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]


def test_same_query_gives_the_same_rows_as_the_connector(tmp_path: Path) -> None:
    connector_jars()  # Fetched here, where they may take their time.
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, partitions=3)
        command = [sys.executable, "-m", "tests.kafka.beside_connector", str(broker.log_dir), broker.bootstrap]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert lines[0] == f"all: {ROWS} rows by the connector, {ROWS} by seglog, same"
    assert len(lines) == 11
    nothing = [line for line in lines if " 0 rows" in line]
    assert nothing == ["after the last: 0 rows by the connector, 0 by seglog, same"]
