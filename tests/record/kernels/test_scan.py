"""Kernels on bytes that are no batches, compiled with bounds checks: no IndexError, no crash, no finding."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from sparklog.record.batches.framing import scan_headers
from sparklog.record.kernels import crc as kernels_crc
from sparklog.record.kernels import scan as kernels
from tests import build
from tests.build import Record

RANDOM_BYTES = """
import random, sys
import numpy as np
from sparklog.log.filters.where_parser import parse_where
from sparklog.record.kernels import scan as kernels
from sparklog.record.kernels import legacy as kernels_legacy
from sparklog.record.kernels import v2 as kernels_v2
from sparklog.record.batches.framing import scan_headers
from sparklog.record.format.headers import TABLE_FIELDS
from sparklog.record.decode.where_program import program_of
from sparklog.record.decode.arrow import ColumnBuffers as Columns
from sparklog.record.codecs.many_streams import many_into
from tests import build

STREAMS = {codec_id: build.compress(codec, b"abc" * 30) for codec_id, codec in ((2, "snappy"), (3, "lz4"), (4, "zstd"))}
TEXT = "headers[''] = '' OR NOT (key contains X'0000' OR value > X'01' AND NOT headers[''] endsWith X'0a')"
FILTER = program_of(parse_where(TEXT).tree)
rng = random.Random(1)
for turn in range(4000):
    data = bytearray(rng.randbytes(rng.randint(0, 200)))
    if turn % 2:
        # Numbers of one byte lead further than random ones.
        data = bytearray(rng.choice([0, 1, 2, 3, 4, 10, 20, 200]) for _ in range(len(data)))
    buffer = np.frombuffer(bytes(data), np.uint8)
    kernels.scan(buffer, 0, 0, np.zeros((4, TABLE_FIELDS), np.int64))
    table = np.array([[rng.choice([0, 1, 5, 40, 2**31 - 1, -1, 2**62, -2**63]) for _ in range(TABLE_FIELDS)]] * 3)
    table[:, 2] = rng.choice([0, 1, 2])
    table[:, 13] = rng.choice([0, 1, 2, 5])
    kernels.first_wrong_crc(buffer, table, rng.choice([0, 10, -10]))
    spans = np.sort(np.array([[rng.randint(-5, len(data) + 5) for _ in range(2)] for _ in range(3)]), axis=1)
    starts = np.sort(np.array([rng.randint(-5, len(data) + 5) for _ in range(4)]))
    for codec_id, stream in STREAMS.items():
        flipped = bytearray(stream)
        flipped[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
        octets = np.frombuffer(rng.choice([stream, bytes(flipped)]) + data, np.uint8)
        ends = np.sort(np.array([len(stream), *(rng.randint(-5, len(octets) + 5) for _ in range(3))]))
        target, filled = np.empty(200, np.uint8), rng.choice([0, 1, 250])
        many_into(codec_id)(octets, np.append(0, starts[:3]), ends, target, filled, 150)
    for decode, *filter in (
        (kernels_v2.decode_records,),
        (kernels_legacy.decode_messages,),
        (kernels_v2.decode_records, FILTER),
        (kernels_legacy.decode_messages, FILTER),
    ):
        bytes_max = rng.choice([1, 10, 100, 1000])
        columns = Columns(("key", "value", "headers"), rng.choice([1, 2, 100]), bytes_max, rng.choice([0, 1, 600]))
        cursor = np.zeros(kernels.CURSOR_FIELDS, np.int64)
        for _ in range(4):
            in_place = turn % 3 == 0
            of_table = spans[: rng.choice([0, 3])], 0, 3, rng.choice([0, 10, -10])
            status = decode(buffer, table, *of_table, in_place, 0, 2**62, 7, bytes_max, cursor, columns.output, *filter)
            assert 0 <= status <= 20, status
            cursor[kernels.ROWS] = cursor[kernels.TAKEN_BYTES] = 0
            if status not in (kernels.OK, kernels.FULL):
                break
"""


def test_kernels_stay_in_their_bounds() -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
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


@pytest.mark.parametrize(
    ("named", "of_host", "has_it"),
    [
        (None, "+sse4.1,+sse4.2,+avx", True),
        (None, "+sse4.1,-sse4.2", False),
        (None, "", False),
        ("", "+sse4.2", False),
        ("+avx", "+sse4.2", False),
        ("+sse4.2", "", True),
    ],
)
def test_features_that_the_user_names_to_numba_count_before_those_of_the_host(
    named: str | None, of_host: str, has_it: bool
) -> None:
    assert kernels_crc.has_crc32c_instruction(named, of_host) == has_it


@njit
def crc32c_by_tables(buffer: Any, position: int) -> Any:
    """Make the step one that a test can call."""
    return kernels_crc.crc32c_by_tables(buffer, position, buffer.shape[0])


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 9))
def test_checksum_by_tables_is_that_of_the_library(data: bytes, position: int) -> None:
    position = min(position, len(data))
    assert crc32c_by_tables(np.frombuffer(data, np.uint8), position) == crc32c(data[position:])


ON_ANY_PROCESSOR = """
from sparklog.record.kernels import scan as kernels
from sparklog.record.kernels import crc as kernels_crc
from sparklog.record.batches.framing import scan_headers
from tests import build
import numpy as np

assert kernels_crc.crc32c is kernels_crc.crc32c_by_tables
batch = build.v2_batch([build.Record(0, 0, None, bytes(range(256)) * 20)])
assert kernels.first_wrong_crc(np.frombuffer(batch, np.uint8), scan_headers(batch).numbers, 0) == (1, 0)
"""


def test_kernels_that_are_compiled_for_any_processor_check_by_tables() -> None:
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic"}
    subprocess.run([sys.executable, "-c", ON_ANY_PROCESSOR], check=True, env=environment, timeout=300)
