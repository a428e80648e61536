"""Offsets and leader epochs are written where no checksum is over them, and nothing else is changed."""

from __future__ import annotations

import numpy as np

from sparklog.record.batches.framing import is_intact, scan_headers
from sparklog.record.batches.stamps import stamp_batches
from tests.build import Record, legacy_message, legacy_wrapper, v2_batch

SOME = [Record(n, 1000 + n, b"k", b"v%d" % n) for n in range(3)]
BATCHES = [
    v2_batch(SOME, base_offset=7, leader_epoch=3),
    legacy_message(10, b"k", b"v", magic=0),
    legacy_wrapper(SOME, base_offset=11),
    v2_batch(SOME, base_offset=14, last_offset_delta=9),
]


def test_stamped_batches_have_new_offsets_and_the_checksums_that_they_had() -> None:
    data = bytearray(b"".join(BATCHES))
    headers = scan_headers(memoryview(data))
    bases = np.array([1 << 40, 20, 21, 24])
    stamp_batches(
        np.frombuffer(data, np.uint8), headers.column("position"), headers.column("magic"), bases,
        np.array([(1 << 40) + 2, 20, 23, 33]), 5,
    )  # fmt: skip
    stamped = scan_headers(memoryview(data))
    assert stamped.column("last_offset").tolist() == [(1 << 40) + 2, 20, 23, 33]
    assert stamped.column("base_offset")[[0, 3]].tolist() == [1 << 40, 24]
    assert stamped.column("leader_epoch").tolist() == [5, -1, -1, 5]
    start = 0
    for batch in BATCHES:
        assert is_intact(memoryview(data)[start : start + len(batch)])
        changed_bytes = 16 if batch[16] == 2 else 8
        assert data[start + changed_bytes : start + len(batch)] == batch[changed_bytes:]
        assert data[start + 8 : start + 12] == batch[8:12]
        start += len(batch)
