"""Decoding, compared with the slow oracle."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given

from sparklog.record.columns import decode_batches
from sparklog.record.framing import scan_headers
from sparklog.record.schema import RECORD_COLUMNS
from tests.oracle import OracleBatch
from tests.strategies import logs


def expected(batches: list[OracleBatch]) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": record.timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
            "sequence": record.sequence,
            "leader_epoch": batch.leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "is_transactional": batch.is_transactional,
            "compression": batch.codec,
            "magic": batch.magic,
            "position": batch.position,
        }
        for batch in batches
        if not batch.is_control
        for record in batch.records
    ]


def table_rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    """Decode data batches; timestamps are plain ms, since Python's own cannot hold every one of Kafka's."""
    headers = scan_headers(data)
    data_batches = headers.where(~headers.is_control)
    rows: list[dict[str, Any]] = []
    for batch in decode_batches(memoryview(data), data_batches, **options):
        table = pa.table(batch)
        where = table.schema.get_field_index("timestamp")
        if where >= 0:
            table = table.set_column(where, "timestamp", table["timestamp"].cast(pa.int64()))
        rows += table.to_pylist()
    return rows


@given(logs())
def test_any_log_decodes_as_the_oracle_says(drawn: tuple[bytes, list[OracleBatch]]) -> None:
    data, batches = drawn
    found = table_rows(data, columns=RECORD_COLUMNS)
    assert [{key: row[key] for key in want} for row, want in zip(found, expected(batches), strict=True)] == expected(
        batches
    )
