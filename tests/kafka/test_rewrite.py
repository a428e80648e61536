"""Kafka's own reader of log files reads rewritten batches of every codec and magic, and finds the records that stay."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparklog.record.batches.framing import scan_headers
from tests.golden import golden_sets
from tests.kafka.dump import dump_log
from tests.oracle import decode_log
from tests.record.rewrite.test_batches import rewrite

pytestmark = pytest.mark.kafka


def test_kafka_dump_log_reads_every_rewritten_golden_segment(tmp_path: Path) -> None:
    wanted: dict[str, list[int]] = {}
    for golden in golden_sets():
        for segment in sorted(golden.log_dir.glob("*/*.log")):
            data = segment.read_bytes()
            data = data[: scan_headers(data).valid_bytes]
            batches = decode_log(data)
            records = [record for batch in batches for record in batch.records]
            is_control = [batch.is_control for batch in batches for _ in batch.records]
            if not records or segment.parent.name.startswith("__"):
                continue
            keep = [row % 4 > 0 or is_control[row] for row in range(len(records))]
            blank = [row % 4 == 2 and not is_control[row] for row in range(len(records))]
            name = f"{golden.name}.{segment.parent.name}/{segment.name}"
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            codec = "lz4" if len(wanted) % 2 else None
            path.write_bytes(rewrite(data, keep=keep, blank=blank, codec=codec))
            wanted[name] = [record.offset for record, is_kept in zip(records, keep, strict=True) if is_kept]
    assert len(wanted) > 20
    text = dump_log([tmp_path / name for name in wanted], root=tmp_path)
    parts = re.split(r"^Dumping (.*)$", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, offsets in wanted.items():
        part = found[name]
        assert "isvalid: false" not in part, name
        assert [int(offset) for offset in re.findall(r"^\|\s+offset: (\d+)", part, flags=re.MULTILINE)] == offsets, name
