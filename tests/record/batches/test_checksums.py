"""Checksums by the library, as on machines that are not x86: every test of decoding and encoding, through that path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pytest

from sparklog.errors import CorruptBatchError
from sparklog.record.batches import checksums
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import decode_batches
from sparklog.record.kernels import scan as kernels
from tests import build
from tests.build import Record
from tests.record.decode.test_columns import *  # noqa: F403
from tests.record.encode.test_batches import *  # noqa: F403

KERNEL = kernels.first_wrong_crc


@pytest.fixture(autouse=True, scope="module")
def checksums_by_the_library() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "IN_KERNELS", False)
        patch.setattr(kernels, "first_wrong_crc", None)
        yield


BATCHES = [build.v2_batch([Record(0, 0, b"k", bytes([n]) * 100)], base_offset=n) for n in range(3)]
BATCHES.append(build.v2_batch([Record(0, 0, b"k", b"v" * 100)], base_offset=3, codec="zstd"))
ENDS = list(accumulate(map(len, BATCHES)))


def test_library_finds_the_first_wrong_batch_as_the_kernel_does() -> None:
    whole = b"".join(BATCHES)
    assert checksums.first_wrong(np.frombuffer(whole, np.uint8), scan_headers(whole)) == (4, 0)
    for row in range(4):
        data = bytearray(whole)
        data[ENDS[row] - 1] ^= 1
        buffer, headers = np.frombuffer(bytes(data), np.uint8), scan_headers(bytes(data))
        assert checksums.first_wrong(buffer, headers) == KERNEL(buffer, headers.numbers, 0)
    cut, headers = np.frombuffer(whole[:-1], np.uint8), scan_headers(whole)
    assert checksums.first_wrong(cut, headers) == KERNEL(cut, headers.numbers, 0) == (3, -1)


def test_records_before_a_wrong_checksum_are_given_first() -> None:
    data = bytearray(b"".join(BATCHES))
    data[ENDS[1] - 1] ^= 1
    batches = decode_batches(memoryview(data), scan_headers(bytes(data)))
    assert next(batches).num_rows == 1
    with pytest.raises(CorruptBatchError, match="CRC-32C is"):
        next(batches)


ELSEWHERE = """
from sparklog.record.batches import checksums
from sparklog.record.kernels import crc as kernels_crc
assert kernels_crc.crc32c is kernels_crc.crc32c_by_tables
assert not checksums.IN_KERNELS
"""


def test_library_is_chosen_where_the_kernels_have_no_instruction() -> None:
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic"}
    subprocess.run([sys.executable, "-c", ELSEWHERE], check=True, env=environment, timeout=300)
