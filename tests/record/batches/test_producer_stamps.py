"""Producers that are written into encoded batches: the checksum is that of the bytes."""

from __future__ import annotations

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record.batches.framing import checksum_fault
from sparklog.record.batches.producer_stamps import CRC, CRC_AT, PRODUCER, PRODUCER_AT, checksums_with, stamp_in_memory
from sparklog.record.format import v2
from tests.build import Record, v2_batch

IDS = st.integers(0, (1 << 63) - 1)


@given(st.lists(st.tuples(st.binary(max_size=2000), IDS, st.integers(0, 32_767), st.integers(0, v2.SEQUENCE_MAX))))
def test_checksums_with_a_producer_are_those_of_the_bytes(cases: list[tuple[bytes, int, int, int]]) -> None:
    batches = [bytearray(v2_batch([Record(0, 0, None, value)], transactional=True)) for value, *_ in cases]
    crcs = np.array([CRC.unpack_from(batch, CRC_AT)[0] for batch in batches], dtype=np.uint32)
    stamps = [PRODUCER.pack(*fields) for _, *fields in cases]
    found = checksums_with(stamps, crcs, np.array([len(batch) for batch in batches]))
    for batch, stamp, crc in zip(batches, stamps, found, strict=True):
        stamp_in_memory(batch, 0, len(batch), stamp)
        assert checksum_fault(memoryview(batch)) is None
        assert batch[PRODUCER_AT : PRODUCER_AT + len(stamp)] == stamp
        assert CRC.unpack_from(batch, CRC_AT) == (crc,)


@pytest.mark.parametrize("batch_bytes", [57, 58, (1 << 20) + 3, (1 << 26) + 1])
def test_checksum_moves_over_any_number_of_bytes(batch_bytes: int) -> None:
    rest = bytes(batch_bytes - 57)
    before, after = (crc32c(bytes(22) + stamp + rest) for stamp in (PRODUCER.pack(-1, -1, -1), PRODUCER.pack(9, 8, 7)))
    assert checksums_with([PRODUCER.pack(9, 8, 7)], np.array([before]), np.array([batch_bytes])) == [after]
