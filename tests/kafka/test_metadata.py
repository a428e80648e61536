"""``partition.metadata``: what Kafka's own class reads of it, and we."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import CorruptCheckpointError
from sparklog.log.checkpoints import parse_topic_id
from tests.kafka.jars import HarnessError
from tests.kafka.tool import KafkaTool
from tests.log.test_checkpoints import METADATA, NOT_METADATA

pytestmark = pytest.mark.kafka


def test_kafka_reads_and_refuses_what_we_do(tmp_path: Path) -> None:
    tool, path = KafkaTool("127.0.0.1:1", tmp_path / "tool.log"), tmp_path / "partition.metadata"
    try:
        for text in METADATA:
            path.write_bytes(text.encode())
            assert tool.ask("topic_id", path=str(path))["topic_id"] == parse_topic_id(text.encode(), "x"), text
        for text in NOT_METADATA:
            path.write_bytes(text.encode())
            with pytest.raises(HarnessError):
                tool.ask("topic_id", path=str(path))
            with pytest.raises(CorruptCheckpointError):
                parse_topic_id(text.encode(), "x")
    finally:
        tool.kill()
