"""Kernels on bytes that are no batches, compiled with bounds checks: no IndexError, no crash, no finding."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record import kernels
from sparklog.record.framing import scan_headers
from tests import build
from tests.build import Record

RANDOM_BYTES = """
import random, sys
import numpy as np
from sparklog.record import kernels, kernels_legacy, kernels_v2
from sparklog.record.framing import TABLE_FIELDS, scan_headers
from sparklog.record.rows import Columns

rng = random.Random(1)
for turn in range(4000):
    data = bytearray(rng.randbytes(rng.randint(0, 200)))
    if turn % 2:
        # Numbers of one byte lead further than random ones.
        data = bytearray(rng.choice([0, 1, 2, 3, 4, 10, 20, 200]) for _ in range(len(data)))
    buffer = np.frombuffer(bytes(data), np.uint8)
    kernels.scan(buffer, 0, np.zeros((4, TABLE_FIELDS), np.int64))
    table = np.array([[rng.choice([0, 1, 5, 40, 2**31 - 1, -1, 2**62, -2**63]) for _ in range(TABLE_FIELDS)]] * 3)
    table[:, 2] = rng.choice([0, 1, 2])
    table[:, 13] = rng.choice([0, 1, 2, 5])
    kernels.first_wrong_crc(buffer, table, rng.choice([0, 10, -10]))
    spans = np.sort(np.array([[rng.randint(-5, len(data) + 5) for _ in range(2)] for _ in range(3)]), axis=1)
    for decode in (kernels_v2.decode_records, kernels_legacy.decode_messages):
        bytes_max = rng.choice([1, 10, 100, 1000])
        columns = Columns(("key", "value", "headers"), rng.choice([1, 2, 100]), bytes_max, rng.choice([0, 1, 600]))
        cursor = np.zeros(kernels.CURSOR_FIELDS, np.int64)
        for _ in range(4):
            in_place = turn % 3 == 0
            status = decode(buffer, table, spans, 0, in_place, 0, 2**62, 7, bytes_max, cursor, columns.output)
            assert 0 <= status <= 20, status
            cursor[kernels.ROWS] = cursor[kernels.TAKEN_BYTES] = 0
            if status not in (kernels.OK, kernels.FULL):
                break
"""


def test_kernels_stay_in_their_bounds(pytestconfig: pytest.Config) -> None:
    # Kept from run to run, for as long as the kernels stay as they are: compiling takes longer than the test.
    sources = b"".join(path.read_bytes() for path in sorted(Path(kernels.__file__).parent.glob("kernels*.py")))
    cache = pytestconfig.cache.mkdir("bounds-checked-kernels") / f"{zlib.crc32(sources):08x}"
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    script = RANDOM_BYTES + "from tests.record.fuzz import run\nprint(run(3, seed=1))\n"
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=300)


@given(st.binary(max_size=5000), st.integers(0, 40))
def test_checksum_is_that_of_the_library(data: bytes, lead: int) -> None:
    batch = build.v2_batch([Record(0, 0, None, data * 3)]) + bytes(lead)
    headers = scan_headers(batch)
    buffer = np.frombuffer(batch, np.uint8)
    assert kernels.first_wrong_crc(buffer, headers.numbers, 0) == (1, 0)
    numbers = headers.numbers.copy()
    numbers[0, 4] ^= 1
    assert kernels.first_wrong_crc(buffer, numbers, 0) == (0, crc32c(batch[21 : len(batch) - lead]))
