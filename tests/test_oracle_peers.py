"""The oracle beside two decoders that others wrote.

What neither does is left out: LZ4 in magic 0, inner messages of another magic than their wrapper's, and timestamps
whose difference does not fit 64 bits.
"""

from __future__ import annotations

from typing import Any

from aiokafka.record import memory_records as aiokafka_records
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import memory_records as kafka_records

from tests import strategies
from tests.build import LEGACY_CODECS
from tests.oracle import OracleBatch, decode_log

TIMESTAMPS = st.just(-1) | st.integers(0, 2**62)
MAGIC_0_CODECS = [codec for codec in LEGACY_CODECS if not codec.startswith("lz4")]
BATCHES = st.one_of(
    strategies.v2_batches(timestamps=TIMESTAMPS),
    strategies.legacy_batches(timestamps=TIMESTAMPS, mixed_magic=False, magics=[0], codecs=MAGIC_0_CODECS),
    strategies.legacy_batches(timestamps=TIMESTAMPS, mixed_magic=False, magics=[1]),
    st.integers(0, 2**62).flatmap(lambda offset: strategies.control_batches(base_offset=offset)),
)


def assert_same(batch: OracleBatch, peer: Any) -> None:
    assert peer.validate_crc()
    # The peers take the header of a wrapper for that of a message.
    if batch.magic == 2:
        header = (batch.base_offset, batch.last_offset + 1, batch.is_transactional, batch.is_control)
        assert header == (peer.base_offset, peer.next_offset, peer.is_transactional, peer.is_control_batch)
        assert batch.producer_id == peer.producer_id
    rows = [
        (row.offset, -1 if row.timestamp is None else row.timestamp, row.key, row.value, list(row.headers))
        for row in peer
    ]
    assert rows == [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in batch.records]


@given(st.lists(BATCHES, max_size=3))
def test_kafka_python_reads_the_same(cases: list[tuple[bytes, OracleBatch]]) -> None:
    log = b"".join(data for data, _ in cases)
    records = kafka_records.MemoryRecords(log)
    for batch in decode_log(log):
        assert_same(batch, records.next_batch())
    assert not records.has_next()


# One batch at a time: aiokafka 0.14 misreads what follows where magic 2 and an older one share a buffer.
@given(BATCHES)
def test_aiokafka_reads_the_same(case: tuple[bytes, OracleBatch]) -> None:
    data, _ = case
    records = aiokafka_records.MemoryRecords(data)
    (batch,) = decode_log(data)
    assert_same(batch, records.next_batch())
    assert not records.has_next()
